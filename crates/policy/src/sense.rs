//! Which compositions make sense. The rest is refused, with the reason and the nearest that does.
//!
//! A composition is judged by which mechanisms it names and which of them go before which. The rules are few and in
//! order: the first that is broken is the reason. A plan that a rule lets pass does what it says.

use crate::composition::Composition;
use crate::level::{Consistency, Durability, durability_of};
use crate::mechanism::{Mechanism, Role};

use Mechanism::{
    AppendClientJournal, GlobalPersist, LocalPersist, NonvolatileApply, Replicate, Rpcs, Stream,
    VolatileApply,
};

/// Why a composition makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Senseless {
    /// The reason, in one sentence.
    pub reason: String,
    /// The nearest that does, in normal form.
    pub nearest: Composition,
}

/// The normal form of a composition that makes sense.
pub fn judge(composition: Composition) -> Result<Composition, Senseless> {
    let composition = composition.normalised();
    match broken_rule(&composition) {
        None => Ok(composition),
        Some(reason) => {
            let nearest = nearest(&composition.mechanisms());
            Err(Senseless { reason, nearest })
        }
    }
}

fn broken_rule(composition: &Composition) -> Option<String> {
    let order = composition.order();
    let has = |m: Mechanism| order.iter().any(|(n, _)| *n == m);
    let both = |a, b| has(a) && has(b);
    if let Some((twice, _)) = order
        .iter()
        .enumerate()
        .map(|(at, o)| (o.0, at))
        .find(|(m, at)| order[..*at].iter().any(|(n, _)| n == m))
    {
        return Some(format!("{} stands there twice", twice.name()));
    }
    if both(Rpcs, AppendClientJournal) {
        return Some("rpcs and append_client_journal both carry operations out: one of them does".into());
    }
    if !has(Rpcs) && !has(AppendClientJournal) {
        return Some(
            "nothing carries operations out: rpcs (the server) or append_client_journal (the client) does"
                .into(),
        );
    }
    for (mechanism, before) in &order {
        if mechanism.role() != Role::Source && !before.iter().any(|b| b.role() == Role::Source) {
            let source = if has(Rpcs) { Rpcs } else { AppendClientJournal };
            return Some(format!(
                "{} works on events that {} makes, so it comes after it",
                mechanism.name(),
                source.name()
            ));
        }
    }
    if has(Rpcs) {
        if has(GlobalPersist) {
            return Some(
                "global_persist is for a client's journal; the server's goes to the object store by stream"
                    .into(),
            );
        }
        for apply in [VolatileApply, NonvolatileApply] {
            if has(apply) {
                return Some(format!("under rpcs there is nothing for {} to merge", apply.name()));
            }
        }
        for weaker in [LocalPersist, Stream] {
            if both(Replicate, weaker) {
                return Some(format!(
                    "replicate survives all that {} survives, and waits longer",
                    weaker.name()
                ));
            }
        }
        if both(Stream, LocalPersist) {
            return Some("stream (global) survives all that local_persist survives, and waits longer".into());
        }
        return None;
    }
    if has(Replicate) {
        return Some("replicate orders the server's operations over the sites and needs rpcs".into());
    }
    if has(Stream) {
        return Some(
            "stream is for the server's journal; a client's goes to the object store by global_persist"
                .into(),
        );
    }
    if both(VolatileApply, NonvolatileApply) {
        return Some("volatile_apply and nonvolatile_apply merge the same events twice".into());
    }
    for (mechanism, before) in &order {
        if *mechanism == NonvolatileApply && !before.contains(&GlobalPersist) {
            return Some(
                "nonvolatile_apply reads the journal from the object store, so global_persist comes before it".into(),
            );
        }
        if mechanism.role() == Role::Persist
            && let Some(apply) = before.iter().find(|b| b.role() == Role::Apply)
        {
            return Some(format!(
                "{} before {}: changes that others have seen could be lost; it comes after, or beside with ||",
                apply.name(),
                mechanism.name()
            ));
        }
    }
    None
}

/// The compositions offered instead of a senseless one: all plain chains that make sense, strong ones first.
const CANDIDATES: [&[Mechanism]; 14] = [
    &[Rpcs],
    &[Rpcs, LocalPersist],
    &[Rpcs, Stream],
    &[Rpcs, Replicate],
    &[AppendClientJournal],
    &[AppendClientJournal, VolatileApply],
    &[AppendClientJournal, LocalPersist],
    &[AppendClientJournal, LocalPersist, VolatileApply],
    &[AppendClientJournal, GlobalPersist],
    &[AppendClientJournal, GlobalPersist, VolatileApply],
    &[AppendClientJournal, GlobalPersist, NonvolatileApply],
    &[AppendClientJournal, LocalPersist, GlobalPersist],
    &[AppendClientJournal, LocalPersist, GlobalPersist, VolatileApply],
    &[AppendClientJournal, LocalPersist, GlobalPersist, NonvolatileApply],
];

/// The candidate with the fewest mechanisms added and dropped, none weaker than the given one, if possible.
fn nearest(asked: &[Mechanism]) -> Composition {
    let durability = asked.iter().map(|m| durability_of(*m)).max().unwrap_or(Durability::None);
    let source = asked.iter().find(|m| m.role() == Role::Source);
    let applied = asked.iter().any(|m| m.role() == Role::Apply);
    let cost = |candidate: &&&[Mechanism]| {
        let has = |m: &Mechanism| candidate.contains(m);
        let composition = Composition::serial(candidate.iter().copied());
        let added = candidate.iter().filter(|m| !asked.contains(m)).count();
        let dropped = asked.iter().enumerate().filter(|(at, m)| !has(m) && !asked[..*at].contains(m)).count();
        let weaker = usize::from(Durability::of(&composition) < durability)
            + usize::from(applied && Consistency::of(&composition) == Consistency::Invisible);
        let other_source =
            usize::from(source.is_some_and(|_| !asked.iter().any(|m| m.role() == Role::Source && has(m))));
        3 * added + 2 * dropped + 20 * weaker + 10 * other_source
    };
    let best = CANDIDATES.iter().min_by_key(cost).expect("there are candidates");
    Composition::serial(best.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Place;
    use crate::language::parse_composition;
    use crate::level::CELLS;

    /// Every composition of up to `steps` mechanisms in every shape.
    fn all_of(steps: usize) -> Vec<Composition> {
        if steps == 1 {
            return Mechanism::ALL.iter().map(|m| Composition::Step(*m)).collect();
        }
        let mut all = Vec::new();
        for left in 1..steps {
            let (lefts, rights) = (all_of(left), all_of(steps - left));
            for a in &lefts {
                for b in &rights {
                    all.push(Composition::Serial(vec![a.clone(), b.clone()]));
                    all.push(Composition::Parallel(vec![a.clone(), b.clone()]));
                }
            }
        }
        all
    }

    #[test]
    fn every_composition_of_bounded_size_is_sensible_or_refused_with_a_sensible_one() {
        let mut sensible = std::collections::BTreeSet::new();
        for composition in (1..=4).flat_map(all_of) {
            let text = composition.to_string();
            match judge(composition) {
                Ok(normal) => {
                    assert_eq!(judge(normal.clone()).as_ref(), Ok(&normal), "{text}: normal forms stay");
                    let again = parse_composition(&normal.to_string(), Place::START).unwrap();
                    assert_eq!(again.normalised(), normal, "{text}");
                    sensible.insert(normal);
                }
                Err(senseless) => {
                    assert!(!senseless.reason.is_empty(), "{text}");
                    assert_eq!(judge(senseless.nearest.clone()), Ok(senseless.nearest), "{text}");
                }
            }
        }
        for cell in CELLS {
            assert!(sensible.contains(&Composition::serial(cell.mechanisms.iter().copied())));
        }
        // The cells, and what `||` and two persists add: the list is short enough to be looked at.
        let list: Vec<String> = sensible.iter().map(ToString::to_string).collect();
        assert_eq!(list.len(), 31, "{list:#?}");
    }

    fn refused(text: &str, reason: &str, nearest: &str) {
        let senseless = judge(parse_composition(text, Place::START).unwrap()).expect_err(text);
        assert!(senseless.reason.contains(reason), "{text}: {}", senseless.reason);
        assert_eq!(senseless.nearest.to_string(), nearest, "{text}");
    }

    #[test]
    fn nonsense_is_refused_with_the_reason_and_the_nearest() {
        // The paper's two examples (III-B).
        refused("append client journal + rpcs", "both carry operations out", "rpcs");
        refused("rpcs + stream + local persist", "survives all that local_persist", "rpcs + stream");
        refused("rpcs + rpcs", "twice", "rpcs");
        refused("stream", "nothing carries operations out", "rpcs + stream");
        refused("volatile_apply", "nothing carries", "append_client_journal + volatile_apply");
        refused("create + stream", "stream is for the server's", "append_client_journal + global_persist");
        refused(
            "create + v_apply + stream",
            "stream is for",
            "append_client_journal + global_persist + volatile_apply",
        );
        refused("rpcs + persist", "goes to the object store by stream", "rpcs + stream");
        refused("rpcs + v_apply", "nothing for volatile_apply to merge", "rpcs");
        refused("rpcs || stream", "comes after it", "rpcs + stream");
        refused("stream + rpcs", "comes after it", "rpcs + stream");
        let weak = "append_client_journal + volatile_apply";
        refused("volatile_apply + append_client_journal", "comes after it", weak);
        refused(
            "v_apply + create + save",
            "volatile_apply works on events that append_client_journal makes",
            "append_client_journal + local_persist + volatile_apply",
        );
        refused(
            "v_apply + (create + save)",
            "comes after it",
            "append_client_journal + local_persist + volatile_apply",
        );
        refused(
            "create + nonvolatile_apply",
            "reads the journal from the object store",
            "append_client_journal + global_persist + nonvolatile_apply",
        );
        refused(
            "create + (persist || nonvolatile_apply)",
            "comes before it",
            "append_client_journal + global_persist + nonvolatile_apply",
        );
        refused(
            "create + persist + v_apply + nonvolatile_apply",
            "twice",
            "append_client_journal + global_persist + volatile_apply",
        );
        refused(
            "create + (v_apply || persist) + save",
            "could be lost",
            "append_client_journal + local_persist + global_persist + volatile_apply",
        );
        refused("create + replicate", "needs rpcs", "rpcs + replicate");
        refused("rpcs + stream + replicate", "replicate survives all", "rpcs + replicate");
    }

    #[test]
    fn the_drafts_grammar_is_understood_whole() {
        // <create|RPCs> [+v_apply][+save][+persist][+stream]
        for source in ["create", "RPCs"] {
            for chosen in 0..16u8 {
                let mut text = source.to_owned();
                for (n, step) in ["v_apply", "save", "persist", "stream"].iter().enumerate() {
                    if chosen & (1 << n) != 0 {
                        text += &format!(" +{step}");
                    }
                }
                let composition = parse_composition(&text, Place::START).expect(&text);
                let makes_sense = match source {
                    "create" => chosen & 0b1000 == 0,
                    _ => matches!(chosen, 0b0000 | 0b0010 | 0b1000),
                };
                assert_eq!(judge(composition).is_ok(), makes_sense, "{text}");
            }
        }
    }
}
