//! Attributes of many inodes, by their numbers or by names: many in a message, several messages ahead.
//!
//! Invariants:
//! - The answers come past the cache, and nothing of them is kept: only opens come with leases.

use std::collections::VecDeque;

use chiton_types::{Attr, Ino, Name, Refusal};
use chiton_wire::{Answer, Call, Failure, Query, Stat, StatTarget};

use crate::batch::Each;
use crate::client::{Client, Lookup};
use crate::in_flight::refusal;
use crate::pipeline::OnRefusal;
use crate::service::{CallError, Caller, Underway};

/// Targets in one message. Over several plates it is parted into one for each.
const MESSAGE_TARGETS: usize = 1_000;
/// Messages under way at once: the server works on one while another is written or read here.
const MESSAGES_AHEAD: usize = 4;

/// The answer about a target: [`Stat::Attr`], [`Stat::Absent`] or a refusal.
pub type StatResult = Result<Stat, Refusal>;

impl Client {
    /// Attributes of many inodes, each answered in the order asked. With `StopOnFailure` nothing behind the first target that is refused,
    /// or whose name is absent, has an answer; then the messages go one after the other. A target that opens a file counts an open:
    /// [`Client::open_each`] is for that.
    pub fn stat_targets(
        &self,
        caller: &Caller<'_>,
        targets: Vec<StatTarget>,
        how: OnRefusal,
    ) -> Vec<StatResult> {
        let stop_on_failure = how == OnRefusal::StopOnFailure;
        let messages_ahead = if stop_on_failure { 1 } else { MESSAGES_AHEAD };
        let (cred, mut stats) = (caller.full_cred(), Vec::with_capacity(targets.len()));
        let mut under_way: VecDeque<(usize, Box<dyn Underway>)> = VecDeque::with_capacity(messages_ahead);
        let is_stopped =
            |stats: &[StatResult]| stop_on_failure && matches!(stats.last(), Some(Err(_) | Ok(Stat::Absent)));
        let mut targets = targets.into_iter();
        loop {
            let message: Vec<StatTarget> = targets.by_ref().take(MESSAGE_TARGETS).collect();
            let is_last = message.is_empty();
            while under_way.len() == messages_ahead || is_last {
                let Some((count, answer)) = under_way.pop_front() else { break };
                self.took(answer.wait(), count, stop_on_failure, &mut stats);
            }
            if is_last || is_stopped(&stats) {
                return stats;
            }
            let count = message.len();
            let query = Query::StatEach { stop_on_failure, leases: false, targets: message };
            under_way.push_back((count, self.service.start(&cred, Call::Query(query))));
        }
    }

    /// The answer to a message of so many targets.
    fn took(
        &self,
        answer: Result<Answer, CallError>,
        count: usize,
        stops: bool,
        stats: &mut Vec<StatResult>,
    ) {
        let first = stats.len();
        match answer {
            Ok(Answer::Stats(results)) => stats.extend(results.into_iter().map(in_words)),
            Ok(_) => stats.push(Err(Refusal::Io)),
            Err(error) => stats.push(Err(refusal(error))),
        }
        for stat in &mut stats[first..] {
            if let Ok(Stat::Attr { attr, .. }) = stat {
                self.files.overlay(attr);
            }
        }
        if !stops {
            // A message that failed as a whole failed for each of its targets.
            let rest = stats.last().filter(|_| stats.len() == first + 1).and_then(|last| last.as_ref().err());
            let rest = rest.copied().unwrap_or(Refusal::Io);
            stats.resize(first + count, Err(rest));
        }
    }

    /// Attributes of each name in the directory.
    pub fn stat_in(&self, caller: &Caller<'_>, parent: Ino, names: &[impl AsRef<[u8]>]) -> Each<Attr> {
        let names = names.iter().map(|name| (parent, name.as_ref()));
        self.stats_of_names(caller, names).into_iter().map(present).collect()
    }

    /// The inodes of names, each in its directory, as [`Client::start_lookup`].
    pub fn lookup_each(&self, caller: &Caller<'_>, names: &[(Ino, &[u8])]) -> Each<Lookup> {
        let found = |stat: StatResult| match stat? {
            Stat::Attr { attr, .. } => {
                Ok(Lookup::Found { attr, ttl: Default::default(), attr_ttl: Default::default() })
            }
            Stat::Absent => Ok(Lookup::Absent { ttl: Default::default() }),
            Stat::Elsewhere(_) => Err(Refusal::Io),
        };
        self.stats_of_names(caller, names.iter().copied()).into_iter().map(found).collect()
    }

    /// Attributes of many inodes.
    pub fn stat_each(&self, inodes: &[Ino]) -> Each<Attr> {
        let targets = inodes.iter().copied().map(StatTarget::Inode).collect();
        self.stat_targets(&self.caller(), targets, OnRefusal::PerformAll).into_iter().map(present).collect()
    }

    /// The answer about each name. Names that cannot be any are refused here, in their place.
    fn stats_of_names<'n>(
        &self,
        caller: &Caller<'_>,
        names: impl ExactSizeIterator<Item = (Ino, &'n [u8])>,
    ) -> Vec<StatResult> {
        let mut refused = Vec::new();
        let mut targets = Vec::with_capacity(names.len());
        for (at, (parent, name)) in names.enumerate() {
            match Name::new(name) {
                Ok(name) => targets.push(StatTarget::Name { parent, name }),
                Err(refusal) => refused.push((at, refusal)),
            }
        }
        let mut stats = self.stat_targets(caller, targets, OnRefusal::PerformAll);
        for (at, refusal) in refused {
            stats.insert(at, Err(refusal));
        }
        stats
    }
}

/// The attributes of a target, if it is there.
pub(crate) fn present(stat: StatResult) -> Result<Attr, Refusal> {
    match stat? {
        Stat::Attr { attr, .. } => Ok(attr),
        Stat::Absent => Err(Refusal::NotFound),
        // The service has asked the plate that has it.
        Stat::Elsewhere(_) => Err(Refusal::Io),
    }
}

/// A result in the caller's words.
fn in_words(result: Result<Stat, Failure>) -> StatResult {
    result.map_err(|failure| match failure {
        Failure::Refused(refusal) => refusal,
        Failure::NeedGroups => Refusal::Access,
        Failure::SessionGone | Failure::Malformed(_) => Refusal::Io,
    })
}
