//! Hides temporary names, which a job gives and removes within one merge batch: only the client itself was meant to
//! see them.
//!
//! ```text
//!   make f as "x" · write f · rename "x" to "y"    ──▶    make f as ".chiton-…" · write f · rename ".chiton-…" to "y"
//! ```
//!
//! The name may pass between inodes that the batch made, by renames over it and by exchanges, as long as none has it in the end.
//!
//! A merge carries out the journal step by step. Programs write under a temporary name and move the file to its
//! place. If another client has a file of that name, the two would conflict over a name that ours does not keep,
//! and the merge would move one of them aside.
//!
//! A further name of a file that is removed again leaves only times, if nothing else happens to the file meanwhile:
//!
//! ```text
//!   link f as "x" · unlink f at "x"    ──▶    change time of f · times of the directory
//! ```
//!
//! So the merge does not bring a file back that others removed, only to give it a name and to take it again.
//!
//! A file that is exchanged with a temporary one and removed under the temporary name was replaced:
//!
//! ```text
//!   make t as "x" · exchange "x" and f · unlink f at "x"    ──▶    make t as ".chiton-…" · rename ".chiton-…" over f · times of the directory
//! ```
//!
//! Invariants:
//! - The result of a batch stays the same, and so do the order and number of its events.
//! - Deterministic: it depends on the batch alone.

use std::collections::BTreeMap;

use chiton_model::{Event, Over};
use chiton_types::{Ino, Kind, Name};
use hashbrown::{HashMap, HashSet};

/// A unique name. `leaver` is the index of the event in the batch that removes it.
fn unique_name(ino: Ino, leaver: usize) -> Name {
    Name::new(format!(".chiton-{:016x}-{leaver}", ino.0).as_bytes()).expect("short, and without a slash")
}

/// Which of an event's names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// That which it gives or removes; of a rename the new one.
    Given,
    /// The old one of a rename.
    Left,
}

/// Events that speak of a name, from the one that gives it on: other inodes may have taken it since, one from the other.
type Span = Vec<(usize, Which)>;

/// Replaces temporary names by unique ones.
pub(crate) fn hide_temporary(events: &mut [Event]) {
    let gives_up = |event: &Event| matches!(event, Event::Rename { .. } | Event::Unlink { .. });
    if !events.iter().any(gives_up) {
        return;
    }
    // Names that the batch gave, and nothing had before; and the inodes that it made.
    let mut spans: BTreeMap<(Ino, Name), Span> = BTreeMap::new();
    let mut made: HashSet<Ino> = HashSet::new();
    let leaves_times = |event: &Event| {
        matches!(event, Event::Link { .. } | Event::Rename { over: Over::Exchanged { .. }, .. })
    };
    let leaves_times = events.iter().any(leaves_times);
    // Exchanges that gave a temporary name to a file of before, and what spoke of the name until then.
    let mut exchanged: HashMap<(Ino, Name), Span> = HashMap::new();
    let mut last_uses: HashMap<Ino, usize> = HashMap::new();
    for at in 0..events.len() {
        let used = event_loser(&events[at]).and_then(|ino| last_uses.get(&ino).copied());
        if leaves_times {
            note_uses(&mut last_uses, &events[at], at);
        }
        let mut left = None;
        if let Event::Make { parent, name, ino, .. } | Event::Link { parent, name, ino, .. } = &events[at] {
            if matches!(events[at], Event::Make { .. }) {
                made.insert(*ino);
            }
            spans.insert((*parent, name.clone()), vec![(at, Which::Given)]);
        } else if let Event::Rename { from, from_name, to, to_name, ino, over, .. } = &events[at] {
            let (old, new) = ((*from, from_name.clone()), (*to, to_name.clone()));
            let is_new = spans.contains_key(&old);
            let stays = |other: Ino, was_hidden: bool| was_hidden || made.contains(&other);
            let was_hidden = spans.contains_key(&new);
            match spans.get_mut(&new) {
                Some(span) if stays(*ino, is_new) => span.push((at, Which::Given)),
                Some(_) => drop(spans.remove(&new)),
                None if is_new && *over == Over::Nothing => {
                    spans.insert(new, vec![(at, Which::Given)]);
                }
                // Something had the name before the batch, or gets it that had another then: that leaves a trace.
                None => {}
            }
            if let Some(span) = spans.get_mut(&old) {
                span.push((at, Which::Left));
            }
            match over {
                Over::Exchanged { ino: other, .. } if !stays(*other, was_hidden) => {
                    exchanged.extend(spans.remove(&old).map(|span| (old, span)));
                }
                Over::Exchanged { .. } => {}
                Over::Nothing | Over::Replaced { .. } => left = Some((*ino, old)),
            }
        } else if let Event::Unlink { parent, name, ino, .. } = &events[at] {
            let (old, ino) = ((*parent, name.clone()), *ino);
            if let Some(span) = exchanged.remove(&old)
                && let Some((exchange, _)) = span.last().filter(|(exchange, _)| used == Some(*exchange))
                && let Some(mover) = replace(events, *exchange, at)
            {
                hide(events, &span, mover);
                continue;
            }
            if let Some(span) = spans.get_mut(&old) {
                span.push((at, Which::Given));
            }
            left = Some((ino, old));
        }
        let Some((ino, place)) = left else { continue };
        let Some(span) = spans.remove(&place) else { continue };
        if let [(giver, _), _] = span[..]
            && used == Some(giver)
            && leave_times(events, giver, at)
        {
            continue;
        }
        hide(events, &span, ino);
    }
}

/// The file that loses a name.
fn event_loser(event: &Event) -> Option<Ino> {
    if let Event::Unlink { ino, .. } = event { Some(*ino) } else { None }
}

fn note_uses(last_uses: &mut HashMap<Ino, usize>, event: &Event, at: usize) {
    let footprint = event.footprint();
    last_uses.extend(footprint.inodes().iter().map(|touch| (touch.ino, at)));
    last_uses
        .extend(footprint.names().flat_map(|name| [name.before, name.after]).flatten().map(|ino| (ino, at)));
}

/// A further name that is removed again leaves the times of the file and of the directory. False: the events are others.
fn leave_times(events: &mut [Event], giver: usize, leaver: usize) -> bool {
    let Event::Link { ino, .. } = events[giver] else { return false };
    let Event::Unlink { parent, orphan: false, time, .. } = events[leaver] else { return false };
    let (mode, uid, gid, size, atime, mtime) = (None, None, None, None, None, None);
    events[giver] = Event::SetAttr { ino, mode, uid, gid, size, atime, mtime, ctime: time };
    events[leaver] = Event::Touch { ino: parent, time };
    true
}

/// All events of a span speak of another name; `ino` bears it last.
fn hide(events: &mut [Event], span: &Span, ino: Ino) {
    let Some((leaver, _)) = span.last() else { return };
    let unique = unique_name(ino, *leaver);
    span.iter().for_each(|(at, which)| rename(&mut events[*at], *which, unique.clone()));
}

/// An exchange whose other file is removed next is a rename over it; returns the file that moves. `None`: the events are others.
fn replace(events: &mut [Event], exchange: usize, leaver: usize) -> Option<Ino> {
    let Event::Unlink { parent, ino: gone, orphan: false, time, .. } = events[leaver] else { return None };
    let Event::Rename { ino, kind, over, .. } = &mut events[exchange] else { return None };
    let Over::Exchanged { ino: other, kind: other_kind } = *over else { return None };
    if other != gone || *kind == Kind::Dir || other_kind == Kind::Dir {
        return None;
    }
    *over = Over::Replaced { ino: other, kind: other_kind, orphan: false };
    let mover = *ino;
    events[leaver] = Event::Touch { ino: parent, time };
    Some(mover)
}

/// The event speaks of another name.
fn rename(event: &mut Event, which: Which, unique: Name) {
    if let Event::Rename { from_name, to_name, .. } = event {
        *(if which == Which::Given { to_name } else { from_name }) = unique;
    } else if let Event::Make { name, .. } | Event::Link { name, .. } | Event::Unlink { name, .. } = event {
        *name = unique;
    } else {
        unreachable!("has no name: {event:?}");
    }
}

#[cfg(test)]
mod tests {
    use chiton_types::Time;

    use super::*;
    use crate::event_samples::{self, name};

    const DIR: Ino = Ino(1);

    fn make(ino: u64, text: &str) -> Event {
        event_samples::make(DIR, text, Ino(ino))
    }

    fn rename(ino: u64, from: &str, to: &str, over: Over) -> Event {
        event_samples::rename((DIR, from), (DIR, to), Ino(ino), over)
    }

    fn unlink(ino: u64, text: &str) -> Event {
        Event::Unlink {
            parent: DIR,
            name: name(text),
            ino: Ino(ino),
            orphan: false,
            kind: Kind::File,
            time: Time(3),
        }
    }

    fn check(mut events: Vec<Event>, expect: Vec<Event>) {
        hide_temporary(&mut events);
        assert_eq!(events, expect);
    }

    #[test]
    fn names_that_are_given_up_pass_under_others_and_all_else_stays() {
        let (p1, p2) = (".chiton-0000000000000007-1", ".chiton-0000000000000007-2");
        let q2 = ".chiton-0000000000000008-2";
        let touch = || Event::Touch { ino: Ino(7), time: Time(2) };
        check(
            vec![make(7, "x"), touch(), rename(7, "x", "y", Over::Nothing)],
            vec![make(7, p2), touch(), rename(7, p2, "y", Over::Nothing)],
        );
        // A rename over an existing name; and a chain of renames over several names.
        let over = || Over::Replaced { ino: Ino(3), kind: Kind::File, orphan: false };
        check(
            vec![make(7, "x"), rename(7, "x", "y", over()), rename(7, "y", "z", Over::Nothing)],
            vec![make(7, p1), rename(7, p1, "y", over()), rename(7, "y", "z", Over::Nothing)],
        );
        check(
            vec![make(7, "x"), rename(7, "x", "y", Over::Nothing), rename(7, "y", "z", Over::Nothing)],
            vec![make(7, p1), rename(7, p1, p2, Over::Nothing), rename(7, p2, "z", Over::Nothing)],
        );
        // A name that is used again, and a link that takes the first one's place.
        let link =
            || Event::Link { parent: DIR, name: name("y"), ino: Ino(7), kind: Kind::File, time: Time(2) };
        check(
            vec![make(7, "x"), link(), unlink(7, "x"), make(8, "x")],
            vec![make(7, p2), link(), unlink(7, p2), make(8, "x")],
        );
        // A further name that is removed again, of any file.
        let further = |name: &Name| Event::Link {
            parent: DIR,
            name: name.clone(),
            ino: Ino(7),
            kind: Kind::File,
            time: Time(2),
        };
        let (mode, uid, gid, size, atime, mtime) = (None, None, None, None, None, None);
        let changed = Event::SetAttr { ino: Ino(7), mode, uid, gid, size, atime, mtime, ctime: Time(3) };
        let entries_changed = Event::Touch { ino: DIR, time: Time(3) };
        check(
            vec![further(&name("y")), make(8, "z"), unlink(7, "y"), make(9, "y")],
            vec![changed, make(8, "z"), entries_changed, make(9, "y")],
        );
        // Of a file to which something happens meanwhile.
        let hidden = name(p2);
        check(
            vec![further(&name("y")), touch(), unlink(7, "y"), make(8, "y")],
            vec![further(&hidden), touch(), unlink(7, p2), make(8, "y")],
        );
        check(vec![further(&name("y")), unlink(7, "x")], vec![further(&name("y")), unlink(7, "x")]);
        let over_it = || Over::Replaced { ino: Ino(7), kind: Kind::File, orphan: false };
        check(
            vec![make(7, "x"), make(8, "t"), rename(8, "t", "x", over_it())],
            vec![make(7, "x"), make(8, q2), rename(8, q2, "x", over_it())],
        );
        // Names that existed before the batch, and exchanges.
        let alone = || vec![rename(7, "x", "y", Over::Nothing), rename(7, "y", "z", Over::Nothing)];
        check(alone(), alone());
        let exchange =
            || vec![make(7, "x"), rename(7, "x", "y", Over::Exchanged { ino: Ino(3), kind: Kind::File })];
        check(exchange(), exchange());
        check([exchange(), vec![unlink(7, "y")]].concat(), [exchange(), vec![unlink(7, "y")]].concat());
    }

    /// A file that is saved over a temporary name, or exchanged with it.
    #[test]
    fn names_that_pass_from_one_file_to_another_and_are_given_up_are_hidden() {
        let over = |ino: u64| Over::Replaced { ino: Ino(ino), kind: Kind::File, orphan: false };
        let swap = |ino: u64| Over::Exchanged { ino: Ino(ino), kind: Kind::File };
        let (p, q) = (".chiton-0000000000000008-3", ".chiton-0000000000000008-2");
        check(
            vec![
                make(7, "x"),
                make(8, "t"),
                rename(8, "t", "x", over(7)),
                rename(8, "x", "y", Over::Nothing),
            ],
            vec![make(7, p), make(8, q), rename(8, q, p, over(7)), rename(8, p, "y", Over::Nothing)],
        );
        let r = ".chiton-0000000000000007-3";
        check(
            vec![make(7, "y"), make(8, "x"), rename(7, "y", "x", swap(8)), unlink(7, "x")],
            vec![make(7, "y"), make(8, r), rename(7, "y", r, swap(8)), unlink(7, r)],
        );
        // A file of before, which others may have changed, keeps the name that it had for a while.
        let of_before = |over: Over| vec![make(7, "x"), rename(3, "y", "x", over), unlink(3, "x")];
        check(of_before(over(7)), of_before(over(7)));
        check(of_before(swap(7)), of_before(swap(7)));
        // As some editors save.
        let t = ".chiton-0000000000000007-1";
        check(
            vec![make(7, "x"), rename(7, "x", "y", swap(3)), unlink(3, "x")],
            vec![make(7, t), rename(7, t, "y", over(3)), Event::Touch { ino: DIR, time: Time(3) }],
        );
        let written = || {
            let touch = Event::Touch { ino: Ino(3), time: Time(2) };
            vec![make(7, "x"), rename(7, "x", "y", swap(3)), touch, unlink(3, "x")]
        };
        check(written(), written());
    }
}
