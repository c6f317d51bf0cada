//! The policy that holds for a subtree: its own settings, on top of those that it inherits.

use crate::composition::Composition;
use crate::fault::{Fault, Place};
use crate::file::{Half, PolicyFile};
use crate::level::{Consistency, Durability, compose};
use crate::mechanism::{Mechanism, Role};
use crate::sense::judge;
use crate::values::{
    Acknowledge, Data, Huge, Interfere, LeasePolicy, OnConflict, OnFailure, OwnerDecouples, Placement, Span,
};

/// Every key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How operations are carried out: sensible, in normal form.
    pub composition: Composition,
    /// How many inodes a decoupling is given at once. Not inherited: it says what this subtree's job will make.
    pub allocated_inodes: u64,
    /// How others are treated while the subtree is decoupled.
    pub interfere: Interfere,
    /// How consistent file content is between clients.
    pub data: Data,
    /// Merge what there is so often, while the job runs.
    pub sync_interval: Option<Span>,
    /// Merge after so many updates.
    pub sync_updates: Option<u64>,
    /// Merge when the client has nothing else to do.
    pub sync_when_idle: bool,
    /// The side that wins at a merge.
    pub on_conflict: OnConflict,
    /// How `chiton run` treats the changes of a command that failed.
    pub on_failure: OnFailure,
    /// How far an owner's own decoupling may weaken durability.
    pub owner_decouples: OwnerDecouples,
    /// The placement of new directories.
    pub placement: Placement,
    /// How leases are given back.
    pub lease: LeasePolicy,
    /// An answered operation is durable after at most so long, plus the time that the disk takes.
    pub flush_interval: Span,
    /// The state that an answer waits for.
    pub acknowledge: Acknowledge,
    /// Whether directories have parts on several plates.
    pub huge: Huge,
    /// Entries from which on a directory is split over servers; 0: from birth.
    pub huge_threshold: u64,
    /// How long history is kept.
    pub retain: Option<Span>,
}

impl Default for Policy {
    /// The paper's defaults: `rpcs + stream`, 100 inodes, `allow`; and POSIX for the keys that it lacks.
    fn default() -> Policy {
        Policy {
            composition: Composition::serial([Mechanism::Rpcs, Mechanism::Stream]),
            allocated_inodes: 100,
            interfere: Interfere::DEFAULT,
            data: Data::DEFAULT,
            sync_interval: None,
            sync_updates: None,
            sync_when_idle: false,
            on_conflict: OnConflict::DEFAULT,
            on_failure: OnFailure::DEFAULT,
            owner_decouples: OwnerDecouples::DEFAULT,
            placement: Placement::Spread,
            lease: LeasePolicy::DEFAULT,
            flush_interval: Span::from_ms(1_000),
            acknowledge: Acknowledge::DEFAULT,
            huge: Huge::DEFAULT,
            huge_threshold: 8_000,
            retain: None,
        }
    }
}

impl Policy {
    /// The time at which others see a change.
    pub fn consistency(&self) -> Consistency {
        Consistency::of(&self.composition)
    }

    /// Whether the client that works in the subtree merges it automatically: then, or at its end.
    pub fn merges_by_itself(&self) -> bool {
        self.composition.mechanisms().contains(&Mechanism::VolatileApply)
    }

    /// Whether its journal is merged offline, from the object store.
    pub fn is_merged_offline(&self) -> bool {
        self.composition.mechanisms().contains(&Mechanism::NonvolatileApply)
    }

    /// Whether directories that are made have a part on each plate.
    pub fn parts_from_birth(&self) -> bool {
        self.huge == Huge::Always || self.huge == Huge::Threshold && self.huge_threshold == 0
    }

    pub fn durability(&self) -> Durability {
        Durability::of(&self.composition)
    }

    /// A file that gives this very policy where no policy holds, and under any policy that merges alike.
    pub fn text(&self) -> String {
        let mut lines = vec![
            format!("composition: {}", self.composition),
            format!("allocated_inodes: {}", self.allocated_inodes),
            format!("interfere_policy: {}", self.interfere),
            format!("data: {}", self.data),
        ];
        let mut set =
            |key: &str, value: Option<String>| lines.extend(value.map(|value| format!("{key}: {value}")));
        // Where nothing is merged automatically they are not named: neither are they inherited.
        let merges = self.merges_by_itself();
        let span = |span: Option<Span>| Some(span.map_or("0s".to_owned(), |span| span.to_string()));
        set("sync_interval", span(self.sync_interval).filter(|_| merges));
        set("sync_updates", Some(self.sync_updates.unwrap_or(0).to_string()).filter(|_| merges));
        set("sync_when_idle", Some(self.sync_when_idle.to_string()).filter(|_| merges));
        set("on_conflict", Some(self.on_conflict.to_string()));
        set("on_failure", Some(self.on_failure.to_string()));
        set("owner_decouples", Some(self.owner_decouples.to_string()));
        set("placement", Some(self.placement.to_string()));
        set("lease", Some(self.lease.to_string()));
        set("flush_interval", Some(self.flush_interval.to_string()));
        set("acknowledge", Some(self.acknowledge.to_string()));
        set("huge", Some(self.huge.to_string()));
        set("huge_threshold", Some(self.huge_threshold.to_string()));
        set("retain", span(self.retain));
        lines.join("\n") + "\n"
    }

    /// The policy that `file` gives under the policy around it. A key that the file lacks is inherited, but for `allocated_inodes`;
    /// of the two keys of the composition, the one that is not given is inherited as a level, so that `consistency:
    /// weak` below a subtree that streams gives a client's journal in the object store.
    pub fn resolve(file: &PolicyFile, around: &Policy) -> Result<Policy, Fault> {
        let composition = match (&file.composition, &file.consistency, &file.durability) {
            (Some(at), _, _) => at.value.clone(),
            (None, None, None) => around.composition.clone(),
            (None, consistency, durability) => {
                let place =
                    consistency.as_ref().map(|at| at.place).or(durability.as_ref().map(|at| at.place));
                let inherited = Half::Level(around.consistency());
                let consistency = consistency.as_ref().map_or(&inherited, |at| &at.value);
                let inherited = Half::Level(around.durability());
                let durability = durability.as_ref().map_or(&inherited, |at| &at.value);
                join(consistency, durability, place.unwrap_or(Place::START))?
            }
        };
        macro_rules! given {
            ($key:ident) => {
                file.$key.as_ref().map_or_else(|| around.$key.clone(), |at| at.value.clone())
            };
        }
        macro_rules! given_some {
            ($key:ident) => {
                file.$key.as_ref().map_or_else(|| around.$key, |at| Some(at.value))
            };
        }
        let merges = composition.mechanisms().contains(&Mechanism::VolatileApply);
        let policy = Policy {
            composition,
            allocated_inodes: file.allocated_inodes.as_ref().map_or(100, |at| at.value),
            interfere: given!(interfere),
            data: given!(data),
            sync_interval: given_some!(sync_interval).filter(|span| merges && span.ms() > 0),
            sync_updates: given_some!(sync_updates).filter(|n| merges && *n > 0),
            sync_when_idle: merges && given!(sync_when_idle),
            on_conflict: given!(on_conflict),
            on_failure: given!(on_failure),
            owner_decouples: given!(owner_decouples),
            placement: given!(placement),
            lease: given!(lease),
            flush_interval: given!(flush_interval),
            acknowledge: given!(acknowledge),
            huge: given!(huge),
            huge_threshold: given!(huge_threshold),
            retain: given_some!(retain).filter(|span| span.ms() > 0),
        };
        policy.contradiction(file).map_or(Ok(policy), Err)
    }

    /// A key of the file that the rest contradicts.
    fn contradiction(&self, file: &PolicyFile) -> Option<Fault> {
        if self.acknowledge == Acknowledge::Durable && self.durability() == Durability::None {
            let given = file.acknowledge.as_ref().map(|at| at.place);
            let place = given.or(file.durability.as_ref().map(|at| at.place)).unwrap_or(Place::START);
            let reason =
                "`acknowledge: durable` waits for a durability that `durability: none` does not have";
            return Some(Fault::new(place, reason).or_rather("acknowledge: applied"));
        }
        if let Some(at) = file.huge.as_ref().filter(|at| at.value != Huge::Never) {
            let reason = match (&self.placement, self.consistency()) {
                (Placement::Near, _) => "spreads names over plates, and `placement: near` keeps them on one",
                (_, Consistency::Weak | Consistency::Invisible) => {
                    "spreads names over plates, and a decoupled subtree lies on one"
                }
                _ => "",
            };
            if !reason.is_empty() {
                let reason = format!("`huge: {}` {reason}", at.value);
                return Some(Fault::new(at.place, reason).or_rather("huge: never"));
            }
        }
        let syncs = [
            ("sync_interval", file.sync_interval.as_ref().filter(|at| at.value.ms() > 0).map(|at| at.place)),
            ("sync_updates", file.sync_updates.as_ref().filter(|at| at.value > 0).map(|at| at.place)),
            ("sync_when_idle", file.sync_when_idle.as_ref().filter(|at| at.value).map(|at| at.place)),
        ];
        let (key, place) = syncs.into_iter().find_map(|(key, place)| Some((key, place?)))?;
        if self.merges_by_itself() {
            return None;
        }
        let reason = match self.consistency() {
            Consistency::Strong => {
                format!("`{key}` says when a client's journal is merged, and under rpcs there is none")
            }
            Consistency::Weak | Consistency::Invisible => {
                format!("`{key}` says when a running job is merged, which without volatile_apply it never is")
            }
        };
        let weak = compose(Consistency::Weak, self.durability().min(Durability::Global));
        Some(
            Fault::new(place, reason).or_rather(format!("composition: {}", weak.expect("a cell of Table I"))),
        )
    }
}

/// The two keys in Table I's order: the mechanisms that carry operations out, persist them, and apply them.
fn join(
    consistency: &Half<Consistency>,
    durability: &Half<Durability>,
    place: Place,
) -> Result<Composition, Fault> {
    let steps = match consistency {
        Half::Steps(steps) => steps.clone(),
        Half::Level(level) => {
            compose(*level, Durability::None).expect("every level of consistency goes with `none`")
        }
    };
    let persist = match durability {
        Half::Steps(steps) => Some(steps.clone()),
        Half::Level(level) => persist_of(*level, &steps).map(Composition::Step),
    };
    let joined = match (steps, persist) {
        (steps, None) => steps,
        (Composition::Serial(mut parts), Some(persist)) => {
            let is_source =
                |part: &Composition| matches!(part, Composition::Step(m) if m.role() == Role::Source);
            let at = parts.iter().position(is_source).map_or(0, |at| at + 1);
            parts.insert(at, persist);
            Composition::Serial(parts)
        }
        (steps, Some(persist)) => Composition::Serial(vec![steps, persist]),
    };
    judge(joined).map_err(|s| Fault::new(place, s.reason).or_rather(format!("composition: {}", s.nearest)))
}

/// The mechanism that gives a level to the operations of `steps`.
fn persist_of(level: Durability, steps: &Composition) -> Option<Mechanism> {
    match level {
        Durability::None => None,
        Durability::Local => Some(Mechanism::LocalPersist),
        Durability::Global if steps.has(Mechanism::Rpcs) => Some(Mechanism::Stream),
        Durability::Global => Some(Mechanism::GlobalPersist),
        Durability::Geo => Some(Mechanism::Replicate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str, around: &Policy) -> Result<Policy, Fault> {
        Policy::resolve(&PolicyFile::parse(text)?, around)
    }

    #[test]
    fn names_are_not_spread_where_all_lies_on_one_plate() {
        for (text, named) in [
            ("huge: always\nplacement: near", "`huge: always`"),
            ("huge: always\nconsistency: weak", "`huge: always`"),
            ("placement: near\nhuge: auto", "`huge: auto`"),
        ] {
            let fault = resolve(text, &Policy::default()).expect_err(text);
            assert!(fault.reason.contains(named), "{text}: {fault}");
        }
        let spread = resolve("huge: always", &Policy::default()).expect("good");
        assert_eq!(spread.huge, Huge::Always);
        let near = resolve("placement: near", &spread).expect("what is inherited gives way");
        assert_eq!((near.huge, near.placement), (Huge::Always, Placement::Near));
    }

    /// Text, composition or fault, resolved below the default.
    fn check(text: &str, expect: &str) {
        let got = match resolve(text, &Policy::default()) {
            Ok(policy) => policy.composition.to_string(),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn an_empty_file_changes_nothing_and_gives_100_inodes() {
        for text in ["", "\n", "# nothing\n", "---\n", "{}", "~"] {
            assert_eq!(resolve(text, &Policy::default()), Ok(Policy::default()), "{text:?}");
        }
        let batchfs =
            resolve("consistency: weak\ndurability: local\nallocated_inodes: 7", &Policy::default()).unwrap();
        let child = resolve("", &batchfs).unwrap();
        assert_eq!(child.composition, batchfs.composition);
        assert_eq!(child.allocated_inodes, 100);
    }

    #[test]
    fn a_text_makes_the_policy_again_whatever_is_around() {
        let texts = [
            "",
            "consistency: weak\ndurability: local\nsync_interval: 90s\nallocated_inodes: 5000",
            "consistency: invisible\ndurability: none\ninterfere_policy: block\non_conflict: keep_both",
            "sync_updates: 7\nsync_when_idle: true\nconsistency: weak\nretain: 7d\nplacement: servers=[a, b]",
            "acknowledge: durable\nflush_interval: 1500ms\nlease: delay\ndata: lazy\nhuge_threshold: 0",
        ];
        let policies = texts.map(|text| resolve(text, &Policy::default()).expect(text));
        for policy in &policies {
            for around in &policies {
                assert_eq!(resolve(&policy.text(), around).as_ref(), Ok(policy), "{}", policy.text());
            }
            assert_eq!(resolve(&policy.text(), &Policy::default()).as_ref(), Ok(policy));
        }
    }

    #[test]
    fn the_two_keys_join_in_the_order_of_table_i() {
        check(
            "consistency: append_client_journal\ndurability: local_persist",
            "append_client_journal + local_persist",
        );
        check(
            "consistency: append_client_journal+volatile_apply\ndurability: local_persist",
            "append_client_journal + local_persist + volatile_apply",
        );
        check(
            "consistency_callback: create+v_apply\ndurability_callback: save",
            "append_client_journal + local_persist + volatile_apply",
        );
        check("consistency: RPCs\ndurability: none", "rpcs");
        check("consistency: strong\ndurability: local", "rpcs + local_persist");
        check("durability: geo", "rpcs + replicate");
        check("consistency: weak", "append_client_journal + global_persist + volatile_apply");
        check(
            "durability: save || persist\nconsistency: create+v_apply",
            "append_client_journal + (local_persist || global_persist) + volatile_apply",
        );
        for consistency in Consistency::ALL {
            for durability in [Durability::None, Durability::Local, Durability::Global] {
                let cell = compose(consistency, durability).unwrap();
                check(
                    &format!("consistency: {}\ndurability: {}", consistency.name(), durability.name()),
                    &cell.to_string(),
                );
            }
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        check(
            "# a comment\nconsistency:   rpcs\ndurability:  global_persist\n",
            "line 2, column 16: global_persist is for a client's journal; the server's goes to the object store by stream; nearest that makes sense: composition: rpcs + stream",
        );
        check(
            "composition: rpcs + append_client_journal",
            "line 1, column 14: rpcs and append_client_journal both carry operations out: one of them does; nearest that makes sense: composition: rpcs",
        );
        check(
            "composition: \"rpcs + strm\"",
            "line 1, column 22: `strm` is no mechanism; nearest that makes sense: stream",
        );
        check(
            "composition: >\n  rpcs +\n  strm\n",
            "line 3, column 3: `strm` is no mechanism; nearest that makes sense: stream",
        );
        check(
            "composition: create + save\n   + volatile_aply",
            "line 2, column 6: `volatile_aply` is no mechanism; nearest that makes sense: volatile_apply",
        );
        check(
            "composition: create +\n\n  ",
            "line 1, column 22: a mechanism is missing here; nearest that makes sense: rpcs | append_client_journal | stream | local_persist | global_persist | replicate | volatile_apply | nonvolatile_apply",
        );
        check("data: lazy\n\tlease: delay", "line 2, column 1: this is no YAML: a tab; write blanks");
        check("consistency:\tweak", "line 1, column 13: this is no YAML: a tab; write blanks");
        assert!(
            resolve("colour: red", &Policy::default()).unwrap_err().nearest.unwrap().contains("| retain")
        );
        check(
            "consistensy: rpcs",
            "line 1, column 1: `consistensy` is no key of a policy; nearest that makes sense: consistency",
        );
        check(
            "data: lasy",
            "line 1, column 7: `lasy` is no value of `data`: linearizable | close_to_open | lazy; nearest that makes sense: data: lazy",
        );
        check(
            "retain: soon",
            "line 1, column 9: `soon` is no value of `retain`: a time such as 500ms, 2s, 10m, 1h, 7d",
        );
        check(
            "consistency: rpcs\nconsistency_callback: rpcs",
            "line 2, column 1: `consistency` stands there twice",
        );
        check("durability:", "line 1, column 1: `durability` has no value");
        check(
            "durability: rpcs",
            "line 1, column 13: rpcs is a matter of `consistency`; nearest that makes sense: consistency: rpcs",
        );
        check(
            "composition: rpcs\ndurability: none",
            "line 2, column 13: `composition` says all: `durability` cannot stand beside it; nearest that makes sense: composition: rpcs",
        );
        check(
            "acknowledge: durable\ndurability: none",
            "line 1, column 14: `acknowledge: durable` waits for a durability that `durability: none` does not have; nearest that makes sense: acknowledge: applied",
        );
        check(
            "consistency: invisible\ndurability: local\nsync_updates: 5",
            "line 3, column 15: `sync_updates` says when a running job is merged, which without volatile_apply it never is; nearest that makes sense: composition: append_client_journal + local_persist + volatile_apply",
        );
        check(
            "sync_interval: 1s",
            "line 1, column 16: `sync_interval` says when a client's journal is merged, and under rpcs there is none; nearest that makes sense: composition: append_client_journal + global_persist + volatile_apply",
        );
        check(
            "consistency: weak\ndurability: geo",
            "line 1, column 14: replicate orders the server's operations over the sites and needs rpcs; nearest that makes sense: composition: rpcs + replicate",
        );
    }

    #[test]
    fn only_weak_cells_say_when_a_running_job_is_merged() {
        let mut accepted = 0;
        for consistency in ["invisible", "weak", "strong"] {
            for durability in ["none", "local", "global"] {
                let cell = format!("consistency: {consistency}\ndurability: {durability}\n");
                for (key, value, off) in [
                    ("sync_interval", "5s", "0"),
                    ("sync_updates", "7", "0"),
                    ("sync_when_idle", "true", "false"),
                ] {
                    let about = format!("{cell}{key}");
                    // A value that turns automatic merging off is always accepted.
                    assert!(resolve(&format!("{cell}{key}: {off}"), &Policy::default()).is_ok(), "{about}");
                    match resolve(&format!("{cell}{key}: {value}"), &Policy::default()) {
                        Ok(policy) => {
                            assert_eq!(consistency, "weak", "{about}");
                            let set =
                                (policy.sync_interval.is_some(), policy.sync_updates, policy.sync_when_idle);
                            let expect = match key {
                                "sync_interval" => (true, None, false),
                                "sync_updates" => (false, Some(7), false),
                                _ => (false, None, true),
                            };
                            assert_eq!(set, expect, "{about}");
                            accepted += 1;
                        }
                        Err(fault) => {
                            assert_ne!(consistency, "weak", "{about}: {fault}");
                            assert!(fault.reason.contains(key), "{about}: {fault}");
                            // The policy that is offered instead makes sense.
                            let nearest = fault.nearest.expect(&about);
                            resolve(&format!("{nearest}\n{key}: {value}"), &Policy::default()).expect(&about);
                        }
                    }
                    // Nor is it inherited by a cell in which it means nothing.
                    let parent = resolve(
                        "consistency: weak\ndurability: local\nsync_interval: 1s",
                        &Policy::default(),
                    );
                    let child = resolve(&cell, &parent.expect("a weak policy")).expect(&about);
                    assert_eq!(child.sync_interval.is_some(), consistency == "weak", "{about}");
                }
            }
        }
        assert_eq!(accepted, 9);
    }

    #[test]
    fn what_yaml_can_do_beyond_a_flat_list_is_refused() {
        for (text, reason) in [
            ("a: &x [*x]", "no "),
            ("data: *x", "this is no YAML"),
            ("data: &x lazy", "anchors"),
            ("data: !!str lazy", "tags"),
            ("data: [lazy]", "no lists"),
            ("- data", "no lists"),
            ("data:\n  deep: lazy", "no nesting"),
            ("data: lazy\n---\ndata: lazy", "no second document"),
            ("lazy", "stands alone"),
            ("data: lazy\n\tx: y", ""),
            ("{", ""),
        ] {
            let fault = PolicyFile::parse(text).expect_err(text);
            assert!(fault.reason.contains(reason), "{text:?}: {fault}");
        }
        let long = format!("# {}", "x".repeat(crate::FILE_BYTES_MAX));
        assert!(PolicyFile::parse(&long).unwrap_err().reason.contains("at most 16384 bytes"));
        let many: String = (0..100).map(|n| format!("k{n}: 1\n")).collect();
        assert!(PolicyFile::parse(&many).unwrap_err().reason.contains("at most 64 keys"));
    }

    #[test]
    fn children_inherit_key_by_key() {
        let parent =
            resolve("data: lazy\nflush_interval: 5s\nretain: 7d\ndurability: local", &Policy::default())
                .unwrap();
        let child = resolve("durability: none\nretain: 0", &parent).unwrap();
        assert_eq!(child.composition.to_string(), "rpcs");
        assert_eq!(
            (child.data, child.flush_interval, child.retain),
            (Data::Lazy, Span::from_ms(5_000), None)
        );
    }
}
