//! Merges two texts line by line, as `diff3` does: either both changes are in the result, each at its place, or there
//! is none.
//!
//! Invariants:
//! - The changes of each side are hunks of the base. A library finds them; here they are applied to the base again, and
//!   must give that side's text.
//! - A merge applies the hunks of both sides to the base. Any two of them are the same hunk, or at least one line of the
//!   base lies between them.
//! - A hunk that both sides have is one change, and applied once. A line that was put into, or taken from, a run of equal
//!   lines may also be two changes: that is a conflict, unless one side has all hunks of the other.
//! - Merging a result with theirs again gives this result.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// Lines of the base, and the lines of one side in their place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk<'a> {
    base: Range<usize>,
    lines: Vec<&'a [u8]>,
}

/// Both changes of a text; `None` if they conflict.
pub(crate) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let result = merge_once(base, ours, theirs)?;
    // After a crash the result is merged again, as ours. With other hunks it could then get a line twice.
    (merge_once(base, &result, theirs)? == result).then_some(result)
}

fn merge_once(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let (of_ours, of_theirs) = (hunks(base, ours)?, hunks(base, theirs)?);
    if has_all(&of_ours, &of_theirs) {
        return Some(ours.to_vec());
    }
    if has_all(&of_theirs, &of_ours) {
        return Some(theirs.to_vec());
    }
    let base = lines(base);
    let (mut ours, mut theirs) = (of_ours.into_iter().peekable(), of_theirs.into_iter().peekable());
    let mut all: Vec<Hunk<'_>> = Vec::new();
    loop {
        let next = match (ours.peek(), theirs.peek()) {
            (None, None) => break,
            (Some(one), Some(other)) if one == other => {
                if slides(&base, one) {
                    return None;
                }
                theirs.next();
                ours.next()
            }
            (Some(one), Some(other)) if one.base.end < other.base.start => ours.next(),
            (Some(one), Some(other)) if other.base.end < one.base.start => theirs.next(),
            (Some(_), Some(_)) => return None,
            (Some(_), None) => ours.next(),
            (None, Some(_)) => theirs.next(),
        };
        all.extend(next);
    }
    let apart = all.windows(2).all(|pair| pair[0].base.end < pair[1].base.start);
    apart.then(|| apply(&base, &all))
}

/// Whether each of `some` is in `all`; both are in the order of the base.
fn has_all(all: &[Hunk<'_>], some: &[Hunk<'_>]) -> bool {
    let place = |hunk: &Hunk<'_>| all.binary_search_by_key(&hunk.base.start, |other| other.base.start);
    some.iter().all(|hunk| place(hunk).is_ok_and(|at| all.get(at) == Some(hunk)))
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The hunks that make `text` of `base`, in their order: the fewest that the algorithms find.
fn hunks<'a>(base: &[u8], text: &'a [u8]) -> Option<Vec<Hunk<'a>>> {
    let input = InternedInput::new(base, text);
    let (before, after) = (lines(base), lines(text));
    let wide = |range: Range<u32>| range.start as usize..range.end as usize;
    let found_by = |algorithm| {
        let mut diff = Diff::compute(algorithm, &input);
        // Gives each hunk the last of its possible places, so that the same change is the same hunk in two texts.
        diff.postprocess_no_heuristic(&input);
        let hunk = |hunk: imara_diff::Hunk| {
            Some(Hunk { base: wide(hunk.before), lines: after.get(wide(hunk.after))?.to_vec() })
        };
        let found = diff.hunks().map(hunk).collect::<Option<Vec<_>>>()?;
        (apply(&before, &found) == text).then_some(found)
    };
    [Algorithm::Histogram, Algorithm::Myers].into_iter().filter_map(found_by).min_by_key(|found| total(found))
}

/// The number of lines that hunks take away and put in, and of the hunks.
fn total(hunks: &[Hunk<'_>]) -> (usize, usize) {
    (hunks.iter().map(|hunk| hunk.base.len() + hunk.lines.len()).sum(), hunks.len())
}

/// The base with these hunks in it.
fn apply(base: &[&[u8]], hunks: &[Hunk<'_>]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut at = 0;
    for hunk in hunks {
        text.extend(base.get(at..hunk.base.start).unwrap_or_default().concat());
        text.extend(hunk.lines.concat());
        at = hunk.base.end;
    }
    text.extend(base.get(at..).unwrap_or_default().concat());
    text
}

/// Whether the same insertion or deletion, one line earlier or later, gives the same text.
fn slides(base: &[&[u8]], hunk: &Hunk<'_>) -> bool {
    let Range { start, end } = hunk.base;
    let moved = match (start == end, hunk.lines.is_empty()) {
        (true, false) => &hunk.lines[..],
        (false, true) => &base[start..end],
        _ => return false,
    };
    let above = start.checked_sub(1).and_then(|at| base.get(at));
    above.is_some_and(|line| moved.last() == Some(line))
        || base.get(end).is_some_and(|line| moved.first() == Some(line))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
        let found = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        found.map(|text| String::from_utf8(text).expect("a text"))
    }

    /// `letters`: one line each.
    fn text(letters: &str) -> String {
        letters.chars().map(|letter| format!("{letter}\n")).collect()
    }

    #[test]
    fn repeated_lines_are_neither_lost_nor_doubled() {
        for (base, ours, theirs, expect) in [
            // Two of ten equal lines are changed, or one is changed and one removed. With the result as ours, the change of
            // theirs would be found at another line of the run, and be made twice after a crash.
            ("oooooooooo", "onoooooooo", "ooooooomoo", None),
            ("oooooooooo", "ooooooooo", "ooooooomoo", None),
            // A run in an ordinary text: one changes the run, the other the text below.
            (
                "12345oooooooooo12345",
                "12345oonooooooo12345",
                "12345oooooooooo1234x",
                Some("12345oonooooooo1234x"),
            ),
            // Empty lines between paragraphs, written as dots.
            ("a..b..c..d", "a.b..c..d", "a..b..c.d", Some("a.b..c.d")),
            ("a..b..c..d", "a..b...c..d", "a..b..c..x", Some("a..b...c..x")),
            ("a..b..c..d", "a..b..c..d..e", "a..x..c..d", Some("a..x..c..d..e")),
            ("a..b..c..d", "a..b...c..d", "a..b..x..d", None),
            // Both took one line from one run, and changed something else: one change, or two?
            ("1ooo2345", "1oo2x45", "1oo234y", None),
            ("1ooo2345", "1ooooo2x45", "1ooooo234y", None),
            // The same change, which can be at no other place.
            ("1ooo2345", "1op2x45", "1op234y", Some("1op2x4y")),
            ("1o2345678", "1p2x45678", "1p23456y8", Some("1p2x456y8")),
            ("12345678", "1i2x45678", "1i23456y8", Some("1i2x456y8")),
            // Changes of neighbouring lines.
            ("12345678", "1x345678", "12y45678", None),
        ] {
            let found = merged(&text(base), &text(ours), &text(theirs));
            assert_eq!(found, expect.map(text), "{base} {ours} {theirs}");
        }
    }

    /// An edit of one side: lines of the base, from a position on, and the lines that take their place.
    type Edit = (Range<usize>, String);

    /// A base of few distinct lines, and edits in their order between which at least one line of it stays; each is made
    /// by ours or theirs.
    fn histories() -> impl Strategy<Value = (String, Vec<(bool, Edit)>)> {
        let edits = prop::collection::vec((any::<bool>(), 1..5_usize, 0..3_usize, "[abc]{0,3}"), 0..5);
        ("[abc]{0,24}", edits).prop_map(|(base, edits)| {
            let mut at = 0;
            let mut placed = Vec::new();
            for (is_ours, kept, removed, lines) in edits {
                let start = at + kept;
                let end = start + removed;
                if end > base.len() {
                    break;
                }
                placed.push((is_ours, (start..end, lines)));
                at = end;
            }
            (base, placed)
        })
    }

    fn edited<'e>(base: &str, edits: impl DoubleEndedIterator<Item = &'e Edit>) -> String {
        let mut letters = base.to_owned();
        for (range, lines) in edits.rev() {
            letters.replace_range(range.clone(), lines);
        }
        text(&letters)
    }

    fn counts(text: &str) -> BTreeMap<&str, i64> {
        let mut counts = BTreeMap::from([("a\n", 0), ("b\n", 0), ("c\n", 0)]);
        for line in text.lines() {
            let of = |key: &&&str| key.trim_end() == line;
            let key = counts.keys().find(of).copied().expect("a line of the alphabet");
            counts.entry(key).and_modify(|count| *count += 1);
        }
        counts
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn a_merge_has_the_changes_of_both_sides_or_conflicts((letters, edits) in histories()) {
            let of = |side: bool| {
                let edits: Vec<&Edit> = edits.iter().filter(|edit| edit.0 == side).map(|edit| &edit.1).collect();
                edited(&letters, edits.into_iter())
            };
            let (base, ours, theirs) = (text(&letters), of(true), of(false));
            let found = merged(&base, &ours, &theirs);
            if ours == theirs || theirs == base {
                prop_assert_eq!(found, Some(ours));
                return Ok(());
            }
            if ours == base {
                prop_assert_eq!(found, Some(theirs));
                return Ok(());
            }
            let Some(found) = found else { return Ok(()) };
            prop_assert_eq!(merged(&base, &found, &theirs), Some(found.clone()));
            let hunks = |text| hunks(base.as_bytes(), text).expect("hunks that make the text");
            let (of_ours, of_theirs) = (hunks(ours.as_bytes()), hunks(theirs.as_bytes()));
            // A change that both made alike is one change.
            if of_ours.iter().any(|hunk| of_theirs.contains(hunk)) {
                return Ok(());
            }
            let [base, ours, theirs, found] = [&base, &ours, &theirs, &found].map(|text| counts(text));
            for (line, count) in &found {
                let expect = ours[line] + theirs[line] - base[line];
                prop_assert_eq!(*count, expect, "of {}", line);
            }
        }

        /// In a text without repetitions nothing is left to choose: each edit is at its place.
        #[test]
        fn distinct_lines_merge_exactly((lines, edits) in histories()) {
            let letters: String = ('A'..).take(lines.len()).collect();
            let of = |pick: &dyn Fn(bool) -> bool| {
                let edits: Vec<&Edit> = edits.iter().filter(|edit| pick(edit.0)).map(|edit| &edit.1).collect();
                edited(&letters, edits.into_iter())
            };
            let found = merged(&text(&letters), &of(&|side| side), &of(&|side| !side));
            prop_assert_eq!(found, Some(of(&|_| true)));
        }
    }
}
