//! Plays a case, step by step, and looks at both sides before and after each merge.

use std::sync::Arc;
use std::time::Duration;

use chiton_client::{Client, ask};
use chiton_decoupled::{Realm, RealmError};
use chiton_model::XattrHow;
use chiton_runtime::thread;
use chiton_types::{Ino, Name, Refusal};
use chiton_wire::{Answer as Told, Call, Claim, RealmAnswer, RealmCall, RealmInfo};

use super::Met;
use super::acts::{acts, is_done};
use super::case::{Actor, Case, Deed, Step};
use super::judge::unchanged;
use super::side::Side;
use super::stage::{Desk, PAUSE, Stage};
use super::view::{Touched, View, below};
use crate::history::{Action, Answer};
use crate::party::run_in;
use crate::perform::{Handles, perform, read_tree};
use crate::tree::Tree;

/// The directory that all of it is about.
pub(super) const ROOT: &str = "/t";
pub(super) const TRIES_MAX: u32 = 400;

pub(super) struct Driver {
    pub(super) stage: Arc<Stage>,
    pub(super) case: Case,
    pub(super) sides: Vec<Side>,
    theirs: Option<Desk>,
    /// As others saw it last.
    pub(super) seen: Tree,
    root: Ino,
    count: u64,
    pub(super) met: Met,
}

/// The state of a subtree whose client died.
pub(super) enum After {
    GoesOn,
    Over,
}

/// Runs `body` on another machine.
pub(super) fn on<T: Send + 'static>(desk: &Desk, body: impl FnOnce(&Client) -> T + Send + 'static) -> T {
    let client = desk.client.clone();
    run_in(desk.live.party, "asks", move || body(&client))
}

pub(super) fn within<T: Send + 'static>(
    desk: &Desk,
    realm: &Arc<Realm>,
    body: impl FnOnce(&Realm) -> T + Send + 'static,
) -> T {
    let realm = realm.clone();
    run_in(desk.live.party, "works", move || body(&realm))
}

/// Carries out actions one after the other until one is refused: one line about each result.
fn carry_out(client: &Client, actions: &[Action]) -> Vec<String> {
    let mut handles = Handles::new();
    let mut lines = Vec::new();
    for action in actions {
        let answer = perform(client, &mut handles, action);
        let reported: String = format!("{action:?}").chars().take(160).collect();
        lines.push(format!("{reported}: {}", is_done(&answer)));
        if matches!(answer, Answer::Refused(_)) {
            break;
        }
    }
    for handle in handles.keys().copied().collect::<Vec<_>>() {
        perform(client, &mut handles, &Action::Close { handle });
    }
    lines
}

pub(super) fn realm_call(client: &Client, call: RealmCall) -> Result<RealmAnswer, Refusal> {
    match ask(&**client.service(), &client.caller(), Call::Realm(Box::new(call)))? {
        Told::Realm(answer) => Ok(answer),
        _ => Err(Refusal::Io),
    }
}

/// The durable decouplings, which no crash of the server changes.
pub(super) fn listed(client: &Client) -> Result<Vec<RealmInfo>, Refusal> {
    let list = || match realm_call(client, RealmCall::List)? {
        RealmAnswer::Realms(all) => Ok(all),
        _ => Err(Refusal::Io),
    };
    let before = list()?;
    client.sync()?;
    let after = list()?;
    let claims = |all: &[RealmInfo]| all.iter().map(|info| info.claim).collect::<Vec<Claim>>();
    if claims(&before) == claims(&after) { Ok(after) } else { Err(Refusal::WouldBlock) }
}

impl Driver {
    pub(super) fn new(stage: Arc<Stage>, case: Case) -> Driver {
        let sides = case.sides.iter().enumerate().map(|(n, setup)| Side::new(n, setup)).collect();
        let (theirs, seen, met) = (None, Tree::default(), Met::default());
        Driver { stage, case, sides, theirs, seen, root: Ino(0), count: 0, met }
    }

    pub(super) fn met(&self) -> Met {
        Met { deaths: self.stage.deaths(), ..self.met }
    }

    /// Makes the directory in which all act. With several plates the name with which it is born decides on which it lies.
    fn make_root(&self, theirs: &Desk) -> Result<Ino, String> {
        let born = match self.case.plates {
            1 => ROOT.to_owned(),
            _ => format!("{ROOT}{}", self.case.seed),
        };
        let make = move |client: &Client| -> Result<Ino, Refusal> {
            let ino = client.mkdir_all(&born)?.ino;
            if born != ROOT {
                client.rename_path(&born, ROOT)?;
            }
            Ok(ino)
        };
        on(theirs, make).map_err(|refusal| refusal.to_string())
    }

    pub(super) fn play(&mut self) -> Result<(), String> {
        self.stage.begin()?;
        let theirs = self.stage.others()?;
        self.root = self.make_root(&theirs)?;
        let durability =
            self.case.ground.map(|durability| format!("consistency: strong\ndurability: {durability}\n"));
        let placement = (self.case.plates > 1).then(|| "placement: near\n".to_owned());
        if durability.is_some() || placement.is_some() {
            let (root, policy) = (self.root, durability.into_iter().chain(placement).collect::<String>());
            let words = policy.clone();
            let set = move |client: &Client| {
                client.setxattr(&client.caller(), root, b"chiton.policy", policy.as_bytes(), XattrHow::Set)
            };
            on(&theirs, set).map_err(|refusal| format!("no policy {words:?}: {refusal}"))?;
        }
        self.theirs = Some(theirs);
        self.seen = self.look()?;
        for step in self.case.steps.clone() {
            self.stage.line(format!("step: {step:?}"));
            self.step(&step).map_err(|why| format!("{step:?}: {why}"))?;
        }
        self.stage.disarm();
        for n in 0..self.sides.len() {
            self.merge(n).map_err(|why| format!("the end of side {n}: {why}"))?;
        }
        self.end()
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Begin(n) => self.begin(*n),
            Step::Do(Actor::Theirs, deed) => self.they_do(deed),
            Step::Do(Actor::Side(n), deed) => self.we_do(*n, deed),
            Step::Fsync(n) => self.fsync(*n),
            Step::Sync(n) => self.sync(*n),
            Step::Merge(n) => self.merge(*n),
            Step::Discard(n) => self.discard(*n),
            Step::Diff(n) => self.diff(*n),
            Step::Leave(n) => self.leave(*n),
            Step::EndByForce(n) => self.end_by_force(*n),
            Step::Wait(ms) => {
                thread::sleep(Duration::from_millis(*ms));
                Ok(())
            }
            Step::Arm(arms) => {
                self.stage.arm(arms);
                Ok(())
            }
        }
    }

    /// The others' view; the last one if they are excluded.
    pub(super) fn look(&self) -> Result<Tree, String> {
        let theirs = self.theirs.as_ref().expect("there from the beginning");
        let hidden = self.sides.iter().any(|side| side.is_active() && side.setup.interfere == "block");
        if hidden {
            return Ok(self.seen.clone());
        }
        // Entries that move during the read are missed, or seen twice; an automatic merge may move them at any
        // time.
        let moves = self.sides.iter().any(|side| side.is_active() && side.setup.merges_by_itself());
        let mut before = None;
        for _ in 0..TRIES_MAX {
            match on(theirs, read_tree) {
                Ok(tree) if moves && before.as_ref() != Some(&tree) => {
                    before = Some(tree);
                    continue;
                }
                Ok(tree) => return Ok(below(&tree, ROOT)),
                // An automatic merge changed it during the read.
                Err(why) => self.stage.line(format!("others cannot read: {why}")),
            }
            thread::sleep(PAUSE);
        }
        Err("others cannot read what is there".to_owned())
    }

    /// Others see this tree now. For all sides except `but` it is a change by others.
    pub(super) fn now_seen(&mut self, tree: Tree, but: Option<usize>) {
        let mut touched = Touched::default();
        touched.between(&View::new(&self.seen), &View::new(&tree));
        if let Some(n) = but {
            touched.add(&self.sides[n].by_ours[1]);
        }
        for side in self.sides.iter_mut().filter(|side| Some(side.n) != but && side.is_active()) {
            side.others_touched(&touched);
        }
        self.seen = tree;
    }

    fn they_do(&mut self, deed: &Deed) -> Result<(), String> {
        // An automatic merge meanwhile is not an action of the case.
        let tree = self.look()?;
        self.now_seen(tree, None);
        self.count += 1;
        for group in acts(&self.seen, deed, ROOT, &format!("t{:05}", self.count)) {
            let theirs = self.theirs.as_ref().expect("there from the beginning");
            let lines = on(theirs, move |client| carry_out(client, &group));
            lines.into_iter().for_each(|line| self.stage.line(format!("others: {line}")));
            let tree = self.look()?;
            self.now_seen(tree, None);
        }
        Ok(())
    }

    fn begin(&mut self, n: usize) -> Result<(), String> {
        if self.sides[n].is_active() {
            return Ok(());
        }
        self.stage.disarm();
        let tree = self.look()?;
        self.now_seen(tree, None);
        let root = self.root;
        self.machine(n)?;
        let side = &self.sides[n];
        let (name, policy) = (side.name.clone(), side.setup.policy());
        let (desk, branch) = (side.desk.as_ref().expect("made above"), side.setup.branch);
        let realms = desk.realms.clone();
        let begun = on(desk, move |client| {
            if branch {
                realms.create_branch(&client.caller(), root, &name, Some(policy.as_bytes()))?;
                realms.open_branch(root, &name)
            } else {
                realms.decouple(&client.caller(), root, Some(policy.as_bytes()), None)
            }
        });
        let realm = match begun {
            Ok(realm) => realm,
            Err(error) => {
                // Another job has it.
                self.stage.line(format!("side {n} does not begin: {error}"));
                return Ok(());
            }
        };
        let tree = self.within_reads(n, &realm)?;
        let is_alone = self.sides.iter().all(|side| !side.setup.merges_by_itself());
        if is_alone {
            unchanged(&View::new(&self.seen), &View::new(&tree))
                .map_err(|why| format!("it begins with: {why}"))?;
        }
        self.sides[n].began(realm, tree);
        Ok(())
    }

    fn machine(&mut self, n: usize) -> Result<(), String> {
        if self.sides[n].desk.as_ref().is_some_and(|desk| !desk.live.is_over()) {
            return Ok(());
        }
        self.sides[n].desk = None;
        let elsewhere = self.sides[n].setup.durability == "global" && self.case.seed.is_multiple_of(2);
        self.sides[n].desk = Some(self.stage.machine(n, elsewhere)?);
        Ok(())
    }

    pub(super) fn within_reads(&self, n: usize, realm: &Arc<Realm>) -> Result<Tree, String> {
        let desk = self.sides[n].desk.as_ref().expect("at work");
        within(desk, realm, |realm| read_tree(realm.client()))
    }

    /// True if it is decoupled; resumes it after a death.
    pub(super) fn ensure(&mut self, n: usize) -> Result<bool, String> {
        if !self.sides[n].is_active() {
            return Ok(false);
        }
        let dead = self.sides[n].desk.as_ref().is_none_or(|desk| desk.live.is_over());
        if dead && let After::Over = self.resume_decoupled(n)? {
            return Ok(false);
        }
        Ok(true)
    }

    fn we_do(&mut self, n: usize, deed: &Deed) -> Result<(), String> {
        if !self.ensure(n)? {
            return Ok(());
        }
        self.count += 1;
        let tree = self.sides[n].saw.last().expect("it began").clone();
        for group in acts(&tree, deed, "", &format!("{n}{:05}", self.count)) {
            let deaths = self.stage.deaths();
            let (desk, realm) = self.at_work(n);
            let lines = within(&desk, &realm, move |realm| carry_out(realm.client(), &group));
            lines.into_iter().for_each(|line| self.stage.line(format!("side {n}: {line}")));
            match self.within_reads(n, &realm) {
                Ok(tree) if !desk.live.is_over() => self.sides[n].saw_next(tree),
                // A server that dies answers errors a moment before it falls silent.
                Err(why) if !desk.live.is_over() && !self.failed_by_a_death(n, deaths) => {
                    return Err(format!("side {n} cannot read: {why}"));
                }
                _ => {
                    self.sides[n].in_flight = true;
                    break;
                }
            }
        }
        Ok(())
    }

    pub(super) fn at_work(&self, n: usize) -> (Desk, Arc<Realm>) {
        let side = &self.sides[n];
        let desk = side.desk.as_ref().expect("at work");
        let desk = Desk { live: desk.live.clone(), client: desk.client.clone(), realms: desk.realms.clone() };
        (desk, side.realm.clone().expect("at work"))
    }

    fn fsync(&mut self, n: usize) -> Result<(), String> {
        if !self.ensure(n)? {
            return Ok(());
        }
        let deaths = self.stage.deaths();
        let (desk, realm) = self.at_work(n);
        let sync = || within(&desk, &realm, |realm| realm.client().sync());
        // A loss that an earlier close reported is reported once more.
        let synced = match sync() {
            Err(Refusal::Io | Refusal::Stale) if deaths > 0 && !desk.live.is_over() => sync(),
            synced => synced,
        };
        match synced {
            Ok(()) if !desk.live.is_over() => self.sides[n].is_safe(),
            Err(refusal) if !desk.live.is_over() && !self.failed_by_a_death(n, deaths) => {
                return Err(format!("fsync is refused: {refusal}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a failure results from a dying machine: its disk refuses changes a moment before it falls silent. A
    /// later life resumes a failed journal.
    pub(super) fn failed_by_a_death(&self, n: usize, deaths: u64) -> bool {
        thread::sleep(Duration::from_millis(5));
        let is_dead = self.stage.deaths() > deaths;
        if is_dead {
            self.stage.kill(n);
        }
        is_dead
    }

    fn diff(&mut self, n: usize) -> Result<(), String> {
        if !self.ensure(n)? {
            return Ok(());
        }
        let deaths = self.stage.deaths();
        let (desk, realm) = self.at_work(n);
        let reported = within(&desk, &realm, |realm| realm.diff());
        match reported {
            Err(error) if !desk.live.is_over() && !self.failed_by_a_death(n, deaths) => {
                Err(format!("a comparison fails: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// An administrator ends a job: its changes are a branch from then on, which is found by the journal that waits.
    fn end_by_force(&mut self, n: usize) -> Result<(), String> {
        self.stage.disarm();
        // A server that died reports here that acknowledged events are lost; then nothing is ended.
        if self.fsync(n).is_err() {
            return Ok(());
        }
        if !self.ensure(n)? || self.sides[n].setup.branch || self.sides[n].setup.durability == "none" {
            return Ok(());
        }
        let claim = self.sides[n].claim.expect("it is decoupled");
        let theirs = self.theirs.as_ref().expect("there from the beginning");
        let call = RealmCall::BecomeBranch { realm: claim.realm, name: None };
        match on(theirs, move |client| realm_call(client, call)) {
            Ok(RealmAnswer::Ended) => {}
            other => return Err(format!("it cannot be ended by force: {other:?}")),
        }
        let (desk, realm) = self.at_work(n);
        for _ in 0..TRIES_MAX {
            if realm.is_lost() {
                break;
            }
            thread::sleep(PAUSE);
        }
        if !realm.is_lost() {
            return Err("its client does not notice that it was ended".to_owned());
        }
        if within(&desk, &realm, |realm| realm.sync(&|_| {}).is_ok()) {
            return Err("what was ended by force is merged".to_owned());
        }
        let (root, realms) = (self.root, desk.realms.clone());
        let name = Name::new(format!("rescued{n}").as_bytes()).expect("a name");
        let named = name.clone();
        let rescued = on(&desk, move |_| {
            realms.rescue(Some(claim.realm), &named)?;
            realms.open_branch(root, &named)
        });
        let realm = rescued.map_err(|error| format!("what was ended by force is not found: {error}"))?;
        let tree = self.within_reads(n, &realm)?;
        let side = &mut self.sides[n];
        side.is_blurred |= side.setup.merges_by_itself();
        (side.setup.branch, side.setup.interfere, side.name) = (true, "allow", name);
        side.found(tree)?;
        side.claim = Some(realm.claim());
        side.realm = Some(realm);
        self.met.rescued += 1;
        let tree = self.look()?;
        self.now_seen(tree, None);
        Ok(())
    }

    fn leave(&mut self, n: usize) -> Result<(), String> {
        if !self.ensure(n)? {
            return Ok(());
        }
        let setup = &self.sides[n].setup;
        // The end of their client merges or drops these: request that here.
        if !setup.branch && (setup.consistency == "weak" || setup.durability == "none") {
            return Ok(());
        }
        let deaths = self.stage.deaths();
        let (desk, _) = self.at_work(n);
        let realms = desk.realms.clone();
        let errors = on(&desk, move |_| realms.close());
        if !desk.live.is_over() {
            if let Some(error) = errors.first() {
                if !self.failed_by_a_death(n, deaths) {
                    return Err(format!("it does not end in order: {error}"));
                }
                return self.ensure(n).map(drop);
            }
            self.sides[n].is_safe();
            self.sides[n].realm = None;
            let live = desk.live.clone();
            drop(desk);
            self.sides[n].desk = None;
            run_in(live.party, "ends", move || live.end());
        }
        self.ensure(n).map(drop)
    }

    /// A later life resumes an earlier one's decoupling.
    pub(super) fn resume_decoupled(&mut self, n: usize) -> Result<After, String> {
        let claim = self.sides[n].claim.expect("it is decoupled");
        let (root, name) = (self.root, self.sides[n].name.clone());
        self.sides[n].realm = None;
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            self.machine(n)?;
            let side = &self.sides[n];
            let desk = side.desk.as_ref().expect("made above");
            let (branch, level) = (side.setup.branch, side.setup.durability);
            let (realms, name) = (desk.realms.clone(), name.clone());
            let found = on(desk, move |client| {
                let reported = |error: RealmError| error.to_string();
                let all = listed(client).map_err(|refusal| refusal.to_string())?;
                if all.iter().all(|info| info.claim.realm != claim.realm) {
                    return Ok(None);
                }
                if level == "none" {
                    return Err("its session ends without a request".to_owned());
                }
                if branch {
                    return realms.open_branch(root, &name).map(Some).map_err(reported);
                }
                let mut why = None;
                for one in realms.recover() {
                    match one {
                        Ok(realm) if realm.id() == claim.realm => return Ok(Some(realm)),
                        Ok(_) => return Err("another is found".to_owned()),
                        Err(error) => why = Some(reported(error)),
                    }
                }
                match (why, level) {
                    (None, "global") => realms.adopt(claim.realm).map(Some).map_err(reported),
                    (why, _) => Err(why.unwrap_or("nothing is left on this machine".to_owned())),
                }
            });
            match found {
                Ok(Some(realm)) => match self.within_reads(n, &realm) {
                    Ok(tree) => {
                        self.met.recoveries += 1;
                        self.sides[n].found(tree)?;
                        self.sides[n].claim = Some(realm.claim());
                        self.sides[n].realm = Some(realm);
                        return Ok(After::GoesOn);
                    }
                    Err(why) => {
                        realm.abandon();
                        last = why;
                    }
                },
                Ok(None) => return self.found_over(n),
                Err(why) => last = why,
            }
            self.stage.line(format!("side {n} is not resumed: {last}"));
            thread::sleep(PAUSE);
        }
        Err(format!("side {n} cannot be resumed: {last}"))
    }

    /// It has ended: its changes were merged, or are lost as its level allows.
    fn found_over(&mut self, n: usize) -> Result<After, String> {
        self.stage.line(format!("side {n} is over"));
        self.sides[n].over();
        let before = View::new(&self.seen);
        let tree = self.look()?;
        let after = View::new(&tree);
        if self.sides[n].setup.durability == "none" {
            let (by_ours, on_conflict) = (&self.sides[n].by_ours[0], self.sides[n].setup.on_conflict);
            for (at, ino) in &before.names {
                let is = after.names.get(at);
                // A file that ours changed and theirs replaced has its name again: the file of theirs is beside it.
                let is_back = is.is_some_and(|is| by_ours.inos.contains(is))
                    && (on_conflict != "keep_both" || after.nodes.contains_key(ino));
                let touched = by_ours.names.contains(at) || by_ours.inos.contains(ino);
                if !touched && !is_back && is != Some(ino) {
                    return Err(format!("{} is {is:?}, theirs saw {ino:?}", before.paths[at]));
                }
            }
        }
        self.now_seen(tree, Some(n));
        Ok(After::Over)
    }

    /// Nothing is left over, and a restart shows the same tree.
    fn end(&mut self) -> Result<(), String> {
        let before = self.look()?;
        for n in 0..self.sides.len() {
            if let Some(desk) = self.sides[n].desk.take() {
                let live = desk.live.clone();
                drop(desk);
                run_in(live.party, "ends", move || live.end());
            }
        }
        let theirs = self.theirs.take().expect("there from the beginning");
        // A loss that a dead server had reported is reported once more.
        let synced = on(&theirs, |client| client.sync());
        let synced = match synced {
            Err(Refusal::Io | Refusal::Stale) if self.stage.deaths() > 0 => {
                on(&theirs, |client| client.sync())
            }
            synced => synced,
        };
        synced.map_err(|e| format!("what others did is not durable: {e}"))?;
        let live = theirs.live.clone();
        drop(theirs);
        run_in(live.party, "ends", move || live.end());
        self.stage.ends_whole()?;
        self.stage.start()?;
        self.theirs = Some(self.stage.others()?);
        let after = self.look()?;
        if before != after {
            unchanged(&View::new(&before), &View::new(&after))
                .map_err(|why| format!("after a restart {why}"))?;
        }
        let theirs = self.theirs.take().expect("just begun");
        let live = theirs.live.clone();
        drop(theirs);
        run_in(live.party, "ends", move || live.end());
        self.stage.shut_down()
    }
}
