//! The table of all metrics: the name and the meaning of each, and the place of its number in the figures of a scrape.
//!
//! The documents' table is generated from this one, and a test compares them.

/// How a number behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows, from 0 at the start of the server or of the plate. Its name ends in `_total`, which the encoder adds.
    Counter,
    Gauge,
    Histogram,
}

/// The labels beside `plate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    None,
    /// The number stands for an object, whose fields become values of this label.
    Each(&'static str),
    /// The labels are what it says.
    Info,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) label: Label,
    /// In the figures, as a JSON pointer.
    pub(crate) at: &'static str,
    /// One sentence without a full stop.
    pub(crate) help: &'static str,
}

const fn gauge(name: &'static str, at: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, label: Label::None, at, help }
}

const fn counter(name: &'static str, at: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, label: Label::None, at, help }
}

const fn counters(name: &'static str, label: &'static str, at: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, label: Label::Each(label), at, help }
}

/// The version that runs here. Its value is always 1.
pub(crate) const INFO: Metric = Metric {
    name: "chiton_info",
    kind: Kind::Gauge,
    label: Label::Info,
    at: "",
    help: "Always 1: the version of the server, and the identity of its file system",
};

/// The histogram, whose numbers are not in the figures.
pub(crate) const DURATION: Metric = Metric {
    name: "chiton_operation_duration_seconds",
    kind: Kind::Histogram,
    label: Label::Each("op"),
    at: "",
    help: "Time from the arrival of a request to its answer, with all waiting",
};

/// Of the server as a whole: without the label `plate`.
pub(crate) const OF_SERVER: &[Metric] = &[
    gauge("chiton_plates", "/plates", "Plates that run on this server"),
    counter(
        "chiton_plate_starts",
        "/plate_starts",
        "Plates that this server has started, at its start or by hand-overs and take-overs",
    ),
    counter(
        "chiton_plate_recoveries",
        "/plate_recoveries",
        "Of these, plates whose journal had to be replayed, since their server had not ended in order: take-overs, and restarts after a crash",
    ),
    gauge(
        "chiton_disk_size_bytes",
        "/disk_size_bytes",
        "Size of the disk of the data, or the size that the object store reports",
    ),
    gauge("chiton_disk_free_bytes", "/disk_free_bytes", "Free space there"),
    counters(
        "chiton_object_store_requests",
        "kind",
        "/s3/requests",
        "HTTP requests of this process to the object store, each attempt and each page, as a bill counts them",
    ),
    counter(
        "chiton_object_store_failures",
        "/s3/failed",
        "Such requests without an answer, or with a failure of the service (5xx)",
    ),
    counter("chiton_object_store_sent_bytes", "/s3/sent_bytes", "Bytes in the bodies of such requests"),
];

/// The metrics of each plate, with the label `plate`.
pub(crate) const OF_PLATES: &[Metric] = &[
    gauge("chiton_plate_healthy", "/healthy", "1 if the plate can change its files, else 0"),
    gauge("chiton_plate_stores_away", "/stores_away", "Stores that the plate cannot reach now"),
    counter("chiton_plate_errors", "/errors", "Rows, blocks and background work that failed"),
    gauge(
        "chiton_plate_replayed_events",
        "/replayed_events",
        "Events that the start of the plate replayed from its journal",
    ),
    Metric {
        kind: Kind::Gauge,
        ..counters(
            "chiton_plate_start_seconds",
            "phase",
            "/start",
            "How long each phase of the plate's start took; the last, `clients`, is the wait for clients that come back",
        )
    },
    gauge("chiton_inodes", "/inodes", "Files, directories and links"),
    counters("chiton_operations", "op", "/operations", "Requests by kind"),
    counter("chiton_operations_refused", "/refused", "Requests that were refused"),
    counter(
        "chiton_operations_waited",
        "/waited",
        "Requests that waited for leases, locks, durability, room or other plates",
    ),
    counter("chiton_operations_fetched", "/fetched", "Requests that waited for rows from the metadata store"),
    counters("chiton_waits", "reason", "/waits", "Requests that waited, by the first reason"),
    counter("chiton_slow_operations", "/slow", "Requests that took as long as --slow-ms says, or longer"),
    gauge("chiton_requests_waiting", "/waiting", "Requests that wait now"),
    gauge(
        "chiton_commits_waiting",
        "/waiting_commits",
        "Commits (fsync) of clients that wait now until everything before them is durable",
    ),
    gauge("chiton_journal_position", "/journal/position", "Position of the last event in the journal"),
    gauge(
        "chiton_journal_lag_events",
        "/journal/lag_events",
        "Events that are acknowledged and not durable yet",
    ),
    gauge("chiton_journal_lag_bytes", "/journal/lag_bytes", "Their bytes"),
    gauge("chiton_journal_lag_seconds", "/journal/lag_seconds", "Age of the oldest of them, at most"),
    counter(
        "chiton_journal_appended_bytes",
        "/journal/appended_bytes",
        "Bytes of events appended to the journal, with those that the start replayed",
    ),
    counter(
        "chiton_journal_written_bytes",
        "/journal/written_bytes",
        "Bytes that the journal wrote to its place",
    ),
    counters("chiton_journal_calls", "call", "/journal/calls", "Calls of the journal to its place"),
    counter("chiton_checkpoints", "/checkpoint/count", "Checkpoints that succeeded"),
    gauge("chiton_checkpoint_age_seconds", "/checkpoint/age_seconds", "Time since the last one ended"),
    gauge("chiton_checkpoint_failing", "/checkpoint/failing", "1 if the last try failed, else 0"),
    gauge(
        "chiton_checkpoint_lag_events",
        "/checkpoint/lag_events",
        "Events that are in the journal only, and that a start would replay",
    ),
    gauge("chiton_recovery_seconds", "/checkpoint/replay_seconds", "How long that would take, about"),
    gauge(
        "chiton_recovery_sessions",
        "/recovery_sessions",
        "Clients that the plate waits for after its start",
    ),
    gauge("chiton_sessions", "/sessions", "Sessions of clients"),
    gauge("chiton_leases", "/leases", "Leases that clients hold"),
    counter("chiton_recalls", "/recalls_sent", "Leases that were recalled"),
    gauge("chiton_recalls_pending", "/recalls", "Recalls that are not acknowledged yet"),
    gauge("chiton_locks", "/locks", "Locks (fcntl, flock) that clients hold"),
    gauge("chiton_open_inodes", "/open_inodes", "Inodes that clients have open"),
    gauge("chiton_orphans", "/orphans", "Inodes without a name that are still open or are to be removed"),
    gauge("chiton_guards", "/peers/guards", "Rows that are guarded for operations of other plates"),
    gauge(
        "chiton_crossings",
        "/peers/crossings",
        "Operations over plates that are decided here and wait for rows of other plates",
    ),
    gauge(
        "chiton_outbox_effects",
        "/peers/outbox",
        "Decided effects that other plates have not carried out durably",
    ),
    gauge("chiton_peer_requests", "/peers/requests", "Requests of other plates that wait to be worked on"),
    gauge(
        "chiton_peers_ungreeted",
        "/peers/ungreeted",
        "Other plates that have not answered this one since its start",
    ),
    gauge("chiton_lent_ranges", "/peers/lent_ranges", "Ranges of inode numbers that other plates may use"),
    gauge("chiton_cache_bytes", "/cache_bytes", "Memory of the cached rows"),
    gauge("chiton_cache_limit_bytes", "/cache_limit_bytes", "Memory above which clean rows leave"),
    gauge("chiton_cache_dirty_rows", "/dirty_rows", "Changed rows that no checkpoint has written yet"),
    counters(
        "chiton_block_calls",
        "call",
        "/blocks/calls",
        "Calls for blocks of files and for journals of decoupled clients, by way of this server",
    ),
    counter("chiton_block_read_bytes", "/blocks/read_bytes", "Bytes read by such calls"),
    counter("chiton_block_written_bytes", "/blocks/written_bytes", "Bytes written by such calls"),
    counter("chiton_block_errors", "/blocks/errors", "Such calls that failed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// All, in the order of the documents.
    fn all() -> impl Iterator<Item = (&'static Metric, bool)> {
        let of_server = std::iter::once(&INFO).chain(OF_SERVER).map(|metric| (metric, false));
        let of_plates = std::iter::once(&DURATION).chain(OF_PLATES).map(|metric| (metric, true));
        of_server.chain(of_plates)
    }

    /// A line of the documents' table.
    fn line((metric, is_of_plate): (&Metric, bool)) -> String {
        let (kind, suffix) = match metric.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        let own = match metric.label {
            Label::None => vec![],
            Label::Each(label) => vec![label],
            Label::Info => vec!["version", "filesystem"],
        };
        let labels: Vec<String> =
            is_of_plate.then_some("plate").into_iter().chain(own).map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        format!("| `{}{suffix}` | {kind} | {labels} | {} |\n", metric.name, metric.help)
    }

    #[test]
    fn the_documents_have_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/administration.md");
        let text = std::fs::read_to_string(path).expect("the documents");
        let head = "| metric | type | labels | meaning |\n|---|---|---|---|\n";
        let begin = text.find(head).expect("a table of metrics") + head.len();
        let end = begin + text[begin..].find("\n\n").expect("text behind it") + 1;
        let table: String = all().map(line).collect();
        if text[begin..end] != table {
            assert!(
                std::env::var_os("CHITON_WRITE").is_some(),
                "run CHITON_WRITE=1 cargo test -p chiton-server"
            );
            std::fs::write(path, format!("{}{table}{}", &text[..begin], &text[end..])).expect("written");
        }
    }

    #[test]
    fn names_are_unique_and_say_their_units() {
        let mut names = std::collections::BTreeSet::new();
        for (metric, _) in all() {
            assert!(names.insert(metric.name), "{} twice", metric.name);
            assert!(
                metric.name.starts_with("chiton_") && !metric.name.ends_with("_total"),
                "{}",
                metric.name
            );
            assert!(!metric.help.ends_with('.') && !metric.help.contains('|'), "{}", metric.name);
        }
    }
}
