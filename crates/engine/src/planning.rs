//! How an operation is planned: from the rows of this plate, or over those of several.

use chiton_namespace::{Context, Fault, Planned, plan};
use chiton_types::{Ino, Refusal, Time};

use crate::engine::Engine;
use crate::execute::OpCall;
use crate::lingering::lets_linger;
use crate::moment::Moment;
use crate::peers::{is_key_of_server, moves_directory};
use crate::policies::{Unplanned, WayUp};
use crate::step::Stop;

impl Engine {
    /// Plans an operation, over several plates if it needs rows of others.
    pub(crate) fn plan(
        &mut self,
        call: &OpCall<'_>,
        (now, offered): (Time, Ino),
        is_settled: bool,
        m: &Moment,
    ) -> Result<Planned, Stop> {
        let lingers = lets_linger(call.op, call.slot, m);
        let key = call.key();
        if self.peers.as_ref().is_some_and(|peers| !peers.is_crossing(key)) {
            self.await_rows(call.op)?;
        }
        loop {
            self.acquire((call.op, key), call.slot, is_settled, m)?;
            self.events.clear();
            let (opens, ns) = (&self.clients.opens, &self.shards.ns);
            let is_open = |ino: Ino| {
                ns.owns(ino) && (lingers || opens.is_open(ino) || ns.is_pinned(ino).unwrap_or(true))
            };
            let frees = is_key_of_server(key);
            let context = Context { cred: call.cred, now, offered, is_open: &is_open, frees };
            let Some(peers) = &mut self.peers else {
                return Ok(plan(ns, call.op, &context, &mut self.events)?);
            };
            if peers.is_crossing(key) {
                match peers.plan(ns, (call.op, key), &context, &mut self.events) {
                    Err(Fault::Elsewhere(ino)) => peers.ask_place(key, (ino, None), &mut self.queue)?,
                    planned => return Ok(planned?),
                }
                continue;
            }
            match plan(ns, call.op, &context, &mut self.events) {
                Ok(planned) if !moves_directory(&self.events) => return Ok(planned),
                Ok(_) | Err(Fault::Elsewhere(_)) => peers.begin_crossing(ns, call.op, key)?,
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Plans the removal of a tree by a client. Over several plates it takes the token and guards what is decoupled, so that nothing
    /// comes into the tree meanwhile by which it must stay, and asks for the directories above policies and decoupled roots.
    pub(crate) fn plan_tree(
        &mut self,
        call: &OpCall<'_>,
        top: Ino,
        times: (Time, Ino),
        is_settled: bool,
        m: &Moment,
    ) -> Result<Planned, Stop> {
        if self.peers.is_none() {
            return self.plan(call, times, is_settled, m);
        }
        let key = call.key();
        if self.peers.as_ref().is_some_and(|peers| !peers.is_crossing(key)) {
            self.await_rows(call.op)?;
        }
        if let Some(peers) = self.peers.as_mut().filter(|peers| !peers.is_crossing(key)) {
            peers.begin_crossing(&self.shards.ns, call.op, key)?;
        }
        loop {
            let planned = self.plan(call, times, is_settled, m)?;
            let way = WayUp { crossing: self.peers.as_ref().map(|peers| peers.crossing(key)) };
            match self.shards.is_plain_over_plates(top, &way) {
                Ok(()) => return Ok(planned),
                Err(Unplanned::Stop(stop)) => return Err(stop),
                Err(Unplanned::Ask(dir, child)) => {
                    let peers = self.peers.as_mut().ok_or(Refusal::Stale)?;
                    peers.ask_place(key, (dir, child), &mut self.queue)?;
                }
            }
        }
    }

    /// Plans a change of a policy. Over several plates it takes the token, and asks for the directories above.
    pub(crate) fn plan_policy(
        &mut self,
        call: &OpCall<'_>,
        now: Time,
        is_settled: bool,
        m: &Moment,
    ) -> Result<Planned, Stop> {
        if self.is_realm() {
            // A decoupled client's engine does not store policies: the main server does.
            return Err(Refusal::Busy.into());
        }
        let key = call.key();
        if self.peers.as_ref().is_some_and(|peers| !peers.is_crossing(key)) {
            self.await_rows(call.op)?;
        }
        if let Some(peers) = self.peers.as_mut().filter(|peers| !peers.is_crossing(key)) {
            peers.begin_crossing(&self.shards.ns, call.op, key)?;
        }
        let (ino, event) = loop {
            self.acquire((call.op, key), call.slot, is_settled, m)?;
            let way = WayUp { crossing: self.peers.as_ref().map(|peers| peers.crossing(key)) };
            match self.shards.plan_policy_op(call.op, call.cred, now, &way) {
                Ok(planned) => break planned,
                Err(Unplanned::Stop(stop)) => return Err(stop),
                Err(Unplanned::Ask(dir, child)) => {
                    let peers = self.peers.as_mut().ok_or(Refusal::Stale)?;
                    peers.ask_place(key, (dir, child), &mut self.queue)?;
                }
            }
        };
        // A change of level may make journalled what was not: nothing of that may rest on changes that only memory holds.
        self.shards.settle()?;
        self.events.push(event);
        Ok(Planned { subject: Some(ino), gone: None, other: None })
    }
}
