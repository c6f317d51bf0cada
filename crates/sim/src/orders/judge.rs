//! The judge: when all has come to rest, one order of the calls explains each answer and the tree that is left, and the rows of all
//! plates fit together.

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::{Ino, Kind, Name, Refusal, Time};
use chiton_wire as wire;

use super::scenario;
use super::world::World;
use crate::checkers::linear::{self, Seen, Spec, Verdict};
use crate::model::{Change, Model};

/// Number, kind and links by path.
type Shown = BTreeMap<String, (Ino, Kind, u32)>;

#[derive(Clone, Debug)]
enum Call {
    Change(Change),
    Find {
        parent: Ino,
        name: Name,
    },
    /// Everything is looked at.
    Look,
}

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Done,
    Refused(Refusal),
    Found(Option<Ino>),
    Tree(Shown),
}

/// A directory that was replaced lives on for a moment, so both say that it is no more.
fn refused(why: Refusal) -> Answer {
    Answer::Refused(if why == Refusal::Stale { Refusal::NotFound } else { why })
}

/// All calls take place at this time.
struct Calls(Time);

impl Spec for Calls {
    type State = Model;
    type Call = Call;
    type Answer = Answer;

    fn step(&self, state: &Model, call: &Call) -> (Model, Answer) {
        let mut after = state.clone();
        let answer = match call {
            Call::Change(change) => match after.apply(change, self.0) {
                Ok(()) => Answer::Done,
                Err(refusal) => refused(refusal),
            },
            Call::Find { parent, name } => match state.node(*parent) {
                Some(dir) => Answer::Found(dir.entries.get(name).copied()),
                None => refused(Refusal::Stale),
            },
            Call::Look => {
                let nodes = state.to_tree().nodes.into_iter();
                Answer::Tree(nodes.map(|(path, node)| (path, (node.ino, node.kind, node.nlink))).collect())
            }
        };
        (after, answer)
    }
}

/// Orders of a few calls, with room to spare.
const CONFIGURATIONS_MAX: usize = 10_000;

/// The fault of a world at rest, in words.
pub(super) fn judge(world: &mut World, start: &Model) -> Option<String> {
    world.wrong.take().or_else(|| is_left_over(world)).or_else(|| match tree(world) {
        Ok(shown) => order(world, start, shown),
        Err(wrong) => Some(wrong),
    })
}

/// Every call is answered, and no plate guards or owes anything.
fn is_left_over(world: &World) -> Option<String> {
    let unanswered = world.calls.iter().position(|sent| sent.ended.is_none());
    if let Some(call) = unanswered {
        return Some(format!("call {call} is never answered"));
    }
    let is_busy = |(at, node): (usize, &super::plate::Plate)| {
        let gauges = node.engine.peer_gauges();
        let left = (gauges.guards, gauges.crossings, gauges.outbox, gauges.requests);
        (left != (0, 0, 0, 0)).then(|| format!("plate {at} is not at rest: {gauges:?}"))
    };
    world.nodes.iter().enumerate().find_map(is_busy)
}

/// The tree over all plates, or why it is none.
fn tree(world: &mut World) -> Result<Shown, String> {
    let root = attr(world, Ino::ROOT)?;
    let mut shown = Shown::from([("/".to_owned(), (Ino::ROOT, Kind::Dir, root.nlink))]);
    let mut seen = BTreeSet::from([Ino::ROOT]);
    let mut parents: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
    let mut todo = vec![(String::new(), Ino::ROOT)];
    while let Some((path, dir)) = todo.pop() {
        let at = world.plate_of(dir);
        let entries =
            world.nodes[at].entries(dir).map_err(|why| format!("{path:?} is not listed: {why:?}"))?;
        for (name, ino, kind) in entries {
            let path = format!("{path}/{name}");
            let attr = attr(world, ino).map_err(|why| format!("{path}: {why}"))?;
            if attr.kind != kind {
                return Err(format!("{path} is entered as {kind:?} and is {:?}", attr.kind));
            }
            let is_new = seen.insert(ino);
            if kind == Kind::Dir {
                if !is_new || attr.parent != dir {
                    return Err(format!("{path} is also somewhere else; its parent is {}", attr.parent));
                }
                todo.push((path.clone(), ino));
            } else {
                parents.entry(ino).or_default().insert(dir);
            }
            shown.insert(path, (ino, kind, attr.nlink));
        }
    }
    for (ino, dirs) in parents {
        let parent = attr(world, ino)?.parent;
        if !dirs.contains(&parent) {
            return Err(format!("the parent of {ino} is {parent}, and it is in {dirs:?}"));
        }
    }
    // A replaced file lives on for a moment, for clients that have just looked it up.
    let named = |node: &mut super::plate::Plate| {
        let ns = node.engine.namespace();
        ns.inode_count() - ns.orphans().len() as u64
    };
    // The rows of every plate begin with the root.
    let roots = world.nodes.len() as u64 - 1;
    let count = world.nodes.iter_mut().map(named).sum::<u64>() - roots;
    if count != seen.len() as u64 {
        return Err(format!("{count} inodes, of which {} can be reached: {shown:?}", seen.len()));
    }
    Ok(shown)
}

fn attr(world: &mut World, ino: Ino) -> Result<chiton_types::Attr, String> {
    let at = world.plate_of(ino);
    world.nodes[at].attr(ino).map_err(|why| format!("inode {ino}: {why:?}"))
}

/// One order of the calls explains the answers and the tree.
fn order(world: &World, start: &Model, shown: Shown) -> Option<String> {
    let calls = world.calls.iter().enumerate();
    let mut history: Vec<Seen<Call, Answer>> = calls
        .map(|(n, sent)| {
            let (at, answer) = sent.ended.as_ref().expect("every call is answered");
            let (call, done) = match &sent.call {
                wire::Call::Query(wire::Query::Lookup { parent, name }) => {
                    let found = Answer::Found(answer.unwrap_or(None));
                    (Call::Find { parent: *parent, name: name.clone() }, found)
                }
                wire::Call::Op { op, .. } => (Call::Change(scenario::change(op, n, answer)), Answer::Done),
                other => panic!("no scenario has {other:?}"),
            };
            let answer = answer.map_or_else(refused, |_| done);
            Seen { by: n as u32, call, begun: sent.begun.unwrap_or(0), ended: Some((*at, answer)) }
        })
        .collect();
    let last = world.now + 1;
    let ended = Some((last + 1, Answer::Tree(shown)));
    history.push(Seen { by: u32::MAX, call: Call::Look, begun: last, ended });
    let now = world.nodes[0].m.now;
    match linear::check(&Calls(now), start, &history, CONFIGURATIONS_MAX) {
        Verdict::Linearizable(_) => None,
        Verdict::Not(violation) => Some(violation.what),
        Verdict::Undecided => Some("too many orders to decide".to_owned()),
    }
}
