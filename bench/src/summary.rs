//! Rates of repeated runs, as mdtest prints them: mean, confidence, extremes.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use serde_json::{Value, json};

use crate::confidence::Estimate;
use crate::report::figure;
use crate::tasks::Phase;

/// The rates of one operation, a value for each run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Which of several loads; empty if there is one.
    pub load: String,
    pub operation: String,
    pub unit: &'static str,
    pub values: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    series: Vec<Series>,
}

impl Summary {
    pub fn add(&mut self, load: &str, operation: &str, unit: &'static str, value: f64) {
        let known =
            self.series.iter_mut().find(|s| s.load == load && s.operation == operation && s.unit == unit);
        match known {
            Some(series) => series.values.push(value),
            None => self.series.push(Series {
                load: load.to_owned(),
                operation: operation.to_owned(),
                unit,
                values: vec![value],
            }),
        }
    }

    /// The rate of each phase that had operations.
    pub fn add_phases(&mut self, load: &str, phases: &[Phase]) {
        for phase in phases.iter().filter(|phase| phase.ops > 0) {
            self.add(load, phase.name, "ops/s", phase.ops_per_second());
        }
    }

    pub fn of(&self, load: &str, operation: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.load == load && series.operation == operation)
    }

    /// Adds the ratios of one load to another, run by run, of the operations that both have.
    pub fn add_ratios(&mut self, load: &str, base: &str) {
        let name = format!("{load} / {base}");
        let ratio = |ours: &Series| {
            let base = self.of(base, &ours.operation)?;
            let values = ours.values.iter().zip(&base.values).map(|(ours, base)| ours / base).collect();
            Some(Series { load: name.clone(), unit: "ratio", values, ..ours.clone() })
        };
        let ratios: Vec<Series> =
            self.series.iter().filter(|series| series.load == load).filter_map(ratio).collect();
        self.series.extend(ratios);
    }

    pub fn print(&self, level: f64, is_json: bool) {
        println!("{}", if is_json { format!("{:#}", self.json(level)) } else { self.table(level) });
    }

    pub fn json(&self, level: f64) -> Value {
        let row = |series: &Series| {
            let estimate = Estimate::of(&series.values, level);
            let mut row = json!(series);
            row["estimate"] = json!(estimate);
            row
        };
        json!({ "confidence_percent": level, "series": self.series.iter().map(row).collect::<Vec<_>>() })
    }

    pub fn table(&self, level: f64) -> String {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let confidence = format!("± ({level} %)");
        table.set_header(["", "operation", "unit", "mean", &confidence, "max", "min", "std dev", "runs"]);
        for series in &self.series {
            let estimate = Estimate::of(&series.values, level);
            let number =
                |value: f64| if series.unit == "ratio" { format!("{value:.3}") } else { figure(value) };
            table.add_row([
                series.load.clone(),
                series.operation.clone(),
                series.unit.to_owned(),
                number(estimate.mean),
                estimate.half_width.map_or("n/a".to_owned(), number),
                number(estimate.max),
                number(estimate.min),
                number(estimate.deviation),
                estimate.runs.to_string(),
            ]);
        }
        for column in 3..=8 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_pair_the_runs() {
        let mut summary = Summary::default();
        for (easy, hard) in [(100.0, 50.0), (10.0, 5.0)] {
            summary.add("easy", "File stat", "ops/s", easy);
            summary.add("hard", "File stat", "ops/s", hard);
            summary.add("hard", "File read", "ops/s", 7.0);
        }
        summary.add_ratios("hard", "easy");
        assert_eq!(summary.of("hard / easy", "File stat").expect("there").values, [0.5, 0.5]);
        assert_eq!(summary.of("hard / easy", "File read"), None);
        let table = summary.table(95.0);
        assert!(table.contains("0.500") && table.contains("± (95 %)"), "{table}");
        assert_eq!(summary.json(95.0)["series"][0]["estimate"]["mean"], 55.0);
    }

    #[test]
    fn a_phase_without_operations_has_no_rate() {
        let mut summary = Summary::default();
        let phase = |name, ops| Phase { name, ops, seconds: 2.0 };
        summary.add_phases("", &[phase("a", 0), phase("b", 10)]);
        assert_eq!((summary.of("", "a"), summary.of("", "b").map(|s| s.values[0])), (None, Some(5.0)));
    }
}
