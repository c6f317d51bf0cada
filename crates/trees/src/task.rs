//! A command on whole trees as a value: it is carried out here, or sent to a server that carries it out as a job.

use chiton_client::Client;
use chiton_model::AttrChange;
use chiton_types::{Attr, Ino, Kind, Mode, Name, Refusal, Time};
use serde_json::{Value, json};

use crate::{
    Changed, Conditions, Copied, Found, ModeChange, Place, Refused, Removed, Searched, Usage, Watch, change,
    copy, find, remove_each, resume_copy, usage,
};

/// A file or directory at which a task begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The path as messages show it, and as the paths of a search begin.
    pub path: Vec<u8>,
    pub ino: Ino,
}

impl From<&Place> for Subject {
    fn from(place: &Place) -> Subject {
        Subject { path: place.path.clone(), ino: place.attr.ino }
    }
}

/// A copy to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copying {
    pub from: Subject,
    /// The directory of the copy.
    pub into: Ino,
    /// Name of the copy in the directory `into`.
    pub name: Name,
    /// When it was begun, if it was cut off: see [`crate::resume_copy`].
    pub since: Option<Time>,
}

/// A name to remove, with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    pub subject: Subject,
    /// The directory that holds the name.
    pub parent: Ino,
    pub name: Name,
}

impl Removal {
    /// Of a place; none of the root of the file system, which stays.
    pub fn of(place: &Place) -> Option<Removal> {
        let (parent, name) = place.name.clone()?;
        Some(Removal { subject: Subject::from(place), parent, name })
    }
}

/// A command on whole trees, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// `chiton chmod`.
    Chmod {
        /// The files and directories at which it begins.
        subjects: Vec<Subject>,
        /// Everything below them is changed, too.
        recursive: bool,
        mode: ModeChange,
        /// The umask of the user who asks.
        umask: u16,
    },
    /// `chiton chown`.
    Chown {
        /// The files and directories at which it begins.
        subjects: Vec<Subject>,
        /// Everything below them is changed, too.
        recursive: bool,
        /// The new owner; `None` keeps the present one.
        uid: Option<u32>,
        /// The new group; `None` keeps the present one.
        gid: Option<u32>,
    },
    /// `chiton cp -r`.
    Copy(Vec<Copying>),
    /// `chiton du`.
    Usage {
        /// The files and directories at which it begins.
        subjects: Vec<Subject>,
        /// Directories down to this depth have totals of their own.
        depth: usize,
    },
    /// `chiton rm -r --each`: name by name.
    Remove(Vec<Removal>),
    /// `chiton find`.
    Find {
        /// The files and directories at which it begins.
        subjects: Vec<Subject>,
        /// Which names are found.
        conditions: Conditions,
    },
}

/// The totals of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Totals {
    /// Of [`Task::Chmod`] and [`Task::Chown`].
    Changed(Changed),
    /// Of [`Task::Copy`].
    Copied(Copied),
    /// Of [`Task::Usage`].
    Usage(Vec<Usage>),
    /// Of [`Task::Remove`].
    Removed(Removed),
    /// Of [`Task::Find`].
    Searched(Searched),
}

impl Task {
    /// The command that does the same.
    pub fn kind(&self) -> &'static str {
        match self {
            Task::Chmod { .. } => "chmod",
            Task::Chown { .. } => "chown",
            Task::Copy(_) => "cp",
            Task::Usage { .. } => "du",
            Task::Remove(_) => "rm",
            Task::Find { .. } => "find",
        }
    }

    /// The task that completes this one after a job that began at a time has done a part: the result is then that of one time. That
    /// is the task itself, or a copy that is resumed, for which the time is needed. None for changes of modes that build on the mode of
    /// before ([`ModeChange::may_repeat`]).
    pub fn again(&self, began: Option<Time>) -> Option<Task> {
        match self {
            Task::Chmod { mode, umask, .. } => mode.may_repeat(*umask).then(|| self.clone()),
            Task::Copy(copies) => {
                let since = |copying: &Copying| Some(copying.since.unwrap_or(began?));
                let resumed =
                    |copying: &Copying| Some(Copying { since: Some(since(copying)?), ..copying.clone() });
                copies.iter().map(resumed).collect::<Option<Vec<_>>>().map(Task::Copy)
            }
            Task::Chown { .. } | Task::Usage { .. } | Task::Remove(_) | Task::Find { .. } => {
                Some(self.clone())
            }
        }
    }

    /// The files and directories at which it begins.
    pub fn subjects(&self) -> Vec<&Subject> {
        match self {
            Task::Chmod { subjects, .. }
            | Task::Chown { subjects, .. }
            | Task::Usage { subjects, .. }
            | Task::Find { subjects, .. } => subjects.iter().collect(),
            Task::Remove(removals) => removals.iter().map(|removal| &removal.subject).collect(),
            Task::Copy(copies) => copies.iter().map(|copying| &copying.from).collect(),
        }
    }

    /// Carries it out by this client, with the rights of the client's user. The changes are durable after a `sync`.
    pub fn perform(&self, client: &Client, watch: &mut dyn Watch) -> Totals {
        match self {
            Task::Chmod { subjects, recursive, mode, umask } => {
                let wanted = |attr: &Attr| {
                    let new = Mode(mode.of(attr.mode.0, attr.kind == Kind::Dir, *umask));
                    // Symbolic links have no permissions of their own.
                    let changes = attr.kind != Kind::Symlink && new != attr.mode;
                    changes.then(|| AttrChange { mode: Some(new), ..AttrChange::default() })
                };
                let (places, gone) = places(client, subjects, watch);
                Totals::Changed(with(change(client, &places, *recursive, "chmod", &wanted, watch), gone))
            }
            Task::Chown { subjects, recursive, uid, gid } => {
                let wanted = |attr: &Attr| {
                    let uid = uid.filter(|uid| *uid != attr.uid);
                    let gid = gid.filter(|gid| *gid != attr.gid);
                    (uid.is_some() || gid.is_some()).then(|| AttrChange { uid, gid, ..AttrChange::default() })
                };
                let (places, gone) = places(client, subjects, watch);
                Totals::Changed(with(change(client, &places, *recursive, "chown", &wanted, watch), gone))
            }
            Task::Copy(copies) => Totals::Copied(copy_all(client, copies, watch)),
            Task::Usage { subjects, depth } => {
                Totals::Usage(usage(client, &places(client, subjects, watch).0, *depth, watch))
            }
            Task::Remove(removals) => Totals::Removed(remove_all(client, removals, watch)),
            Task::Find { subjects, conditions } => {
                let (places, gone) = places(client, subjects, watch);
                let done = find(client, &places, conditions, watch);
                Totals::Searched(Searched { refused: done.refused + gone, ..done })
            }
        }
    }

    /// As it is sent to a server.
    pub fn to_json(&self) -> Value {
        let all = |subjects: &[Subject]| subjects.iter().map(subject_to_json).collect::<Vec<_>>();
        match self {
            Task::Chmod { subjects, recursive, mode, umask } => json!({
                "kind": "chmod", "subjects": all(subjects), "recursive": recursive,
                "mode": mode.to_string(), "umask": umask,
            }),
            Task::Chown { subjects, recursive, uid, gid } => json!({
                "kind": "chown", "subjects": all(subjects), "recursive": recursive, "uid": uid, "gid": gid,
            }),
            Task::Copy(copies) => {
                let one = |copying: &Copying| {
                    let Copying { from, into, name, since } = copying;
                    json!({
                        "from": subject_to_json(from), "into": into.0, "name": name.as_bytes(),
                        "since": since.map(|time| time.0),
                    })
                };
                json!({ "kind": "cp", "copies": copies.iter().map(one).collect::<Vec<_>>() })
            }
            Task::Usage { subjects, depth } => {
                json!({ "kind": "du", "subjects": all(subjects), "depth": depth })
            }
            Task::Remove(removals) => {
                let one = |removal: &Removal| {
                    let name = removal.name.as_bytes();
                    json!({ "subject": subject_to_json(&removal.subject), "parent": removal.parent.0, "name": name })
                };
                json!({ "kind": "rm", "removals": removals.iter().map(one).collect::<Vec<_>>() })
            }
            Task::Find { subjects, conditions } => {
                json!({ "kind": "find", "subjects": all(subjects), "conditions": conditions.to_json() })
            }
        }
    }

    /// Reads what [`Task::to_json`] makes.
    pub fn from_json(task: &Value) -> Option<Task> {
        let all = |key: &str| task[key].as_array()?.iter().map(subject_from_json).collect::<Option<Vec<_>>>();
        let number = |key: &str| match &task[key] {
            Value::Null => Some(None),
            value => Some(Some(u32::try_from(value.as_u64()?).ok()?)),
        };
        Some(match task["kind"].as_str()? {
            "chmod" => Task::Chmod {
                subjects: all("subjects")?,
                recursive: task["recursive"].as_bool()?,
                mode: ModeChange::parse(task["mode"].as_str()?).ok()?,
                umask: u16::try_from(task["umask"].as_u64()?).ok()?,
            },
            "chown" => Task::Chown {
                subjects: all("subjects")?,
                recursive: task["recursive"].as_bool()?,
                uid: number("uid")?,
                gid: number("gid")?,
            },
            "cp" => {
                let one = |copying: &Value| {
                    Some(Copying {
                        from: subject_from_json(&copying["from"])?,
                        into: Ino(copying["into"].as_u64()?),
                        name: Name::new(&bytes(&copying["name"])?[..]).ok()?,
                        since: match &copying["since"] {
                            Value::Null => None,
                            time => Some(Time(time.as_i64()?)),
                        },
                    })
                };
                Task::Copy(task["copies"].as_array()?.iter().map(one).collect::<Option<_>>()?)
            }
            "du" => Task::Usage {
                subjects: all("subjects")?,
                depth: usize::try_from(task["depth"].as_u64()?).ok()?,
            },
            "rm" => {
                let one = |removal: &Value| {
                    Some(Removal {
                        subject: subject_from_json(&removal["subject"])?,
                        parent: Ino(removal["parent"].as_u64()?),
                        name: Name::new(&bytes(&removal["name"])?[..]).ok()?,
                    })
                };
                Task::Remove(task["removals"].as_array()?.iter().map(one).collect::<Option<_>>()?)
            }
            "find" => Task::Find {
                subjects: all("subjects")?,
                conditions: Conditions::from_json(&task["conditions"])?,
            },
            _ => return None,
        })
    }
}

impl Totals {
    /// As a server sends it.
    pub fn to_json(&self) -> Value {
        match self {
            Totals::Changed(Changed { names, changed, refused, stopped }) => json!({
                "names": names, "changed": changed, "refused": refused, "stopped": stopped,
            }),
            Totals::Copied(Copied { files, dirs, bytes, shared_bytes, refused, stopped }) => json!({
                "files": files, "directories": dirs, "bytes": bytes, "shared_bytes": shared_bytes,
                "refused": refused, "stopped": stopped,
            }),
            Totals::Usage(lines) => {
                let one = |line: &Usage| {
                    json!({
                        "path": String::from_utf8_lossy(&line.path), "depth": line.depth, "bytes": line.bytes,
                        "stored_bytes": line.allocated, "files": line.files, "directories": line.dirs,
                    })
                };
                json!({ "usage": lines.iter().map(one).collect::<Vec<_>>() })
            }
            Totals::Removed(Removed { files, dirs, trees, refused, stopped }) => json!({
                "files": files, "directories": dirs, "trees": trees, "refused": refused, "stopped": stopped,
            }),
            Totals::Searched(Searched { names, found, refused, stopped }) => json!({
                "names": names, "found": found, "refused": refused, "stopped": stopped,
            }),
        }
    }

    /// Reads what [`Totals::to_json`] makes.
    pub fn from_json(totals: &Value) -> Option<Totals> {
        let of = |value: &Value, key: &str| value[key].as_u64();
        if let Some(lines) = totals["usage"].as_array() {
            let one = |line: &Value| {
                Some(Usage {
                    path: line["path"].as_str()?.as_bytes().to_vec(),
                    depth: usize::try_from(of(line, "depth")?).ok()?,
                    bytes: of(line, "bytes")?,
                    allocated: of(line, "stored_bytes")?,
                    files: of(line, "files")?,
                    dirs: of(line, "directories")?,
                })
            };
            return Some(Totals::Usage(lines.iter().map(one).collect::<Option<_>>()?));
        }
        let (refused, stopped) = (of(totals, "refused")?, totals["stopped"].as_bool()?);
        // Each has a number that the others have not.
        Some(if let Some(changed) = of(totals, "changed") {
            Totals::Changed(Changed { names: of(totals, "names")?, changed, refused, stopped })
        } else if let Some(found) = of(totals, "found") {
            Totals::Searched(Searched { names: of(totals, "names")?, found, refused, stopped })
        } else {
            let (files, dirs) = (of(totals, "files")?, of(totals, "directories")?);
            match of(totals, "trees") {
                Some(trees) => Totals::Removed(Removed { files, dirs, trees, refused, stopped }),
                None => Totals::Copied(Copied {
                    files,
                    dirs,
                    bytes: of(totals, "bytes")?,
                    shared_bytes: of(totals, "shared_bytes")?,
                    refused,
                    stopped,
                }),
            }
        })
    }
}

fn subject_to_json(subject: &Subject) -> Value {
    let path = match std::str::from_utf8(&subject.path) {
        Ok(text) => json!(text),
        Err(_) => json!(subject.path),
    };
    json!({ "path": path, "ino": subject.ino.0 })
}

/// Text, or bytes that are none.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    let byte = |byte: &Value| u8::try_from(byte.as_u64()?).ok();
    match value.as_str() {
        Some(text) => Some(text.as_bytes().to_vec()),
        None => value.as_array()?.iter().map(byte).collect(),
    }
}

fn subject_from_json(subject: &Value) -> Option<Subject> {
    Some(Subject { path: bytes(&subject["path"])?, ino: Ino(subject["ino"].as_u64()?) })
}

/// The places with their attributes of now, and how many are refused.
fn places(client: &Client, subjects: &[Subject], watch: &mut dyn Watch) -> (Vec<Place>, u64) {
    let inos: Vec<Ino> = subjects.iter().map(|subject| subject.ino).collect();
    let (mut found, mut gone) = (Vec::new(), 0);
    for (subject, attr) in subjects.iter().zip(client.stat_each(&inos)) {
        let path = subject.path.clone();
        match attr {
            Ok(attr) => found.push(Place { path, name: None, attr }),
            Err(refusal) => {
                let refusal = if refusal == Refusal::Stale { Refusal::NotFound } else { refusal };
                gone += 1;
                watch.refused(Refused { path, doing: "look at".into(), refusal });
            }
        }
    }
    (found, gone)
}

fn with(done: Changed, gone: u64) -> Changed {
    Changed { refused: done.refused + gone, ..done }
}

fn remove_all(client: &Client, removals: &[Removal], watch: &mut dyn Watch) -> Removed {
    let (mut found, mut gone) = (Vec::new(), 0);
    for removal in removals {
        let Removal { subject, parent, name } = removal;
        let at = Some((*parent, name.clone()));
        match client.stat_each(&[subject.ino]).remove(0) {
            Ok(attr) => found.push(Place { path: subject.path.clone(), name: at, attr }),
            // Another has removed it.
            Err(Refusal::Stale | Refusal::NotFound) => {}
            Err(refusal) => {
                gone += 1;
                watch.refused(Refused { path: subject.path.clone(), doing: "look at".into(), refusal });
            }
        }
    }
    let done = remove_each(client, &found, watch);
    Removed { refused: done.refused + gone, ..done }
}

fn copy_all(client: &Client, copies: &[Copying], watch: &mut dyn Watch) -> Copied {
    let mut all = Copied::default();
    for Copying { from, into, name, since } in copies {
        if watch.is_stopped() {
            all.stopped = true;
            break;
        }
        let (found, gone) = places(client, std::slice::from_ref(from), watch);
        all.refused += gone;
        for place in &found {
            let mut watch = Further { before: all.files + all.dirs, watch };
            let done = match since {
                None => copy(client, place, *into, name, &mut watch),
                Some(since) => resume_copy(client, place, (*into, name), *since, &mut watch),
            };
            all.files += done.files;
            all.dirs += done.dirs;
            all.bytes += done.bytes;
            all.shared_bytes += done.shared_bytes;
            all.refused += done.refused;
            all.stopped |= done.stopped;
        }
    }
    all
}

/// Counts on from the names that are done already.
struct Further<'a> {
    before: u64,
    watch: &'a mut dyn Watch,
}

impl Watch for Further<'_> {
    fn refused(&mut self, refused: Refused) {
        self.watch.refused(refused);
    }

    fn found(&mut self, found: Found) {
        self.watch.found(found);
    }

    fn progress(&mut self, names: u64) {
        self.watch.progress(self.before + names);
    }

    fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_totals_survive_their_way() {
        let subjects = || vec![Subject { path: b"/a \"b\"".to_vec(), ino: Ino(1 << 50) }];
        let odd = Subject { path: b"/\xff".to_vec(), ino: Ino(7) };
        let name = Name::new(&b"\xff n"[..]).expect("a name");
        let tasks = [
            Task::Chmod {
                subjects: subjects(),
                recursive: true,
                mode: ModeChange::parse("u+rwX,go-w").expect("a mode"),
                umask: 0o27,
            },
            Task::Chown { subjects: subjects(), recursive: false, uid: None, gid: Some(u32::MAX - 1) },
            Task::Remove(vec![Removal { subject: odd.clone(), parent: Ino(2), name: name.clone() }]),
            Task::Find { subjects: vec![odd], conditions: Conditions::default() },
            Task::Copy(vec![Copying {
                from: subjects().remove(0),
                into: Ino(1),
                name,
                since: Some(Time(-3)),
            }]),
            Task::Usage { subjects: subjects(), depth: 3 },
        ];
        for task in tasks {
            let text = task.to_json().to_string();
            let back = Task::from_json(&serde_json::from_str(&text).expect("JSON"));
            assert_eq!(back, Some(task), "{text}");
        }
        let line = Usage { path: b"/a".to_vec(), depth: 1, bytes: 2, allocated: 3, files: 4, dirs: 5 };
        let copied = Copied { files: 1, dirs: 2, bytes: 3, shared_bytes: 4, refused: 5, stopped: false };
        let totals = [
            Totals::Changed(Changed { names: 1, changed: 2, refused: 3, stopped: true }),
            Totals::Copied(copied),
            Totals::Usage(vec![line]),
            Totals::Removed(Removed { files: 1, dirs: 2, trees: 3, refused: 4, stopped: true }),
            Totals::Searched(Searched { names: 4, found: 3, refused: 2, stopped: false }),
        ];
        for totals in totals {
            assert_eq!(Totals::from_json(&totals.to_json()), Some(totals.clone()), "{totals:?}");
        }
    }

    #[test]
    fn other_words_are_no_tasks() {
        for bad in [
            json!({}),
            json!({ "kind": "rm", "subjects": [] }),
            json!({ "kind": "find", "subjects": [], "conditions": { "type": "door" } }),
            json!({ "kind": "du", "subjects": [{ "path": "/", "ino": "1" }], "depth": 0 }),
            json!({ "kind": "chmod", "subjects": [], "recursive": true, "mode": "z", "umask": 0 }),
            json!({ "kind": "cp", "copies": [{ "from": { "path": "", "ino": 1 }, "into": 1, "name": [47] }] }),
        ] {
            assert_eq!(Task::from_json(&bad), None, "{bad}");
        }
    }
}
