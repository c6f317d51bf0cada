//! Means of repeated runs, with a confidence interval (Student's t: few runs, unknown variance).

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean, and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub mean: f64,
    /// The interval is the mean plus or minus this; `None` of a single run.
    pub half_width: Option<f64>,
    /// The sample's standard deviation; 0 of a single run.
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
    pub runs: usize,
}

impl Estimate {
    /// Of at least one finite value. `level` is the confidence in percent, between 0 and 100.
    pub fn of(values: &[f64], level: f64) -> Estimate {
        assert!(!values.is_empty() && values.iter().all(|v| v.is_finite()), "an estimate of {values:?}");
        assert!(level > 0.0 && level < 100.0, "a confidence of {level} %");
        let runs = values.len();
        let mean = values.iter().sum::<f64>() / runs as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if runs > 1 { (squares / (runs - 1) as f64).sqrt() } else { 0.0 };
        let half_width = (runs > 1).then(|| quantile(runs - 1, level) * deviation / (runs as f64).sqrt());
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Estimate { mean, half_width, deviation, min, max, runs }
    }
}

/// Between minus this and this lies `level` percent of Student's distribution.
fn quantile(freedom: usize, level: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom as f64).expect("a freedom of at least 1");
    student.inverse_cdf(0.5 + level / 200.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        for (freedom, level, expect) in
            [(1, 95.0, 12.706), (4, 95.0, 2.776), (4, 99.0, 4.604), (9, 90.0, 1.833), (120, 95.0, 1.980)]
        {
            let found = quantile(freedom, level);
            assert!((found - expect).abs() < 0.001, "{freedom} at {level} %: {found}");
        }
    }

    #[test]
    fn interval_of_five_runs() {
        let estimate = Estimate::of(&[8.0, 9.0, 10.0, 11.0, 12.0], 95.0);
        assert_eq!((estimate.mean, estimate.min, estimate.max, estimate.runs), (10.0, 8.0, 12.0, 5));
        assert!((estimate.deviation - 2.5_f64.sqrt()).abs() < 1e-12);
        let half_width = estimate.half_width.expect("of five runs");
        assert!((half_width - 1.963).abs() < 0.001, "{half_width}");
    }

    #[test]
    fn one_run_has_no_interval() {
        let estimate = Estimate::of(&[3.0], 95.0);
        assert_eq!((estimate.mean, estimate.half_width, estimate.deviation), (3.0, None, 0.0));
    }
}
