//! What the cache may learn from answers that were overtaken.

use chiton_namespace::{AttrChange, Make, Op, Outcome};
use chiton_proto::LeaseMode;
use chiton_types::{Ino, Mode, Name};

use super::fake_server::attr;
use crate::Recalls;
use crate::cache::Cache;

const DIR: Ino = Ino(1);

fn name(s: &str) -> Name {
    Name::try_from(s).expect("a name")
}

fn leased() -> (Cache, Recalls) {
    let (cache, recalls) = (Cache::new(100), Recalls::default());
    let since = cache.since(&recalls);
    cache.learn_dir(&recalls, since, DIR, true, true);
    (cache, recalls)
}

fn make(s: &str) -> Op {
    Op::Make { parent: DIR, name: name(s), make: Make::File { content: Vec::new() }, mode: Mode(0o644) }
}

fn made(ino: u64) -> Outcome {
    Outcome { attr: Some(attr(Ino(ino))), gone: None }
}

#[test]
fn names_are_believed_under_a_lease_until_it_is_recalled() {
    let (cache, recalls) = leased();
    let since = cache.since(&recalls);
    cache.learn_name(&recalls, since, DIR, &name("a"), Some(Ino(7)));
    cache.learn_name(&recalls, since, DIR, &name("b"), None);
    cache.learn_name(&recalls, since, Ino(2), &name("a"), Some(Ino(8)));
    assert_eq!(cache.name(DIR, &name("a")), Some((Some(Ino(7)), true)));
    assert_eq!(cache.name(DIR, &name("b")), Some((None, true)));
    assert_eq!(cache.name(Ino(2), &name("a")), None, "no lease on that directory");
    recalls.note(DIR);
    cache.recalled(DIR);
    assert_eq!(cache.name(DIR, &name("a")), None);
    // A new lease does not revive what was learned under the old one.
    cache.learn_dir(&recalls, cache.since(&recalls), DIR, true, true);
    assert_eq!(cache.name(DIR, &name("b")), None);
}

#[test]
fn an_answer_that_a_recall_overtook_teaches_nothing() {
    let (cache, recalls) = (Cache::new(100), Recalls::default());
    let since = cache.since(&recalls);
    recalls.note(DIR);
    cache.recalled(DIR);
    cache.learn_dir(&recalls, since, DIR, true, true);
    cache.learn_name(&recalls, since, DIR, &name("a"), None);
    assert_eq!(cache.name(DIR, &name("a")), None);
    assert!(!cache.is_open(DIR));
    let since = cache.since(&recalls);
    recalls.note(Ino(7));
    cache.learn_attr(&recalls, since, &attr(Ino(7)), LeaseMode::Shared);
    assert_eq!(cache.attr(Ino(7)), None);
}

#[test]
fn own_changes_are_known_at_once_and_beat_answers_that_were_under_way() {
    let (cache, recalls) = leased();
    let asked = cache.since(&recalls);
    let since = cache.since(&recalls);
    cache.changed(&recalls, since, &make("a"), &made(7), LeaseMode::Exclusive);
    assert_eq!(cache.name(DIR, &name("a")), Some((Some(Ino(7)), true)));
    assert!(cache.attr(Ino(7)).is_some());
    cache.learn_name(&recalls, asked, DIR, &name("a"), None);
    assert_eq!(cache.name(DIR, &name("a")), Some((Some(Ino(7)), true)), "that lookup was before");
    // Two changes of one name, answered in the wrong order: ask.
    let (first, second) = (cache.since(&recalls), cache.since(&recalls));
    let unlink = Op::Unlink { parent: DIR, name: name("a") };
    cache.changed(&recalls, second, &unlink, &Outcome::default(), LeaseMode::None);
    cache.changed(&recalls, first, &make("a"), &made(8), LeaseMode::Exclusive);
    assert_eq!(cache.name(DIR, &name("a")), None);
    // A name that is unlinked is known to be absent, and its directory has other times.
    let since = cache.since(&recalls);
    cache.learn_attr(&recalls, since, &attr(DIR), LeaseMode::Shared);
    cache.changed(&recalls, since, &unlink, &Outcome::default(), LeaseMode::None);
    assert_eq!(cache.name(DIR, &name("a")), Some((None, true)));
    assert_eq!(cache.attr(DIR), None);
    // Search rights may have changed: ask who may search.
    let change = AttrChange { mode: Some(Mode(0o700)), ..AttrChange::default() };
    let chmod = Op::SetAttr { ino: DIR, change };
    cache.changed(&recalls, cache.since(&recalls), &chmod, &made(DIR.0), LeaseMode::Shared);
    assert!(!cache.is_open(DIR));
    assert_eq!(cache.name(DIR, &name("a")), None);
}
