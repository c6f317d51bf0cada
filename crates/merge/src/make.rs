//! New inodes of the decoupled side.

use chiton_model::{Event, INLINE_BYTES_MAX, LINKS_MAX, SYMLINK_BYTES_MAX};
use chiton_namespace::{Fault, Inode, Known};
use chiton_types::{Kind, Mode, Refusal};

use crate::{Merge, MergeStep, Skipped, found};

impl<'a> Merge<'a> {
    pub(crate) fn merge_make(&mut self, event: &mut Event) -> Result<MergeStep, Fault> {
        let Event::Make { parent, name, ino, kind, mode, uid, gid, rdev, time, content } = event else {
            unreachable!("asked for a make")
        };
        let fits = match kind {
            Kind::File => content.len() <= INLINE_BYTES_MAX && *rdev == 0,
            Kind::Symlink => {
                (1..=SYMLINK_BYTES_MAX).contains(&content.len()) && !content.contains(&0) && *rdev == 0
            }
            Kind::Dir | Kind::Fifo | Kind::Socket => content.is_empty() && *rdev == 0,
            Kind::Char | Kind::Block => content.is_empty(),
        };
        if !fits || mode.0 & !0o7777 != 0 {
            return Ok(MergeStep::Skip(Skipped::Invalid("an inode of this type cannot be like this")));
        }
        if !self.map.may_make(*ino) {
            return Ok(MergeStep::Skip(Skipped::Invalid("the inode number is not one to be used now")));
        }
        *parent = self.map.translate(*parent);
        let is_dir = *kind == Kind::Dir;
        let dir = found!(self.merge_dir(*parent, *time));
        match self.state.entry(dir, name)? {
            Known::Absent if is_dir && dir.nlink >= LINKS_MAX => {
                Ok(MergeStep::Skip(Skipped::Refused(Refusal::TooManyLinks)))
            }
            Known::Absent => {
                self.map.made(*ino);
                Ok(MergeStep::Emit)
            }
            Known::Present(slot)
                if is_dir && slot.kind() == Some(Kind::Dir) && self.map.may_bind(slot.ino) =>
            {
                // Both made it, or theirs could not be removed: one directory with the entries of both.
                let theirs = self.state.inode(slot.ino)?;
                if self.map.stands(theirs.ino) && !self.is_changed(theirs) {
                    // Ours removed it, and begins anew: its own names go, and those that theirs put into it stay.
                    let xattrs = self.state.xattrs_of(theirs)?.into_iter().flat_map(|xattrs| xattrs.0.keys());
                    let removal = |name: &Vec<u8>| Event::Xattr {
                        ino: theirs.ino,
                        name: name.clone(),
                        value: None,
                        ctime: theirs.ctime.max(*time),
                    };
                    let removals: Vec<Event> = xattrs.map(removal).collect();
                    if !removals.is_empty() {
                        return Ok(MergeStep::First(removals));
                    }
                }
                self.map.made(*ino);
                self.map.bind(*ino, theirs.ino);
                self.map.note_agreed(theirs.ino, dir.ino, name, slot.position);
                let differs = (theirs.mode, theirs.uid, theirs.gid) != (*mode, *uid, *gid);
                if !differs {
                    return Ok(MergeStep::Skip(Skipped::Needless));
                }
                *event = adopt(theirs, *mode, *uid, *gid, *time);
                Ok(MergeStep::Emit)
            }
            Known::Present(slot) => self.displace(dir, name, slot, (is_dir, false), *time),
        }
    }
}

fn adopt(theirs: &Inode, mode: Mode, uid: u32, gid: u32, time: chiton_types::Time) -> Event {
    Event::SetAttr {
        ino: theirs.ino,
        mode: Some(mode),
        uid: Some(uid),
        gid: Some(gid),
        size: None,
        atime: None,
        mtime: None,
        ctime: theirs.ctime.max(time),
    }
}
