//! A policy as it was written: the keys that were given, and their values.

use crate::composition::Composition;
use crate::document::entries;
use crate::fault::{Fault, Place};
use crate::language::{distance, parse_composition, shortened};
use crate::level::{Consistency, Durability};
use crate::mechanism::{Role, fold};
use crate::sense::judge;
use crate::values::{
    Acknowledge, Data, Huge, Interfere, LeasePolicy, OnConflict, OnFailure, OwnerDecouples, Placement, Span,
};

/// A value of `consistency` or `durability`: a level by name, or the mechanisms that make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Half<L> {
    Level(L),
    Steps(Composition),
}

/// A value and where it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    pub value: T,
    /// Place of its first character.
    pub place: Place,
}

/// The content of a policy file. A key that is not there is inherited (see [`crate::Policy::resolve`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFile {
    pub consistency: Option<At<Half<Consistency>>>,
    pub durability: Option<At<Half<Durability>>>,
    /// `composition`, in normal form: instead of the two keys before.
    pub composition: Option<At<Composition>>,
    pub allocated_inodes: Option<At<u64>>,
    /// The key `interfere_policy`.
    pub interfere: Option<At<Interfere>>,
    pub data: Option<At<Data>>,
    pub sync_interval: Option<At<Span>>,
    pub sync_updates: Option<At<u64>>,
    pub sync_when_idle: Option<At<bool>>,
    pub on_conflict: Option<At<OnConflict>>,
    pub on_failure: Option<At<OnFailure>>,
    pub owner_decouples: Option<At<OwnerDecouples>>,
    pub placement: Option<At<Placement>>,
    pub lease: Option<At<LeasePolicy>>,
    pub flush_interval: Option<At<Span>>,
    pub acknowledge: Option<At<Acknowledge>>,
    pub huge: Option<At<Huge>>,
    pub huge_threshold: Option<At<u64>>,
    pub retain: Option<At<Span>>,
}

/// Keys with their aliases (the draft's).
const KEYS: [(&str, &[&str]); 19] = [
    ("consistency", &["consistency_callback"]),
    ("durability", &["durability_callback"]),
    ("composition", &[]),
    ("allocated_inodes", &["inodes"]),
    ("interfere_policy", &["interfere_callback", "interfere"]),
    ("data", &[]),
    ("sync_interval", &[]),
    ("sync_updates", &[]),
    ("sync_when_idle", &[]),
    ("on_conflict", &[]),
    ("on_failure", &[]),
    ("owner_decouples", &[]),
    ("placement", &[]),
    ("lease", &[]),
    ("flush_interval", &[]),
    ("acknowledge", &[]),
    ("huge", &[]),
    ("huge_threshold", &[]),
    ("retain", &[]),
];

/// Most inodes that a policy may ask for.
const INODES_MAX: u64 = 1 << 40;

impl PolicyFile {
    /// Reads a policy. Nothing at all is a policy too: every key is inherited.
    pub fn parse(text: &str) -> Result<PolicyFile, Fault> {
        let mut file = PolicyFile::default();
        let mut seen: Vec<&str> = Vec::new();
        for entry in entries(text)? {
            let key = fold(&entry.key);
            let found = KEYS.iter().find(|(name, aliases)| *name == key || aliases.contains(&key.as_str()));
            let Some((name, _)) = found else {
                let reason = format!("`{}` is no key of a policy", shortened(&entry.key));
                let short: String = key.chars().take(64).collect();
                let near =
                    KEYS.iter().min_by_key(|(name, _)| distance(&short, name)).expect("there are keys").0;
                // A key that is like none of them is no slip of the pen.
                let near = match distance(&short, near) * 2 > near.len() {
                    true => KEYS.map(|(name, _)| name).join(" | "),
                    false => near.to_owned(),
                };
                return Err(Fault::new(entry.key_place, reason).or_rather(near));
            };
            if seen.contains(name) {
                return Err(Fault::new(entry.key_place, format!("`{name}` stands there twice")));
            }
            seen.push(name);
            file.take(name, &entry.value, entry.value_place).map_err(|fault| entry.placed(fault))?;
        }
        for (key, place) in [
            ("consistency", file.consistency.as_ref().map(|at| at.place)),
            ("durability", file.durability.as_ref().map(|at| at.place)),
        ] {
            if let (Some(place), Some(composition)) = (place, &file.composition) {
                let reason = format!("`composition` says all: `{key}` cannot stand beside it");
                return Err(
                    Fault::new(place, reason).or_rather(format!("composition: {}", composition.value))
                );
            }
        }
        Ok(file)
    }

    fn take(&mut self, key: &str, text: &str, place: Place) -> Result<(), Fault> {
        let word = shortened(text);
        let one_of = |words: Vec<&str>| {
            let folded: String = fold(text).chars().take(64).collect();
            let near = words.iter().min_by_key(|w| distance(&folded, w)).map_or("", |w| *w).to_owned();
            let reason = format!("`{word}` is no value of `{key}`: {}", words.join(" | "));
            Fault::new(place, reason).or_rather(format!("{key}: {near}"))
        };
        macro_rules! word {
            ($type:ident) => {
                Some(At {
                    value: $type::by_word(text)
                        .ok_or_else(|| one_of($type::ALL.iter().map(|v| v.word()).collect()))?,
                    place,
                })
            };
        }
        match key {
            "consistency" => self.consistency = Some(At { value: consistency(text, place)?, place }),
            "durability" => self.durability = Some(At { value: durability(text, place)?, place }),
            "composition" => {
                let parsed = parse_composition(text, place)?;
                let value = judge(parsed).map_err(|s| {
                    Fault::new(place, s.reason).or_rather(format!("composition: {}", s.nearest))
                })?;
                self.composition = Some(At { value, place });
            }
            "allocated_inodes" => self.allocated_inodes = Some(number(key, text, place, INODES_MAX)?),
            "interfere_policy" => self.interfere = word!(Interfere),
            "data" => self.data = word!(Data),
            "sync_interval" => self.sync_interval = Some(span(key, text, place)?),
            "sync_updates" => self.sync_updates = Some(number(key, text, place, u64::MAX >> 1)?),
            "sync_when_idle" => {
                let value = match fold(text).as_str() {
                    "true" | "yes" | "on" => true,
                    "false" | "no" | "off" => false,
                    _ => return Err(one_of(vec!["true", "false"])),
                };
                self.sync_when_idle = Some(At { value, place });
            }
            "on_conflict" => self.on_conflict = word!(OnConflict),
            "on_failure" => self.on_failure = word!(OnFailure),
            "owner_decouples" => self.owner_decouples = word!(OwnerDecouples),
            "placement" => {
                let value = Placement::by_word(text)
                    .ok_or_else(|| one_of(vec!["spread", "near", "servers=[NAME, …]"]))?;
                self.placement = Some(At { value, place });
            }
            "lease" => self.lease = word!(LeasePolicy),
            "flush_interval" => self.flush_interval = Some(span(key, text, place)?),
            "acknowledge" => self.acknowledge = word!(Acknowledge),
            "huge" => self.huge = word!(Huge),
            "huge_threshold" => self.huge_threshold = Some(number(key, text, place, u64::MAX >> 1)?),
            "retain" => self.retain = Some(span(key, text, place)?),
            _ => unreachable!("the key is one of the table"),
        }
        Ok(())
    }
}

fn number(key: &str, text: &str, place: Place, max: u64) -> Result<At<u64>, Fault> {
    let digits: String = text.trim().chars().filter(|c| *c != '_').collect();
    match digits.parse::<u64>() {
        Ok(value) if value <= max => Ok(At { value, place }),
        _ => {
            let reason = format!("`{}` is no value of `{key}`: a whole number up to {max}", shortened(text));
            Err(Fault::new(place, reason))
        }
    }
}

fn span(key: &str, text: &str, place: Place) -> Result<At<Span>, Fault> {
    let value = Span::parse(text).ok_or_else(|| {
        let reason =
            format!("`{}` is no value of `{key}`: a time such as 500ms, 2s, 10m, 1h, 7d", shortened(text));
        Fault::new(place, reason)
    })?;
    Ok(At { value, place })
}

fn consistency(text: &str, place: Place) -> Result<Half<Consistency>, Fault> {
    if let Some(level) = Consistency::by_name(text) {
        return Ok(Half::Level(level));
    }
    let steps = half(text, place, "consistency", &Consistency::ALL.map(Consistency::name))?;
    for step in steps.mechanisms() {
        if step.role() == Role::Persist {
            let reason = format!("{} is a matter of `durability`", step.name());
            return Err(Fault::new(place, reason).or_rather(format!("durability: {}", step.name())));
        }
    }
    Ok(Half::Steps(steps))
}

fn durability(text: &str, place: Place) -> Result<Half<Durability>, Fault> {
    if let Some(level) = Durability::by_name(text) {
        return Ok(Half::Level(level));
    }
    let steps = half(text, place, "durability", &Durability::ALL.map(Durability::name))?;
    for step in steps.mechanisms() {
        if step.role() != Role::Persist {
            let reason = format!("{} is a matter of `consistency`", step.name());
            return Err(Fault::new(place, reason).or_rather(format!("consistency: {}", step.name())));
        }
    }
    Ok(Half::Steps(steps))
}

fn half(text: &str, place: Place, key: &str, levels: &[&str]) -> Result<Composition, Fault> {
    let parsed = parse_composition(text, place).map_err(|fault| {
        let reason = format!("{}; `{key}` is a composition or one of {}", fault.reason, levels.join(" | "));
        Fault { reason, ..fault }
    })?;
    Ok(parsed.normalised())
}
