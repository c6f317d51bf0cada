//! What a decoupling costs, stage by stage: for who wants to see that it does not grow with the tree.

use std::fmt;
use std::time::Duration;

use chiton_runtime::SharedWorld;
use serde::{Deserialize, Serialize};

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// How long it took; `None`: it is part of the stage before it, which is one message.
    pub seconds: Option<f64>,
    /// What was done.
    pub what: String,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.seconds.map_or_else(String::new, |seconds| format!("{:.2} ms", seconds * 1e3));
        write!(f, "{:<14} {took:>10}  {}", self.name, self.what)
    }
}

/// The stages so far, by a clock.
pub(crate) struct Stages {
    world: SharedWorld,
    since: Duration,
    all: Vec<Stage>,
}

impl Stages {
    /// The first begins now.
    pub(crate) fn begin(world: &SharedWorld) -> Stages {
        Stages { since: world.monotonic(), world: world.clone(), all: Vec::new() }
    }

    /// What was done since the stage before.
    pub(crate) fn took(&mut self, name: &str, what: impl Into<String>) {
        let now = self.world.monotonic();
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.all.push(Stage { name: name.to_owned(), seconds: Some(seconds), what: what.into() });
    }

    /// What the stage before has brought as well.
    pub(crate) fn brought(&mut self, name: &str, what: impl Into<String>) {
        self.all.push(Stage { name: name.to_owned(), seconds: None, what: what.into() });
    }

    pub(crate) fn into_vec(self) -> Vec<Stage> {
        self.all
    }
}
