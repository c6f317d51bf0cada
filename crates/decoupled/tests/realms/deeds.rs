//! Deeds of one side in words, and the tree that comes of them in a line, for tables that people read.

use chiton_client::Client;
use chiton_model::{AttrChange, RenameHow, SetTime, XattrHow};
use chiton_types::{Ino, Kind, Mode, Refusal, Time};

fn place<'a>(client: &Client, path: &'a str) -> (Ino, &'a [u8]) {
    let (dir, name) = path.rsplit_once('/').expect("an absolute path");
    (client.stat(format!("{dir}/")).expect("there").ino, name.as_bytes())
}

fn symlink(client: &Client, path: &str, target: &str) -> Result<(), Refusal> {
    let (dir, name) = place(client, path);
    client.symlink(&client.caller(), dir, name, target.as_bytes()).map(drop)
}

/// Does one thing after the other below a directory: `put f content`, `write f content` (in place), `save f content` (by a
/// rename), `chmod f 700`, `touch f 5`, `tag f value`, `ln f g`, `mv f g`, `swap f g`, `rm f`, `mkdir d`, `symlink l target`,
/// `relink l target` (by a rename), `fifo p`, `device p 5`.
pub(crate) fn act(client: &Client, at: &str, deeds: &[&str]) {
    for deed in deeds {
        let words: Vec<&str> = deed.split(' ').collect();
        let (verb, last) = (words[0], words.last().copied().unwrap_or_default());
        let (path, other) = (format!("{at}/{}", words[1]), format!("{at}/{last}"));
        let caller = client.caller();
        let node = |kind: Kind, rdev: u32| {
            let (dir, name) = place(client, &path);
            client.mknod(&caller, dir, name, kind, Mode(0o644), rdev).map(drop)
        };
        let set = |change: AttrChange| client.set_attr_path(&path, change).map(drop);
        let done = match verb {
            "put" => client.create_file(&path, last.as_bytes()).map(drop),
            "write" => client.write_file(&path, last.as_bytes()),
            "save" => {
                let made = client.create_file(format!("{path}.new"), last.as_bytes());
                made.and_then(|_| client.rename_path(format!("{path}.new"), &path))
            }
            "chmod" => {
                let mode = Mode(u16::from_str_radix(last, 8).expect("an octal number"));
                set(AttrChange { mode: Some(mode), ..AttrChange::default() })
            }
            "touch" => {
                let time = Some(SetTime::At(Time(last.parse().expect("a number"))));
                set(AttrChange { atime: time, mtime: time, ..AttrChange::default() })
            }
            "tag" => {
                let ino = client.stat(&path).expect("there").ino;
                client.setxattr(&caller, ino, b"user.tag", last.as_bytes(), XattrHow::Set)
            }
            "ln" => {
                let (dir, name) = place(client, &other);
                client.link(&caller, client.lstat(&path).expect("there").ino, dir, name).map(drop)
            }
            "mv" => client.rename_path(&path, &other),
            "swap" => {
                let ((from, one), (to, two)) = (place(client, &path), place(client, &other));
                client.rename(&caller, from, one, to, two, RenameHow::Exchange)
            }
            "rm" => client.remove(&path),
            "mkdir" => client.mkdir_all(&path).map(drop),
            "symlink" => symlink(client, &path, last),
            "relink" => {
                let made = symlink(client, &format!("{path}.new"), last);
                made.and_then(|()| client.rename_path(format!("{path}.new"), &path))
            }
            "fifo" => node(Kind::Fifo, 0),
            "device" => node(Kind::Char, last.parse().expect("a number")),
            verb => panic!("no verb: {verb}"),
        };
        assert_eq!(done, Ok(()), "{deed}");
    }
}

/// The tree below a directory: `d/`, `f=content`, `l->target`, `p|`; behind it ` 700` if that is its mode.
pub(crate) fn shown(client: &Client, at: &str) -> String {
    let mut lines = Vec::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in client.list(format!("{at}/{dir}")).expect("a directory") {
            let path = format!("{dir}{}", entry.name);
            let attr = client.lstat(format!("{at}/{path}")).expect("there");
            let mode = if attr.mode == Mode(0o700) { " 700" } else { "" };
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
            let is = match attr.kind {
                Kind::File => {
                    format!("={}", text(client.read_file(format!("{at}/{path}")).expect("read")))
                }
                Kind::Symlink => format!("->{}", text(client.readlink(attr.ino).expect("a target"))),
                Kind::Dir => "/".to_owned(),
                Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => "|".to_owned(),
            };
            lines.push((path.clone(), format!("{path}{is}{mode}")));
            if attr.kind == Kind::Dir {
                dirs.push(format!("{path}/"));
            }
        }
    }
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join(", ")
}
