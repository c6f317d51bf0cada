//! Policies of subtrees: where each holds, the right to set it, and the attributes that show and set it.
//!
//! ```text
//!   setfattr -n chiton.policy ─▶ parse ─▶ resolve with the policy around ─▶ may this caller? ─▶ Event::Policy
//! ```
//!
//! Invariants:
//! - The texts are in the namespace, versioned; they are resolved when a policy is first asked for, and again after
//!   a change.
//! - A policy that cannot be carried out is refused when it is set, and so is one that would make another senseless.
//! - One who is not an administrator (root, or the owner of the root directory) sets policies on their own directories
//!   only, and none that is weaker than the policy around.

mod way_up;

use std::sync::Arc;

use chiton_model::{Event, Op, PolicyChange, XattrHow};
use chiton_namespace::{Fault, PolicyPlace};
use chiton_policy::{
    Acknowledge, Consistency, Durability, Explanation, Placement, Policy, PolicyFile, Support, preset,
};
use chiton_types::{Capabilities, Cred, Epoch, Ino, Kind, Refusal, Time};
use chiton_wire::Failure;
use hashbrown::HashMap;

use crate::engine::Engine;
use crate::parts::Shards;
use crate::step::Stop;

pub(crate) use way_up::{Unplanned, WayUp};

/// The policy that a directory carries itself: read, set, removed.
pub(crate) const OWN: &[u8] = b"chiton.policy";
/// The policy that holds for an inode, explained, as JSON: read only.
const EFFECTIVE: &[u8] = b"chiton.policy.effective";
/// Names that would lie across the border if the directory got a policy, a line each: read only.
const CROSSING: &[u8] = b"chiton.policy.crossing";
/// Most inodes that one who is not an administrator may reserve.
const OWNER_INODES_MAX: u64 = 100_000;

/// Meanings of the policies, by directory.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    version: u64,
    by_root: HashMap<Ino, Arc<Policy>>,
    default: Arc<Policy>,
}

impl Policies {
    /// Sets the policy that holds where there is none.
    pub(crate) fn set_default(&mut self, policy: Arc<Policy>) {
        self.default = policy;
    }
}
impl Engine {
    /// The maps' epoch: it grows with each change of a policy.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.settings.epoch.0 + self.shards.ns.policy_version())
    }

    /// Policies and their history, as JSON.
    pub fn policies_json(&mut self) -> Result<serde_json::Value, Fault> {
        let epoch = self.epoch();
        self.shards.policies_json(epoch)
    }
}

impl Shards {
    /// The event of an operation that sets or removes a policy.
    pub(crate) fn plan_policy_op(
        &mut self,
        op: &Op,
        cred: &Cred,
        now: Time,
        way: &WayUp<'_>,
    ) -> Result<(Ino, Event), Unplanned> {
        let (ino, name, value) = if let Op::SetXattr { ino, name, value, how } = op {
            let has = self.ns.policy(*ino).is_some();
            match how {
                XattrHow::Create if has => return Err(Refusal::Exists.into()),
                XattrHow::Replace if !has => return Err(Refusal::NoXattr.into()),
                XattrHow::Set | XattrHow::Create | XattrHow::Replace => {}
            }
            (*ino, name, Some(value))
        } else if let Op::RemoveXattr { ino, name } = op {
            (*ino, name, None)
        } else {
            return Err(Refusal::Invalid.into());
        };
        if name != OWN {
            return Err(Refusal::NotPermitted.into());
        }
        let attr = self.ns.attr(ino)?;
        if attr.kind != Kind::Dir {
            return Err(Refusal::NotDir.into());
        }
        let administrator = self.administers(cred, way.attr(&self.ns, Ino::ROOT)?.uid)?;
        if !administrator && cred.uid != attr.uid {
            return Err(Refusal::NotPermitted.into());
        }
        let around = self.around(ino)?;
        let text = value.map(|value| text_of(value)).transpose()?;
        let policy = match &text {
            None => around.clone(),
            Some(text) => {
                let (file, policy) = resolve(text, &around).ok_or(Refusal::Invalid)?;
                if way.support().check(&file, &policy).is_err() {
                    return Err(Refusal::Unsupported.into());
                }
                Arc::new(policy)
            }
        };
        if !administrator {
            let before = self.policy_of(ino)?.1;
            self.check_owner_may(&policy, &around)?;
            self.check_owner_may(&policy, &before)?;
        }
        let below = self.below(ino, way)?;
        self.check_below(ino, &policy, &below, way.support())?;
        let path = way.path(&self.ns, ino)?;
        let around = if ino == Ino::ROOT { Ino::ROOT } else { self.ns.realm(attr.parent)? };
        // Over several plates no plate sees all names of a file with several.
        if !way.is_over_plates() {
            self.ns.check_border(ino)?;
        }
        let is_direct =
            |root: &Ino| self.ns.policy(*root).is_some_and(|policy| !below.contains(&policy.around));
        let below = below.iter().copied().filter(is_direct).collect();
        let place = PolicyPlace { path, around, below };
        let event = self.ns.plan_policy((ino, place), text, cred.uid, now)?;
        Ok((ino, event))
    }

    /// The directories with policies below a directory.
    fn below(&self, ino: Ino, way: &WayUp<'_>) -> Result<Vec<Ino>, Unplanned> {
        let mut below = Vec::new();
        for root in self.ns.policies().map(|policy| policy.ino) {
            let mut at = root;
            while at != ino && at != Ino::ROOT {
                at = way.attr(&self.ns, at)?.parent;
            }
            if at == ino && root != ino {
                below.push(root);
            }
        }
        Ok(below)
    }

    /// Value of an attribute of this file. `decoupled`: of a decoupled client, the root of its subtree.
    pub(crate) fn policy_attribute(
        &mut self,
        ino: Ino,
        name: &[u8],
        decoupled: Option<Ino>,
        epoch: Epoch,
    ) -> Result<Vec<u8>, Stop> {
        match name {
            OWN => {
                let own = self.ns.policy(ino).and_then(|p| p.text.clone());
                Ok(own.ok_or(Refusal::NoXattr)?)
            }
            EFFECTIVE => {
                let (root, policy) = match decoupled {
                    Some(root) => (root, self.policies.default.clone()),
                    None => self.policy_of(ino)?,
                };
                let path = String::from_utf8_lossy(&self.path_of_root(root)?).into_owned();
                let explanation = Explanation::of(&policy);
                let mut value = serde_json::to_value(&explanation).unwrap_or_default();
                value["drawn"] = serde_json::json!(explanation.to_string());
                value["root"] = serde_json::json!(path);
                value["root_inode"] = serde_json::json!(root.0);
                value["version"] = serde_json::json!(self.ns.policy(root).map_or(0, |p| p.version));
                value["decoupled"] = serde_json::json!(decoupled.is_some());
                value["epoch"] = serde_json::json!(epoch.0);
                Ok(value.to_string().into_bytes())
            }
            CROSSING => self.crossing_names(ino),
            _ => Err(Refusal::NoXattr.into()),
        }
    }

    /// Policies and their history, as JSON.
    fn policies_json(&mut self, epoch: Epoch) -> Result<serde_json::Value, Fault> {
        let roots: Vec<PolicyChange> = self.ns.policies().cloned().collect();
        let mut all = Vec::new();
        for own in roots {
            let path = self.path_of_root(own.ino)?;
            let policy = self.policy_at(own.ino)?;
            let mut line = change_json(&own, &path);
            line["composition"] = serde_json::json!(policy.composition.to_string());
            line["consistency"] = serde_json::json!(policy.consistency());
            line["durability"] = serde_json::json!(policy.durability());
            line["interfere_policy"] = serde_json::json!(policy.interfere.word());
            line["data"] = serde_json::json!(policy.data.word());
            line["allocated_inodes"] = serde_json::json!(policy.allocated_inodes);
            all.push(line);
        }
        all.sort_by(|a, b| a["path"].as_str().cmp(&b["path"].as_str()));
        let history: Vec<_> =
            self.ns.policy_history().map(|change| change_json(change, &change.path)).collect();
        Ok(serde_json::json!({ "epoch": epoch.0, "policies": all, "history": history }))
    }

    /// Where a directory with a policy is. If other plates own directories on the way, where it was when the policy was set.
    fn path_of_root(&self, root: Ino) -> Result<Vec<u8>, Fault> {
        match (self.ns.dir_path(root), self.ns.policy(root)) {
            (Err(Fault::Elsewhere(_)), Some(policy)) => Ok(policy.path.clone()),
            (Err(Fault::Elsewhere(_)), None) => Ok(b"/".to_vec()),
            (path, _) => path,
        }
    }

    /// The policy that holds for an inode, and the directory that carries it.
    #[inline]
    pub(crate) fn policy_of(&mut self, ino: Ino) -> Result<(Ino, Arc<Policy>), Fault> {
        let root = self.ns.realm(ino)?;
        Ok((root, self.policy_at(root)?))
    }

    /// The policy of a realm.
    fn policy_at(&mut self, root: Ino) -> Result<Arc<Policy>, Fault> {
        if self.policies.version != self.ns.policy_version() {
            self.policies.version = self.ns.policy_version();
            self.policies.by_root.clear();
        }
        if let Some(policy) = self.policies.by_root.get(&root) {
            return Ok(policy.clone());
        }
        let policy = match self.ns.policy(root) {
            None => self.policies.default.clone(),
            Some(own) => {
                let text = own.text.clone().unwrap_or_default();
                let around = self.around(root)?;
                // The text was checked when it was set. If it cannot be read now, the policy around holds.
                resolve(&text, &around).map_or(around, |(_, policy)| Arc::new(policy))
            }
        };
        self.policies.by_root.insert(root, policy.clone());
        Ok(policy)
    }

    /// The policy around a directory, as if it had none itself.
    fn around(&mut self, dir: Ino) -> Result<Arc<Policy>, Fault> {
        if dir == Ino::ROOT {
            return Ok(self.policies.default.clone());
        }
        // A directory with a policy may be another plate's.
        let root = match self.ns.policy(dir) {
            Some(own) => own.around,
            None => self.ns.realm(self.ns.attr(dir)?.parent)?,
        };
        self.policy_at(root)
    }

    /// Refuses what one who is not an administrator may not have in place of another policy.
    pub(crate) fn check_owner_may(&self, policy: &Policy, than: &Policy) -> Result<(), Stop> {
        if is_weaker(policy, than) || policy.allocated_inodes > OWNER_INODES_MAX {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(())
    }

    /// Whether the owner of a directory under `holds` may have it decoupled under `policy` for a time: that its changes reach
    /// others later, or never, is what a decoupling is; `owner_decouples` says how little may survive.
    pub(crate) fn check_owner_may_decouple(&self, policy: &Policy, holds: &Policy) -> Result<(), Stop> {
        let is_permitted = holds.owner_decouples.least().is_some_and(|least| policy.durability() >= least);
        match is_permitted && policy.allocated_inodes <= OWNER_INODES_MAX {
            true => Ok(()),
            false => self.check_owner_may(policy, holds),
        }
    }

    /// The policy that a text would make of the one around a directory.
    pub(crate) fn policy_on_top(&mut self, dir: Ino, text: &[u8]) -> Result<Arc<Policy>, Stop> {
        let around = self.around(dir)?;
        let (_, policy) = resolve(&text_of(text)?, &around).ok_or(Refusal::Invalid)?;
        Ok(Arc::new(policy))
    }

    /// Refuses a policy that would make one below it senseless.
    fn check_below(
        &self,
        ino: Ino,
        policy: &Arc<Policy>,
        below: &[Ino],
        support: Support,
    ) -> Result<(), Stop> {
        for root in below {
            // From this policy up to the changed one: they are resolved on the way down.
            let mut chain = vec![*root];
            let mut at = *root;
            while let Some(around) = self.ns.policy(at).map(|policy| policy.around)
                && around != ino
                && below.contains(&around)
            {
                chain.push(around);
                at = around;
            }
            let mut around = policy.clone();
            for below in chain.iter().rev() {
                let text = self.ns.policy(*below).and_then(|p| p.text.clone()).unwrap_or_default();
                let (file, policy) = resolve(&text, &around).ok_or(Refusal::Invalid)?;
                if support.check(&file, &policy).is_err() {
                    return Err(Refusal::Invalid.into());
                }
                around = Arc::new(policy);
            }
        }
        Ok(())
    }

    pub(crate) fn is_administrator(&self, cred: &Cred) -> Result<bool, Stop> {
        match self.ns.attr(Ino::ROOT) {
            // Its owner is known on the first plate only: elsewhere root alone administers.
            Err(Fault::Elsewhere(_)) => self.administers(cred, 0),
            root => self.administers(cred, root?.uid),
        }
    }

    /// Whether a caller is root or the owner of the root directory.
    fn administers(&self, cred: &Cred, owner: u32) -> Result<bool, Stop> {
        if owner == cred.uid && cred.uid != 0 {
            return Ok(true);
        }
        let administers = cred.everywhere(Capabilities::SYS_ADMIN);
        administers.ok_or(Stop::Fail(Failure::NeedGroups))
    }

    fn crossing_names(&mut self, ino: Ino) -> Result<Vec<u8>, Stop> {
        /// Most bytes in an attribute's value.
        const BYTES_MAX: usize = 60 << 10;
        let mut lines = Vec::new();
        for (file, dirs) in self.ns.crossing(ino)? {
            let mut dirs = dirs;
            dirs.sort_unstable();
            dirs.dedup();
            for dir in dirs {
                let mut path = self.ns.dir_path(dir)?;
                if path != b"/" {
                    path.push(b'/');
                }
                path.extend(self.ns.name_held(dir, file)?);
                if lines.len() + path.len() > BYTES_MAX {
                    lines.extend_from_slice("…\n".as_bytes());
                    return Ok(lines);
                }
                lines.extend(path);
                lines.push(b'\n');
            }
        }
        Ok(lines)
    }

    /// True if answers about an inode wait until they are durable.
    #[inline]
    pub(crate) fn answers_when_durable(&mut self, ino: Ino) -> Result<bool, Fault> {
        if self.ns.policy_version() == 0 {
            return Ok(self.policies.default.acknowledge == Acknowledge::Durable);
        }
        Ok(self.policy_of(ino)?.1.acknowledge == Acknowledge::Durable)
    }

    /// Whether the directories in a directory are born in its shard: with several plates so it is, too, where
    /// clients decouple subtrees.
    pub(crate) fn places_near(&mut self, parent: Ino) -> Result<bool, Fault> {
        let one = self.realms.here.plates.count() == 1;
        if self.ns.policy_version() > 0 {
            let policy = self.policy_of(parent)?.1;
            if policy.placement == Placement::Near || (!one && policy.consistency() != Consistency::Strong) {
                return Ok(true);
            }
        }
        Ok(!one && self.ns.decoupled_root(parent)?.is_some())
    }

    /// True if changes in a realm are not journalled. One of several plates journals all.
    pub(crate) fn is_volatile(&mut self, root: Ino) -> Result<bool, Fault> {
        Ok(self.realms.here.plates.count() == 1 && self.policy_at(root)?.durability() == Durability::None)
    }
}

fn change_json(change: &PolicyChange, path: &[u8]) -> serde_json::Value {
    serde_json::json!({
        "path": String::from_utf8_lossy(path),
        "inode": change.ino.0,
        "version": change.version,
        "text": change.text.as_ref().map(|t| String::from_utf8_lossy(t).into_owned()),
        "uid": change.uid,
        "time_ns": change.time.0,
    })
}

/// A policy's text, also if only a preset is named.
fn text_of(value: &[u8]) -> Result<Vec<u8>, Refusal> {
    let text = std::str::from_utf8(value).map_err(|_| Refusal::Invalid)?;
    Ok(preset(text.trim()).map_or_else(|| value.to_vec(), |preset| preset.text.as_bytes().to_vec()))
}

fn resolve(text: &[u8], around: &Policy) -> Option<(PolicyFile, Policy)> {
    let file = PolicyFile::parse(std::str::from_utf8(text).ok()?).ok()?;
    let policy = Policy::resolve(&file, around).ok()?;
    Some((file, policy))
}

/// Whether `policy` promises less than `than`.
fn is_weaker(policy: &Policy, than: &Policy) -> bool {
    use chiton_policy::Data;
    let strength = |data: Data| match data {
        Data::Linearizable => 2,
        Data::CloseToOpen => 1,
        Data::Lazy => 0,
    };
    policy.durability() < than.durability()
        || policy.consistency() < than.consistency()
        || strength(policy.data) < strength(than.data)
        || policy.flush_interval > than.flush_interval
        || policy.owner_decouples.is_laxer(than.owner_decouples)
        || (policy.acknowledge == Acknowledge::Applied && than.acknowledge == Acknowledge::Durable)
}
