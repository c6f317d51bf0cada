//! Realms: which policy holds where. A policy is a text that nobody here reads, on a directory; its realm is that
//! directory and all below it, down to the next policy.
//!
//! Invariants:
//! - A name never leaves its realm: rename and link across a border are refused. So the realm of a directory
//!   changes only when a policy is set or removed, and a realm that was found once holds until then (`version`).
//! - Where there is no policy at all, everything is one realm and nothing is looked up.
//! - Policies, their history and the directories of files with several names are always in memory whole.

use std::cell::RefCell;

use chiton_model::Event;
use chiton_model::field::Code;
use chiton_model::{POLICY_BYTES_MAX, POLICY_HISTORY_MAX, PolicyChange};
use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Kind, Refusal, Time};
use hashbrown::HashMap;

use crate::fault::Fault;
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::node::Share;
use crate::tables::TableValue;
use crate::values::{HistoryKey, LinkedKey, PolicyKey};

/// Directories whose realm is remembered.
const CACHE_MAX: usize = 1 << 16;
/// Directories of other plates whose realm is remembered.
const ELSEWHERE_MAX: usize = 1 << 20;

impl TableValue for PolicyChange {
    fn encode(&self) -> Vec<u8> {
        let mut v = Vec::new();
        PolicyChange::put(self, &mut v);
        v
    }
    fn heap_bytes(&self) -> usize {
        self.path.len() + self.text.as_ref().map_or(0, Vec::len) + self.below.len() * 8
    }
}

/// The directories of a file with several names, one for each name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parents(pub(crate) Vec<Ino>);

impl Parents {
    pub(crate) fn decode(value: &[u8]) -> Result<Parents, Malformed> {
        let mut v = Take::new(value);
        let all = (0..v.count(8)?).map(|_| Ok(Ino(v.u64()?))).collect::<Result<_, Malformed>>()?;
        v.finish()?;
        Ok(Parents(all))
    }
}

impl TableValue for Parents {
    fn encode(&self) -> Vec<u8> {
        let mut v = Vec::new();
        v.put_varint(self.0.len() as u64);
        for ino in &self.0 {
            v.put_u64(ino.0);
        }
        v
    }
    fn heap_bytes(&self) -> usize {
        self.0.len() * 8
    }
}

/// Realms that were found since the last change of a policy.
#[derive(Default)]
pub(crate) struct Realms {
    cache: RefCell<HashMap<Ino, Ino>>,
    /// Of directories of other plates, as these have answered.
    elsewhere: HashMap<Ino, Ino>,
}

/// Where a directory is among those with policies.
pub struct PolicyPlace {
    pub path: Vec<u8>,
    /// The nearest directory above with a policy, or the root.
    pub around: Ino,
    /// Directories with policies below, with none between.
    pub below: Vec<Ino>,
}

/// The path of a directory below another: `names` from its own name up.
pub fn path_of(above: &[u8], names: &[Vec<u8>]) -> Vec<u8> {
    let mut path = above.to_vec();
    for name in names.iter().rev() {
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    path
}

impl Namespace {
    /// The directory whose policy holds for an inode: itself, if it is a directory with one, or the nearest above.
    /// The root if there is none.
    #[inline]
    pub fn realm(&self, ino: Ino) -> Result<Ino, Fault> {
        if self.policy_count == 0 { Ok(Ino::ROOT) } else { self.find_realm(ino) }
    }

    fn find_realm(&self, ino: Ino) -> Result<Ino, Fault> {
        if let Some(realm) = self.realms.cache.borrow().get(&ino) {
            return Ok(*realm);
        }
        let mut dirs = Vec::new();
        let mut at = ino;
        let realm = loop {
            if at == Ino::ROOT || self.policies.value(PolicyKey(at)).is_some() {
                break at;
            }
            if let Some(realm) = self.realms.cache.borrow().get(&at) {
                break *realm;
            }
            if !self.owns(at) {
                break *self.realms.elsewhere.get(&at).ok_or(Fault::Realm(at))?;
            }
            let inode = self.inode(at)?;
            // A directory that was removed has nothing below it; its remains belong to no realm.
            if inode.kind() == Kind::Dir && inode.nlink == 0 {
                break Ino::ROOT;
            }
            if inode.kind() == Kind::Dir {
                dirs.push(at);
            }
            at = inode.parent;
        };
        let mut cache = self.realms.cache.borrow_mut();
        if cache.len() + dirs.len() > CACHE_MAX {
            cache.clear();
        }
        cache.extend(dirs.into_iter().map(|dir| (dir, realm)));
        Ok(realm)
    }

    /// The realm of a directory of another plate, as that plate knows it after this change of a policy. An answer for another
    /// version is not taken.
    pub fn learn_realm(&mut self, dir: Ino, realm: Ino, version: u64) -> bool {
        if version != self.policy_version {
            return false;
        }
        if self.realms.elsewhere.len() >= ELSEWHERE_MAX {
            self.realms.elsewhere.clear();
        }
        self.realms.elsewhere.insert(dir, realm);
        true
    }

    /// Refuses unless two directories, of this plate or others, are of one realm.
    pub fn has_one_realm(&self, a: Ino, b: Ino) -> Result<(), Fault> {
        match a == b || self.policy_count == 0 || self.find_realm(a)? == self.find_realm(b)? {
            true => Ok(()),
            false => Err(Refusal::CrossDevice.into()),
        }
    }

    /// Refuses unless two directories are of one realm.
    pub(crate) fn same_realm(&self, a: Ino, b: Ino) -> Result<(), Fault> {
        if a == b {
            return Ok(());
        }
        self.has_one_realm(a, b)?;
        self.same_decoupled(a, b)
    }

    /// Number of the last change of a policy; 0 if there was none.
    #[inline]
    pub fn policy_version(&self) -> u64 {
        self.policy_version
    }

    /// The policy that a directory carries itself.
    pub fn policy(&self, ino: Ino) -> Option<&PolicyChange> {
        self.policies.value(PolicyKey(ino))
    }

    /// All policies there are.
    pub fn policies(&self) -> impl Iterator<Item = &PolicyChange> {
        self.policies.range(..).map(|(_, policy)| policy)
    }

    /// Changes of policies, oldest first.
    pub fn policy_history(&self) -> impl Iterator<Item = &PolicyChange> {
        self.policy_history.range(..).map(|(_, change)| change)
    }

    /// The event that gives a directory a policy, or takes it away. Whether the text makes sense and the caller may
    /// is not asked here.
    pub fn plan_policy(
        &self,
        (ino, place): (Ino, PolicyPlace),
        text: Option<Vec<u8>>,
        uid: u32,
        time: Time,
    ) -> Result<Event, Fault> {
        let dir = self.dir_inode(ino)?;
        if dir.nlink == 0 {
            return Err(Refusal::NotFound.into());
        }
        let has = self.policy(ino).is_some();
        if text.is_none() && !has {
            return Err(Refusal::NoXattr.into());
        }
        if text.as_ref().is_some_and(|text| text.len() > POLICY_BYTES_MAX) {
            return Err(Refusal::ArgTooBig.into());
        }
        let version = self.policy_version + 1;
        let PolicyPlace { path, around, below } = place;
        // A policy that replaces another, or leaves where it was, changes nothing about those below; see `apply_policy`.
        let below = if has && text.is_some() { Vec::new() } else { below };
        Ok(Event::Policy(PolicyChange { ino, version, path, text, uid, time, around, below }))
    }

    /// Refuses a new policy on a directory if names of files would lie on both sides of the border that it draws. Only where one plate
    /// knows all names.
    pub fn check_border(&self, ino: Ino) -> Result<(), Fault> {
        match self.policy(ino).is_some() || self.crossing(ino)?.is_empty() {
            true => Ok(()),
            false => Err(Refusal::CrossDevice.into()),
        }
    }

    /// Files with names on both sides of the border that a policy on `root` would draw, with the directories of
    /// those names.
    pub fn crossing(&self, root: Ino) -> Result<Vec<(Ino, Vec<Ino>)>, Fault> {
        let mut inside: HashMap<Ino, bool> = HashMap::new();
        let mut crossing = Vec::new();
        if root == Ino::ROOT {
            return Ok(crossing);
        }
        for (LinkedKey(file), Parents(dirs)) in self.linked.range(..) {
            let mut within = 0;
            for dir in dirs {
                within += usize::from(self.is_below(*dir, root, &mut inside)?);
            }
            if within != 0 && within != dirs.len() {
                crossing.push((file, dirs.clone()));
            }
        }
        Ok(crossing)
    }

    /// Whether an inode is `root` or below it. The walk upwards ends at a directory of another plate, and fills `known`.
    pub fn is_below(&self, dir: Ino, root: Ino, known: &mut HashMap<Ino, bool>) -> Result<bool, Fault> {
        let mut walked = Vec::new();
        let mut at = dir;
        let inside = loop {
            if let Some(inside) = known.get(&at) {
                break *inside;
            }
            if at == root || at == Ino::ROOT || !self.owns(at) {
                break at == root;
            }
            walked.push(at);
            at = self.inode(at)?.parent;
        };
        known.extend(walked.into_iter().map(|dir| (dir, inside)));
        Ok(inside)
    }

    /// Where a directory is: its names from the root on.
    pub fn dir_path(&self, dir: Ino) -> Result<Vec<u8>, Fault> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = self.dir_inode(dir)?;
        while at.parent != at.ino {
            if at.nlink == 0 {
                return Err(Refusal::NotFound.into());
            }
            // A part has no name: it belongs to the directory above it.
            if at.node.share() != Share::Part {
                names.push(self.name_held(at.parent, at.ino)?);
            }
            at = self.inode(at.parent)?;
        }
        Ok(path_of(b"/", &names))
    }

    /// A name of an inode in a directory.
    pub fn name_held(&self, dir: Ino, ino: Ino) -> Result<Vec<u8>, Fault> {
        let held = self.dirs.get(&dir);
        let found =
            held.and_then(|d| d.iter_after(0).find(|(_, slot)| slot.ino == ino && slot.kind().is_some()));
        match found {
            Some((name, _)) => Ok(name.to_vec()),
            None if self.dir_inode(dir)?.has(crate::inode::COMPLETE) => Err(Refusal::NotFound.into()),
            None => Err(self.need_dir(dir)),
        }
    }

    pub(crate) fn apply_policy(&mut self, change: &PolicyChange) {
        let key = PolicyKey(change.ino);
        let before = self.policies.value(key).is_some();
        let value = change.text.is_some().then(|| change.clone());
        self.policies.change(key, &mut self.dirty, false, |v| *v = value);
        let around = if change.text.is_some() { change.ino } else { change.around };
        for below in &change.below {
            if self.policies.value(PolicyKey(*below)).is_some() {
                self.policies.change(PolicyKey(*below), &mut self.dirty, false, |v| {
                    v.iter_mut().for_each(|policy| policy.around = around);
                });
            }
        }
        self.policy_count = self.policy_count + usize::from(change.text.is_some()) - usize::from(before);
        self.policy_version = change.version;
        let history = HistoryKey(change.version);
        self.policy_history.change(history, &mut self.dirty, true, |v| *v = Some(change.clone()));
        if let Some(old) = change.version.checked_sub(POLICY_HISTORY_MAX) {
            self.policy_history.change(HistoryKey(old), &mut self.dirty, false, |v| *v = None);
        }
        self.realms.cache.borrow_mut().clear();
        self.realms.elsewhere.clear();
    }

    /// A directory ended: its policy with it. The policy stays in the history.
    pub(crate) fn end_policy(&mut self, ino: Ino) {
        if self.policy_count > 0 && self.policies.value(PolicyKey(ino)).is_some() {
            self.policies.change(PolicyKey(ino), &mut self.dirty, false, |v| *v = None);
            self.policy_count -= 1;
        }
        self.realms.cache.borrow_mut().remove(&ino);
    }

    /// The directory under which a file's name in `dir` is known: the home of the directory, if `dir` got the name as a part.
    ///
    /// # Errors
    /// As [`Namespace::parts`].
    pub(crate) fn linked_as(&self, ino: Ino, dir: Ino) -> Result<Ino, Fault> {
        let Some(Parents(all)) = self.linked.value(LinkedKey(ino)) else { return Ok(dir) };
        if all.contains(&dir) {
            return Ok(dir);
        }
        for home in all.iter().copied().filter(|home| self.owns(*home)) {
            if self.parts(home)?.iter().any(|part| part.ino == dir) {
                return Ok(home);
            }
        }
        Ok(dir)
    }

    /// The directories that have names of an inode, or the one that had its last name; of a part of a directory, that directory.
    ///
    /// # Errors
    /// As [`Namespace::attr`].
    pub fn parents(&self, ino: Ino) -> Result<Vec<Ino>, Fault> {
        let parent = self.attr(ino)?.parent;
        Ok(self.linked.value(LinkedKey(ino)).map_or_else(|| vec![parent], |Parents(all)| all.clone()))
    }

    /// Whether a file has several names.
    pub(crate) fn is_linked(&self, ino: Ino) -> bool {
        self.linked.value(LinkedKey(ino)).is_some()
    }

    /// A file got a further name in `dir`.
    pub(crate) fn linked_more(&mut self, file: &LinkedFile, dir: Ino) {
        let first = file.parent;
        self.linked.change(LinkedKey(file.ino), &mut self.dirty, false, |v| {
            v.get_or_insert_with(|| Parents(vec![first])).0.push(dir);
        });
    }

    /// A file with several names lost one in `dir`. If none is left there, returns the lowest directory that has one:
    /// an inode's parent always holds a name of it.
    pub(crate) fn linked_less(&mut self, ino: Ino, dir: Ino) -> Option<Ino> {
        self.linked.value(LinkedKey(ino))?;
        self.linked.change(LinkedKey(ino), &mut self.dirty, false, |v| {
            let all = &mut v.get_or_insert_with(Parents::default).0;
            if let Some(at) = all.iter().position(|d| *d == dir) {
                all.swap_remove(at);
            }
            let left = if all.contains(&dir) { None } else { all.iter().min().copied() };
            if all.len() < 2 {
                *v = None;
            }
            left
        })
    }

    /// A name of a file moved.
    pub(crate) fn linked_moved(&mut self, ino: Ino, from: Ino, to: Ino) {
        if from == to || self.linked.value(LinkedKey(ino)).is_none() {
            return;
        }
        self.linked.change(LinkedKey(ino), &mut self.dirty, false, |v| {
            let all = &mut v.get_or_insert_with(Parents::default).0;
            if let Some(at) = all.iter().position(|d| *d == from) {
                all[at] = to;
            }
        });
    }
}

/// A file about to get a further name.
pub(crate) struct LinkedFile {
    pub(crate) ino: Ino,
    pub(crate) parent: Ino,
}

impl From<&Inode> for LinkedFile {
    fn from(inode: &Inode) -> LinkedFile {
        LinkedFile { ino: inode.ino, parent: inode.parent }
    }
}
