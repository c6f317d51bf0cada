//! Modes as chmod(1) has them.

use std::fmt;

/// A change of permissions, as `chmod` takes it: `u+x,go-w` or `0755`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange {
    text: String,
    parsed: Parsed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Parsed {
    /// These bits. `keeps_setid`: directories keep their set-id bits, as with fewer than five digits.
    Octal { bits: u16, keeps_setid: bool },
    /// These clauses, one after the other.
    Symbolic(Vec<Clause>),
}

/// One clause of it, such as `go-w`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    /// The classes of users that it names, as bits of the mode; `None` if it names none: then all, less the umask.
    who: Option<u16>,
    actions: Vec<(Action, Rights)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// Bits of user, group and others at once, and X.
    Bits { bits: u16, exec_if_any: bool },
    /// The present rights of user (6), group (3) or others (0), by their shift.
    Copy(u16),
}

const USER: u16 = 0o4700;
const GROUP: u16 = 0o2070;
const OTHERS: u16 = 0o1007;

impl ModeChange {
    /// Reads `750`, `u+rwX,go-w`, `g=u`.
    ///
    /// # Errors
    /// In words.
    pub fn parse(text: &str) -> Result<ModeChange, String> {
        Ok(ModeChange { text: text.to_owned(), parsed: parse(text)? })
    }

    /// Whether a file has the same mode after the change was made twice as after once. `g=u,u-w` takes a right away from the group
    /// that it gave before.
    pub fn may_repeat(&self, umask: u16) -> bool {
        (0..=0o7777).all(|mode| {
            [false, true].into_iter().all(|is_dir| {
                let once = self.of(mode, is_dir, umask);
                self.of(once, is_dir, umask) == once
            })
        })
    }

    /// The mode that a file with this one gets.
    pub fn of(&self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        match &self.parsed {
            Parsed::Octal { bits, keeps_setid } => {
                bits | if *keeps_setid && is_dir { mode & 0o6000 } else { 0 }
            }
            Parsed::Symbolic(clauses) => {
                clauses.iter().fold(mode, |mode, clause| clause.of(mode, is_dir, umask))
            }
        }
    }
}

/// As it was written.
impl fmt::Display for ModeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Clause {
    fn of(&self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        let who = self.who.unwrap_or(USER | GROUP | OTHERS);
        let lets = who & if self.who.is_none() { !(umask & 0o777) } else { !0 };
        self.actions.iter().fold(mode, |mode, (action, rights)| {
            let bits = match *rights {
                Rights::Bits { bits, exec_if_any } => {
                    let runs = exec_if_any && (is_dir || mode & 0o111 != 0);
                    bits | if runs { 0o111 } else { 0 }
                }
                Rights::Copy(shift) => (mode >> shift & 7) * 0o111,
            };
            match action {
                Action::Add => mode | bits & lets,
                Action::Remove => mode & !(bits & lets),
                // Directories keep set-id bits that are not named.
                Action::Set => {
                    let kept = if is_dir { 0o6000 } else { 0 };
                    mode & !(who & !kept) | bits & lets
                }
            }
        })
    }
}

fn parse(text: &str) -> Result<Parsed, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = u16::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
        let bits = bits.ok_or_else(|| "an octal mode has up to four digits from 0 to 7".to_owned())?;
        return Ok(Parsed::Octal { bits, keeps_setid: text.len() < 5 });
    }
    text.split(',').map(clause).collect::<Result<_, _>>().map(Parsed::Symbolic)
}

fn clause(text: &str) -> Result<Clause, String> {
    let wrong = || format!("{text:?} is no mode: write 644, or clauses like u+rwX,go-w");
    let end = text.find(['+', '-', '=']).ok_or_else(wrong)?;
    let mut who = None;
    for c in text[..end].chars() {
        let bits = match c {
            'u' => USER,
            'g' => GROUP,
            'o' => OTHERS,
            'a' => USER | GROUP | OTHERS,
            _ => return Err(wrong()),
        };
        who = Some(who.unwrap_or(0) | bits);
    }
    let mut actions = Vec::new();
    let mut rest = &text[end..];
    while let Some(sign) = rest.chars().next() {
        let action = match sign {
            '+' => Action::Add,
            '-' => Action::Remove,
            _ => Action::Set,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        actions.push((action, rights(&rest[1..end]).ok_or_else(wrong)?));
        rest = &rest[end..];
    }
    Ok(Clause { who, actions })
}

fn rights(text: &str) -> Option<Rights> {
    let shift = match text {
        "u" => Some(6),
        "g" => Some(3),
        "o" => Some(0),
        _ => None,
    };
    if let Some(shift) = shift {
        return Some(Rights::Copy(shift));
    }
    let (mut bits, mut exec_if_any) = (0, false);
    for c in text.chars() {
        match c {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => exec_if_any = true,
            's' => bits |= 0o6000,
            't' => bits |= 0o1000,
            _ => return None,
        }
    }
    Some(Rights::Bits { bits, exec_if_any })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file, and a directory, that had `mode`.
    fn check(text: &str, mode: u16, file: u16, dir: u16) {
        let change = ModeChange::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let got = (change.of(mode, false, 0o022), change.of(mode, true, 0o022));
        assert_eq!(got, (file, dir), "{text} of {mode:o}: {:o} and {:o}", got.0, got.1);
    }

    #[test]
    fn modes_are_those_of_chmod() {
        check("644", 0o777, 0o644, 0o644);
        check("755", 0o6700, 0o755, 0o6755);
        check("00755", 0o6700, 0o755, 0o755);
        check("u+rwX,go-w", 0o022, 0o600, 0o700);
        check("a+X", 0o640, 0o640, 0o751);
        check("a+X", 0o740, 0o751, 0o751);
        check("+w", 0o444, 0o644, 0o644);
        check("g=u", 0o740, 0o770, 0o770);
        check("o=", 0o777, 0o770, 0o770);
        check("u=rw,g=r,o-rwx", 0o777, 0o640, 0o640);
        check("g+s,+t", 0o755, 0o3755, 0o3755);
        check("a=r", 0o6755, 0o444, 0o6444);
        check("u+x-w", 0o600, 0o500, 0o500);
    }

    #[test]
    fn changes_that_differ_the_second_time_are_known() {
        let check = |text: &str, expect: bool| {
            let change = ModeChange::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(change.may_repeat(0o022), expect, "{text}");
        };
        for same in ["644", "00755", "u+rwX,go-w", "a+X", "+w", "g=u", "u=rw,g=r,o-rwx", "g+s,+t", "u-x,a+X"]
        {
            check(same, true);
        }
        for other in ["g=u,u-w", "g=u,u=o"] {
            check(other, false);
        }
    }

    #[test]
    fn other_words_are_no_modes() {
        for bad in ["", "8", "77777", "rwx", "u", "z+r", "u+q", "u+r,,g+r", "u+ug"] {
            assert!(ModeChange::parse(bad).is_err(), "{bad}");
        }
    }
}
