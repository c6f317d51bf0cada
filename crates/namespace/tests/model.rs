//! A naive second implementation of the namespace runs beside it through long random histories.
//!
//! ```text
//!   steps ──▶ operation ──┬─▶ model (maps, nothing derived)          ─┐
//!                         └─▶ plan ─▶ events ─▶ apply ─▶ namespace   ─┴─▶ same answer? every so often: same tree?
//!                                       │ encode, decode                  at the end: garbage = blocks nobody uses?
//!                                       ├─▶ a second namespace (replay)
//!                                       └─▶ checkpoints, eviction, late fetches, crashes
//! ```
//!
//! The rules that both implement, in the order of the checks: the first that fails is the refusal. "Search" is execute
//! permission on a directory, "change" is write and execute. Capabilities
//! pass the checks that they pass on Linux, over the inodes of their user namespace; root has those that it says.
//!
//! | operation | checks |
//! |---|---|
//! | all | each inode named exists, or `Stale`; a parent is a directory, or `NotDir`; search in it, or `Access` |
//! | make | name free, or `Exists`; change; parent not removed, or `NotFound`; content <= 8 KiB or `TooBig`; target <= 4095 bytes or `NameTooLong`; target not empty, type and device number fit, or `Invalid`; device (but 0/0) only with MKNOD, or `NotPermitted` |
//! | link | name free, or `Exists`; change; not a directory, and where links are protected a file of the caller's, or a regular one without set-id bits to read and write, or `NotPermitted`; neither inode nor parent without a name, or `NotFound`; or `TooManyLinks` |
//! | unlink | name there, or `NotFound`; change; sticky, or `NotPermitted`; not a directory, or `IsDir` |
//! | rmdir | the same; a directory, or `NotDir`; empty, or `NotEmpty` |
//! | rename | both searches; old name there, or `NotFound`; no-replace: new name free, or `Exists`; exchange: new name there, or `NotFound`; both the same inode: nothing happens; a directory not below itself, or `Invalid`; the replaced not above the old name, or `NotEmpty` (exchange: `Invalid`); change and sticky in the old directory; change in the new; new directory not removed, or `NotFound`; sticky for the replaced; directory over file `NotDir`, file over directory `IsDir`; write on a directory that gets another parent, or `Access`; replaced directory empty, or `NotEmpty` |
//! | chmod | owner, or `NotPermitted`. set-group-id goes unless a member of the (new) group, or FSETID |
//! | chown | uid: CHOWN, or an owner that keeps it; gid: CHOWN, or an owner that keeps it or is a member; or `NotPermitted`. Without CHOWN set-id bits go |
//! | truncate | `IsDir`, or `Invalid` for what has no content; write unless by handle, or `Access`; or `TooBig` |
//! | utimens | owner; others may set the present time with write permission, or `Access`; given times `NotPermitted` |
//! | write | `IsDir`, `Invalid`; size `TooBig`; inline content too large, shorter size than what is there, or inline over blocks: `Invalid` |
//! | clone | both files; range not empty, in the source and in the largest file, no overlap in one file, no inline content: or `Invalid` |
//! | setxattr | name <= 255 bytes or `Range`; NUL or bare prefix `Invalid`; `user.`: files and directories, sticky ones by the owner only, or `NotPermitted`, and write, or `Access`; `trusted.` and `security.`: SYS_ADMIN (`security.capability`: SETFCAP), or `NotPermitted`; others `Unsupported`; value `ArgTooBig`; create `Exists`; replace, remove `NoXattr`; total `NoSpace` |
//! | getxattr | `user.`: else than file and directory `NoXattr`, read or `Access`; `trusted.` without SYS_ADMIN `NoXattr`; others `Unsupported` |
//!
//! | what changes | how |
//! |---|---|
//! | mode of the new | as given; symbolic link 0777; in a set-group-id directory the group is inherited, by directories the bit too; set-group-id with group execute goes unless a member of the group |
//! | set-id bits by a write, truncate or chown | not on directories; set-user-id goes; set-group-id goes where the group may execute |
//! | link count | files: names; directories: 2 + subdirectories, removed ones 0 |
//! | size of a directory | 32 times its entries |
//! | times | make: all of the new; entries: mtime and ctime of the directory, ctime of who gained, lost or moved; content: mtime and ctime; else ctime; later events never bring a ctime back |
//! | parent | where an inode was born or moved to last; a file that has no name there any more: the lowest directory that has one |
//! | last name gone | stays as an orphan while open or while its content is in blocks, else ends |
//! | content | inline until extents are written or cloned into it; truncated to nothing it may be inline again |

#[path = "model/attrs.rs"]
mod attrs;
#[path = "model/compare.rs"]
mod compare;
#[path = "model/content.rs"]
mod content;
#[path = "model/history.rs"]
mod history;
#[path = "model/hostile.rs"]
mod hostile;
#[path = "model/large.rs"]
mod large;
#[path = "model/names.rs"]
mod names;
#[path = "model/pools.rs"]
mod pools;
#[path = "model/state.rs"]
mod state;
#[path = "model/step.rs"]
mod step;
#[path = "model/store.rs"]
mod store;
#[path = "model/subject.rs"]
mod subject;

use proptest::prelude::*;

use crate::history::History;
use crate::step::{Step, steps};

/// Steps between comparisons of the whole tree.
const CHECK_EVERY: usize = 60;

fn run(mut history: History, steps: &[Step]) {
    for (n, step) in steps.iter().enumerate() {
        history.step(step);
        if n % CHECK_EVERY == CHECK_EVERY - 1 {
            history.check();
        }
    }
    history.finish();
}

/// `PROPTEST_CASES=10000` in the environment goes before `cases`.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn plain(steps in proptest::collection::vec(steps(false), 1..1000)) {
        run(History::new(false), &steps);
    }

    #[test]
    fn replayed_from_encoded_events(steps in proptest::collection::vec(steps(false), 1..500)) {
        run(History::new(true), &steps);
    }

    #[test]
    fn paged_with_checkpoints_and_crashes(steps in proptest::collection::vec(steps(true), 1..1000)) {
        run(History::new(false), &steps);
    }
}
