//! Histories and trees that the oracle must accept, and such that it must not.

use chiton_types::Name;

use super::*;
use crate::model::{Birth, NewInode};

fn make(name: &str, ino: u64, content: &[u8]) -> Entry {
    let name = Name::try_from(name).unwrap();
    let what = NewInode::File(content.to_vec());
    let action = Change::Make { parent: Ino::ROOT, name, ino: Ino(ino), what, birth: Birth::of_root(0o644) };
    Entry::Act(action, Time(ino as i64))
}

fn write(ino: u64, bytes: &[u8]) -> Change {
    Change::Write { ino: Ino(ino), pieces: vec![(0, bytes.to_vec())], size: 0 }
}

fn start() -> Model {
    Model::new(Time(0))
}

/// The tree after a crash that loses all entries from `n` on.
fn after(entries: &[Entry], n: usize) -> Tree {
    let mut replay = Replay::new(&start());
    entries[..n].iter().for_each(|entry| replay.step(entry, &|_| true).unwrap());
    let mut model = replay.branches[0].model.clone();
    model.close_all();
    model.to_tree()
}

fn history(entries: &[Entry]) -> History {
    with(History::new(start()), entries)
}

fn with(mut history: History, entries: &[Entry]) -> History {
    entries.iter().for_each(|entry| history.push(entry.clone()));
    history
}

/// From a split on, the part's plate decides what happens under its names.
#[test]
fn an_operation_under_a_name_of_a_part_belongs_to_its_plate() {
    let plates = Plates::new(2, 2).unwrap();
    let home = Ino::ROOT;
    let part = Ino::new(chiton_types::ShardId(1), 77);
    let parts = chiton_model::equal_parts(&[home, part]);
    let name = (0..).map(|n| format!("n{n}")).find(|name| {
        chiton_model::part_of(&parts, Name::try_from(name.as_str()).unwrap().hash64()) == Some(part)
    });
    let name = name.unwrap();
    // Plate 0 loses what it decided; plate 1 has its own.
    for is_split in [false, true] {
        let mut history = History::over(plates, start());
        if is_split {
            history.set_parts(home, parts.clone());
        }
        history.push(make(&name, 3, b""));
        let kept = after(&[make(&name, 3, b"")], 1);
        assert!(history.judge_plates(&[0, 1], 1, &kept).is_ok());
        let lost = history.judge_plates(&[0, 1], 1, &after(&[], 0));
        assert_eq!(lost.is_err(), is_split, "a living plate has what it has answered");
    }
}

#[test]
fn every_prefix_from_the_last_promise_on_is_right_and_no_shorter_one() {
    let entries =
        [make("a", 2, b""), make("b", 3, b""), Entry::Durable, make("c", 4, b""), make("d", 5, b"")];
    let history = history(&entries);
    for n in 0..=entries.len() {
        let judged = history.judge(entries.len(), &after(&entries, n));
        assert_eq!(judged.is_ok(), n >= 2, "a prefix of {n} entries: {judged:?}");
    }
    // Before the promise was made, anything goes.
    assert_eq!(history.judge(2, &after(&entries, 0)), Ok(0));
    // An entry that had not begun cannot have an effect.
    assert!(history.judge(3, &after(&entries, 4)).is_err());
}

#[test]
fn holes_in_the_order_half_actions_and_changed_times_are_seen() {
    let entries = [make("a", 2, b"one"), make("b", 3, b"two"), make("c", 4, b"three")];
    let history = history(&entries);
    let all = after(&entries, 3);
    assert_eq!(history.judge(3, &all), Ok(3));
    let without_b = after(&[entries[0].clone(), entries[2].clone()], 2);
    assert!(history.judge(3, &without_b).is_err(), "the second is missing, the third is there");
    let mut half = all.clone();
    half.nodes.get_mut("/c").unwrap().content = b"thr".to_vec();
    half.nodes.get_mut("/c").unwrap().size = 3;
    assert!(history.judge(3, &half).is_err(), "half of the content");
    let mut late = all.clone();
    late.nodes.get_mut("/").unwrap().mtime = Time(99);
    let said = history.judge(3, &late).unwrap_err().what;
    assert!(said.contains("after 3: /: the mtime is"), "{said}");
}

#[test]
fn buffered_content_may_exist_early_and_must_exist_once_pushed() {
    let buffered = Entry::Buffered(Ino(2), write(2, b"xyz"), Time(7));
    let entries = [
        make("a", 2, b"abc"),
        Entry::Durable,
        buffered,
        make("b", 3, b""),
        Entry::Pushed(None),
        Entry::Durable,
    ];
    let history = history(&entries);
    // Lost with the client, although a later action survived.
    assert_eq!(history.judge(4, &after(&entries, 4)), Ok(4));
    // Pushed automatically.
    let early = [entries[0].clone(), Entry::Act(write(2, b"xyz"), Time(7))];
    assert_eq!(history.judge(3, &after(&early, 2)), Ok(3));
    assert!(history.judge(2, &after(&early, 2)).is_err(), "before it was written");
    // After the promise it must be there.
    assert!(history.judge(6, &after(&entries, 4)).is_err());
    assert_eq!(history.judge(6, &after(&entries, 6)), Ok(6));
}

#[test]
fn only_content_that_was_given_up_may_be_lost() {
    let at = |ino, offset, byte: u8| {
        let change = Change::Write { ino: Ino(ino), pieces: vec![(offset, vec![byte])], size: 0 };
        Entry::Buffered(Ino(ino), change, Time(9))
    };
    let acts = |entries: &[&Entry]| -> Vec<Entry> {
        let act = |entry: &&Entry| match *entry {
            Entry::Buffered(_, change, time) => Entry::Act(change.clone(), *time),
            entry => entry.clone(),
        };
        entries.iter().map(act).collect()
    };
    let [a, b] = [make("a", 2, b"...."), make("b", 3, b"....")];
    let [first, second, third, other] = [at(2, 0, 1), at(2, 1, 2), at(2, 2, 3), at(3, 0, 4)];
    let entries = [&a, &b, &first, &second, &other, &Entry::Lost(Ino(2)), &third, &Entry::Pushed(None)]
        .map(Clone::clone);
    let history = history(&[&entries[..], &[Entry::Durable]].concat());
    let judge = |left: &[&Entry]| history.judge(history.len(), &after(&acts(left), left.len())).is_ok();
    // Of the content that was given up, none, the oldest, or all had been pushed.
    assert!(judge(&[&a, &b, &other, &third]));
    assert!(judge(&[&a, &b, &first, &other, &third]));
    assert!(judge(&[&a, &b, &first, &second, &other, &third]));
    assert!(!judge(&[&a, &b, &second, &other, &third]), "the younger without the older");
    assert!(!judge(&[&a, &b, &first, &second, &other]), "what was written afterwards is not lost");
    assert!(!judge(&[&a, &b, &first, &second, &third]), "nor is what was written to other files");
    // Without the loss it is wrong that an older write is missing.
    let kept: Vec<Entry> = entries.iter().filter(|entry| **entry != Entry::Lost(Ino(2))).cloned().collect();
    let kept = self::history(&[&kept[..], &[Entry::Durable]].concat());
    let left = acts(&[&a, &b, &other, &third]);
    assert!(kept.judge(kept.len(), &after(&left, left.len())).is_err());
}

/// Two shards, two plates: /d lives on the second one, and with it the names in it.
fn over_plates() -> (History, Vec<Entry>) {
    let d = Ino::new(chiton_types::ShardId(1), 1);
    let name = |name: &str| Name::try_from(name).unwrap();
    let act = |n: i64, change| Entry::Act(change, Time(n));
    let dir = Change::Make {
        parent: Ino::ROOT,
        name: name("d"),
        ino: d,
        what: NewInode::Dir,
        birth: Birth::of_root(0o755),
    };
    let below = |file: &str, counter| Change::Make {
        parent: d,
        name: name(file),
        ino: Ino::new(chiton_types::ShardId(1), counter),
        what: NewInode::File(b"x".to_vec()),
        birth: Birth::of_root(0o644),
    };
    let moved = Change::Rename {
        from: Ino::ROOT,
        from_name: name("d"),
        to: Ino::ROOT,
        to_name: name("e"),
        how: chiton_model::RenameHow::Replace,
        whiteout: crate::model::unknown(0),
        owner: (0, 0),
    };
    let entries = vec![
        act(1, dir),           // plate 0
        act(2, below("f", 2)), // plate 1
        Entry::Durable,
        make("a", 3, b""),     // plate 0
        act(4, below("g", 3)), // plate 1
        act(5, moved),         // plate 0, and the inode is of plate 1
        act(6, below("h", 4)), // plate 1
    ];
    let plates = Plates::new(2, 2).unwrap();
    (with(History::over(plates, start()), &entries), entries)
}

#[test]
fn each_plate_has_a_prefix_of_its_own_no_shorter_than_the_last_promise() {
    let (history, entries) = over_plates();
    let judge = |kept: &[usize]| {
        let kept: Vec<Entry> = kept.iter().map(|n| entries[*n].clone()).collect();
        history.judge(entries.len(), &after(&kept, kept.len()))
    };
    let prefixes = |own: [usize; 3]| (0..=3).map(move |n| own[..n].to_vec());
    for zero in prefixes([0, 3, 5]) {
        for one in prefixes([1, 4, 6]) {
            let mut kept = [zero.clone(), one.clone()].concat();
            kept.sort_unstable();
            let is_possible = !zero.is_empty() || one.is_empty();
            if is_possible {
                let is_right = !zero.is_empty() && !one.is_empty();
                assert_eq!(judge(&kept).is_ok(), is_right, "{kept:?}: {:?}", judge(&kept));
            }
        }
    }
    // A hole in the order of one plate.
    assert!(judge(&[0, 1, 5]).is_err());
    assert!(judge(&[0, 1, 3, 6]).is_err());
    // The same history of one plate has one order.
    let one = with(History::new(start()), &entries);
    assert!(judge(&[0, 1, 4]).is_ok());
    let without_a: Vec<Entry> = [0, 1, 4].iter().map(|n| entries[*n].clone()).collect();
    assert!(one.judge(entries.len(), &after(&without_a, 3)).is_err());
}

#[test]
fn a_plate_that_lives_keeps_all_that_it_has_answered() {
    let (history, entries) = over_plates();
    let kept: Vec<Entry> = [0, 1, 3, 4].iter().map(|n| entries[*n].clone()).collect();
    let found = after(&kept, kept.len());
    assert!(history.judge_plates(&[2, 2], 7, &found).is_ok());
    assert!(history.judge_plates(&[2, 5], 7, &found).is_ok());
    assert!(history.judge_plates(&[2, 7], 7, &found).is_err(), "plate 1 has lost h");
    assert!(history.judge_plates(&[7, 2], 7, &found).is_err(), "plate 0 has lost the rename");
}

#[test]
fn half_an_operation_over_plates_is_seen() {
    let (history, entries) = over_plates();
    let all = after(&entries, entries.len());
    assert!(history.judge(7, &all).is_ok());
    let d = Ino::new(chiton_types::ShardId(1), 1);
    // The name is another, and the inode does not know it.
    let mut half = all.clone();
    half.nodes.get_mut("/e").unwrap().ctime = Time(4);
    assert!(history.judge(7, &half).is_err());
    // The inode knows it, and the directory does not.
    let before: Vec<Entry> = entries[..5].to_vec();
    let mut half = after(&before, 5);
    let dir = half.nodes.values_mut().find(|node| node.ino == d).unwrap();
    dir.ctime = Time(5);
    assert!(history.judge(7, &half).is_err());
}
