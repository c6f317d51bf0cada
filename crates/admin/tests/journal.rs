//! The journal tool: round trips, damage, refusals, on journals in memory.

use std::io::Cursor;
use std::sync::Arc;

use chiton_admin::journal::{
    ExportReader, Filter, Gaps, JournalToolError, Output, Pointers, Record, export, get, import, inspect,
    set_trimmed, set_write, splice,
};
use chiton_journal::{Identity, Journal, MemoryPlace, Options, Place, Shape, reset};
use chiton_model::Event;
use chiton_types::frame::{FrameHeader, encode_frame};
use chiton_types::{Epoch, Ino, Kind, Mode, Name, Position, Seq, SessionId, ShardId, Time};
use proptest::prelude::*;

fn identity(nonce: u64) -> Identity {
    Identity { journal: 7, epoch: Epoch(1), nonce }
}

fn name(n: u64) -> Name {
    Name::new(format!("file-{n}").as_bytes()).expect("a name")
}

fn make(parent: u64, n: u64, kind: Kind) -> Event {
    Event::Make {
        parent: Ino(parent),
        name: name(n),
        ino: Ino(n),
        kind,
        mode: Mode(0o644),
        uid: 1,
        gid: 2,
        rdev: 0,
        time: Time(n as i64),
        content: vec![n as u8; (n % 7) as usize],
    }
}

fn event(n: u64) -> Event {
    let ino = Ino(n);
    match n % 5 {
        0 => make(1, n, Kind::File),
        1 => Event::Unlink {
            parent: Ino(1),
            name: name(n),
            ino,
            orphan: false,
            kind: Kind::File,
            time: Time(5),
        },
        2 => Event::Xattr { ino, name: b"user.x".to_vec(), value: Some(vec![1; 20]), ctime: Time(9) },
        3 => Event::SessionOpened { session: SessionId(n), identity: vec![0; 12] },
        _ => Event::NOTHING,
    }
}

/// A journal whose frame `n` holds `counts[n]` events, of session `n % 3`.
fn journal(shape: Shape, segment_bytes: usize, counts: &[u32]) -> Arc<MemoryPlace> {
    let place = Arc::new(MemoryPlace::new(shape));
    let options = Options { segment_bytes, ..Options::default() };
    let journal = Journal::create(place.clone(), identity(1), options).expect("creates");
    let mut number = 10;
    for (n, &count) in counts.iter().enumerate() {
        let mut payload = Vec::new();
        for _ in 0..count {
            event(number).encode(&mut payload);
            number += 1;
        }
        append(&journal, n as u64, count, &payload);
        if n % 3 == 2 {
            journal.wait_durable(journal.last()).expect("durable");
        }
    }
    journal.close().expect("closes");
    place
}

fn append(journal: &Journal, n: u64, count: u32, payload: &[u8]) {
    let header =
        FrameHeader { event_count: count, shard: ShardId(1), session: SessionId(n % 3), seq: Seq(n + 1) };
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, &header, payload);
    journal.append(&bytes, u64::from(count)).expect("appends");
}

fn shown(place: &dyn Place, filter: &Filter) -> String {
    let mut out = Vec::new();
    get(place, filter, None, Output::List, &mut out, &mut |_| {}).expect("reads");
    String::from_utf8(out).expect("text")
}

fn taken_out(place: &dyn Place, stored: Option<Position>) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    let exported = export(place, stored, &mut out, &mut |_| {}).expect("exports");
    (out, exported.is_whole())
}

fn put_back(
    place: &Arc<MemoryPlace>,
    stored: u64,
    file: &[u8],
    gaps: Gaps,
) -> Result<chiton_admin::journal::Imported, JournalToolError> {
    import(place.clone(), identity(9), Position(stored), Cursor::new(file), gaps, &mut |_| {})
}

fn refused<T: std::fmt::Debug>(result: Result<T, JournalToolError>, words: &str) {
    let error = result.expect_err("it would do harm").to_string();
    assert!(error.contains(words), "{words:?} is not in {error:?}");
}

#[test]
fn export_reset_import_gives_a_healthy_journal_again() {
    let place = journal(Shape::Grows, 300, &[1, 2, 3, 1, 4, 1, 1, 2, 5, 1]);
    let all = shown(&*place, &Filter::default());
    let (file, whole) = taken_out(&*place, Some(Position(6)));
    assert!(whole);
    refused(put_back(&place, 6, &file, Gaps::Refuse), "not empty");
    reset(&*place, identity(2), Position(7)).expect("resets");
    let imported = put_back(&place, 6, &file, Gaps::Refuse).expect("imports");
    assert_eq!((imported.events, imported.stored, imported.filled, imported.last), (15, 6, 0, 21));
    let report = inspect(&*place, &mut |_| {}).expect("reads");
    assert_eq!((report.integrity, report.first, report.last), ("OK", 7, 21));
    let after: String = all.lines().skip(6).map(|line| format!("{line}\n")).collect();
    assert_eq!(shown(&*place, &Filter::default()), after, "the same events at the same positions");
    let opened = Journal::open(place, identity(3), Options::default()).expect("opens").1;
    assert_eq!(opened.last_position, Position(21));
}

#[test]
fn imports_that_would_do_harm_are_refused() {
    let place = journal(Shape::Grows, 300, &[1, 2, 3, 1]);
    let (file, _) = taken_out(&*place, Some(Position(3)));
    let empty = |first: u64| {
        reset(&*place, identity(2), Position(first)).expect("resets");
        place.clone()
    };
    refused(put_back(&empty(5), 4, &file, Gaps::Refuse), "moved on");
    let (live, _) = taken_out(&*journal(Shape::Grows, 300, &[1, 2, 3, 1]), None);
    refused(put_back(&empty(3), 2, &live, Gaps::Refuse), "in part");
    refused(put_back(&empty(8), 7, &live, Gaps::Refuse), "nothing to import");
    let foreign = Identity { journal: 8, ..identity(9) };
    let error = import(empty(4), foreign, Position(3), Cursor::new(&file), Gaps::Refuse, &mut |_| {});
    refused(error, "file system 0000000000000007, this one is 0000000000000008");
    // A truncated or damaged file is found before anything is written.
    for n in 0..file.len() {
        let error = put_back(&empty(4), 3, &file[..n], Gaps::Refuse).expect_err("cut off");
        assert!(matches!(error, JournalToolError::NotAnExport(_)), "{n}: {error}");
    }
    for at in 0..file.len() {
        let mut bad = file.clone();
        bad[at] ^= 4;
        assert!(put_back(&empty(4), 3, &bad, Gaps::Refuse).is_err(), "a flipped bit in byte {at}");
        assert_eq!(inspect(&*place, &mut |_| {}).expect("reads").events, 0);
    }
}

#[test]
fn lost_events_of_a_damaged_journal_are_reported_before_they_are_skipped() {
    let place = journal(Shape::Grows, 1 << 20, &[1, 2, 3, 1, 4, 1]);
    let mut bytes = place.read(1, u64::MAX).expect("read");
    // In the payload of the second frame.
    let at = bytes.windows(7).position(|w| w == b"file-11").expect("its name is there");
    bytes[at] ^= 1;
    place.set_bytes(1, bytes);
    let report = inspect(&*place, &mut |_| {}).expect("reads");
    assert_eq!((report.integrity, report.corrupt.len(), report.events), ("DAMAGED", 1, 10));
    assert!(report.to_string().contains("lost: positions 2 to 3"), "{report}");
    assert!(report.to_string().ends_with("Overall journal integrity: DAMAGED"));
    // In every form in which events are shown.
    let form = |output| {
        let mut out = Vec::new();
        let tally = get(&*place, &Filter::default(), None, output, &mut out, &mut |_| {}).expect("reads");
        assert_eq!(tally.flaws, 1, "{output:?}");
        out
    };
    let text = |output| String::from_utf8(form(output)).expect("text");
    assert!(text(Output::List).contains("DAMAGED"));
    assert!(text(Output::Json).contains(r#""type":"damaged""#), "{}", text(Output::Json));
    let operations = form(Output::Binary);
    let mut reader = ExportReader::new(&operations[..]).expect("an export");
    let mut lost = Vec::new();
    while let Some(record) = reader.next_record().expect("whole") {
        if let Record::Lost { first, last, .. } = record {
            lost.push((first.0, last.map(|last| last.0)));
        }
    }
    assert_eq!(lost, [(2, Some(3))]);
    let (file, whole) = taken_out(&*place, Some(Position(0)));
    assert!(!whole);
    reset(&*place, identity(2), Position(1)).expect("resets");
    refused(put_back(&place, 0, &file, Gaps::Refuse), "lacks events from position 2");
    let stopped = put_back(&place, 0, &file, Gaps::StopAt).expect("imports the beginning");
    assert_eq!((stopped.events, stopped.last), (1, 1));
    reset(&*place, identity(3), Position(1)).expect("resets");
    let filled = put_back(&place, 0, &file, Gaps::Fill).expect("fills");
    assert_eq!((filled.events, filled.filled, filled.last), (10, 2, 12));
    assert_eq!(inspect(&*place, &mut |_| {}).expect("reads").integrity, "OK");
}

#[test]
fn filters_select_matching_events() {
    let place = journal(Shape::Grows, 300, &[1, 2, 3, 1, 4, 1]);
    let count = |filter: Filter| shown(&*place, &filter).lines().count();
    assert_eq!(count(Filter::default()), 12);
    assert_eq!(count(Filter { range: Some("3..5".parse().expect("a range")), ..Filter::default() }), 3);
    assert_eq!(count(Filter { types: vec!["make".into(), "skipped".into()], ..Filter::default() }), 5);
    assert_eq!(count(Filter { inode: Some(Ino(11)), ..Filter::default() }), 1);
    assert_eq!(count(Filter { name: Some(b"user.x".to_vec()), ..Filter::default() }), 2);
    assert_eq!(count(Filter { client: Some(SessionId(2)), ..Filter::default() }), 4);
    // One condition more: both must hold.
    let both = Filter { types: vec!["xattr".into()], client: Some(SessionId(1)), ..Filter::default() };
    assert_eq!(count(both), 2);
    let mut json = Vec::new();
    let tally = get(&*place, &Filter::default(), None, Output::Json, &mut json, &mut |_| {}).expect("reads");
    let objects: Vec<serde_json::Value> = json
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).expect("JSON"))
        .collect();
    assert_eq!(objects.len() as u64, tally.events);
    assert_eq!((objects[0]["type"].as_str(), objects[0]["position"].as_u64()), (Some("make"), Some(1)));
    assert_eq!(tally.types.values().sum::<u64>(), 12);
    assert_eq!(tally.sessions.values().sum::<u64>(), 12);
    // As an export: the operations that contain matching events.
    let filter = Filter { types: vec!["make".into()], ..Filter::default() };
    let mut file = Vec::new();
    get(&*place, &filter, None, Output::Binary, &mut file, &mut |_| {}).expect("reads");
    let mut reader = ExportReader::new(&file[..]).expect("an export");
    let mut firsts = Vec::new();
    while let Some(record) = reader.next_record().expect("whole") {
        match record {
            Record::Frame { first, .. } => firsts.push(first.0),
            Record::Lost { .. } => panic!("nothing is lost"),
        }
    }
    assert_eq!(firsts, [1, 4, 8]);
}

#[test]
fn a_path_is_followed_through_makes_and_renames() {
    let place = Arc::new(MemoryPlace::new(Shape::Grows));
    let journal = Journal::create(place.clone(), identity(1), Options::default()).expect("creates");
    let dir = |parent, n| make(parent, n, Kind::Dir);
    let file = |parent, n| make(parent, n, Kind::File);
    let rename = |from: u64, to: u64, n: u64| Event::Rename {
        from: Ino(from),
        from_name: name(n),
        to: Ino(to),
        to_name: name(n),
        ino: Ino(n),
        kind: Kind::Dir,
        over: chiton_model::Over::Nothing,
        time: Time(0),
    };
    // /20/21/22, /30; then 21 moves to /30, and 23 is made in it; then a 21 is made in /20 anew.
    let again = match dir(20, 21) {
        Event::Make { parent, name, kind, mode, uid, gid, rdev, time, content, .. } => {
            Event::Make { parent, name, ino: Ino(24), kind, mode, uid, gid, rdev, time, content }
        }
        other => other,
    };
    // Inodes that a merge removes and restores elsewhere are followed, too.
    let restored = Event::Restore { parent: Ino(30), name: name(25), ino: Ino(22), time: Time(0) };
    let events = [
        dir(1, 20),
        dir(20, 21),
        file(21, 22),
        dir(1, 30),
        rename(20, 30, 21),
        file(21, 23),
        again,
        restored,
    ];
    for (n, event) in events.iter().enumerate() {
        let mut payload = Vec::new();
        event.encode(&mut payload);
        append(&journal, n as u64, 1, &payload);
    }
    journal.close().expect("closes");
    let positions = |path: &str| -> Vec<u64> {
        let filter = Filter { path: Some(path.into()), ..Filter::default() };
        let text = shown(&*place, &filter);
        text.lines()
            .map(|l| l.split_whitespace().next().expect("a position").parse().expect("a number"))
            .collect()
    };
    assert_eq!(positions("/"), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(positions("/file-20/file-21"), [2, 3, 5, 7]);
    assert_eq!(positions("/file-30/"), [4, 5, 6, 8]);
    assert_eq!(positions("/file-30/file-25"), [8]);
    assert_eq!(positions("/file-30/file-21/file-23"), [6]);
    assert!(positions("/nothing").is_empty());
}

#[test]
fn splicing_erases_and_keeps_all_positions() {
    let place = journal(Shape::Grows, 200, &[1, 2, 3, 1, 4, 1]);
    let filter = Filter { range: Some("4..6".parse().expect("a range")), ..Filter::default() };
    let erase = |filter: &Filter, dry| splice(&*place, identity(2), filter, None, dry, &mut |_| {});
    let before = shown(&*place, &Filter::default());
    let counted = erase(&filter, true).expect("counts");
    assert_eq!((counted.events, counted.frames), (2, 1), "the third is nothing already");
    assert_eq!(shown(&*place, &Filter::default()), before, "nothing is changed yet");
    erase(&filter, false).expect("erases");
    let after = shown(&*place, &Filter::default());
    for (n, (before, after)) in before.lines().zip(after.lines()).enumerate() {
        let erased = (4..=6).contains(&(n + 1));
        assert_eq!(after.ends_with(" nothing"), erased || before.ends_with(" nothing"), "{after}");
        assert!(erased || before == after);
    }
    assert_eq!(inspect(&*place, &mut |_| {}).expect("reads").integrity, "OK");
    assert_eq!(erase(&filter, false).expect("again").events, 0);
    refused(erase(&Filter::default(), false), "name the events to erase");
}

#[test]
fn pointers_are_checked_and_set_within_their_order() {
    let place = journal(Shape::Grows, 200, &[1, 2, 3, 1, 4, 1]);
    let read = |stored: u64, row: u64| {
        Pointers::read(&*place, Some(Position(stored)), Some(Position(row)), &mut |_| {}).expect("reads")
    };
    let broken = |stored, row| read(stored, row).checks.iter().filter(|c| c.holds == Some(false)).count();
    assert_eq!((read(6, 6).trimmed_pos, read(6, 6).expire_pos, read(6, 6).write_pos), (1, Some(7), 13));
    assert!(read(6, 6).is_sound());
    assert_eq!(broken(6, 7), 1, "a row that is newer than the pointer");
    assert_eq!(broken(20, 20), 1, "the store is ahead of the journal");
    assert_eq!(broken(5, 5), 1, "amid an operation");
    refused(set_write(&*place, identity(2), Position(6), Position(6)), "at least expire_pos (7)");
    refused(set_write(&*place, identity(2), Position(6), Position(10)), "begins with 8, the next with 12");
    refused(set_write(&*place, identity(2), Position(6), Position(99)), "not 99");
    set_write(&*place, identity(2), Position(6), Position(8)).expect("cuts");
    assert_eq!(read(6, 6).write_pos, 8);
    refused(set_trimmed(&*place, Position(6), Position(8)), "at most expire_pos (7)");
    assert!(set_trimmed(&*place, Position(6), Position(7)).expect("trims") > 0);
    assert!(read(6, 6).trimmed_pos > 1 && read(6, 6).is_sound());
    refused(read(6, 6).may_expire_at(Position(1)), "between trimmed_pos");
    refused(read(6, 6).may_expire_at(Position(9)), "and write_pos (8)");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_journals_survive_the_round_trip_and_damage(
        whole in any::<bool>(),
        segment_bytes in 100usize..1_500,
        counts in proptest::collection::vec(1u32..6, 1..50),
        stored_frames in 0usize..10,
        wounds in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let shape = if whole { Shape::Whole } else { Shape::Grows };
        let place = journal(shape, segment_bytes, &counts);
        let stored: u64 = counts.iter().take(stored_frames.min(counts.len())).map(|&n| u64::from(n)).sum();
        let total: u64 = counts.iter().map(|&n| u64::from(n)).sum();
        let before = shown(&*place, &Filter::default());
        let numbers: Vec<u64> = place.list().expect("list").iter().map(|info| info.number).collect();
        for (segment, at, fill) in &wounds {
            let number = *segment.get(&numbers);
            let mut bytes = place.read(number, u64::MAX).expect("read");
            let at = at.index(bytes.len());
            let end = (at + 3).min(bytes.len());
            bytes[at..end].fill(*fill);
            place.set_bytes(number, bytes);
        }
        let mut file = Vec::new();
        let exported = match export(&*place, Some(Position(stored)), &mut file, &mut |_| {}) {
            Ok(exported) => exported,
            // No header is left.
            Err(error) => { prop_assert!(!wounds.is_empty(), "{error}"); return Ok(()); }
        };
        prop_assert!(exported.is_whole() || !wounds.is_empty());
        prop_assert_eq!(inspect(&*place, &mut |_| {}).expect("reads").is_whole(), exported.is_whole());
        let left: Vec<String> = shown(&*place, &Filter { types: vec!["make".into()], ..Filter::default() })
            .lines().filter(|l| !l.contains("DAMAGED")).map(str::to_owned).collect();
        for line in left {
            prop_assert!(before.contains(&line) || inspect(&*place, &mut |_| {}).expect("reads").assumed, "{line}");
        }
        if stored == total {
            return Ok(());
        }
        reset(&*place, identity(5), Position(stored + 1)).expect("resets");
        match import(place.clone(), identity(6), Position(stored), Cursor::new(&file), Gaps::Fill, &mut |_| {}) {
            Ok(imported) => {
                let report = inspect(&*place, &mut |_| {}).expect("reads");
                prop_assert_eq!(report.integrity, "OK");
                prop_assert_eq!(report.last, imported.last);
                if exported.is_whole() && exported.last == total {
                    let after: String = before.lines().skip(stored as usize).map(|l| format!("{l}\n")).collect();
                    prop_assert_eq!(shown(&*place, &Filter::default()), after);
                }
            }
            Err(error) => prop_assert!(!wounds.is_empty(), "{error}"),
        }
    }

    #[test]
    fn hostile_exports_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), head in any::<bool>()) {
        if head {
            let (file, _) = taken_out(&*journal(Shape::Grows, 300, &[1, 2]), None);
            bytes.splice(0..0, file[..44].iter().copied());
        }
        if let Ok(mut reader) = ExportReader::new(&bytes[..]) {
            while let Ok(Some(_)) = reader.next_record() {}
        }
    }
}
