//! Commands of end-users on the files of a directory: ls, stat and touch.

use chiton_client::{Client, Lookup};
use chiton_model::{AttrChange, SetTime};
use chiton_types::{Ino, Refusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// `ls`: the names.
    List,
    /// `stat *`: the names, then the attributes of each.
    Stat,
    /// `touch *`: the names, then each is looked up and its times are set to now.
    Touch,
}

/// Entries in one request.
const PAGE: u32 = 1_000;

impl Walk {
    /// Runs the command on the files that exist when it begins, until `over` returns true; returns the number of
    /// files.
    pub(crate) fn run(self, client: &Client, dir: Ino, over: &dyn Fn() -> bool) -> Result<u64, Refusal> {
        let caller = client.caller();
        let names = list(client, dir)?;
        if self == Walk::List {
            return Ok(names.len() as u64);
        }
        let mut done = 0;
        for name in names {
            if over() {
                break;
            }
            let Lookup::Found { attr, .. } = client.lookup(&caller, dir, &name)? else { continue };
            if self == Walk::Touch {
                let times = AttrChange {
                    atime: Some(SetTime::Now),
                    mtime: Some(SetTime::Now),
                    ..AttrChange::default()
                };
                client.setattr(&caller, attr.ino, times, None)?;
            }
            done += 1;
        }
        Ok(done)
    }
}

/// The names in a directory, as readdir(3) gives them.
fn list(client: &Client, dir: Ino) -> Result<Vec<Vec<u8>>, Refusal> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let (page, end) = client.readdir(&client.caller(), dir, cookie, PAGE, false)?;
        let Some(last) = page.last() else { return Ok(names) };
        cookie = last.cookie;
        names.extend(page.iter().map(|entry| entry.name.as_bytes().to_vec()));
        if end {
            return Ok(names);
        }
    }
}
