//! The composition language: `+` one after the other, `||` or `|||` side by side, parentheses.
//!
//! ```text
//!   chain := group { "+" group }
//!   group := part { ("||" | "|||") part }        `||` binds tighter: `a + b || c` is `a + (b || c)`
//!   part  := NAME | "(" chain ")"
//! ```

use crate::composition::Composition;
use crate::fault::{Fault, Place};
use crate::mechanism::{Mechanism, fold};

/// Most mechanisms in one composition.
pub const COMPOSITION_STEPS_MAX: usize = 32;
/// Deepest nesting of parentheses in a composition.
const DEPTH_MAX: usize = 16;

/// Parses a composition. Nothing is said of its sense: see [`crate::judge`]. `place` is that of its first character.
pub fn parse_composition(text: &str, place: Place) -> Result<Composition, Fault> {
    let mut parser =
        Parser { words: words(text, place)?, at: 0, end: place.right(text.chars().count()), steps: 0 };
    let composition = parser.chain(0)?;
    match parser.words.get(parser.at) {
        None => Ok(composition),
        Some((place, Word::Close)) => Err(Fault::new(*place, "this `)` closes nothing")),
        Some((place, word)) => {
            Err(Fault::new(*place, format!("`+` or `||` expected before {}", word.shown())))
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Word {
    Name(String),
    Then,
    Beside,
    Open,
    Close,
}

impl Word {
    fn shown(&self) -> String {
        match self {
            Word::Name(name) => format!("`{}`", shortened(name)),
            Word::Then => "`+`".to_owned(),
            Word::Beside => "`||`".to_owned(),
            Word::Open => "`(`".to_owned(),
            Word::Close => "`)`".to_owned(),
        }
    }
}

/// A word of the input in a message.
pub(crate) fn shortened(word: &str) -> String {
    let mut shown: String = word.chars().filter(|c| !c.is_control()).take(40).collect();
    if word.chars().count() > 40 {
        shown.push('…');
    }
    shown
}

fn words(text: &str, start: Place) -> Result<Vec<(Place, Word)>, Fault> {
    let mut words = Vec::new();
    let mut chars = text.chars().enumerate().peekable();
    while let Some((at, c)) = chars.next() {
        let place = start.right(at);
        let word = match c {
            c if c.is_whitespace() => continue,
            '+' => Word::Then,
            '(' => Word::Open,
            ')' => Word::Close,
            '|' => {
                let mut bars = 1;
                while chars.next_if(|&(_, c)| c == '|').is_some() {
                    bars += 1;
                }
                if !(2..=3).contains(&bars) {
                    return Err(Fault::new(place, "side by side is written `||`").or_rather("||"));
                }
                Word::Beside
            }
            c if c.is_alphanumeric() || c == '_' || c == '-' => {
                let mut name = String::from(c);
                while let Some((_, c)) = chars.next_if(|&(_, c)| c.is_alphanumeric() || c == '_' || c == '-')
                {
                    name.push(c);
                }
                // The paper writes names in two or three words.
                if let Some((_, Word::Name(before))) = words.last_mut() {
                    before.push('_');
                    before.push_str(&name);
                    continue;
                }
                Word::Name(name)
            }
            c => return Err(Fault::new(place, format!("`{}` has no meaning here", c.escape_debug()))),
        };
        words.push((place, word));
    }
    Ok(words)
}

struct Parser {
    words: Vec<(Place, Word)>,
    at: usize,
    end: Place,
    steps: usize,
}

impl Parser {
    fn chain(&mut self, depth: usize) -> Result<Composition, Fault> {
        let mut parts = vec![self.group(depth)?];
        while self.take(&Word::Then) {
            parts.push(self.group(depth)?);
        }
        Ok(one_or(parts, Composition::Serial))
    }

    fn group(&mut self, depth: usize) -> Result<Composition, Fault> {
        let mut parts = vec![self.part(depth)?];
        while self.take(&Word::Beside) {
            parts.push(self.part(depth)?);
        }
        Ok(one_or(parts, Composition::Parallel))
    }

    fn part(&mut self, depth: usize) -> Result<Composition, Fault> {
        let Some((place, word)) = self.words.get(self.at).cloned() else {
            return Err(Fault::new(self.end, "a mechanism is missing here").or_rather(names()));
        };
        self.at += 1;
        match word {
            Word::Open if depth >= DEPTH_MAX => {
                Err(Fault::new(place, format!("parentheses go at most {DEPTH_MAX} deep")))
            }
            Word::Open => {
                let inner = self.chain(depth + 1)?;
                if self.take(&Word::Close) {
                    return Ok(inner);
                }
                let at = self.words.get(self.at).map_or(self.end, |(place, _)| *place);
                Err(Fault::new(at, "`)` is missing here"))
            }
            Word::Name(name) => {
                self.steps += 1;
                if self.steps > COMPOSITION_STEPS_MAX {
                    let reason = format!("a composition has at most {COMPOSITION_STEPS_MAX} mechanisms");
                    return Err(Fault::new(place, reason));
                }
                let Some(mechanism) = Mechanism::by_name(&name) else {
                    let reason = format!("`{}` is no mechanism", shortened(&name));
                    return Err(Fault::new(place, reason).or_rather(like(&name)));
                };
                Ok(Composition::Step(mechanism))
            }
            word => Err(Fault::new(place, format!("a mechanism is missing before {}", word.shown()))
                .or_rather(names())),
        }
    }

    fn take(&mut self, word: &Word) -> bool {
        let there = self.words.get(self.at).is_some_and(|(_, w)| w == word);
        self.at += usize::from(there);
        there
    }
}

fn one_or(mut parts: Vec<Composition>, group: fn(Vec<Composition>) -> Composition) -> Composition {
    if parts.len() == 1 { parts.remove(0) } else { group(parts) }
}

fn names() -> String {
    Mechanism::ALL.iter().map(|m| m.name()).collect::<Vec<_>>().join(" | ")
}

/// The mechanism that is written most alike.
fn like(name: &str) -> &'static str {
    let all = Mechanism::ALL
        .iter()
        .flat_map(|m| std::iter::once((m.name(), *m)).chain(m.aliases().iter().map(|a| (*a, *m))));
    let name: String = fold(name).chars().take(64).collect();
    all.min_by_key(|(word, _)| distance(&name, word)).map(|(_, m)| m.name()).expect("there are mechanisms")
}

/// Letters to insert, drop or replace to make one word of the other.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let got = match parse_composition(text, Place::START) {
            Ok(c) => c.normalised().to_string(),
            Err(f) => f.to_string(),
        };
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn compositions_are_read() {
        check("RPCs", "rpcs");
        check("rpcs+stream", "rpcs + stream");
        check(
            "append client journal +local persist\n+volatile apply",
            "append_client_journal + local_persist + volatile_apply",
        );
        check("create+save+v_apply", "append_client_journal + local_persist + volatile_apply");
        check("create+v_apply+save", "append_client_journal + local_persist + volatile_apply");
        check("create + persist ||| v_apply", "append_client_journal + (global_persist || volatile_apply)");
        check(
            "create + (v_apply || (persist))",
            "append_client_journal + (global_persist || volatile_apply)",
        );
        check("(create + save) || stream", "stream || (append_client_journal + local_persist)");
        check("((((rpcs))))", "rpcs");
    }

    #[test]
    fn errors_name_the_column_and_what_is_near() {
        check(
            "rpcs + streem",
            "line 1, column 8: `streem` is no mechanism; nearest that makes sense: stream",
        );
        check(
            "rpcs | stream",
            "line 1, column 6: side by side is written `||`; nearest that makes sense: ||",
        );
        check(
            "rpcs stream",
            "line 1, column 1: `rpcs_stream` is no mechanism; nearest that makes sense: stream",
        );
        check("(rpcs", "line 1, column 6: `)` is missing here");
        check("rpcs)", "line 1, column 5: this `)` closes nothing");
        check("rpcs (stream)", "line 1, column 6: `+` or `||` expected before `(`");
        check("rpcs & stream", "line 1, column 6: `&` has no meaning here");
        assert!(parse_composition("", Place::START).unwrap_err().reason.contains("missing"));
        assert!(parse_composition("+", Place::START).unwrap_err().reason.contains("missing before `+`"));
    }

    #[test]
    fn depth_and_length_have_limits() {
        let deep = "(".repeat(100_000);
        assert!(parse_composition(&deep, Place::START).unwrap_err().reason.contains("deep"));
        let long = vec!["rpcs"; 1000].join("+");
        assert!(parse_composition(&long, Place::START).unwrap_err().reason.contains("at most 32"));
    }
}
