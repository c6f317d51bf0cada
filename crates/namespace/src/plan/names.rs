//! link, unlink, rmdir.

use chiton_model::Event;
use chiton_model::Gone;
use chiton_types::{Ino, Kind, Name, Refusal};

use crate::fault::Fault;
use crate::inode::{Inode, MAPPED};
use crate::namespace::{Context, Known, Namespace, Planned};
use crate::permission;

impl Namespace {
    pub(super) fn plan_link(
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
        self.judge(inode, |inode| permission::may_link(ctx.cred, inode))?;
        if inode.nlink == 0 || dir.nlink == 0 {
            return Err(Refusal::NotFound.into());
        }
        permission::room_for_link(inode.nlink)?;
        self.same_realm(inode.parent, parent)?;
        out.push(Event::Link { parent, name: name.clone(), ino, time: ctx.now });
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }

    pub(super) fn plan_unlink(
        &self,
        parent: Ino,
        name: &Name,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let is_file = |victim: &Inode| if victim.kind == Kind::Dir { Err(Refusal::IsDir) } else { Ok(()) };
        self.plan_remove(parent, name, is_file, ctx, out)
    }

    pub(super) fn plan_rmdir(
        &self,
        parent: Ino,
        name: &Name,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let is_empty_dir = |victim: &Inode| match victim.kind {
            Kind::Dir if victim.extra > 0 => Err(Refusal::NotEmpty),
            Kind::Dir => Ok(()),
            _ => Err(Refusal::NotDir),
        };
        self.plan_remove(parent, name, is_empty_dir, ctx, out)
    }

    /// Takes a name away from an inode that `fits`.
    fn plan_remove(
        &self,
        parent: Ino,
        name: &Name,
        fits: impl FnOnce(&Inode) -> Result<(), Refusal>,
        ctx: &Context<'_>,
        out: &mut Vec<Event>,
    ) -> Result<Planned, Fault> {
        let dir = self.dir_inode(parent)?;
        self.may_search(ctx.cred, dir)?;
        let ino = self.present(dir, name)?;
        let victim = self.inode(ino)?;
        self.may_change(ctx.cred, dir)?;
        self.may_remove(ctx.cred, dir, victim)?;
        fits(victim)?;
        let gone = self.fate(victim, ctx)?;
        let orphan = gone.is_some_and(|g| g.orphan);
        out.push(Event::Unlink { parent, name: name.clone(), ino, orphan, time: ctx.now });
        Ok(Planned { subject: Some(ino), gone, other: None })
    }

    /// The inode that bears `name`, or `NotFound`.
    pub(super) fn present(&self, dir: &Inode, name: &Name) -> Result<Ino, Fault> {
        match self.entry(dir, name)? {
            Known::Present(slot) => Ok(slot.ino),
            Known::Absent => Err(Refusal::NotFound.into()),
        }
    }

    /// What becomes of an inode that is about to lose one name (a directory: its only one). Content in blocks is
    /// never freed in the same event, because that may take many steps.
    pub(super) fn fate(&self, victim: &Inode, ctx: &Context<'_>) -> Result<Option<Gone>, Fault> {
        if victim.kind != Kind::Dir && victim.nlink > 1 {
            return Ok(None);
        }
        let orphan = victim.has(MAPPED) || (ctx.is_open)(victim.ino);
        Ok(Some(Gone { ino: victim.ino, orphan }))
    }
}
