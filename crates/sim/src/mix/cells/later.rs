//! Plays a switch: the job's life, and the lives that resume it.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use chiton_client::Client;
use chiton_decoupled::Realm;
use chiton_model::XattrHow;
use chiton_policy::{Durability, Policy, PolicyFile};
use chiton_runtime::schedule::Schedule;
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;
use chiton_types::{Ino, Refusal};
use chiton_wire::{RealmCall, RealmInfo};

use super::super::case::{OfDisk, Victim};
use super::super::driver::{ROOT, TRIES_MAX, listed, on, realm_call, within};
use super::super::stage::{Desk, PAUSE, Stage};
use super::job::{HELD, Job, POLICY};
use super::ledger::Ledger;
use super::{Broken, Cell, Met, Switch};
use crate::history::{Action, Answer};
use crate::judge::own_part;
use crate::party::run_in;
use crate::perform::{read_tree, seen};
use crate::random::Random;
use crate::scheduler::scheduler;
use crate::tree::Tree;

/// The cell without a policy.
const PLAIN: Cell = Cell { consistency: "strong", durability: "local" };
/// Directory in which a later life works.
const LATER: &str = "/t/later";
/// Operations in the first cell, at most during the change, and in the second.
const BEFORE: usize = 6;
const DURING_MAX: usize = 40;
const AFTER: usize = 6;

/// Plays a switch from its beginning to an empty server.
pub(super) fn play(
    stage: &Arc<Stage>,
    switch: &Switch,
    broken: Option<Broken>,
    mut random: Random,
    met: &mut Met,
) -> Result<(), String> {
    stage.begin()?;
    let others = stage.others()?;
    let top = on(&others, |client| client.mkdir_all(ROOT)).map_err(|e| e.to_string())?;
    let ledger = Ledger::new(ROOT, Answer::Attr(seen(&top)))?;
    let desk = stage.machine(0, false)?;
    let mut job = Job::new(stage, desk, (top.ino, ROOT), ROOT.to_owned(), PLAIN, ledger);
    let only = Arc::get_mut(&mut job).expect("nobody else has it yet");
    only.stops = !(switch.from.keeps() && switch.to.keeps());
    in_party(&job, "first", |job| {
        job.act(&Action::Create { path: format!("{ROOT}/held"), content: b"held".to_vec() })?;
        job.act(&Action::Mkdir { path: LATER.to_owned(), mode: 0o755 })?;
        job.act(&Action::Sync)
    })?;
    let tree = look(&others)?;
    let held = tree.nodes.get("/held").cloned().ok_or("the file to be held is missing")?;

    let from = switch.from;
    let mut draw = random.clone();
    in_party(&job, "before", move |job| {
        job.change(from, &from.policy())?;
        job.act(&open_held())?;
        for n in 0..BEFORE {
            job.some(&mut draw)?;
            if n == BEFORE / 2 {
                job.act(&Action::Fsync { handle: HELD })?;
            }
        }
        // As long as files are open for writing there, nothing is merged (S65).
        if from.is_decoupled() { job.act(&Action::Close { handle: HELD }) } else { Ok(()) }
    })?;
    random.next();
    job.changed.store(false, SeqCst);
    let policy = match broken {
        Some(Broken::Weaker) => Cell { durability: "none", ..switch.to }.policy(),
        _ => switch.to.policy(),
    };
    let points = || [stage.points(OfDisk::Server), stage.points(OfDisk::Side(0))];
    let begun = points();
    if let Some(arm) = switch.strike {
        stage.arm(&[arm]);
        thread::sleep(Duration::from_millis(2));
    }
    let working = {
        let mut draw = random.clone();
        aside(&job, move |job| work(job, &mut draw))
    };
    let to = switch.to;
    let set = policy.clone();
    let changed = in_party(&job, "changes", move |job| job.change(to, &set));
    if changed.is_err() {
        // Nothing to wait for.
        job.changed.store(true, SeqCst);
    }
    let worked = working();
    changed?;
    worked?;
    let ended = points();
    met.writes = [ended[0] - begun[0], ended[1] - begun[1]];
    stage.disarm();
    met.struck = stage.deaths() > 0;
    met.within = met.struck && !job.changed.load(SeqCst);
    let dead = switch.strike.map(|arm| arm.victim).filter(|_| met.struck);

    // The existing tree, and whether it is allowed.
    let mut lives_on = Vec::new();
    if job.is_dead() {
        let desk = stage.machine(0, goes_elsewhere(switch))?;
        let knew = job.realm.lock().as_ref().map(|realm| realm.id());
        let found = resume_decoupled(stage, &desk, top.ino, knew.is_some())?;
        if let Some(realm) = found {
            met.gone_on = true;
            let tree = on(&desk, {
                let realm = realm.clone();
                move |_| read_tree(realm.client())
            })?;
            job.ledger.lock().judge(dead, &own_part(&tree, ""), None)?;
            merge(&desk, &realm)?;
            let merged = look(&others)?;
            alike(&own_part(&tree, ""), &merged)?;
        }
        lives_on.push(desk);
    } else {
        in_party(&job, "closes", move |job| {
            let is_held = job.ledger.lock().life.file_of(HELD).is_some();
            if is_held { job.act(&Action::Close { handle: HELD }) } else { Ok(()) }
        })?;
        job.ends()?;
    }
    let tree = look(&others)?;
    // A live client whose server lost nothing that it promised sees everything.
    let judged = if job.is_dead() || job.stops { dead } else { None };
    let set_aside = (judged == Some(Victim::Server)).then_some((held.ino, &held));
    job.ledger.lock().judge(judged, &tree, set_aside)?;

    let desk = match lives_on.pop() {
        Some(desk) => desk,
        None => {
            let live = job.desk.live.clone();
            drop(job);
            run_in(live.party, "ends", move || live.end());
            stage.machine(0, goes_elsewhere(switch))?
        }
    };
    after(stage, switch, policy, desk, &others, top.ino)?;
    let live = others.live.clone();
    drop(others);
    run_in(live.party, "ends", move || live.end());
    stage.ends_whole()
}

fn open_held() -> Action {
    Action::Open { path: format!("{ROOT}/held"), create: false, truncate: false, handle: HELD }
}

/// The work during the change of the policy, and afterwards.
fn work(job: &Job, random: &mut Random) -> Result<(), String> {
    for _ in 0..DURING_MAX {
        if job.changed.load(SeqCst) || job.is_over() {
            break;
        }
        job.some(random)?;
        thread::sleep(Duration::from_micros(random.below(2_000)));
    }
    while !job.changed.load(SeqCst) && !job.is_over() {
        thread::sleep(Duration::from_millis(1));
    }
    let is_held = job.ledger.lock().life.file_of(HELD).is_some();
    if !is_held {
        job.act(&open_held())?;
    }
    for n in 0..AFTER {
        job.some(random)?;
        if n == AFTER / 2 {
            job.act(&Action::Fsync { handle: HELD })?;
        }
    }
    Ok(())
}

/// The policy has changed or not. It changes now, more work is done, and all parties die.
fn after(
    stage: &Arc<Stage>,
    switch: &Switch,
    policy: String,
    desk: Desk,
    others: &Desk,
    top: Ino,
) -> Result<(), String> {
    let set = on(&desk, move |client| client.getxattr(&client.caller(), top, POLICY));
    let set = set.map_err(|e| format!("its policy cannot be read: {e}"))?;
    let may_be = [&switch.from.policy(), &policy];
    if !may_be.iter().any(|policy| policy.as_bytes() == set) {
        return Err(format!("its policy is {:?}", String::from_utf8_lossy(&set)));
    }
    set_at_last(stage, &desk, top, &policy)?;
    let made = on(&desk, |client| client.lstat(LATER)).map_err(|e| format!("{LATER}: {e}"))?;
    let ledger = Ledger::new(LATER, Answer::Attr(seen(&made)))?;
    let later = Job::new(stage, desk, (top, ROOT), LATER.to_owned(), switch.from, ledger);
    let (to, mut draw) = (switch.to, Random::new(switch.seed(), 26));
    in_party(&later, "later", move |job| {
        job.change(to, &policy)?;
        for n in 0..4 {
            job.some(&mut draw)?;
            if n == 2 {
                job.act(&Action::FsyncDir)?;
            }
        }
        Ok(())
    })?;
    stage.dies(Victim::Both(0));
    let knew = later.realm.lock().take().is_some();
    let desk = stage.machine(0, goes_elsewhere(switch))?;
    if let Some(realm) = resume_decoupled(stage, &desk, top, knew)? {
        merge(&desk, &realm)?;
    }
    let tree = on(others, read_tree)?;
    let found = own_part(&tree, LATER);
    let judged = later.ledger.lock().judge(Some(Victim::Both(0)), &found, None);
    judged.map_err(|why| format!("in {LATER}: {why}"))?;
    drop(later);
    let live = desk.live.clone();
    drop(desk);
    run_in(live.party, "ends", move || live.end());
    Ok(())
}

/// Sets a policy. A late request of a dead client may still decouple it, for a client that never heard of it; then
/// it waits for the end of that session, or for an administrator.
fn set_at_last(stage: &Arc<Stage>, desk: &Desk, top: Ino, policy: &str) -> Result<(), String> {
    for _ in 0..TRIES_MAX {
        let text = policy.as_bytes().to_vec();
        let set = move |client: &Client| client.setxattr(&client.caller(), top, POLICY, &text, XattrHow::Set);
        match on(desk, set) {
            Ok(()) => return Ok(()),
            Err(Refusal::Busy) => {
                if let Some(realm) = resume_decoupled(stage, desk, top, false)? {
                    merge(desk, &realm)?;
                }
            }
            Err(refusal) => return Err(format!("its policy is not set later: {refusal}")),
        }
        thread::sleep(PAUSE);
    }
    Err("its policy is never set".to_owned())
}

/// Whether another machine resumes it from the object store.
fn goes_elsewhere(switch: &Switch) -> bool {
    let is_local = |cell: Cell| cell.has_local_journal();
    !is_local(switch.from) && !is_local(switch.to)
}

/// Resumes an earlier life's decoupling, if it still exists. `knew`: that life got the grant.
fn resume_decoupled(
    stage: &Arc<Stage>,
    desk: &Desk,
    top: Ino,
    knew: bool,
) -> Result<Option<Arc<Realm>>, String> {
    let mut last = String::new();
    for _ in 0..TRIES_MAX {
        let realms = desk.realms.clone();
        let found = on(desk, move |client| {
            let all = listed(client).map_err(|refusal| refusal.to_string())?;
            let Some(info) = all.into_iter().find(|info| info.root == top) else { return Ok(None) };
            match level_of(&info)? {
                Durability::None => Err("its session ends without a request".to_owned()),
                Durability::Global => realms.adopt(info.claim.realm).map(Some).map_err(|e| e.to_string()),
                _ => match realms.recover().pop() {
                    Some(found) => found.map(Some).map_err(|e| e.to_string()),
                    // Granted to a client that never heard of it: an administrator ends it.
                    None if !knew => {
                        let call = RealmCall::End { claim: info.claim, force: true };
                        realm_call(client, call).map(|_| None).map_err(|refusal| refusal.to_string())
                    }
                    None => Err("nothing is left of it".to_owned()),
                },
            }
        });
        match found {
            Ok(found) => return Ok(found),
            Err(why) => last = why,
        }
        stage.line(format!("side: not resumed: {last}"));
        thread::sleep(PAUSE);
    }
    Err(format!("it cannot be resumed: {last}"))
}

fn level_of(info: &RealmInfo) -> Result<Durability, String> {
    let text = std::str::from_utf8(&info.policy).map_err(|e| e.to_string())?;
    let file = PolicyFile::parse(text).map_err(|e| e.to_string())?;
    let policy = Policy::resolve(&file, &Policy::default()).map_err(|e| e.to_string())?;
    Ok(policy.durability())
}

fn merge(desk: &Desk, realm: &Arc<Realm>) -> Result<(), String> {
    let merged = within(desk, realm, |realm| realm.merge(&|_| {}));
    let report = merged.map_err(|error| format!("the resumed decoupling is not merged: {error}"))?;
    match report.stopped || report.conflict_count + report.lost_count > 0 {
        true => Err(format!("a merge where nobody else acts: {report:?}")),
        false => Ok(()),
    }
}

/// The others' view of the directory.
fn look(others: &Desk) -> Result<Tree, String> {
    Ok(own_part(&on(others, read_tree)?, ROOT))
}

/// Compares the merged tree with the one found on resuming.
fn alike(found: &Tree, merged: &Tree) -> Result<(), String> {
    let paths = found.nodes.keys().chain(merged.nodes.keys()).filter(|path| *path != "/");
    match paths.into_iter().find(|path| found.nodes.get(*path) != merged.nodes.get(*path)) {
        None => Ok(()),
        Some(path) => Err(format!(
            "{path} is {:?} when it is merged, was {:?}",
            merged.nodes.get(path),
            found.nodes.get(path)
        )),
    }
}

/// Runs `body` on another thread of the job's client; the end of the decoupling waits for it.
fn aside(
    job: &Arc<Job>,
    body: impl FnOnce(&Job) -> Result<(), String> + Send + 'static,
) -> impl FnOnce() -> Result<(), String> {
    let (job, result) = (job.clone(), Arc::new(Mutex::new(Ok(()))));
    let (party, put) = (job.desk.live.party, result.clone());
    let number = scheduler().spawn_in(party, "works", move || {
        let worked = body(&job);
        // The waiting thread holds nothing of the client.
        drop(job);
        *put.lock() = worked;
    });
    move || {
        Schedule::join(&*scheduler(), number);
        result.lock().clone()
    }
}

/// On a thread of the job's client.
fn in_party(
    job: &Arc<Job>,
    name: &str,
    body: impl FnOnce(&Job) -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let job = job.clone();
    run_in(job.desk.live.party, name, move || body(&job))
}
