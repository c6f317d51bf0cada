//! The parts of a drawn plan that are kept: names a shorter run for a user who has the seed.
//!
//! ```text
//!   0,2/1-4,9/     faults 0 and 2; of the first client the steps 1 to 4 and 9; of the second none
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::plan::{Plan, Step};

/// Faults and steps by their numbers in the plan, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    pub faults: Vec<usize>,
    /// Of each client, rising.
    pub clients: Vec<Vec<usize>>,
}

impl Keep {
    pub fn all(plan: &Plan) -> Keep {
        let clients = plan.clients.iter().map(|steps| (0..steps.len()).collect()).collect();
        Keep { faults: (0..plan.faults.len()).collect(), clients }
    }

    /// Number of kept parts.
    pub fn size(&self) -> usize {
        self.faults.len() + self.clients.iter().map(Vec::len).sum::<usize>()
    }

    /// The kept parts of a plan. A step behind a removed step keeps its time.
    ///
    /// # Errors
    /// If the plan has no such parts.
    pub fn of(&self, plan: &Plan) -> Result<Plan, String> {
        if self.clients.len() != plan.clients.len() {
            return Err(format!("the plan has {} clients, not {}", plan.clients.len(), self.clients.len()));
        }
        let faults = self.faults.iter().map(|&at| plan.faults.get(at).cloned());
        let faults = faults.collect::<Option<Vec<_>>>().ok_or("the plan has fewer faults")?;
        let both = plan.clients.iter().zip(&self.clients);
        let clients = both.map(|(steps, kept)| pick(steps, kept)).collect::<Option<Vec<_>>>();
        let clients = clients.ok_or("a client of the plan has fewer steps")?;
        Ok(Plan { faults, clients, ..plan.clone() })
    }
}

fn pick(steps: &[Step], kept: &[usize]) -> Option<Vec<Step>> {
    let mut from = 0;
    let mut picked = Vec::new();
    for &at in kept {
        let pause: Duration = steps.get(from..=at)?.iter().map(|step| step.pause).sum();
        picked.push(Step { pause, ..steps[at].clone() });
        from = at + 1;
    }
    Some(picked)
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_numbers(f, &self.faults)?;
        for steps in &self.clients {
            f.write_str("/")?;
            write_numbers(f, steps)?;
        }
        Ok(())
    }
}

fn write_numbers(f: &mut fmt::Formatter<'_>, numbers: &[usize]) -> fmt::Result {
    for (n, run) in numbers.chunk_by(|a, b| a + 1 == *b).enumerate() {
        let comma = if n == 0 { "" } else { "," };
        match run {
            [one] => write!(f, "{comma}{one}")?,
            [first, .., last] => write!(f, "{comma}{first}-{last}")?,
            [] => {}
        }
    }
    Ok(())
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Keep, String> {
        let mut parts = text.split('/').map(read_numbers);
        let faults = parts.next().unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(Keep { faults, clients: parts.collect::<Result<_, _>>()? })
    }
}

fn read_numbers(text: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| text.parse::<usize>().map_err(|e| format!("{text:?}: {e}"));
    let mut numbers = Vec::new();
    for piece in text.split(',').filter(|piece| !piece.is_empty()) {
        match piece.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first >= last {
                    return Err(format!("{piece:?} is no range"));
                }
                numbers.extend(first..=last);
            }
            None => numbers.push(number(piece)?),
        }
    }
    if numbers.is_sorted_by(|a, b| a < b) { Ok(numbers) } else { Err(format!("{text:?} does not rise")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    #[test]
    fn reads_return_writes() {
        for text in ["", "0", "0,2/1-4,9/", "/0-1/7", "1-3//"] {
            let keep: Keep = text.parse().unwrap();
            assert_eq!(keep.to_string(), text);
        }
        for wrong in ["x", "3-1,2", "1,1", "0/2,1", "-"] {
            assert!(wrong.parse::<Keep>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn kept_parts_of_a_plan_keep_their_times() {
        let plan = plan::draw(7, 60);
        let all = Keep::all(&plan);
        assert_eq!(all.of(&plan), Ok(plan.clone()));
        let mut some = all.clone();
        some.clients[0] = vec![2, 5];
        let left = some.of(&plan).unwrap();
        assert_eq!(some.size() + plan.clients[0].len() - 2, all.size());
        let time = |steps: &[Step]| steps.iter().map(|step| step.pause).sum::<Duration>();
        assert_eq!(time(&left.clients[0]), time(&plan.clients[0][..=5]));
        assert_eq!(left.clients[0][1].action, plan.clients[0][5].action);
        assert_eq!(left.faults, plan.faults);
        some.clients[0] = vec![100_000];
        assert!(some.of(&plan).is_err());
        some.clients.pop();
        assert!(some.of(&plan).is_err());
    }
}
