//! The outcome of a run, for people and for machines.

use std::fmt;

use serde_json::{Value, json};

use crate::clauses::Clause;
use crate::finding::Difference;

/// The directories that a clause was checked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As the server makes them.
    Made,
    /// Split over the plates.
    Split,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Made => "as made",
            State::Split => "split",
        })
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed(Difference),
    /// The clause says nothing about this server; in words, why.
    NotApplicable(String),
}

/// A clause, and the outcome of its checks.
#[derive(Clone, Debug)]
pub struct Checked {
    pub clause: &'static Clause,
    pub state: State,
    pub verdict: Verdict,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// In the order in which they were checked.
    pub checked: Vec<Checked>,
}

impl Report {
    /// How many checks passed, failed, and do not apply.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |fits: fn(&Verdict) -> bool| self.checked.iter().filter(|c| fits(&c.verdict)).count();
        (
            count(|verdict| matches!(verdict, Verdict::Passed)),
            count(|verdict| matches!(verdict, Verdict::Failed(_))),
            count(|verdict| matches!(verdict, Verdict::NotApplicable(_))),
        )
    }

    /// Whether no check failed.
    pub fn conforms(&self) -> bool {
        self.counts().1 == 0
    }

    /// For machines: `passed`, `failed`, `not_applicable`, and `clauses`, each with `clause`, `title`, `state`, `verdict` and, as it is,
    /// `step`, `expected`, `seen` or `why`.
    pub fn json(&self) -> Value {
        let (passed, failed, not_applicable) = self.counts();
        let clauses: Vec<Value> = self.checked.iter().map(Checked::json).collect();
        json!({ "passed": passed, "failed": failed, "not_applicable": not_applicable, "clauses": clauses })
    }
}

impl Checked {
    fn json(&self) -> Value {
        let mut object = json!({
            "clause": self.clause.number,
            "title": self.clause.title,
            "state": self.state.to_string(),
        });
        match &self.verdict {
            Verdict::Passed => object["verdict"] = json!("passed"),
            Verdict::Failed(Difference { step, expected, seen }) => {
                object["verdict"] = json!("failed");
                object["step"] = json!(step);
                object["expected"] = json!(expected);
                object["seen"] = json!(seen);
            }
            Verdict::NotApplicable(why) => {
                object["verdict"] = json!("not applicable");
                object["why"] = json!(why);
            }
        }
        object
    }
}
