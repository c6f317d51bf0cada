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

/// `PROPTEST_CASES=25600` runs a hundred times as many histories.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = usual.cases.div_ceil(4);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 3_000, ..usual }
}

proptest! {
    #![proptest_config(config())]

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
