//! Sizes as people write them.

/// Parses `4096`, `64K`, `256M`, `2G`, `1T` (powers of 1,024; `KiB`, `MiB` … are accepted too).
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start().trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        other => return Err(format!("unknown unit {other:?}: use K, M, G or T")),
    };
    let number: u64 =
        number.parse().map_err(|_| "write a size as a number with K, M, G or T behind it".to_string())?;
    number
        .checked_shl(shift)
        .filter(|n| n >> shift == number)
        .ok_or_else(|| "the size is too large".to_string())
}

/// `1536` → `1.5 KiB`.
pub(crate) fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(parse(text).ok(), expect, "{text}");
        check("4096", Some(4096));
        check("64K", Some(65536));
        check("2 GiB", Some(2 << 30));
        check("1t", Some(1 << 40));
        for bad in ["", "x", "5X", "-1", "99999999999T"] {
            check(bad, None);
        }
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(7), "7 B");
    }
}
