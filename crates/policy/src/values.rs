//! Values of the keys, each with its words in a table.

use std::fmt;
use std::time::Duration;

use crate::level::Durability;
use crate::mechanism::fold;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, default $default:ident {
        $($(#[$vdoc:meta])* $variant:ident = $word:literal $(| $alias:literal)*, $means:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The value where no policy gives one.
            pub const DEFAULT: $name = $name::$default;

            /// As it is written in a policy.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            /// Its meaning, for people.
            pub fn means(self) -> &'static str {
                match self { $($name::$variant => $means,)* }
            }

            /// By its word or an alias.
            pub fn by_word(word: &str) -> Option<$name> {
                match fold(word).as_str() { $($word $(| $alias)* => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// How others are treated while a client holds the subtree decoupled.
    Interfere, default Allow {
        /// They act on the global namespace; at a merge `on_conflict` decides.
        Allow = "allow" | "overwrite", "others act on the global namespace; at a merge `on_conflict` decides between them and the job";
        /// Any request of others is refused with EBUSY.
        Block = "block", "any request of others is refused with EBUSY (\"Device or resource busy\")";
        /// Others may read; their changes are refused with EBUSY.
        BlockWrites = "block_writes", "others may read; their changes are refused with EBUSY";
    }
}

words! {
    /// How consistent file content is between clients.
    Data, default Linearizable {
        /// As on one machine.
        Linearizable = "linearizable", "a read sees every write that was answered before it began";
        /// A client that opens a file sees what was closed before.
        CloseToOpen = "close_to_open", "an open sees the content of files closed before it";
        /// Files open for writing can be read.
        Lazy = "lazy", "files that are being written can be read; a reader sees a prefix";
    }
}

words! {
    /// The state that an operation's answer waits for.
    Acknowledge, default Applied {
        /// The state is changed; fsync makes durable.
        Applied = "applied", "an operation is answered when it is carried out; fsync waits for the level";
        /// The level of durability holds.
        Durable = "durable", "an operation is answered when it is durable at the level";
    }
}

words! {
    /// The side that wins when both changed the same thing.
    OnConflict, default Overwrite {
        /// The decoupled side wins.
        Overwrite = "overwrite", "the decoupled side wins";
        /// Nobody: nothing is merged.
        Abort = "abort", "nothing is merged as long as there is a conflict";
        /// Both versions stay, under two names.
        KeepBoth = "keep_both", "both stay, under two names";
        /// Texts of which both changed different lines become one; all else stays under two names.
        Merge = "merge", "texts are merged line by line, all else stays under two names";
    }
}

words! {
    /// How `chiton run` treats the changes of a command that failed.
    OnFailure, default Discard {
        /// The changes of the failed command are dropped.
        Discard = "discard", "chiton run drops the changes of a command that failed";
        /// The changes of the failed command are kept, for inspection.
        Keep = "keep", "chiton run keeps the changes of a command that failed, for inspection";
    }
}

words! {
    /// The weakest durability with which an owner of a directory without administrator rights may decouple it.
    OwnerDecouples, default Local {
        /// Only administrators decouple with a weaker policy than the directory's.
        Never = "never", "the owner of a directory decouples it with no weaker policy than holds there";
        /// Synced changes are in the object store.
        Global = "global", "the owner of a directory may decouple it if synced changes are in the object store";
        /// Synced changes are on the local disk.
        Local = "local", "the owner of a directory may decouple it if synced changes are on a local disk";
        /// The owner may decouple the directory with any durability, also with none.
        Anyhow = "none", "the owner of a directory may decouple it, also without durability";
    }
}

impl OwnerDecouples {
    /// The least that must survive; none: no weaker policy is permitted at all.
    pub fn least(self) -> Option<Durability> {
        match self {
            OwnerDecouples::Never => None,
            OwnerDecouples::Global => Some(Durability::Global),
            OwnerDecouples::Local => Some(Durability::Local),
            OwnerDecouples::Anyhow => Some(Durability::None),
        }
    }

    /// Whether it permits more than another.
    pub fn is_laxer(self, than: OwnerDecouples) -> bool {
        match (self.least(), than.least()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(least), Some(than)) => least < than,
        }
    }
}

words! {
    /// Whether directories have parts on several plates.
    Huge, default Never {
        /// All names of a directory are on one plate.
        Never = "never", "all names of a directory are on one plate";
        /// A directory has a part on each plate, from its birth on.
        Always = "always", "the names of each new directory are spread over all plates, for many clients that create in it";
        /// A directory gets a part on each plate when it has so many names.
        Threshold = "threshold", "the names of a directory are spread over all plates as soon as it has `huge_threshold` of them";
        /// The same, if several clients create in it.
        Auto = "auto", "the names of a directory are spread over all plates as soon as it has `huge_threshold` of them and several clients create in it";
    }
}

words! {
    /// How a lease is given up when another client comes.
    LeasePolicy, default BestEffort {
        /// A lease is given up as soon as another client asks for it.
        BestEffort = "best_effort", "a lease is given up as soon as another client asks";
        /// A lease is kept for some time before it is given up.
        Delay = "delay", "a lease is kept for a time before it is given up";
        /// After a number of operations.
        Quota = "quota", "a lease is kept for a number of operations";
        /// Every request goes to the server.
        RoundTrip = "round_trip", "nothing is leased: every operation goes to the server";
    }
}

/// The placement of new directories.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Directories are spread over all servers.
    Spread,
    /// Directories are created on the server of their parent.
    Near,
    /// Directories are spread over these servers only.
    Servers(Vec<String>),
}

impl Placement {
    /// Most servers in a list, and most bytes of a name.
    const SERVERS_MAX: usize = 256;

    /// `spread`, `near` or `servers=[a, b]`.
    pub fn by_word(text: &str) -> Option<Placement> {
        match fold(text).as_str() {
            "spread" => return Some(Placement::Spread),
            "near" => return Some(Placement::Near),
            _ => {}
        }
        let list = text.trim().strip_prefix("servers")?.trim_start().strip_prefix('=')?.trim_start();
        let list = list.strip_prefix('[')?.strip_suffix(']')?;
        let names: Vec<String> = list.split(',').map(|n| n.trim().to_owned()).collect();
        let good = |n: &String| {
            !n.is_empty()
                && n.len() <= 255
                && n.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
        };
        (names.len() <= Self::SERVERS_MAX && names.iter().all(good)).then_some(Placement::Servers(names))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Spread => f.write_str("spread"),
            Placement::Near => f.write_str("near"),
            Placement::Servers(names) => write!(f, "servers=[{}]", names.join(", ")),
        }
    }
}

/// A length of time, at most a hundred years, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    ms: u64,
}

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SPAN_MS_MAX: u64 = 100 * 366 * 86_400_000;

impl Span {
    pub const fn from_ms(ms: u64) -> Span {
        Span { ms: if ms > SPAN_MS_MAX { SPAN_MS_MAX } else { ms } }
    }

    pub const fn ms(self) -> u64 {
        self.ms
    }

    /// As the standard library has it.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.ms)
    }

    /// `500ms`, `2s`, `1.5h`, `7d`; a number alone is seconds.
    pub fn parse(text: &str) -> Option<Span> {
        let text = text.trim();
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim() {
            "" => 1_000,
            unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
        };
        let number: f64 = number.parse().ok()?;
        let ms = (number * unit as f64).round();
        (ms >= 0.0 && ms <= SPAN_MS_MAX as f64).then_some(Span { ms: ms as u64 })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |&&(_, unit): &&(&str, u64)| self.ms >= unit && self.ms.is_multiple_of(unit);
        match UNITS.iter().rev().find(whole) {
            Some((name, unit)) => write!(f, "{}{name}", self.ms / unit),
            None => f.write_str("0s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, ms, shown) in [
            ("500ms", 500, "500ms"),
            ("2", 2_000, "2s"),
            ("1.5h", 5_400_000, "90m"),
            ("7d", 604_800_000, "7d"),
            ("0", 0, "0s"),
            ("1 s", 1_000, "1s"),
        ] {
            let span = Span::parse(text).expect(text);
            assert_eq!((span.ms(), span.to_string().as_str()), (ms, shown));
            assert_eq!(Span::parse(&span.to_string()), Some(span));
        }
        for text in ["", "s", "-1s", "1y", "1e9s", "1..2s", "inf", "nan", "99999999999999999999d", "1s2"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }

    #[test]
    fn placements_are_read() {
        for text in ["spread", "near", "servers=[a, b-1.example:7117]"] {
            assert_eq!(Placement::by_word(text).expect(text).to_string(), text);
        }
        for text in ["servers=[]", "servers=a", "servers=[a b]", "servers=[a,,b]", "far"] {
            assert_eq!(Placement::by_word(text), None, "{text}");
        }
    }
}
