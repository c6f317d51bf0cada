//! Mechanisms one after the other (`+`) and side by side (`||`), and their normal form.

use std::fmt;

use crate::mechanism::{Mechanism, Role};

/// A composition of mechanisms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Composition {
    Step(Mechanism),
    /// All of them at the same time; the composition ends when all have ended.
    Parallel(Vec<Composition>),
    /// One after the other.
    Serial(Vec<Composition>),
}

impl Composition {
    /// Mechanisms one after the other.
    pub fn serial(steps: impl IntoIterator<Item = Mechanism>) -> Composition {
        Composition::Serial(steps.into_iter().map(Composition::Step).collect()).normalised()
    }

    /// The mechanisms, from left to right.
    pub fn mechanisms(&self) -> Vec<Mechanism> {
        let mut all = Vec::new();
        self.each(&mut |m| all.push(m));
        all
    }

    fn each(&self, f: &mut dyn FnMut(Mechanism)) {
        match self {
            Composition::Step(m) => f(*m),
            Composition::Parallel(parts) | Composition::Serial(parts) => {
                parts.iter().for_each(|p| p.each(f));
            }
        }
    }

    /// True if it names the mechanism.
    pub fn has(&self, mechanism: Mechanism) -> bool {
        let mut found = false;
        self.each(&mut |m| found |= m == mechanism);
        found
    }

    /// Nested chains are one chain, a group of one is that one, mechanisms side by side stand in the table's order, and
    /// in a plain chain, behind the mechanism that makes the events, those that persist go before those that apply (the
    /// draft's grammar has it the other way round): so nothing is merged that the promised disk does not hold. No
    /// mechanism is moved past the one that makes its events: that order is senseless, and [`crate::judge`] refuses it.
    pub fn normalised(self) -> Composition {
        match self {
            Composition::Step(_) => self,
            Composition::Parallel(parts) => {
                let mut flat = Vec::new();
                for part in parts {
                    match part.normalised() {
                        Composition::Parallel(inner) => flat.extend(inner),
                        other => flat.push(other),
                    }
                }
                flat.sort();
                single(flat, Composition::Parallel)
            }
            Composition::Serial(parts) => {
                let mut flat = Vec::new();
                for part in parts {
                    match part.normalised() {
                        Composition::Serial(inner) => flat.extend(inner),
                        other => flat.push(other),
                    }
                }
                if flat.iter().all(|part| matches!(part, Composition::Step(_))) {
                    let is_of =
                        |part: &Composition, role| matches!(part, Composition::Step(m) if m.role() == role);
                    let made = flat.iter().rposition(|part| is_of(part, Role::Source)).map_or(0, |at| at + 1);
                    flat[made..].sort_by_key(|part| is_of(part, Role::Apply));
                }
                single(flat, Composition::Serial)
            }
        }
    }

    /// For each mechanism from left to right, those that must have ended before it begins.
    pub fn order(&self) -> Vec<(Mechanism, Vec<Mechanism>)> {
        let mut out = Vec::new();
        self.order_after(&[], &mut out);
        out
    }

    fn order_after(&self, before: &[Mechanism], out: &mut Vec<(Mechanism, Vec<Mechanism>)>) {
        match self {
            Composition::Step(m) => out.push((*m, before.to_vec())),
            Composition::Parallel(parts) => parts.iter().for_each(|p| p.order_after(before, out)),
            Composition::Serial(parts) => {
                let mut before = before.to_vec();
                for part in parts {
                    part.order_after(&before, out);
                    before.extend(part.mechanisms());
                }
            }
        }
    }
}

fn single(mut parts: Vec<Composition>, group: fn(Vec<Composition>) -> Composition) -> Composition {
    if parts.len() == 1 { parts.remove(0) } else { group(parts) }
}

impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, between) = match self {
            Composition::Step(m) => return f.write_str(m.name()),
            Composition::Parallel(parts) => (parts, " || "),
            Composition::Serial(parts) => (parts, " + "),
        };
        for (n, part) in parts.iter().enumerate() {
            if n > 0 {
                f.write_str(between)?;
            }
            match part {
                Composition::Step(m) => f.write_str(m.name())?,
                group => write!(f, "({group})")?,
            }
        }
        Ok(())
    }
}
