//! Names of users and groups, as /etc/passwd and /etc/group of this machine have them.

use std::collections::BTreeMap;

/// Numbers and names. A number without a name is shown as it is.
#[derive(Default)]
pub(super) struct Users {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Users {
    pub(super) fn read() -> Users {
        let read = |path| std::fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
        let (passwd, group) = (read("/etc/passwd"), read("/etc/group"));
        // Without them there are numbers.
        Users { users: names(&passwd.unwrap_or_default()), groups: names(&group.unwrap_or_default()) }
    }

    pub(super) fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    pub(super) fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }

    /// `OWNER`, `OWNER:GROUP`, `OWNER:` or `:GROUP`, by name or number.
    pub(super) fn parse(&self, text: &str) -> Result<(Option<u32>, Option<u32>), String> {
        let (owner, group) = match text.split_once(':') {
            Some((owner, group)) => (owner, Some(group)),
            None => (text, None),
        };
        let find = |names: &BTreeMap<u32, String>, name: &str, what| match name {
            "" => Ok(None),
            name => names
                .iter()
                .find(|(_, known)| *known == name)
                .map(|(number, _)| *number)
                .or_else(|| name.parse().ok())
                .map(Some)
                .ok_or_else(|| {
                    format!("no {what} {name:?} on this machine: name one of /etc/{what}, or its number")
                }),
        };
        let owner = find(&self.users, owner, "passwd")?;
        let group = group.map_or(Ok(None), |group| find(&self.groups, group, "group"))?;
        if owner.is_none() && group.is_none() {
            return Err("write OWNER, OWNER:GROUP or :GROUP".to_owned());
        }
        Ok((owner, group))
    }
}

fn names(table: &str) -> BTreeMap<u32, String> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    table.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_numbers() {
        let users = Users {
            users: names("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"),
            groups: names("root:x:0:\nstaff:x:50:alice\n"),
        };
        let check = |text: &str, expect: Option<(Option<u32>, Option<u32>)>| {
            assert_eq!(users.parse(text).ok(), expect, "{text}");
        };
        check("alice", Some((Some(1000), None)));
        check("alice:staff", Some((Some(1000), Some(50))));
        check("7:8", Some((Some(7), Some(8))));
        check(":staff", Some((None, Some(50))));
        check("root:", Some((Some(0), None)));
        check("nobody", None);
        check(":", None);
        assert_eq!((users.user(1000), users.group(9)), ("alice".to_owned(), "9".to_owned()));
    }
}
