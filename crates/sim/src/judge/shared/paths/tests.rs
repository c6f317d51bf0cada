use super::*;

/// Runs the steps of calls in an order, and shows the last answers: `mkdir`, `stat`, `mv`, `swap` and so on, of paths below the tops.
fn answers(calls: &[Action], order: &[usize]) -> Vec<PathAnswer> {
    let mut tree = Tree::new();
    let mut steps = vec![0; calls.len()];
    let mut last = vec![PathAnswer::NotYet; calls.len()];
    for &n in order {
        let call = Call { step: steps[n], ..Call::new(n + 10, &calls[n]).expect("of these paths") };
        let (after, answer) = Paths.step(&tree, &call);
        (tree, last[n]) = (after, answer);
        steps[n] += 1;
    }
    last
}

fn path(short: &str) -> String {
    format!("{PATHS}/{short}")
}

fn mkdir(short: &str) -> Action {
    Action::Mkdir { path: path(short), mode: 0o755 }
}

fn stat(short: &str) -> Action {
    Action::Stat { path: path(short) }
}

fn rename(from: &str, to: &str) -> Action {
    Action::Rename { from: path(from), to: path(to) }
}

#[test]
fn names_on_the_way_are_looked_up_one_after_the_other() {
    let found = |n: usize| PathAnswer::Found(Some(n + 10));
    let all =
        [mkdir("t0/d0"), mkdir("t0/d0/d1"), rename("t0/d0", "t2/d0"), stat("t0/d0/d1"), stat("t2/d0/d1")];
    // A lookup that has passed the name before it moves finds what is below.
    let said = answers(&all, &[0, 1, 1, 3, 2, 3, 4, 4]);
    assert_eq!(said, [found(0), found(1), PathAnswer::Done, found(1), found(1)]);
    let said = answers(&all, &[0, 1, 1, 2, 3, 3, 4, 4]);
    assert_eq!(said[3], PathAnswer::Refused);
    assert_ne!(found(1), found(2));
    assert_eq!(found(1), PathAnswer::Found(None));
}

#[test]
fn a_step_whose_turn_it_is_not_says_so() {
    let call = Call { step: 1, ..Call::new(10, &stat("t0/d0/d1")).unwrap() };
    assert_eq!(Paths.step(&Tree::new(), &call), (Tree::new(), PathAnswer::NotYet));
}

#[test]
fn a_directory_is_not_moved_into_itself_nor_over_a_full_one() {
    let full = [
        mkdir("t0/d0"),
        mkdir("t0/d0/d1"),
        mkdir("t1/d0"),
        rename("t1/d0", "t0/d0"),
        rename("t0/d0", "t1/d0"),
    ];
    assert_eq!(answers(&full, &[0, 1, 1, 2, 3, 4])[3..], [PathAnswer::Refused, PathAnswer::Done]);
    let into = [mkdir("t0/d0"), mkdir("t0/d0/d1"), rename("t0/d0", "t0/d0/d1/d0")];
    assert_eq!(answers(&into, &[0, 1, 1, 2, 2, 2])[2], PathAnswer::Refused);
    let swap =
        [mkdir("t0/d0"), mkdir("t0/d0/d1"), Action::Exchange { from: path("t0/d0/d1"), to: path("t0/d0") }];
    assert_eq!(answers(&swap, &[0, 1, 1, 2, 2])[2], PathAnswer::Refused);
}

#[test]
fn a_file_that_lost_its_last_name_gets_no_other() {
    let create = Action::Create { path: path("t0/f0"), content: Vec::new() };
    let link = Action::Link { from: path("t0/f0"), to: path("t1/f1") };
    let all = [create, link, Action::Unlink { path: path("t0/f0") }];
    assert_eq!(answers(&all, &[0, 1, 1, 2])[1], PathAnswer::Done);
    assert_eq!(answers(&all, &[0, 1, 2, 1])[1], PathAnswer::Refused);
}
