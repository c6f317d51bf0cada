//! Merges and drops until it succeeds, and reads both sides before and after.

use chiton_decoupled::{Choice, MergeReport};
use chiton_runtime::thread;
use chiton_types::Refusal;

use super::acts::{short, this_time};
use super::driver::{After, Driver, TRIES_MAX, within};
use super::judge::{Merge, unchanged};
use super::stage::PAUSE;
use super::view::View;

/// How often conflicts are resolved before the case chooses a treatment for all.
const RESOLUTIONS_MAX: u32 = 3;

impl Driver {
    pub(super) fn sync(&mut self, n: usize) -> Result<(), String> {
        self.merging(n, false)
    }

    pub(super) fn merge(&mut self, n: usize) -> Result<(), String> {
        self.merging(n, true)
    }

    /// Merges until it succeeds, and judges the result.
    fn merging(&mut self, n: usize, whole: bool) -> Result<(), String> {
        let tree = self.look()?;
        self.now_seen(tree, None);
        if !self.ensure(n)? {
            return Ok(());
        }
        let before = View::new(&self.seen);
        let deaths = self.stage.deaths();
        let mut how = None;
        let mut conflicts = 0;
        // A user resolves conflicts one by one, or chooses a treatment for this merge.
        let mut resolutions = if self.case.is_wide && self.case.seed % 4 == 1 { RESOLUTIONS_MAX } else { 0 };
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            let (desk, realm) = self.at_work(n);
            let merged = within(&desk, &realm, move |realm| match whole {
                true => realm.merge_with(how, &|_| {}),
                false => realm.sync_with(how, &|_| {}),
            });
            if desk.live.is_over() {
                self.sides[n].is_merged_partly = true;
                let ours = self.sides[n].sees();
                match self.go_on_merging(n)? {
                    After::GoesOn => {}
                    After::Over => {
                        self.met.handed_over += 1;
                        return self.judge(n, &before, &ours, None);
                    }
                }
                continue;
            }
            if let Ok(report) = &merged {
                let reported = |line: &chiton_decoupled::ConflictLine| {
                    format!("{}: {} {} {}: {}", line.path, line.base, line.ours, line.theirs, line.resolution)
                };
                let reported: Vec<String> = report.conflicts.iter().map(reported).collect();
                self.stage.line(format!("side {n}: merged: {} sent, {reported:?}", report.sent));
            }
            match merged {
                Ok(report) if report.stopped => {
                    self.met.stopped += 1;
                    self.stopped(n, &before, &report, deaths)?;
                    conflicts += report.conflict_count;
                    if resolutions > 0 && report.sent == 0 {
                        resolutions -= 1;
                        self.resolve(n, deaths)?;
                    } else {
                        how = Some(this_time(self.case.seed));
                    }
                }
                Ok(report) => {
                    conflicts += report.conflict_count;
                    if report.lost_count > 0 {
                        return Err(format!("something is lost: {report:?}"));
                    }
                    self.sides[n].is_safe();
                    let reported = (deaths == self.stage.deaths()).then_some(conflicts);
                    let ours = self.sides[n].sees();
                    if whole {
                        self.sides[n].over();
                    }
                    return self.judge(n, &before, &ours, reported);
                }
                Err(error) if realm.is_ended() && whole => {
                    self.stage.line(format!("side {n} has ended: {error}"));
                    let ours = self.sides[n].sees();
                    self.sides[n].over();
                    return self.judge(n, &before, &ours, None);
                }
                Err(error) => {
                    last = error.to_string();
                    self.stage.line(format!("side {n} is not merged: {last}"));
                    self.sides[n].is_merged_partly = true;
                    thread::sleep(PAUSE);
                }
            }
        }
        Err(format!("it is not merged: {last}"))
    }

    /// Resolves conflicts by path, alternately to theirs and to ours.
    fn resolve(&mut self, n: usize, deaths: u64) -> Result<(), String> {
        let (desk, realm) = self.at_work(n);
        let seed = self.case.seed;
        let resolved = within(&desk, &realm, move |realm| {
            let mut count = 0;
            for (at, conflict) in realm.conflicts()?.into_iter().enumerate() {
                let path = conflict.path_bytes.unwrap_or(conflict.path.into_bytes());
                let takes_theirs = (seed / 4 + at as u64).is_multiple_of(2);
                // Theirs may be refused, since others continue; then ours is right.
                if takes_theirs && realm.resolve_conflict(&path, Choice::Theirs).is_ok() {
                    count += 1;
                    continue;
                }
                match realm.resolve_conflict(&path, Choice::Ours) {
                    Ok(()) => count += 1,
                    // One before it has made both sides alike.
                    Err(error) if error.refusal() == Refusal::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(count)
        });
        match self.within_reads(n, &realm) {
            Ok(tree) if !desk.live.is_over() => self.sides[n].saw_next(tree),
            _ => self.sides[n].in_flight = true,
        }
        match resolved {
            Ok(count) => {
                self.met.resolved += u64::from(count > 0);
                self.stage.line(format!("side {n}: {count} conflicts resolved"));
                Ok(())
            }
            Err(_) if desk.live.is_over() || self.failed_by_a_death(n, deaths) => Ok(()),
            Err(error) => Err(format!("conflicts cannot be resolved: {error}")),
        }
    }

    /// As [`Driver::resume_decoupled`]; the others' view counts as of before the merge.
    fn go_on_merging(&mut self, n: usize) -> Result<After, String> {
        let seen = self.seen.clone();
        let after = self.resume_decoupled(n)?;
        self.seen = seen;
        Ok(after)
    }

    /// A conflict stopped it: a comparison does so before anything is merged.
    fn stopped(&mut self, n: usize, before: &View, report: &MergeReport, deaths: u64) -> Result<(), String> {
        if self.sides[n].setup.on_conflict != "abort" {
            return Err(format!("it stops, which its policy does not say: {report:?}"));
        }
        if report.conflict_count == 0 {
            return Err(format!("it stops without a conflict: {report:?}"));
        }
        // No client acts meanwhile, so the comparison finds all conflicts.
        let is_undisturbed = deaths == self.stage.deaths() && !self.others_merge_by_themselves(n);
        if report.sent > 0 && is_undisturbed && self.case.is_wide {
            return Err(format!("a comparison found nothing, and the merge stops in its midst: {report:?}"));
        }
        if report.sent == 0 && !self.sides[n].is_merged_partly && !self.others_merge_by_themselves(n) {
            let tree = self.look()?;
            unchanged(before, &View::new(&tree)).map_err(|why| format!("it was stopped, and {why}"))?;
        }
        self.sides[n].is_merged_partly |= report.sent > 0;
        Ok(())
    }

    fn judge(&mut self, n: usize, before: &View, ours: &View, reported: Option<u64>) -> Result<(), String> {
        let tree = self.look()?;
        self.stage.line(format!("side {n} saw {}", short(ours)));
        self.stage.line(format!("others saw {}", short(before)));
        self.stage.line(format!("others see {}", short(&View::new(&tree))));
        let side = &self.sides[n];
        let hidden = side.is_active() && side.setup.interfere == "block";
        self.met.merges += 1;
        self.met.conflicts += reported.unwrap_or(0);
        self.met.contradicted += u64::from(reported.is_some_and(|reported| reported > 0));
        let (o, t) = (&side.by_ours, &side.by_theirs);
        let merged = View::new(&tree);
        let merge = Merge {
            ours,
            theirs: before,
            merged: &merged,
            twins: &side.twins,
            put: &side.put,
            seen: &side.seen_since_merged(),
            by_ours: [&o[0], &o[1]],
            by_theirs: [&t[0], &t[1]],
            on_conflict: side.setup.on_conflict,
            conflicts: reported,
            by_itself: side.setup.merges_by_itself() || side.is_blurred,
            is_wide: self.case.is_wide,
        };
        if !hidden
            && !self.others_merge_by_themselves(n)
            && (side.setup.durability != "none" || reported.is_some())
        {
            merge.judge()?;
        }
        let (lives, twins, put) = (side.is_active(), merge.twins(), merge.puts());
        self.now_seen(tree, Some(n));
        let side = &mut self.sides[n];
        side.twins = twins;
        side.put.extend(put);
        if !hidden {
            side.merged_so_far();
        }
        side.is_merged_partly |= lives;
        Ok(())
    }

    /// Whether another side may merge automatically at any time.
    fn others_merge_by_themselves(&self, n: usize) -> bool {
        let mut others = self.sides.iter().filter(|side| side.n != n);
        others.any(|side| side.is_active() && side.setup.merges_by_itself())
    }

    pub(super) fn discard(&mut self, n: usize) -> Result<(), String> {
        let tree = self.look()?;
        self.now_seen(tree, None);
        if !self.ensure(n)? {
            return Ok(());
        }
        let before = View::new(&self.seen);
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            let (desk, realm) = self.at_work(n);
            let dropped = within(&desk, &realm, |realm| realm.discard());
            if desk.live.is_over() {
                match self.go_on_merging(n)? {
                    After::GoesOn => continue,
                    After::Over => break,
                }
            }
            match dropped {
                Ok(()) => break,
                Err(_) if realm.is_ended() => break,
                Err(error) => {
                    last = error.to_string();
                    thread::sleep(PAUSE);
                }
            }
        }
        if self.sides[n].is_active() && self.sides[n].realm.as_ref().is_some_and(|realm| !realm.is_ended()) {
            return Err(format!("it is not dropped: {last}"));
        }
        let is_whole = self.sides[n].is_merged_partly;
        self.sides[n].over();
        let tree = self.look()?;
        if !is_whole && !self.others_merge_by_themselves(n) {
            unchanged(&before, &View::new(&tree)).map_err(|why| format!("it was dropped, and {why}"))?;
        }
        // Others see nothing of it, except earlier merges.
        self.now_seen(tree, is_whole.then_some(n));
        Ok(())
    }
}
