//! The directories above one that gets a policy, on one plate or several.
//!
//! Over several plates the operation holds the token, so these directories keep their parents. A row that it has not asked for yet is
//! [`Unplanned::Ask`].

use chiton_namespace::{Fault, Namespace, path_of};
use chiton_policy::Support;
use chiton_types::{Attr, Ino, Refusal};

use crate::peers::Crossing;
use crate::step::Stop;

/// Why a change of a policy is not planned yet.
#[derive(Debug)]
pub(crate) enum Unplanned {
    Stop(Stop),
    /// Another plate must show a directory, and the name of this child in it.
    Ask(Ino, Option<Ino>),
}

impl<T: Into<Stop>> From<T> for Unplanned {
    fn from(stop: T) -> Unplanned {
        Unplanned::Stop(stop.into())
    }
}

/// Directories of this plate, and those of others that an operation has asked for.
pub(crate) struct WayUp<'a> {
    /// With several plates only.
    pub(crate) crossing: Option<&'a Crossing>,
}

impl WayUp<'_> {
    pub(crate) fn is_over_plates(&self) -> bool {
        self.crossing.is_some()
    }

    /// The mechanisms that the plates can carry out.
    pub(crate) fn support(&self) -> Support {
        if self.is_over_plates() { Support::PLATES } else { Support::LOCAL }
    }

    /// Attributes of a directory.
    pub(crate) fn attr(&self, ns: &Namespace, dir: Ino) -> Result<Attr, Unplanned> {
        match (ns.attr(dir), self.crossing) {
            (Err(Fault::Elsewhere(_)), Some(crossing)) => match crossing.place(dir) {
                Some(attr) => Ok(attr.cloned().ok_or(Refusal::Stale)?),
                None => Err(Unplanned::Ask(dir, None)),
            },
            (attr, _) => Ok(attr?),
        }
    }

    /// Where a directory is: its names from the root on.
    pub(crate) fn path(&self, ns: &Namespace, dir: Ino) -> Result<Vec<u8>, Unplanned> {
        let Some(crossing) = self.crossing else { return Ok(ns.dir_path(dir)?) };
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut at = self.attr(ns, dir)?;
        while at.ino != Ino::ROOT {
            let parent = at.parent;
            if at.flags & Attr::PART != 0 {
                // It has no name: it belongs to the directory above it.
                at = self.attr(ns, parent)?;
                continue;
            }
            names.push(match ns.owns(parent) {
                true => ns.name_held(parent, at.ino)?,
                false => match crossing.name(parent, at.ino) {
                    Some(name) => name.ok_or(Refusal::NotFound)?.as_bytes().to_vec(),
                    None => return Err(Unplanned::Ask(parent, Some(at.ino))),
                },
            });
            at = self.attr(ns, parent)?;
        }
        Ok(path_of(b"/", &names))
    }
}
