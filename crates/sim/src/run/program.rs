//! One client over all its lives: the steps of its plan, one call after the other, recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use chiton_client::data::{FilesOptions, OnLoss};
use chiton_client::{Client, ClientOptions};
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread;

use super::Cluster;
use super::job::Apart;
use crate::history::{Action, Answer, ClientId, Happened};
use crate::judge::is_of_the_outside;
use crate::party::LiveClient;
use crate::perform::{Handles, perform_as};
use crate::plan::{LOG, OWN, Role, SHARED, Step, THEIRS, appends_to, at_home};
use crate::scheduler::scheduler;
use crate::users::User;

/// The directory is listed before each of this many steps that create a file where others do.
const LOOK_FIRST: usize = 3;

pub(super) struct Program {
    pub(super) id: ClientId,
    pub(super) steps: Vec<Step>,
    pub(super) next: AtomicUsize,
    pub(super) lives: AtomicU32,
    /// Number of its directories so far.
    pub(super) roots: AtomicUsize,
    pub(super) live: Mutex<Option<Arc<LiveClient>>>,
    pub(super) done: AtomicBool,
    pub(super) apart: Mutex<Apart>,
}

impl Cluster {
    pub(super) fn begin_client(self: &Arc<Cluster>, n: usize) {
        let program = &self.clients[n];
        let life = program.lives.fetch_add(1, SeqCst);
        let drift = self.plan.setup.drift_ppm.get(n + 1).copied().unwrap_or(0);
        let live = LiveClient::new(program.id, life, drift, self.plan.seed);
        *program.live.lock() = Some(live.clone());
        let cluster = self.clone();
        scheduler().spawn_in(live.party, "program", move || match cluster.plan.role(n) {
            Some(Role::Job(job)) => cluster.work_apart(n, &live, job),
            Some(Role::Visitor) | None => cluster.work(n, &live),
        });
    }

    /// One life of a client.
    fn work(&self, n: usize, live: &Arc<LiveClient>) {
        let program = &self.clients[n];
        let Some(client) = live.connect(&self.rig.net, &self.options_of(live)) else { return };
        self.recorder.push(Happened::ClientStarted { client: program.id });
        let mut handles = Handles::new();
        let mut root = None;
        let mut losses = 0;
        while !live.is_over() {
            let at = program.next.load(SeqCst);
            let Some(step) = program.steps.get(at) else { break };
            program.next.store(at + 1, SeqCst);
            if !self.healing.load(SeqCst) {
                thread::sleep(step.pause);
            }
            let lost = self.recorder.losses(live.id, live.life);
            if lost != losses {
                // Acknowledged changes that are not durable may be lost: continue elsewhere.
                losses = lost;
                root = None;
                self.let_go(live, &client, &mut handles);
            }
            if root.is_none() {
                let number = program.roots.fetch_add(1, SeqCst);
                let path = format!("{OWN}{}-{number}", program.id.0);
                let made = Action::Mkdir { path: path.clone(), mode: self.plan.setup.own_mode };
                let answer = self.act(live, &client, &mut handles, User::Root, &made);
                if !matches!(answer, Answer::Attr(_)) {
                    continue;
                }
                root = Some(path);
            }
            let action = in_root(&step.action, root.as_deref().expect("made above"));
            let Some(action) = self.at_others(action).filter(|action| fits(action, &handles)) else {
                continue;
            };
            if let Action::Create { path, .. } = &action
                && let Some(dir) = [LOG, SHARED].into_iter().find(|dir| path.starts_with(dir))
                && at.is_multiple_of(LOOK_FIRST)
            {
                // A client that knows all names of a directory may create files there before it asks.
                let _ = client.list(dir);
            }
            let answer = self.act(live, &client, &mut handles, step.user, &action);
            if let Answer::Refused(refusal) = answer
                && is_of_the_outside(refusal)
            {
                // The outcome is unknown: continue elsewhere.
                root = None;
                self.let_go(live, &client, &mut handles);
            }
        }
        if live.is_over() {
            return;
        }
        for name in handles.keys().copied().collect::<Vec<_>>() {
            let close = match appends_to(name) {
                Some(path) => Action::CloseAppended { path },
                None => Action::Close { handle: name },
            };
            self.act(live, &client, &mut handles, User::Root, &close);
        }
        // When a client leaves before everything is durable, no one sends its changes again.
        while self.act(live, &client, &mut handles, User::Root, &Action::Sync) != Answer::Done
            && !live.is_over()
        {
            thread::sleep(Duration::from_millis(500));
        }
        if !live.is_over() {
            drop(client);
            live.end();
            program.done.store(true, SeqCst);
        }
    }

    /// The action in the present directories of others; `None` if they have none.
    fn at_others(&self, action: Action) -> Option<Action> {
        let mut action = at_home(action, |client| {
            let program = self.clients.get(client)?;
            let last = program.roots.load(SeqCst).checked_sub(1)?;
            Some(format!("{OWN}{}-{last}", program.id.0))
        })?;
        match &mut action {
            Action::Follow { client, marks } => {
                *marks = self.clients[*client].marks();
                (!marks.is_empty()).then_some(action)
            }
            Action::Create { path, .. } if path.starts_with(THEIRS) => {
                let (client, name) = path[THEIRS.len()..].split_once('/')?;
                let root = self.clients[client.parse::<usize>().ok()?].apart_root()?;
                *path = format!("{root}{THEIRS}/{name}");
                Some(action)
            }
            _ => Some(action),
        }
    }

    /// Losses that the client reports go into the history.
    pub(super) fn options_of(&self, live: &Arc<LiveClient>) -> ClientOptions {
        let (recorder, live) = (self.recorder.clone(), live.clone());
        let on_loss = OnLoss::new(move |ino, _| {
            if !live.is_over() {
                recorder.push(Happened::DataLost { client: live.id, ino });
            }
        });
        let files = FilesOptions { on_loss, ..self.client_options.files.clone() };
        ClientOptions { files, ..self.client_options.clone() }
    }

    /// Closes open handles: those of appends on the record, because a close reports what was lost and the next sync then does
    /// not, the others without. Their errors belong to earlier calls.
    fn let_go(&self, live: &LiveClient, client: &Client, handles: &mut Handles) {
        for name in handles.keys().copied().collect::<Vec<_>>() {
            if let Some(path) = appends_to(name) {
                self.act(live, client, handles, User::Root, &Action::CloseAppended { path });
            }
        }
        for fh in std::mem::take(handles).into_values() {
            let _ = client.release(fh);
        }
    }

    fn act(
        &self,
        live: &LiveClient,
        client: &Client,
        handles: &mut Handles,
        user: User,
        action: &Action,
    ) -> Answer {
        let call = self.recorder.next_call();
        if !live.is_over() {
            self.recorder.push(Happened::Invoked { client: live.id, call, user, action: action.clone() });
        }
        let answer = perform_as(self.acting(user), client, handles, action);
        if !live.is_over() {
            self.recorder.push(Happened::Returned { client: live.id, call, answer: answer.clone() });
        }
        answer
    }
}

/// The action with its own paths in `root`.
pub(super) fn in_root(action: &Action, root: &str) -> Action {
    let mut action = action.clone();
    for path in action.paths_mut() {
        if let Some(rest) = path.strip_prefix(OWN) {
            *path = format!("{root}{rest}");
        }
    }
    action
}

/// Whether the handle that an action needs is open.
pub(super) fn fits(action: &Action, handles: &Handles) -> bool {
    match action {
        Action::Write { handle, .. }
        | Action::PunchHole { handle, .. }
        | Action::Read { handle, .. }
        | Action::Fsync { handle }
        | Action::Close { handle } => handles.contains_key(handle),
        _ => true,
    }
}
