//! Rows of figures: baseline, ours, ratio, target, and how far the runs spread.
//!
//! Invariants:
//! - A ratio is the median of the rounds' own ratios (ours / baseline of the same round), so that a machine
//!   that slows down half way moves both sides and not the ratio.
//! - All figures are rates: higher is better.
//!
//! A bench is a program with a terminal of its own, as the commands are: it draws its tables itself.

use std::io;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::confidence::Estimate;

/// Median, least and most of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle run (of an even number, the mean of the middle two).
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of at least one finite value.
    pub fn of(values: &[f64]) -> Spread {
        assert!(!values.is_empty() && values.iter().all(|v| v.is_finite()), "a spread of {values:?}");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Spread { median: (low + high) / 2.0, min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// The unit of the figures, a rate.
    pub unit: &'static str,
    pub baseline: Spread,
    pub ours: Option<Spread>,
    /// Ours divided by the baseline.
    pub ratio: Option<f64>,
    /// The ratio that we want, at least.
    pub target: Option<f64>,
    /// The resource that limits the rate.
    pub bound_by: String,
    /// Rounds that it is the median of.
    pub runs: usize,
    /// The ratio of each round.
    pub ratios: Vec<f64>,
}

impl Row {
    /// A row from the rates of each round; `ours` is empty, or holds as many as `baseline`.
    pub fn new(name: &str, unit: &'static str, baseline: &[f64], ours: &[f64]) -> Row {
        assert!(ours.is_empty() || ours.len() == baseline.len(), "rounds of {name} do not pair up");
        let ratios: Vec<f64> = ours.iter().zip(baseline).map(|(o, b)| o / b).collect();
        let measured = !ours.is_empty();
        Row {
            name: name.into(),
            unit,
            baseline: Spread::of(baseline),
            ours: measured.then(|| Spread::of(ours)),
            ratio: measured.then(|| Spread::of(&ratios).median),
            ratios,
            target: None,
            bound_by: String::new(),
            runs: baseline.len(),
        }
    }

    /// With the ratio that we want.
    pub fn with_target(self, target: f64) -> Row {
        Row { target: Some(target), ..self }
    }

    /// Sets the limiting resource.
    pub fn with_bound(self, bound_by: &str) -> Row {
        Row { bound_by: bound_by.into(), ..self }
    }

    /// Mean and confidence of the ratio.
    pub fn estimate(&self, level: f64) -> Option<Estimate> {
        (!self.ratios.is_empty()).then(|| Estimate::of(&self.ratios, level))
    }

    /// Whether the target is reached; `None` without a target or a figure of ours.
    pub fn reached(&self) -> Option<bool> {
        Some(self.ratio? >= self.target?)
    }
}

/// Measures baseline and subject in alternation, `rounds` times each, and makes the row of it.
///
/// # Errors
/// The first failure of either.
pub fn compare(
    name: &str,
    unit: &'static str,
    rounds: usize,
    mut baseline: impl FnMut() -> io::Result<f64>,
    subject: Option<&mut dyn FnMut() -> io::Result<f64>>,
) -> io::Result<Row> {
    assert!(rounds >= 1, "a comparison without a round");
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let mut subject = subject;
    for _ in 0..rounds {
        theirs.push(baseline()?);
        if let Some(subject) = &mut subject {
            ours.push(subject()?);
        }
    }
    Ok(Row::new(name, unit, &theirs, &ours))
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// In the order of measuring.
    pub rows: Vec<Row>,
    /// Percent of confidence with which the mean ratio is shown, if it is.
    pub confidence: Option<f64>,
}

impl Report {
    /// A table for terminals.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let mut heads =
            ["", "unit", "baseline", "ours", "ratio", "target", "bound by", "n", "min..max (baseline, ours)"]
                .map(str::to_owned)
                .to_vec();
        heads.extend(self.confidence.map(|level| format!("mean ratio ± ({level} %)")));
        table.set_header(heads);
        for row in &self.rows {
            let mut cells = vec![
                row.name.clone(),
                row.unit.into(),
                figure(row.baseline.median),
                row.ours.map_or("n/a".into(), |s| figure(s.median)),
                row.ratio.map_or("n/a".into(), |r| format!("{r:.2}")),
                target_cell(row),
                row.bound_by.clone(),
                row.runs.to_string(),
                spread_cell(row),
            ];
            cells.extend(self.confidence.map(|level| estimate_cell(row, level)));
            table.add_row(cells);
        }
        for column in [2, 3, 4, 5, 7] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }

    pub fn json(&self) -> String {
        let mut report = serde_json::json!(self);
        for (row, shown) in self.rows.iter().zip(report["rows"].as_array_mut().into_iter().flatten()) {
            shown["ratio_estimate"] =
                serde_json::json!(self.confidence.and_then(|level| row.estimate(level)));
        }
        serde_json::to_string_pretty(&report).expect("rows of numbers and text become JSON")
    }

    /// Prints it to standard output, as JSON or as a table.
    pub fn print(&self, json: bool) {
        println!("{}", if json { self.json() } else { self.table() });
    }
}

fn target_cell(row: &Row) -> String {
    let Some(target) = row.target else { return "n/a".into() };
    match row.reached() {
        Some(true) => format!("{target:.2} ok"),
        Some(false) => format!("{target:.2} MISSED"),
        None => format!("{target:.2}"),
    }
}

fn estimate_cell(row: &Row, level: f64) -> String {
    match row.estimate(level) {
        Some(Estimate { mean, half_width: Some(half_width), .. }) => format!("{mean:.2} ± {half_width:.2}"),
        Some(estimate) => format!("{:.2}", estimate.mean),
        None => "n/a".into(),
    }
}

fn spread_cell(row: &Row) -> String {
    let range = |s: &Spread| format!("{}..{}", figure(s.min), figure(s.max));
    match &row.ours {
        Some(ours) => format!("{}, {}", range(&row.baseline), range(ours)),
        None => range(&row.baseline),
    }
}

/// Three significant digits and more, thousands apart: `1,234,567`, `12.3`.
pub(crate) fn figure(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_takes_the_middle() {
        for (values, median, min, max) in [
            (vec![5.0], 5.0, 5.0, 5.0),
            (vec![9.0, 1.0, 2.0], 2.0, 1.0, 9.0),
            (vec![4.0, 1.0, 2.0, 3.0], 2.5, 1.0, 4.0),
        ] {
            assert_eq!(Spread::of(&values), Spread { median, min, max });
        }
    }

    #[test]
    fn rounds_alternate_and_the_ratio_is_paired() {
        let order = std::cell::RefCell::new(String::new());
        let mut machine = [100.0, 10.0, 1.0].into_iter();
        let speed = std::cell::Cell::new(0.0);
        let mut ours = || {
            order.borrow_mut().push('o');
            Ok(speed.get() / 2.0)
        };
        let row = compare(
            "slowing machine",
            "ops/s",
            3,
            || {
                order.borrow_mut().push('b');
                speed.set(machine.next().expect("three rounds"));
                Ok(speed.get())
            },
            Some(&mut ours),
        );
        let row = row.expect("nothing fails").with_target(0.6);
        assert_eq!(*order.borrow(), "bobobo");
        assert_eq!((row.ratio, row.runs, row.reached()), (Some(0.5), 3, Some(false)));
        let failed = compare("x", "ops/s", 1, || Err(io::Error::other("no")), None);
        assert!(failed.is_err());
    }

    #[test]
    fn table_and_json_hold_the_figures() {
        let rows = vec![
            Row::new("create", "ops/s", &[1_234_567.0], &[617_283.5]).with_target(0.5).with_bound("the wire"),
            Row::new("remove", "ops/s", &[12.34], &[]),
        ];
        let report = Report { rows, ..Report::default() };
        let table = report.table();
        for expected in ["1,234,567", "0.50 ok", "the wire", "12.3", "n/a"] {
            assert!(table.contains(expected), "no {expected} in\n{table}");
        }
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("valid JSON");
        assert_eq!(json["rows"][0]["ratio"], 0.5);
        assert!(json["rows"][1]["ours"].is_null());
        assert!(json["rows"][0]["ratio_estimate"].is_null());
    }

    #[test]
    fn confidence_of_the_ratio_is_shown_where_it_is_asked_for() {
        let rows = vec![Row::new("create", "ops/s", &[10.0, 10.0, 10.0], &[4.0, 5.0, 6.0])];
        let report = Report { rows, confidence: Some(95.0) };
        let table = report.table();
        assert!(table.contains("mean ratio ± (95 %)") && table.contains("0.50 ± 0.25"), "{table}");
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("valid JSON");
        assert_eq!(json["rows"][0]["ratio_estimate"]["mean"], 0.5);
    }
}
