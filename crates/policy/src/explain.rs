//! What a policy means, drawn for people and as data for programs.

use std::fmt;

use serde::Serialize;

use crate::level::{Consistency, Durability};
use crate::mechanism::{End, Mechanism, Role};
use crate::policy::Policy;
use crate::survival::{Failed, Kept, survival};
use crate::values::Acknowledge;

/// A mechanism of the composition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepExplained {
    /// Its name.
    pub mechanism: &'static str,
    /// Who performs it.
    pub end: End,
    /// In words: who performs it under this policy.
    pub performed_by: &'static str,
    /// What happens.
    pub arrow: &'static str,
    /// What it costs.
    pub costs: &'static str,
    /// Mechanisms that must have ended before it begins.
    pub waits_for: Vec<&'static str>,
    /// What returns only when it is done: `operation`, `fsync`, `merge`.
    pub awaited_by: Vec<&'static str>,
}

/// A row of what survives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Survives {
    /// The failure.
    pub failure: Failed,
    /// In words.
    pub failed: &'static str,
    /// What is left.
    pub kept: Kept,
    /// In words.
    pub answer: &'static str,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Key.
    pub key: &'static str,
    /// Value, as it is written.
    pub value: String,
    /// What it means.
    pub means: String,
}

/// A policy explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The composition.
    pub composition: String,
    /// Its level of consistency.
    pub consistency: Consistency,
    /// Its level of durability.
    pub durability: Durability,
    /// Its mechanisms in order.
    pub steps: Vec<StepExplained>,
    /// What survives which failure.
    pub survives: Vec<Survives>,
    /// All keys.
    pub settings: Vec<Setting>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

impl Explanation {
    /// Explains a policy.
    pub fn of(policy: &Policy) -> Explanation {
        let (consistency, durability) = (policy.consistency(), policy.durability());
        let steps = policy.composition.order().into_iter().map(|(m, before)| step(policy, m, &before));
        let survives = Failed::ALL.into_iter().map(|failure| {
            let (kept, answer) = survival(consistency, durability, failure);
            Survives { failure, failed: failure.describe(), kept, answer }
        });
        Explanation {
            composition: policy.composition.to_string(),
            consistency,
            durability,
            steps: steps.collect(),
            survives: survives.collect(),
            settings: settings(policy),
            notes: notes(policy),
        }
    }
}

fn step(policy: &Policy, mechanism: Mechanism, before: &[Mechanism]) -> StepExplained {
    let strong = policy.consistency() == Consistency::Strong;
    let awaited_by = match mechanism.role() {
        Role::Source => vec!["operation"],
        Role::Persist if policy.acknowledge == Acknowledge::Durable => vec!["operation", "fsync"],
        Role::Persist => vec!["fsync"],
        Role::Apply => vec!["merge"],
    };
    StepExplained {
        mechanism: mechanism.name(),
        end: mechanism.end(),
        performed_by: match mechanism.end() {
            End::ClientOrServer if strong => "server",
            End::ClientOrServer => "client",
            end => end.describe(),
        },
        arrow: mechanism.arrow(),
        costs: mechanism.costs(),
        waits_for: before.iter().map(|m| m.name()).collect(),
        awaited_by,
    }
}

fn settings(policy: &Policy) -> Vec<Setting> {
    let set = |key, value: String, means: &str| Setting { key, value, means: means.to_owned() };
    let or_never = |span: Option<String>| span.unwrap_or_else(|| "never".to_owned());
    vec![
        set(
            "allocated_inodes",
            policy.allocated_inodes.to_string(),
            "inodes that a decoupling is given at once",
        ),
        set(
            "interfere_policy",
            policy.interfere.to_string(),
            &format!("while decoupled: {}", policy.interfere.means()),
        ),
        set("data", policy.data.to_string(), policy.data.means()),
        set("acknowledge", policy.acknowledge.to_string(), policy.acknowledge.means()),
        set(
            "flush_interval",
            policy.flush_interval.to_string(),
            "what was answered is durable after about so long by itself",
        ),
        set(
            "sync_interval",
            or_never(policy.sync_interval.map(|s| s.to_string())),
            "a running job's changes are merged so often",
        ),
        set(
            "sync_updates",
            or_never(policy.sync_updates.map(|n| n.to_string())),
            "… and after so many changes",
        ),
        set("sync_when_idle", policy.sync_when_idle.to_string(), "… and when the client has nothing to do"),
        set("on_conflict", policy.on_conflict.to_string(), policy.on_conflict.means()),
        set("lease", policy.lease.to_string(), policy.lease.means()),
        set("placement", policy.placement.to_string(), "where directories are born"),
        set(
            "huge_threshold",
            policy.huge_threshold.to_string(),
            "entries from which a directory is split over servers",
        ),
        set("retain", or_never(policy.retain.map(|s| s.to_string())), "how long history is kept"),
    ]
}

fn notes(policy: &Policy) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: &str| notes.push(text.to_owned());
    match policy.durability() {
        Durability::None => note("Nothing is promised after a crash: fsync returns at once."),
        Durability::Global => note(
            "`global` is as durable as the object store; where that is a directory on a local disk, it is that disk.",
        ),
        Durability::Local | Durability::Geo => {}
    }
    if policy.consistency() == Consistency::Invisible {
        note("Nothing is merged by itself: others see it after `chiton merge` or `chiton sync`.");
    }
    if policy.durability() != Durability::None {
        note(
            "fsync, fsync of a directory and `chiton flush` return when the level holds for all that came before.",
        );
    }
    note(
        "A rename or link across the border of a subtree with a policy of its own is EXDEV, as between mounts.",
    );
    notes
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.composition)?;
        writeln!(f, "  consistency {}, durability {}\n", self.consistency.name(), self.durability.name())?;
        writeln!(f, "  operation")?;
        let mut waits: Option<&[&str]> = None;
        for step in &self.steps {
            let beside = waits == Some(&step.waits_for[..]);
            writeln!(f, "     {}", if beside { "║  beside" } else { "│" })?;
            let awaited = match &step.awaited_by[..] {
                ["operation"] => "the caller waits for it",
                ["operation", ..] => "the caller and fsync wait for it",
                ["fsync"] => "fsync waits for it",
                _ => "a merge waits for it",
            };
            writeln!(f, "     ├──▶ {:<22} at the {}; {awaited}", step.mechanism, step.performed_by)?;
            writeln!(f, "     │      {}", step.arrow)?;
            writeln!(f, "     │      costs: {}", step.costs)?;
            if step.waits_for.len() > 1 {
                writeln!(f, "     │      begins after: {}", step.waits_for.join(", "))?;
            }
            waits = Some(&step.waits_for);
        }
        writeln!(f, "     ▼")?;
        let seen = match self.consistency {
            Consistency::Strong => "seen by everybody as soon as it is answered",
            Consistency::Weak => "seen by others when it is merged",
            Consistency::Invisible => "seen by this client only",
        };
        writeln!(f, "  {seen}\n\n  what survives when")?;
        for row in &self.survives {
            writeln!(f, "     {:<20} {}", row.failed, row.answer)?;
        }
        writeln!(f, "\n  settings")?;
        for setting in &self.settings {
            writeln!(f, "     {:<17} {:<13} {}", setting.key, setting.value, setting.means)?;
        }
        writeln!(f)?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::PRESETS;
    use crate::{PolicyFile, preset};

    fn explain(name: &str) -> Explanation {
        let file = PolicyFile::parse(preset(name).unwrap().text).unwrap();
        Explanation::of(&Policy::resolve(&file, &Policy::default()).unwrap())
    }

    #[test]
    fn every_preset_is_explained_with_its_steps_waits_and_failures() {
        for preset in PRESETS {
            let explanation = explain(preset.name);
            let text = explanation.to_string();
            for step in &explanation.steps {
                assert!(text.contains(step.mechanism), "{text}");
            }
            assert_eq!(explanation.survives.len(), 5);
            let json = serde_json::to_value(&explanation).unwrap();
            assert_eq!(json["composition"], explanation.composition);
        }
    }

    #[test]
    fn steps_say_who_performs_them_and_who_waits() {
        let batchfs = explain("batchfs");
        let steps: Vec<_> = batchfs
            .steps
            .iter()
            .map(|s| (s.mechanism, s.performed_by, s.waits_for.len(), s.awaited_by[0]))
            .collect();
        assert_eq!(
            steps,
            [
                ("append_client_journal", "client", 0, "operation"),
                ("local_persist", "client", 1, "fsync"),
                ("volatile_apply", "client and server", 2, "merge"),
            ]
        );
        let file = PolicyFile::parse("durability: local\nacknowledge: durable").unwrap();
        let policy = Policy::resolve(&file, &Policy::default()).unwrap();
        let strong = Explanation::of(&policy);
        assert_eq!(strong.steps[1].performed_by, "server");
        assert_eq!(strong.steps[1].awaited_by, ["operation", "fsync"]);
    }
}
