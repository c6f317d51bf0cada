//! The meaning of a policy, drawn for people and as data for programs.

use std::fmt;

use serde::Serialize;

use crate::file::PolicyFile;
use crate::level::{Consistency, Durability};
use crate::mechanism::{End, Mechanism, Role};
use crate::policy::Policy;
use crate::support::Support;
use crate::survival::{Failed, Kept, survival};
use crate::values::{Acknowledge, Huge, OnFailure, OwnerDecouples, Placement};

/// Columns of a terminal that everybody has.
const WIDTH: usize = 80;

/// A mechanism of the composition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepExplained {
    /// Name of the mechanism, as compositions write it.
    pub mechanism: &'static str,
    /// The end that performs it.
    pub end: End,
    /// In words: the program that performs it under this policy.
    pub performed_by: &'static str,
    /// The change that it makes, in words.
    pub arrow: &'static str,
    /// The cost of the mechanism, in words.
    pub costs: &'static str,
    /// Mechanisms that must have ended before it begins.
    pub waits_for: Vec<&'static str>,
    /// The calls that return only when it is done: `operation`, `fsync`, `merge`.
    pub awaited_by: Vec<&'static str>,
}

/// A row of the table of survival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Survives {
    pub failure: Failed,
    /// The failure, in words.
    pub failed: &'static str,
    /// The data that are left.
    pub kept: Kept,
    /// The data that survive it, in words.
    pub answer: &'static str,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub key: &'static str,
    /// Value, as it is written.
    pub value: String,
    /// The meaning of the value, in one sentence.
    pub means: String,
    /// Whether it means something under this policy.
    pub applies: bool,
}

/// The explanation that `chiton policy explain` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    pub composition: String,
    /// Its level of consistency.
    pub consistency: Consistency,
    /// Its level of durability.
    pub durability: Durability,
    /// Its mechanisms in order.
    pub steps: Vec<StepExplained>,
    /// The data that survive each failure.
    pub survives: Vec<Survives>,
    pub settings: Vec<Setting>,
    /// Remarks beside the settings, a sentence each.
    pub notes: Vec<String>,
    /// Why this version refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Explanation {
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
            refused: None,
        }
    }

    /// Explains a policy that is not set yet; also whether it can be.
    pub fn of_file(file: &PolicyFile, policy: &Policy, support: &Support) -> Explanation {
        let refused = support.check(file, policy).err().map(|fault| fault.to_string());
        Explanation { refused, ..Explanation::of(policy) }
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

/// All keys, and whether they mean something under this policy.
fn settings(policy: &Policy) -> Vec<Setting> {
    let is_decoupled = policy.consistency() != Consistency::Strong;
    let is_durable = policy.durability() != Durability::None;
    let merges = policy.merges_by_itself();
    let never_synced =
        policy.sync_interval.is_none() && policy.sync_updates.is_none() && !policy.sync_when_idle;
    let set = |key, value: String, means: &str| Setting {
        key,
        value,
        means: means.to_owned(),
        applies: match key {
            "allocated_inodes" | "interfere_policy" | "on_conflict" => is_decoupled,
            "on_failure" => is_decoupled && policy.on_failure != OnFailure::DEFAULT,
            "owner_decouples" => policy.owner_decouples != OwnerDecouples::DEFAULT,
            "acknowledge" | "flush_interval" => is_durable,
            // One client has all of a decoupled subtree to itself.
            "lease" => !is_decoupled,
            // That it is never merged meanwhile is said once.
            "sync_interval" => merges && (never_synced || policy.sync_interval.is_some()),
            "sync_updates" => merges && policy.sync_updates.is_some(),
            "sync_when_idle" => merges && policy.sync_when_idle,
            // A file system with one plate has nothing to place, a decoupled client neither.
            "placement" => policy.placement != Placement::Spread && !is_decoupled,
            "huge" => policy.huge != Huge::DEFAULT,
            "huge_threshold" => matches!(policy.huge, Huge::Threshold | Huge::Auto),
            _ => true,
        },
    };
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
            "an answered operation is durable after about so long, without an fsync",
        ),
        set(
            "sync_interval",
            or_never(policy.sync_interval.map(|s| s.to_string())),
            match never_synced {
                true => "a running job's changes are merged when it ends, or when a program asks for it",
                false => "a running job's changes are merged about so often",
            },
        ),
        set(
            "sync_updates",
            or_never(policy.sync_updates.map(|n| n.to_string())),
            "a running job's changes are merged when there are so many",
        ),
        set(
            "sync_when_idle",
            policy.sync_when_idle.to_string(),
            "a running job's changes are merged when it has nothing to do",
        ),
        set("on_conflict", policy.on_conflict.to_string(), policy.on_conflict.means()),
        set("on_failure", policy.on_failure.to_string(), policy.on_failure.means()),
        set("owner_decouples", policy.owner_decouples.to_string(), policy.owner_decouples.means()),
        set("lease", policy.lease.to_string(), policy.lease.means()),
        set("placement", policy.placement.to_string(), "where directories are born"),
        set("huge", policy.huge.to_string(), policy.huge.means()),
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
        note("Nothing is merged automatically: others see it after `chiton merge` or `chiton sync`.");
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
        if let Some(why) = &self.refused {
            writeln!(f, "{}\n", wrapped("  CANNOT BE SET: ", "    ", why))?;
        }
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
            let mut lines = vec![step.arrow.to_owned(), format!("costs: {}", step.costs)];
            if step.waits_for.len() > 1 {
                lines.push(format!("begins after: {}", step.waits_for.join(", ")));
            }
            for text in &lines {
                writeln!(f, "{}", wrapped("     │      ", "     │      ", text))?;
            }
            waits = Some(&step.waits_for);
        }
        writeln!(f, "     ▼")?;
        let seen = match self.consistency {
            Consistency::Strong => "seen by all clients as soon as it is answered",
            Consistency::Weak => "seen by others when it is merged",
            Consistency::Invisible => "seen by this client only",
        };
        writeln!(f, "  {seen}\n\n  data that survive each failure")?;
        for row in &self.survives {
            writeln!(f, "{}", wrapped(&format!("     {:<20} ", row.failed), &" ".repeat(26), row.answer))?;
        }
        writeln!(f, "\n  settings")?;
        for setting in self.settings.iter().filter(|setting| setting.applies) {
            let begins = format!("     {:<17} {:<13} ", setting.key, setting.value);
            writeln!(f, "{}", wrapped(&begins, &" ".repeat(37), &setting.means))?;
        }
        writeln!(f)?;
        for note in &self.notes {
            writeln!(f, "{}", wrapped("  ", "  ", note))?;
        }
        Ok(())
    }
}

/// `begins`, then a text; words that do not fit in the line continue in the next ones, behind `indent`.
fn wrapped(begins: &str, indent: &str, text: &str) -> String {
    let mut wrapped = begins.to_owned();
    let mut column = begins.chars().count();
    let mut is_at_begin = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_at_begin && column + 1 + length > WIDTH {
            wrapped.push('\n');
            wrapped.push_str(indent);
            column = indent.chars().count();
        } else if !is_at_begin {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += length;
        is_at_begin = false;
    }
    wrapped
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
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
            assert_eq!(explanation.survives.len(), 5);
            let json = serde_json::to_value(&explanation).unwrap();
            assert_eq!(json["composition"], explanation.composition);
        }
    }

    #[test]
    fn only_keys_that_mean_something_are_shown() {
        let decoupling = ["allocated_inodes", "interfere_policy", "on_conflict"];
        let durable = ["acknowledge", "flush_interval"];
        let keys_shown = |name: &str| {
            let text = explain(name).to_string();
            let (_, settings) = text.split_once("settings\n").unwrap();
            let keys = settings.lines().map_while(|line| line.split_whitespace().next().map(str::to_owned));
            keys.collect::<Vec<_>>()
        };
        for (name, is_decoupled, is_durable, syncs) in [
            ("posix", false, true, false),
            ("ramdisk", false, false, false),
            ("batchfs", true, true, true),
            ("deltafs", true, true, false),
            ("ramdisk-decoupled", true, false, false),
        ] {
            let keys = keys_shown(name);
            assert!(
                decoupling.iter().all(|key| keys.iter().any(|k| k == key) == is_decoupled),
                "{name}: {keys:?}"
            );
            assert!(
                durable.iter().all(|key| keys.iter().any(|k| k == key) == is_durable),
                "{name}: {keys:?}"
            );
            assert_eq!(keys.iter().any(|key| key == "lease"), !is_decoupled, "{name}: {keys:?}");
            assert_eq!(keys.iter().any(|key| key.starts_with("sync")), syncs, "{name}: {keys:?}");
        }
    }

    #[test]
    fn syncs_are_shown_in_sentences() {
        let shown = |text: &str| {
            let text = format!("consistency: weak\ndurability: local\n{text}");
            let policy = Policy::resolve(&PolicyFile::parse(&text).unwrap(), &Policy::default()).unwrap();
            let settings = Explanation::of(&policy).settings.into_iter();
            let syncs = settings.filter(|setting| setting.applies && setting.key.starts_with("sync"));
            syncs
                .map(|setting| format!("{} {} {}", setting.key, setting.value, setting.means))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shown(""),
            [
                "sync_interval never a running job's changes are merged when it ends, or when a program asks for it"
            ]
        );
        assert_eq!(
            shown("sync_interval: 90s\nsync_updates: 7\nsync_when_idle: true"),
            [
                "sync_interval 90s a running job's changes are merged about so often",
                "sync_updates 7 a running job's changes are merged when there are so many",
                "sync_when_idle true a running job's changes are merged when it has nothing to do",
            ]
        );
    }

    #[test]
    fn what_cannot_be_set_says_so_and_why() {
        for preset in PRESETS {
            let file = PolicyFile::parse(preset.text).unwrap();
            let policy = Policy::resolve(&file, &Policy::default()).unwrap();
            let explanation = Explanation::of_file(&file, &policy, &Support::LOCAL);
            let why = match preset.name {
                "calvinfs" => Some("replicate"),
                _ => None,
            };
            let said = explanation.refused.as_deref();
            assert_eq!(said.is_some(), why.is_some(), "{}: {said:?}", preset.name);
            if let Some(why) = why {
                let text = explanation.to_string();
                assert!(text.contains("CANNOT BE SET") && text.contains(why), "{text}");
            }
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
