//! `chiton ls`.

use std::collections::BTreeMap;

use chiton_client::Client;
use chiton_model::text::utc;
use chiton_trees::{Place, Seen, scan};
use chiton_types::{Attr, Ino, Kind};
use clap::Args;
use serde_json::{Value, json};

use super::Paths;
use super::place;
use super::report::{AGAIN, Report};
use super::users::Users;
use crate::failure::Outcome;

/// Symbolic links whose targets are asked for at once.
const LINKS_AHEAD: usize = 64;

#[derive(Debug, Args)]
#[command(
    after_help = "Names of one directory are sorted by their bytes. Times are UTC. With --json each name is a line of its own.\n\nExamples:\n  chiton ls -l /mnt/chiton/home\n  chiton ls -ld /mnt/chiton/home\n  chiton ls -a --json --server tcp:server:7117 /"
)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) paths: Paths,
    /// Show mode, names, owner, group, size, time, and where symbolic links lead.
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Show names that begin with a dot, too.
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Show directories themselves, not the names in them.
    #[arg(long, short)]
    pub(crate) directory: bool,
}

pub(crate) fn ls(args: &Ls) -> Outcome {
    let Paths { paths, at } = &args.paths;
    let (client, said) = place::open(at, paths, "ls")?;
    let mut report = Report::begin("listed", at.json)?;
    let users = Users::read();
    let mut is_first = true;
    for said in &said {
        let place = match said.place(&client) {
            Ok(place) => place,
            Err(failure) => {
                report.failed(failure);
                continue;
            }
        };
        let is_listed = place.attr.kind == Kind::Dir && !args.directory;
        let names = match is_listed {
            true => names_in(&client, &place, args.all, &mut report),
            false => BTreeMap::from([(place.path.clone(), place.attr.clone())]),
        };
        if is_listed && paths.len() > 1 && !at.json {
            let gap = if is_first { "" } else { "\n" };
            println!("{gap}{}:", said.path.display());
        }
        is_first = false;
        print(args, &client, &users, &names);
    }
    report.result("some of the names are missing", AGAIN)
}

/// The names in a directory with their attributes.
fn names_in(client: &Client, place: &Place, all: bool, report: &mut Report) -> BTreeMap<Vec<u8>, Attr> {
    let mut names = BTreeMap::new();
    let mut see = |seen: &Seen<'_>| {
        if seen.depth == 1 && (all || !seen.name.starts_with(b".")) {
            names.insert(seen.name.to_vec(), seen.attr.clone());
        }
        seen.depth == 0
    };
    scan(client, std::slice::from_ref(place), &mut see, report);
    names
}

fn print(args: &Ls, client: &Client, users: &Users, names: &BTreeMap<Vec<u8>, Attr>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !args.long && !args.paths.at.json {
        names.keys().for_each(|name| println!("{}", text(name)));
        return;
    }
    let targets = targets(client, names.values());
    let target = |attr: &Attr| targets.get(&attr.ino).map(Vec::as_slice);
    if args.paths.at.json {
        for (name, attr) in names {
            println!("{}", line(&text(name), attr, target(attr).map(text)));
        }
        return;
    }
    let rows: Vec<[String; 5]> = names
        .values()
        .map(|attr| {
            let (nlink, owner, group) = (attr.nlink.to_string(), users.user(attr.uid), users.group(attr.gid));
            let size = match attr.kind {
                Kind::Char | Kind::Block => {
                    let device = u64::from(attr.rdev);
                    format!("{},{}", rustix::fs::major(device), rustix::fs::minor(device))
                }
                _ => attr.size.to_string(),
            };
            [mode(attr), nlink, owner, group, size]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (nlinks, owners, groups, sizes) = (width(1), width(2), width(3), width(4));
    for ((name, attr), [mode, nlink, owner, group, size]) in names.iter().zip(&rows) {
        let time: String = utc(attr.mtime).chars().take(16).collect();
        let arrow = target(attr).map_or(String::new(), |target| format!(" -> {}", text(target)));
        println!(
            "{mode} {nlink:>nlinks$} {owner:<owners$} {group:<groups$} {size:>sizes$} {} {}{arrow}",
            time.replace('T', " "),
            text(name)
        );
    }
}

/// Where symbolic links lead, many questions under way at once. A link that is gone meanwhile leads nowhere.
fn targets<'a>(client: &Client, attrs: impl Iterator<Item = &'a Attr>) -> BTreeMap<Ino, Vec<u8>> {
    let links: Vec<Ino> = attrs.filter(|attr| attr.kind == Kind::Symlink).map(|attr| attr.ino).collect();
    let caller = client.caller();
    let mut targets = BTreeMap::new();
    for some in links.chunks(LINKS_AHEAD) {
        let asked: Vec<_> = some.iter().map(|ino| client.start_readlink(&caller, *ino)).collect();
        let answered = some.iter().zip(asked);
        targets.extend(answered.filter_map(|(ino, target)| Some((*ino, target.wait().ok()?))));
    }
    targets
}

/// `drwxr-xr-x`.
fn mode(attr: &Attr) -> String {
    let bits = attr.mode.0;
    let kind = match attr.kind {
        Kind::File => '-',
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Char => 'c',
        Kind::Block => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let rights = bits >> shift;
        text.push(if rights & 4 != 0 { 'r' } else { '-' });
        text.push(if rights & 2 != 0 { 'w' } else { '-' });
        text.push(match (rights & 1 != 0, bits & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// An inode in JSON.
pub(super) fn line(path: &str, attr: &Attr, target: Option<String>) -> Value {
    let mut line = json!({
        "path": path,
        "type": chiton_model::text::kind_name(attr.kind),
        "mode": format!("{:04o}", attr.mode.0),
        "links": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "bytes": attr.size,
        "mtime_ns": attr.mtime.0,
        "inode": attr.ino.0,
    });
    if let Some(target) = target {
        line["target"] = json!(target);
    }
    line
}

#[cfg(test)]
mod tests {
    use chiton_types::{Mode, Position, Time};

    use super::*;

    #[test]
    fn modes_are_shown_as_ls_does() {
        let check = |kind, bits, expect: &str| {
            let attr = Attr {
                ino: Ino(1),
                kind,
                mode: Mode(bits),
                nlink: 1,
                uid: 0,
                gid: 0,
                rdev: 0,
                size: 0,
                allocated: 0,
                atime: Time(0),
                mtime: Time(0),
                ctime: Time(0),
                btime: Time(0),
                parent: Ino(1),
                flags: 0,
                position: Position(0),
            };
            assert_eq!(mode(&attr), expect);
        };
        check(Kind::Dir, 0o755, "drwxr-xr-x");
        check(Kind::File, 0o4640, "-rwSr-----");
        check(Kind::Dir, 0o1777, "drwxrwxrwt");
        check(Kind::Symlink, 0o2010, "l-----s---");
    }
}
