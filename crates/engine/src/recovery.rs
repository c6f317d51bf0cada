//! The time after a restart in which sessions come back, declare what they hold, and send their unresolved operations
//! again.
//!
//! ```text
//!   start ── sessions resume, declare, resends collected ──▶ all have declared and sent all, or grace over (longer
//!            while a session that is back is still sending), or all that are missing are gone
//!         ── resends carried out in the order of their former positions ──▶ new requests
//! ```
//!
//! Invariants:
//! - Nothing new is carried out before the last resend. A client that has not declared, or not sent
//!   all that it owes, when the window ends has lost its session, and gets that answer. Carried out
//!   later, its operations would come after a state that other clients saw without them.
//! - Operations that were answered come first, in the order of their first positions, so each caller's observations still
//!   hold. Pending operations of write-behind follow, by session, in their session's order: leases kept all other clients
//!   away. Then come the operations that were never answered, in the order of the starts that got them first. If an
//!   answered one is refused, those of them go before it that may explain its former answer ([`Resends::explaining`]).
//! - A connection that resumes a session declares: its declaration over an earlier connection does not count.
//! - A client that is gone is not waited for any longer than it may believe its cache: it has no connection to this server,
//!   although clients of a cluster connect to every plate, and at once. If it comes back all the same, its session is lost.
//! - A client that cannot come back is not waited for: it ran inside the server. Nor is a tool, which believes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chiton_model::Op;
use chiton_types::{Position, Seq, SessionId};
use chiton_wire::{Again, Call};

use crate::parts::Resends;
use crate::wait_queue::Task;

/// Most graces to wait for sessions that are back and still send.
const GRACES_MAX: u32 = 3;

/// How long which sessions are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Monotonic time from which sessions could come back.
    pub(crate) opened: Duration,
    /// From then on, for those that are not back.
    pub(crate) grace: Duration,
    /// From then on at most, for those that are back and still send.
    pub(crate) sending_max: Duration,
    /// Clients that are gone are waited for until then: nothing that an earlier start answered is believed any more.
    pub(crate) gone_until: Duration,
}

impl Window {
    /// Makes no difference between clients that are gone and others.
    #[cfg(test)]
    fn plain(opened: Duration, grace: Duration) -> Window {
        Window { opened, grace, sending_max: GRACES_MAX * grace, gone_until: opened + grace }
    }

    /// `claimed`: the start before this one answered nothing after that. `session`: how long a silent session lives.
    pub(crate) fn new(
        (claimed, opened): (Duration, Duration),
        grace: Duration,
        gone: Duration,
        session: Duration,
    ) -> Window {
        Window { opened, grace, sending_max: session.max(GRACES_MAX * grace), gone_until: claimed + gone }
    }
}

/// A debt of a known session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owes {
    /// It has not come back.
    Itself,
    /// It said how many operations it will send again; so many are missing.
    Operations(u32),
}

/// State of the window.
#[derive(Debug)]
pub(crate) struct Recovery {
    window: Window,
    owes: BTreeMap<SessionId, Owes>,
    /// Sessions that are back and have not declared: their clients may still
    /// believe what they cached before, and their leases are not known here.
    undeclared: BTreeSet<SessionId>,
    /// Of the sessions that have not come back, those whose clients are gone.
    gone: BTreeSet<SessionId>,
    /// Of the sessions that have not come back, those whose clients cannot.
    ended: BTreeSet<SessionId>,
    collected: Vec<Task>,
    /// The requests collected of each session: their numbers, with how many operations each has. Over another connection the same
    /// come again.
    here: BTreeMap<(SessionId, Seq), u32>,
}

impl Recovery {
    /// Waits for these sessions.
    pub(crate) fn new(sessions: impl Iterator<Item = SessionId>, window: Window) -> Recovery {
        let owes = sessions.map(|id| (id, Owes::Itself)).collect();
        let none = BTreeSet::new;
        let (undeclared, gone, ended) = (none(), none(), none());
        Recovery { window, owes, undeclared, gone, ended, collected: Vec::new(), here: BTreeMap::new() }
    }

    /// Takes note of the clients that are gone, of those that have not come back.
    pub(crate) fn note_gone(&mut self, is_gone: impl Fn(SessionId) -> bool) {
        self.gone = self.away().filter(|id| is_gone(*id)).collect();
    }

    /// Takes note of the sessions whose clients cannot come back.
    pub(crate) fn note_ended(&mut self, has_ended: impl Fn(SessionId) -> bool) {
        self.ended = self.away().filter(|id| has_ended(*id)).collect();
    }

    fn away(&self) -> impl Iterator<Item = SessionId> {
        self.owes.iter().filter(|(_, owes)| **owes == Owes::Itself).map(|(id, _)| *id)
    }

    /// A session is back and will send `operations` again.
    pub(crate) fn resumed(&mut self, session: SessionId, operations: u32) {
        if let Some(owes) = self.owes.get_mut(&session) {
            let here = self.here.range((session, Seq(0))..=(session, Seq(u64::MAX)));
            *owes = Owes::Operations(operations.saturating_sub(here.map(|(_, count)| count).sum()));
            self.undeclared.insert(session);
        }
    }

    /// A session that is back has declared what it holds: it was greeted, and has forgotten what it had cached.
    /// False if it is none of those that were known at the restart.
    pub(crate) fn declared(&mut self, session: SessionId) -> bool {
        self.undeclared.remove(&session);
        self.owes.contains_key(&session)
    }

    /// A session is gone for good. Returns its requests, which the caller answers.
    pub(crate) fn gone(&mut self, session: SessionId) -> Vec<Task> {
        self.owes.remove(&session);
        self.undeclared.remove(&session);
        self.here.retain(|(of, _), _| *of != session);
        self.collected.extract_if(.., |task| task.session == session).collect()
    }

    /// Keeps an operation that was sent again.
    pub(crate) fn collect(&mut self, task: Task) {
        let count = operation_count(&task);
        let is_new = self.here.insert((task.session, task.request.seq), count).is_none();
        if let Some(Owes::Operations(missing)) = self.owes.get_mut(&task.session).filter(|_| is_new) {
            *missing = missing.saturating_sub(count);
        }
        self.collected.push(task);
    }

    /// True when there is nothing more to wait for. `heard`: when a session said something last.
    pub(crate) fn is_over(&self, mono: Duration, heard: impl Fn(SessionId) -> Duration) -> bool {
        // Blocks that go before the operations may be many.
        let Window { opened, grace, sending_max, gone_until } = self.window;
        let is_sending = |id: &SessionId| self.owes[id] != Owes::Itself && mono < heard(*id) + grace;
        let is_away = |id: &SessionId| self.owes[id] == Owes::Itself;
        let has_ended = |id: &SessionId| is_away(id) && self.ended.contains(id);
        let is_gone = |id: &SessionId| has_ended(id) || is_away(id) && self.gone.contains(id);
        let missing = self.missing();
        let waited = mono.saturating_sub(opened);
        missing.iter().all(has_ended)
            || waited >= sending_max
            || (waited >= grace && !missing.iter().any(is_sending))
            || (mono >= gone_until && missing.iter().all(is_gone))
    }

    /// Sessions that did not come back, or did not declare, or have not sent all that they owe.
    pub(crate) fn missing(&self) -> Vec<SessionId> {
        let is_missing =
            |(id, owes): &(&SessionId, &Owes)| **owes != Owes::Operations(0) || self.undeclared.contains(*id);
        self.owes.iter().filter(is_missing).map(|(id, _)| *id).collect()
    }

    /// The resends in the order in which they are to be carried out.
    pub(crate) fn finish(mut self) -> Vec<Task> {
        self.collected.sort_by_key(|task| {
            let again = task.request.again.unwrap_or_default();
            // Operations that an earlier start answered took effect before all later ones, there as here.
            let former = match &task.request.call {
                _ if again.position != Position(0) => (0, again.boot, again.position),
                // Its callers were answered, and no other client saw what they saw.
                Call::WriteBehind { .. } => (1, 0, Position(0)),
                // Each later start carried out an earlier start's operations before anything new: others may have seen them there.
                _ => (2, again.boot, Position(0)),
            };
            (former, task.session, task.request.seq)
        });
        self.collected
    }

    /// Sessions that are waited for, and resends that are here.
    pub(crate) fn state(&self) -> (usize, usize) {
        (self.missing().len(), self.collected.len())
    }
}

impl Resends {
    /// The place of the first operation that may explain why one that is refused now was answered with success before the crash: it was
    /// never answered, so its place in the former order is not known, and it is about the same name. Its client sent it to the
    /// start that answered the other, or to an earlier one.
    pub(crate) fn explaining(&self, refused: &Op, session: SessionId, again: Again) -> Option<usize> {
        let names = refused.footprint();
        let is_about_it = |op: &Op| {
            let footprint = op.footprint();
            footprint.names().any(|a| names.names().any(|b| (a.dir, a.name) == (b.dir, b.name)))
        };
        self.tasks.iter().position(|task| {
            let sent_to = task.request.again.filter(|again| again.position == Position(0));
            let is_early = sent_to.is_some_and(|sent_to| sent_to.boot <= again.boot);
            let is_single = matches!(task.request.call, Call::Op { .. });
            is_early
                && is_single
                && task.session != session
                && task.request.call.ops().iter().any(is_about_it)
        })
    }
}

fn operation_count(task: &Task) -> u32 {
    match &task.request.call {
        Call::Batch { ops, .. } | Call::WriteBehind { ops, .. } => {
            u32::try_from(ops.len()).unwrap_or(u32::MAX)
        }
        _ => 1,
    }
}

#[cfg(test)]
mod declared;

#[cfg(test)]
mod tests {
    use chiton_types::{Cred, Epoch};
    use chiton_wire::Request;

    use super::*;

    fn never(_: SessionId) -> Duration {
        Duration::ZERO
    }

    fn task(session: u64, seq: u64, position: u64) -> Task {
        let again = Again { position: Position(position), ..Again::default() };
        let request = Request {
            id: seq,
            seq: Seq(seq),
            settled: Seq(0),
            epoch: Epoch(0),
            again: Some(again),
            cred: Cred::ROOT,
            call: Call::Ping,
        };
        Task::new(SessionId(session), request)
    }

    #[test]
    fn resends_take_their_former_order() {
        let late = Duration::from_secs(10);
        let mut r = Recovery::new(
            [SessionId(1), SessionId(2), SessionId(3)].into_iter(),
            Window::plain(Duration::ZERO, late),
        );
        assert!(!r.is_over(Duration::ZERO, never));
        r.resumed(SessionId(2), 3);
        for (session, seq, position) in [(2, 5, 0), (2, 3, 20), (2, 4, 40)] {
            r.collect(task(session, seq, position));
        }
        r.collect(task(1, 7, 30));
        r.resumed(SessionId(1), 2);
        assert_eq!(r.state(), (3, 4), "none has declared");
        r.collect(task(1, 8, 0));
        r.declared(SessionId(1));
        r.declared(SessionId(2));
        assert!(!r.is_over(Duration::ZERO, never) && r.is_over(late, never));
        assert_eq!(r.missing(), [SessionId(3)]);
        let order = r.finish();
        let order: Vec<_> = order.iter().map(|t| (t.session.0, t.request.seq.0)).collect();
        assert_eq!(order, [(2, 3), (1, 7), (2, 4), (1, 8), (2, 5)]);
    }

    /// The answer was lost, and others saw the effect before the next crash took it back.
    #[test]
    fn what_an_earlier_start_got_comes_before_what_a_later_one_got() {
        let both = [SessionId(1), SessionId(2)];
        let mut r = Recovery::new(both.into_iter(), Window::plain(Duration::ZERO, Duration::from_secs(10)));
        let sent_to = |session, seq, boot| {
            let mut task = task(session, seq, 0);
            task.request.again = Some(Again { boot, ..Again::default() });
            task
        };
        r.collect(sent_to(1, 7, 3));
        r.collect(sent_to(2, 5, 2));
        r.collect(sent_to(2, 6, 3));
        let order: Vec<_> = r.finish().iter().map(|t| (t.session.0, t.request.seq.0)).collect();
        assert_eq!(order, [(2, 5), (1, 7), (2, 6)]);
    }

    #[test]
    fn who_is_back_and_sends_is_waited_for_longer_and_then_forgotten() {
        let seconds = Duration::from_secs;
        let mut r =
            Recovery::new([1, 2, 3].map(SessionId).into_iter(), Window::plain(seconds(5), seconds(10)));
        r.resumed(SessionId(1), 2);
        r.resumed(SessionId(2), 0);
        r.declared(SessionId(1));
        r.declared(SessionId(2));
        r.collect(task(1, 5, 7));
        let heard = |at| move |id: SessionId| if id == SessionId(1) { seconds(at) } else { seconds(100) };
        assert!(!r.is_over(seconds(15), heard(6)), "of the first, one is missing");
        assert!(r.is_over(seconds(16), heard(6)), "and it says nothing more");
        assert!(!r.is_over(seconds(34), heard(34)), "while it does it is waited for");
        assert!(r.is_over(seconds(35), heard(35)), "but not for ever");
        assert_eq!(r.missing(), [SessionId(1), SessionId(3)]);
        r.collect(task(1, 6, 8));
        assert!(!r.is_over(seconds(14), heard(14)), "one is not back");
        assert!(r.is_over(seconds(15), heard(15)));
        assert_eq!(r.missing(), [SessionId(3)]);
        r.resumed(SessionId(1), 3);
        assert_eq!(r.gone(SessionId(1)).len(), 2, "both lose their sessions");
        assert!(r.is_over(seconds(15), never));
        assert_eq!(r.finish().len(), 0, "what the forgotten sent is not carried out");
    }

    /// A connection brings the first of them and breaks, and the next one brings all again.
    #[test]
    fn what_comes_once_more_counts_once() {
        let mut r =
            Recovery::new([SessionId(1)].into_iter(), Window::plain(Duration::ZERO, Duration::from_secs(10)));
        r.resumed(SessionId(1), 3);
        r.declared(SessionId(1));
        r.collect(task(1, 5, 7));
        r.collect(task(1, 6, 8));
        r.resumed(SessionId(1), 3);
        r.declared(SessionId(1));
        r.collect(task(1, 5, 7));
        r.collect(task(1, 6, 8));
        assert!(!r.is_over(Duration::ZERO, never), "the third has not come");
        r.collect(task(1, 7, 9));
        assert!(r.is_over(Duration::ZERO, never));
        let order: Vec<_> = r.finish().iter().map(|task| task.request.seq.0).collect();
        assert_eq!(order, [5, 5, 6, 6, 7], "each of those that wait gets an answer");
    }

    #[test]
    fn no_sessions_no_window() {
        let nine = Duration::from_secs(9);
        assert!(
            Recovery::new(std::iter::empty(), Window::plain(Duration::ZERO, nine))
                .is_over(Duration::ZERO, never)
        );
        let mut r = Recovery::new([SessionId(1)].into_iter(), Window::plain(Duration::ZERO, nine));
        r.gone(SessionId(1));
        assert!(r.is_over(Duration::ZERO, never));
    }

    #[test]
    fn a_session_that_is_back_counts_when_it_has_declared() {
        let ten = Duration::from_secs(10);
        let mut r =
            Recovery::new([SessionId(1), SessionId(2)].into_iter(), Window::plain(Duration::ZERO, ten));
        r.resumed(SessionId(1), 0);
        r.resumed(SessionId(2), 0);
        assert!(!r.is_over(Duration::ZERO, never), "neither may know that it must not believe its cache");
        r.declared(SessionId(1));
        assert!(!r.is_over(Duration::ZERO, never));
        r.declared(SessionId(2));
        assert!(r.is_over(Duration::ZERO, never));
        // Once more: the first connection broke.
        r.resumed(SessionId(2), 0);
        assert!(!r.is_over(Duration::ZERO, never));
        assert!(r.is_over(ten, never), "it is waited for no longer than others");
        assert_eq!(r.missing(), [SessionId(2)]);
        r.gone(SessionId(2));
        assert!(r.is_over(Duration::ZERO, never));
    }

    /// S120: a client that died with the server does not make the others wait.
    #[test]
    fn clients_that_are_gone_are_waited_for_only_while_they_may_believe_their_caches() {
        let ms = Duration::from_millis;
        let window = Window::new((ms(5_000), ms(5_300)), ms(1_000), ms(750), ms(30_000));
        let mut r = Recovery::new([1, 2, 3].map(SessionId).into_iter(), window);
        r.resumed(SessionId(1), 0);
        r.declared(SessionId(1));
        r.note_gone(|id| id != SessionId(2));
        assert!(!r.is_over(ms(5_750), never), "one is neither back nor gone");
        r.note_gone(|_| true);
        assert!(!r.is_over(ms(5_749), never), "a cache may still be believed");
        assert!(r.is_over(ms(5_750), never));
        r.resumed(SessionId(2), 1);
        assert!(!r.is_over(ms(5_750), never), "one came back after all, and sends");
        r.note_gone(|id| id == SessionId(3));
        r.declared(SessionId(2));
        r.collect(task(2, 5, 7));
        assert!(r.is_over(ms(5_750), never));
        r.note_gone(|_| false);
        assert!(!r.is_over(ms(6_299), never), "the last may be on its way");
        assert!(r.is_over(ms(6_300), never));
        assert_eq!(r.missing(), [SessionId(3)]);
    }

    #[test]
    fn clients_that_cannot_come_back_are_not_waited_for() {
        let ten = Duration::from_secs(10);
        let both = [SessionId(1), SessionId(2)];
        let mut r = Recovery::new(both.into_iter(), Window::plain(Duration::ZERO, ten));
        r.note_ended(|id| id == SessionId(2));
        assert!(!r.is_over(Duration::ZERO, never), "the other one may come back");
        r.resumed(SessionId(1), 0);
        r.declared(SessionId(1));
        assert!(r.is_over(Duration::ZERO, never));
        assert_eq!(r.missing(), [SessionId(2)], "and its session ends");
    }

    #[test]
    fn a_short_window_waits_for_those_that_send_as_long_as_their_sessions_live() {
        let ms = Duration::from_millis;
        let window = Window::new((ms(0), ms(0)), ms(1_000), ms(750), ms(30_000));
        let mut r = Recovery::new([SessionId(1)].into_iter(), window);
        r.resumed(SessionId(1), 1);
        r.declared(SessionId(1));
        assert!(!r.is_over(ms(29_999), |_| ms(29_500)));
        assert!(r.is_over(ms(30_000), |_| ms(29_500)));
    }
}
