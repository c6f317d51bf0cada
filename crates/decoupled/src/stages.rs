//! The cost of a decoupling, by stage. It shows that the cost does not grow with the tree.

use std::time::Duration;

use chiton_runtime::SharedWorld;
use serde::{Deserialize, Serialize};

/// A stage of opening a realm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The stage's name.
    pub name: String,
    /// How long it took; `None`: it is part of the stage before it, which is one message.
    pub seconds: Option<f64>,
    /// The stage's result.
    pub what: String,
}

/// The stages so far, by a clock.
pub(crate) struct Stages {
    world: SharedWorld,
    since: Duration,
    all: Vec<Stage>,
}

impl Stages {
    /// Starts the clock of the first stage.
    pub(crate) fn begin(world: &SharedWorld) -> Stages {
        Stages { since: world.monotonic(), world: world.clone(), all: Vec::new() }
    }

    /// Ends a stage, and notes its duration.
    pub(crate) fn took(&mut self, name: &str, what: impl Into<String>) {
        let now = self.world.monotonic();
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.all.push(Stage { name: name.to_owned(), seconds: Some(seconds), what: what.into() });
    }

    /// Adds a result to the previous stage without a time of its own.
    pub(crate) fn brought(&mut self, name: &str, what: impl Into<String>) {
        self.all.push(Stage { name: name.to_owned(), seconds: None, what: what.into() });
    }

    pub(crate) fn into_vec(self) -> Vec<Stage> {
        self.all
    }
}
