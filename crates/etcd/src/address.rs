//! Where an etcd is, as an administrator writes it: `etcd://h1:2379,h2:2379/prefix`. Where commas part options (mount -o, the table
//! of mounts), members may be parted by `+`.

use std::fmt;
use std::str::FromStr;

/// The keys' prefix, if the address names none.
const PREFIX: &str = "chiton";
const PORT: u16 = 2379;

/// The members of an etcd, and the prefix below which a cluster has its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAddress {
    /// `HOST:PORT` each.
    pub members: Vec<String>,
    pub prefix: String,
}

impl EtcdAddress {
    pub const SCHEME: &str = "etcd://";
}

impl FromStr for EtcdAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<EtcdAddress, String> {
        let wanted =
            "write etcd://HOST:PORT,HOST:PORT, with /PREFIX behind it if several clusters share an etcd";
        let rest = text
            .strip_prefix(EtcdAddress::SCHEME)
            .ok_or_else(|| format!("not an etcd's address: {wanted}"))?;
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
        let is_odd = |c: char| c.is_whitespace() || c.is_control();
        let members = || members.split([',', '+']);
        if members().any(str::is_empty) || members().any(|member| member.contains(is_odd)) {
            return Err(format!("a member has no name: {wanted}"));
        }
        let prefix = prefix.trim_end_matches('/');
        if prefix.is_empty() || prefix.contains(is_odd) {
            return Err(format!("the prefix is empty or has blanks: {wanted}"));
        }
        let member = |member: &str| {
            let port = member.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.ends_with(':'));
            match port {
                Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(member.to_owned()),
                Some((host, port)) if !host.starts_with('[') || host.ends_with(']') => {
                    Err(format!("{port} is not a port: {wanted}"))
                }
                _ => Ok(format!("{member}:{PORT}")),
            }
        };
        let members = members().map(member).collect::<Result<_, _>>()?;
        Ok(EtcdAddress { members, prefix: prefix.to_owned() })
    }
}

impl EtcdAddress {
    /// The same without commas.
    pub fn without_commas(&self) -> String {
        format!("{}{}/{}", EtcdAddress::SCHEME, self.members.join("+"), self.prefix)
    }
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", EtcdAddress::SCHEME, self.members.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_odd_ones_refused() {
        let parse = |text: &str| text.parse::<EtcdAddress>().map(|address| address.to_string());
        for (text, full) in [
            ("etcd://h1:2379,h2:2380", "etcd://h1:2379,h2:2380/chiton"),
            ("etcd://h1,h2", "etcd://h1:2379,h2:2379/chiton"),
            ("etcd://h1+h2:1/c", "etcd://h1:2379,h2:1/c"),
            ("etcd://[::1]:2379/a/b/", "etcd://[::1]:2379/a/b"),
            ("etcd://[::1]", "etcd://[::1]:2379/chiton"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(full), "{text}");
            assert_eq!(parse(full).as_deref(), Ok(full));
        }
        for odd in [
            "h1:2379",
            "etcd://",
            "etcd://a,,b",
            "etcd://a:x",
            "etcd://a:0",
            "etcd://a:99999",
            "etcd://a/",
            "etcd://a b",
        ] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }
}
