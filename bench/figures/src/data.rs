//! Measured values, as CSV: one value a line.

use std::fmt::Write as _;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which curve or group of bars.
    pub series: String,
    /// Where on the x axis: a number, or a name.
    pub x: String,
    /// The repetition, from 0.
    pub run: usize,
    pub value: f64,
    pub unit: &'static str,
}

/// All values of a figure, in the order of measuring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    rows: Vec<Row>,
}

const HEADER: &str = "series,x,run,value,unit";

impl Table {
    /// Adds a value, which must be a finite number.
    pub fn add(&mut self, series: &str, x: impl ToString, run: usize, value: f64, unit: &'static str) {
        assert!(value.is_finite(), "{series} at {} measured {value}", x.to_string());
        self.rows.push(Row { series: series.to_owned(), x: x.to_string(), run, value, unit });
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The values of a series, for all x.
    pub fn of<'a>(&'a self, series: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.series == series)
    }

    /// As CSV with a header (RFC 4180, lines end in `\n`).
    pub fn csv(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for row in &self.rows {
            let (series, x) = (field(&row.series), field(&row.x));
            writeln!(text, "{series},{x},{},{},{}", row.run, row.value, field(row.unit))
                .expect("a string takes all");
        }
        text
    }
}

/// Quoted where it has to be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_lines() {
        let mut table = Table::default();
        table.add("rpcs", 20, 0, 1234.5, "creates/s");
        table.add("a \"b\", c", "x", 2, 0.25, "s");
        assert_eq!(
            table.csv(),
            "series,x,run,value,unit\nrpcs,20,0,1234.5,creates/s\n\"a \"\"b\"\", c\",x,2,0.25,s\n"
        );
        assert_eq!(table.of("rpcs").count(), 1);
    }

    #[test]
    #[should_panic(expected = "rpcs at 3 measured inf")]
    fn invalid_numbers_are_refused() {
        Table::default().add("rpcs", 3, 0, 1.0 / 0.0, "creates/s");
    }
}
