//! Values as people read them.

use chiton_types::{Attr, Kind, Name, Time};

/// Flags, as `chattr` calls them.
pub const FLAG_LETTERS: [(u8, char); 2] = [(Attr::IMMUTABLE, 'i'), (Attr::APPEND_ONLY, 'a')];

/// The letters of these flags; `-` if there are none.
pub fn flag_letters(flags: u8) -> String {
    let set = FLAG_LETTERS.iter().filter(|(flag, _)| flags & flag != 0);
    let letters: String = set.map(|(_, letter)| letter).collect();
    if letters.is_empty() { "-".to_owned() } else { letters }
}

/// The name of a type of inode.
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::Char => "character device",
        Kind::Block => "block device",
    }
}

/// A name as text: bytes that are not UTF-8 as `\xNN`, so that different names stay different.
pub fn text(name: &Name) -> String {
    let mut out = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out
}

pub fn octal(mode: u16) -> String {
    format!("{mode:04o}")
}

/// A name in quotes, control characters escaped.
pub fn quoted(name: &Name) -> String {
    format!("\"{}\"", text(name).escape_default().to_string().replace("\\\\x", "\\x"))
}

/// A time in UTC, to the millisecond: `2026-11-22 19:47:38.123`.
pub fn utc(time: Time) -> String {
    let (secs, millis) = (time.secs(), time.subsec_nanos() / 1_000_000);
    let (days, second) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    // Days of the Gregorian calendar, counted from 1 March 0000, in eras of 400 years.
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{millis:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let check = |secs, expect: &str| assert_eq!(utc(Time::from_parts(secs, 7_000_000)), expect);
        check(0, "1970-01-01 00:00:00.007");
        check(951_782_399, "2000-02-28 23:59:59.007");
        check(951_782_400, "2000-02-29 00:00:00.007");
        check(1_763_841_600, "2025-11-22 20:00:00.007");
        check(-1, "1969-12-31 23:59:59.007");
    }
}
