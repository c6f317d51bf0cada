//! Files without names: O_TMPFILE, and the first name that such a file gets.
//!
//! ```text
//!   MakeUnnamed   Make under a name that nobody uses · Unlink that keeps an orphan     (one frame: nobody sees the name)
//!   LinkUnnamed   Restore
//! ```
//!
//! Invariants:
//! - After a crash such a file is an orphan like any other: it lives on if the client that has it open does.
//! - A file that had a name and lost it never gets one again here: the client that asks has made the file without one (its kernel
//!   sees to O_EXCL, as for every file system).

use chiton_model::Event;
use chiton_model::Make;
use chiton_types::{Ino, Kind, Mode, Name, Refusal};

use crate::fault::Fault;
use crate::namespace::{Context, Known, Namespace, Planned};
use crate::permission;

impl Namespace {
    pub(super) fn plan_make_unnamed(
        &self,
        parent: Ino,
        mode: Mode,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let ino = ctx.offered;
        let name = self.unused_name(parent, ino)?;
        let planned = self.plan_make(parent, &name, &Make::File { content: Vec::new() }, mode, ctx, out)?;
        out.push(Event::Unlink { parent, name, ino, orphan: true, time: ctx.now });
        Ok(planned)
    }

    /// A name that nothing in the directory bears.
    fn unused_name(&self, parent: Ino, ino: Ino) -> Result<Name, Fault> {
        let dir = self.dir_inode(parent)?;
        let mut n = 0;
        loop {
            let name = Name::new(format!(".unnamed-{ino}-{n}").as_bytes())?;
            if let Known::Absent = self.entry(dir, &name)? {
                return Ok(name);
            }
            n += 1;
        }
    }

    pub(super) fn plan_link_unnamed(
        &self,
        ino: Ino,
        parent: Ino,
        name: &Name,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let dir = self.dir_inode(parent)?;
        self.may_search(ctx.cred, dir)?;
        let inode = self.inode(ino)?;
        if let Known::Present(..) = self.entry(dir, name)? {
            return Err(Refusal::Exists.into());
        }
        self.may_change(ctx.cred, dir)?;
        if inode.kind != Kind::File || inode.nlink > 0 {
            return Err(Refusal::Invalid.into());
        }
        self.judge(inode, |inode| permission::may_link(ctx.cred, inode))?;
        if dir.nlink == 0 || !(ctx.is_open)(ino) {
            return Err(Refusal::NotFound.into());
        }
        self.same_realm(inode.parent, parent)?;
        out.push(Event::Restore { parent, name: name.clone(), ino, time: ctx.now });
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }
}
