//! Answers about decoupled subtrees. A plate knows the path of a subtree up to the first directory that another plate has; the rest is asked
//! for here, a name at a time.

use chiton_types::{Cred, Ino, Refusal};
use chiton_wire::{Answer, Call, Query, RealmAnswer, RealmInfo};

use super::Each;
use crate::service::CallError;

/// A path with more names is a loop: directories moved while it was asked for.
const DEPTH_MAX: usize = 4096;

impl Each {
    /// The decouplings of all plates.
    pub(super) fn all_realms(&self, cred: &Cred, call: &Call) -> Result<Answer, CallError> {
        let under_way: Vec<_> =
            self.services.iter().map(|service| service.start(cred, call.clone())).collect();
        let mut all = Vec::new();
        for answer in under_way {
            let Answer::Realm(RealmAnswer::Realms(of_plate)) = answer.wait()? else {
                return Err(Refusal::Io.into());
            };
            all.extend(of_plate);
        }
        all.iter_mut().for_each(|info| self.complete_path(cred, info));
        Ok(Answer::Realm(RealmAnswer::Realms(all)))
    }

    /// The decoupling that an inode of this plate is in.
    pub(super) fn realm_of(&self, at: usize, cred: &Cred, call: &Call) -> Result<Answer, CallError> {
        let mut answer = self.services[at].call(cred, call.clone())?;
        if let Answer::Realm(RealmAnswer::Of { decoupled: Some(info), .. }) = &mut answer {
            self.complete_path(cred, info);
        }
        Ok(answer)
    }

    /// Adds the beginning of a path, whose names other plates have. It stays open where they do not say it.
    fn complete_path(&self, cred: &Cred, info: &mut RealmInfo) {
        let Some((ino, dir)) = info.above.take() else { return };
        let mut path = match self.path_to(cred, ino, dir) {
            Ok(path) => path,
            Err(error) => {
                tracing::debug!(?error, decoupling = %info.claim.realm, "the path is not known");
                format!("/…/inode {}", ino.0).into_bytes()
            }
        };
        path.append(&mut info.path);
        info.path = path;
    }

    /// The path of a directory in another.
    fn path_to(&self, cred: &Cred, mut ino: Ino, mut dir: Ino) -> Result<Vec<u8>, CallError> {
        let mut names = Vec::new();
        loop {
            let ask = |query| self.services[self.index(dir)].call(cred, Call::Query(query));
            let Answer::Bytes(name) = ask(Query::NameOf { dir, ino })? else {
                return Err(Refusal::Io.into());
            };
            names.push(name);
            if dir == Ino::ROOT {
                let parts = names.iter().rev().flat_map(|name| [&b"/"[..], name.as_slice()]);
                return Ok(parts.flatten().copied().collect());
            }
            if names.len() > DEPTH_MAX {
                return Err(Refusal::Loop.into());
            }
            let Answer::Attr { attr, .. } = ask(Query::GetAttr { ino: dir })? else {
                return Err(Refusal::Io.into());
            };
            (ino, dir) = (dir, attr.parent);
        }
    }
}
