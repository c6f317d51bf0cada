//! Questions about many inodes, over several plates: a message to each plate, and further ones where the answers lead.
//!
//! ```text
//!   targets ─▶ one message per plate ─┬─ attributes, absent, refused ─▶ the answer
//!                                     ├─ elsewhere ────▶ the owner, in the next round
//!                                     ├─ other part ───▶ the lists of parts, and the right part in the next round
//!                                     └─ has parts ────▶ one message per plate for all parts, and the sums
//! ```
//!
//! Invariants:
//! - Answers stand in the order of the targets, whatever plates they come from.
//! - After a failure that is to stop the rest, nothing behind it has an answer, and the client closes the files that were opened behind it.

use std::sync::Arc;

use chiton_types::{Attr, Cred, Ino, Position, Refusal};
use chiton_wire::{Answer, Call, Failure, LeaseMode, Query, Stat, StatTarget};

use super::chain::Next;
use super::parts::is_elsewhere;
use super::{Each, LOOKUP_TRIES};
use crate::part_lists::List;
use crate::service::CallError;

type StatResult = Result<Stat, Failure>;

/// How far a target is.
enum State {
    /// It is to be asked as it is.
    Asked,
    /// Its name led to this inode of another plate.
    AtOwner(Ino),
    Done(StatResult),
}

pub(super) struct Stats {
    each: Arc<Each>,
    cred: Cred,
    stop_on_failure: bool,
    leases: bool,
    targets: Vec<StatTarget>,
    states: Vec<State>,
    rounds_left: usize,
}

/// The targets that were asked in one message, by their places.
type Group = Vec<usize>;

/// Directories with parts among the targets: their places, and their inodes.
type Homes = Vec<(usize, Ino)>;

impl Stats {
    /// Begins with a question.
    pub(super) fn begin(each: Arc<Each>, cred: Cred, call: Call) -> Next {
        let Call::Query(Query::StatEach { stop_on_failure, leases, targets }) = call else {
            return Next::Answer(Err(Refusal::Invalid.into()));
        };
        let states = targets.iter().map(|_| State::Asked).collect();
        let rounds_left = LOOKUP_TRIES;
        Stats { each, cred, stop_on_failure, leases, targets, states, rounds_left }.round()
    }

    /// The places up to the failure that stops the rest; all, if there is none yet.
    fn wanted(&self) -> usize {
        let fails = |state: &State| matches!(state, State::Done(Err(_) | Ok(Stat::Absent)));
        match self.stop_on_failure {
            true => self.states.iter().position(fails).map_or(self.states.len(), |at| at + 1),
            false => self.states.len(),
        }
    }

    /// Asks all that has no answer.
    fn round(mut self) -> Next {
        let wanted = self.wanted();
        let mut groups: Vec<Group> = vec![Vec::new(); self.each.services.len()];
        let mut messages: Vec<Vec<StatTarget>> = vec![Vec::new(); groups.len()];
        for (at, state) in self.states.iter().enumerate().take(wanted) {
            let target = match (state, &self.targets[at]) {
                (State::Done(_), _) => continue,
                (State::AtOwner(ino), _) => StatTarget::Inode(*ino),
                (State::Asked, StatTarget::Name { parent, name }) => {
                    let parent = self.each.parts.place(*parent, name);
                    StatTarget::Name { parent, name: name.clone() }
                }
                (State::Asked, target) => target.clone(),
            };
            let plate = self.each.index(target.place());
            groups[plate].push(at);
            messages[plate].push(target);
        }
        let asked: Vec<(usize, Group)> =
            groups.into_iter().enumerate().filter(|(_, group)| !group.is_empty()).collect();
        if asked.is_empty() {
            return self.sum();
        }
        if self.rounds_left == 0 {
            for at in asked.iter().flat_map(|(_, group)| group) {
                self.states[*at] = State::Done(Err(Failure::Refused(Refusal::Stale)));
            }
            return self.sum();
        }
        self.rounds_left -= 1;
        let ask = |(plate, _): &(usize, Group)| {
            let targets = std::mem::take(&mut messages[*plate]);
            self.each.ask_stats(*plate, &self.cred, (self.stop_on_failure, self.leases), targets)
        };
        let under_way = asked.iter().map(ask).collect();
        Next::All(under_way, Box::new(move |answers| self.took(asked, answers)))
    }

    /// A round is answered.
    fn took(mut self, asked: Vec<(usize, Group)>, answers: Vec<Result<Answer, CallError>>) -> Next {
        let mut unknown: Vec<Ino> = Vec::new();
        for ((_, group), answer) in asked.into_iter().zip(answers) {
            match stats_of(answer) {
                // A plate that stopped leaves out the rest.
                Ok(stats) => {
                    for (at, stat) in group.into_iter().zip(stats) {
                        self.learn(at, stat, &mut unknown);
                    }
                }
                Err(failure) => {
                    for at in group {
                        self.states[at] = State::Done(Err(failure.clone()));
                    }
                }
            }
        }
        if unknown.is_empty() {
            return self.round();
        }
        unknown.sort_unstable();
        unknown.dedup();
        let (each, cred) = (self.each.clone(), self.cred.clone());
        each.learn(cred, unknown, move |_, _| self.round())
    }

    /// One answer; `unknown` gets the directory whose parts are to be asked for.
    fn learn(&mut self, at: usize, stat: StatResult, unknown: &mut Vec<Ino>) {
        let is_name = matches!(self.targets[at], StatTarget::Name { .. });
        if let (State::Asked, Err(Failure::Refused(refusal)), StatTarget::Name { parent, name }) =
            (&self.states[at], &stat, &self.targets[at])
            && is_elsewhere(*refusal, self.each.parts.place(*parent, name) != *parent)
            && self.rounds_left > 0
        {
            unknown.push(*parent);
            return;
        }
        let next = match (&self.states[at], stat) {
            (_, Ok(Stat::Elsewhere(ino))) => State::AtOwner(ino),
            // The inode is gone, and the name with it: it may stand for another now.
            (State::AtOwner(_), Err(Failure::Refused(Refusal::Stale | Refusal::NotFound))) if is_name => {
                State::Asked
            }
            // A part stands for its directory.
            (_, Ok(Stat::Attr { attr, .. })) if attr.flags & Attr::PART != 0 => State::AtOwner(attr.parent),
            (_, stat) => State::Done(stat),
        };
        self.states[at] = next;
    }

    // ---- directories with parts -----------------------------------------------------------------------

    /// The places of directories with parts, of whose attributes only those of the home are known.
    fn homes(&mut self) -> Homes {
        let wanted = self.wanted();
        let mut homes = Vec::new();
        for (at, state) in self.states.iter().enumerate().take(wanted) {
            if let State::Done(Ok(Stat::Attr { attr, .. })) = state
                && attr.kind == chiton_types::Kind::Dir
            {
                match attr.is_parted() {
                    true => homes.push((at, attr.ino)),
                    false => self.each.parts.note_plain(attr.ino),
                }
            }
        }
        homes
    }

    fn sum(mut self) -> Next {
        let homes = self.homes();
        let mut unknown: Vec<Ino> =
            homes.iter().map(|(_, home)| *home).filter(|home| self.each.list_of(*home).is_none()).collect();
        if unknown.is_empty() {
            return self.add_parts(homes);
        }
        unknown.sort_unstable();
        unknown.dedup();
        // A list has to be known before its home is asked.
        self.ask_again(&homes, |home| unknown.contains(&home));
        let (each, cred) = (self.each.clone(), self.cred.clone());
        each.learn(cred, unknown, move |_, _| match self.rounds_left {
            0 => self.add_parts(homes),
            _ => self.round(),
        })
    }

    /// Directories of whose attributes only those of the home are known are asked once more.
    fn ask_again(&mut self, homes: &[(usize, Ino)], which: impl Fn(Ino) -> bool) {
        for (at, home) in homes.iter().filter(|(_, home)| self.rounds_left > 0 && which(*home)) {
            self.states[*at] = State::AtOwner(*home);
        }
    }

    fn add_parts(self, homes: Homes) -> Next {
        let mut groups: Vec<Group> = vec![Vec::new(); self.each.services.len()];
        let mut messages: Vec<Vec<StatTarget>> = vec![Vec::new(); groups.len()];
        let mut lists: Vec<(Ino, List)> = Vec::new();
        for (at, home) in &homes {
            let Some(list) = self.each.list_of(*home) else { continue };
            for part in list.iter().filter(|part| part.ino != *home) {
                let plate = self.each.index(part.ino);
                groups[plate].push(*at);
                messages[plate].push(StatTarget::Inode(part.ino));
            }
            lists.push((*home, list));
        }
        let asked: Vec<(usize, Group)> =
            groups.into_iter().enumerate().filter(|(_, group)| !group.is_empty()).collect();
        if asked.is_empty() {
            return self.finish();
        }
        let ask = |(plate, _): &(usize, Group)| {
            let targets = std::mem::take(&mut messages[*plate]);
            self.each.ask_stats(*plate, &self.cred, (false, false), targets)
        };
        let mut under_way: Vec<_> = asked.iter().map(ask).collect();
        let generation = self.each.parts.generation();
        under_way.extend(lists.iter().map(|(home, _)| self.each.ask_list(&self.cred, *home)));
        Next::All(under_way, Box::new(move |answers| self.added(asked, (homes, lists, generation), answers)))
    }

    fn added(
        mut self,
        asked: Vec<(usize, Group)>,
        (homes, lists, generation): (Homes, Vec<(Ino, List)>, u64),
        mut answers: Vec<Result<Answer, CallError>>,
    ) -> Next {
        let lists_now = answers.split_off(asked.len());
        let mut now = lists.iter().zip(&lists_now);
        // Names that moved meanwhile may have been counted at neither part.
        let has_changed =
            now.any(|((home, list), now)| self.each.has_changed(*home, list, (now, generation)));
        if has_changed && self.rounds_left > 0 {
            // Sums begin with the figures of the homes.
            self.ask_again(&homes, |_| true);
            return self.round();
        }
        for ((_, group), answer) in asked.into_iter().zip(answers) {
            let stats = match stats_of(answer) {
                Ok(stats) => stats,
                Err(failure) => vec![Err(failure); group.len()],
            };
            for (at, stat) in group.into_iter().zip(stats) {
                let State::Done(Ok(Stat::Attr { attr: sum, lease })) = &mut self.states[at] else { continue };
                match stat {
                    Ok(Stat::Attr { attr, .. }) => {
                        super::parts::add(sum, &attr);
                        sum.position = Position(0);
                        *lease = LeaseMode::None;
                    }
                    // Parts end with their directory.
                    Ok(_) | Err(Failure::Refused(Refusal::Stale | Refusal::NotFound)) => {}
                    Err(failure) => self.states[at] = State::Done(Err(failure)),
                }
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Next {
        let rest = self.states.split_off(self.wanted());
        for (at, state) in rest.iter().enumerate() {
            if let (State::Done(Ok(_)), StatTarget::Open { ino, .. }) =
                (state, &self.targets[self.states.len() + at])
            {
                self.each.services[self.each.index(*ino)].closed(*ino);
            }
        }
        let result = |state| match state {
            State::Done(result) => result,
            State::Asked | State::AtOwner(_) => Err(Failure::Refused(Refusal::Stale)),
        };
        Next::Answer(Ok(Answer::Stats(self.states.into_iter().map(result).collect())))
    }
}

impl Each {
    fn ask_stats(
        &self,
        plate: usize,
        cred: &Cred,
        (stop_on_failure, leases): (bool, bool),
        targets: Vec<StatTarget>,
    ) -> Box<dyn crate::service::Underway> {
        let query = Query::StatEach { stop_on_failure, leases, targets };
        self.services[plate].start(cred, Call::Query(query))
    }

    /// The attributes of these inodes, asked for in one message to each plate, with leases.
    pub(super) fn stat_inodes(
        self: Arc<Each>,
        cred: Cred,
        inodes: Vec<Ino>,
        then: impl FnOnce(Vec<StatResult>) -> Next + Send + 'static,
    ) -> Next {
        let targets = inodes.into_iter().map(StatTarget::Inode).collect();
        let query = Query::StatEach { stop_on_failure: false, leases: true, targets };
        Stats::begin(self, cred, Call::Query(query)).then(|answer| match answer {
            Ok(Answer::Stats(stats)) => then(stats),
            Ok(_) => Next::Answer(Err(Refusal::Io.into())),
            Err(error) => Next::Answer(Err(error)),
        })
    }
}

fn stats_of(answer: Result<Answer, CallError>) -> Result<Vec<StatResult>, Failure> {
    match answer {
        Ok(Answer::Stats(stats)) => Ok(stats),
        Ok(_) => Err(Failure::Refused(Refusal::Io)),
        Err(error) => Err(error.failure()),
    }
}
