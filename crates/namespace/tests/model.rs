//! A naive second implementation of the namespace runs beside it through long random histories.

#[path = "model/attrs.rs"]
mod attrs;
#[path = "model/compare.rs"]
mod compare;
#[path = "model/content.rs"]
mod content;
#[path = "model/history.rs"]
mod history;
#[path = "model/names.rs"]
mod names;
#[path = "model/state.rs"]
mod state;
#[path = "model/step.rs"]
mod step;
#[path = "model/store.rs"]
mod store;
#[path = "model/subject.rs"]
mod subject;

use proptest::prelude::*;

use history::History;
use step::{Step, steps};

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

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 3_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn plain(steps in proptest::collection::vec(steps(false), 1..700)) {
        run(History::new(false), &steps);
    }

    #[test]
    fn replayed_from_encoded_events(steps in proptest::collection::vec(steps(false), 1..500)) {
        run(History::new(true), &steps);
    }

    #[test]
    fn paged_with_checkpoints_and_crashes(steps in proptest::collection::vec(steps(true), 1..700)) {
        run(History::new(false), &steps);
    }
}
