//! Spans of time as people write them.

use std::time::Duration;

/// Parses `5s`, `500ms`, `2m`, and a bare number as seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        other => return Err(format!("unknown unit {other:?}: use ms, s or m")),
    };
    let number: f64 =
        number.parse().map_err(|_| "write a time as a number with ms, s or m behind it".to_string())?;
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|time| *time >= Duration::from_millis(1) && *time <= Duration::from_secs(86_400))
        .ok_or_else(|| "a time must be from 1ms to a day".to_string())
}

/// `0 ms`, `250 ms`, `3.2 s`, `5 min`, `2 h`.
pub(crate) fn human(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..120_000 => format!("{:.1} s", millis as f64 / 1_000.0),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        let check = |text: &str, millis: Option<u128>| {
            assert_eq!(parse(text).ok().map(|time| time.as_millis()), millis, "{text}");
        };
        check("5s", Some(5_000));
        check("500 ms", Some(500));
        check("2m", Some(120_000));
        check("0.5", Some(500));
        for bad in ["", "s", "5h", "-1s", "0s", "9999999s", "1..2s"] {
            check(bad, None);
        }
        let shown = [0, 250, 3_200, 300_000, 7_200_000].map(human);
        assert_eq!(shown, ["0 ms", "250 ms", "3.2 s", "5 min", "2 h"]);
    }
}
