//! A service that knows what others keep to themselves, and refuses it without asking.
//!
//! ```text
//!   call ─▶ known to be kept from us, and the lease on its root holds? ─yes─▶ EBUSY, no message
//!              │ no
//!              ▼
//!           asked ─ EBUSY ─▶ the root in the way (BlockedBy)? ─▶ noted: inode, name ─▶ root
//! ```
//!
//! A subtree that another client has decoupled under `interfere_policy: block` costs those who try their luck in it one refusal for each
//! inode and name, and the server nothing after that.
//!
//! Invariants:
//! - A refusal is believed as long as the lease on the root that came with it: the server asks for it back before
//!   the decoupling ends, and waits. While there is one, the root and everything below it stay where they are.
//! - A call that the server refuses for another reason is asked each time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use chiton_model::Op;
use chiton_runtime::SharedWorld;
use chiton_runtime::sync::Mutex;
use chiton_types::{Attr, Cred, Ino, Mode, Name, PlateId, Refusal, SessionId};
use chiton_wire::{Answer, Blocked, Call, Query, RealmAnswer, RealmCall};
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::decorator::Decorator;
use crate::recalls::{Mark, Recalls};
use crate::service::{CallError, Service, Underway, ready};

/// Inodes and names noted; when there are more all are found out anew.
const NOTED_MAX: usize = 65_536;
/// A client that was given no lease does not ask for one again sooner.
const PATIENCE: Duration = Duration::from_millis(100);

pub(crate) struct ExclusionCache(Arc<Knowing>);

/// The state that it shares with calls that are under way.
struct Knowing {
    inner: Arc<dyn Service>,
    world: SharedWorld,
    /// Something is noted; read without the lock.
    is_any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Inodes that lie in a root.
    inodes: HashMap<Ino, Note>,
    /// Names that stand for roots.
    names: HashMap<(Ino, Name), Note>,
    /// Not before then anything is found out.
    patience: Duration,
}

/// A subtree that keeps us out. Each has a mark of its own: an inode in a root before its lease was recalled may be elsewhere when
/// there is a lease again.
#[derive(Clone, Copy)]
struct Note {
    root: Ino,
    only_writes: bool,
    /// Taken before the lease on the root was asked for.
    mark: Mark,
}

impl Note {
    fn refuses(&self, changes: bool, recalls: &Recalls) -> bool {
        (changes || !self.only_writes) && !recalls.recalled_since(self.mark, self.root)
    }
}

/// The inodes and the name by which a call is recognized.
#[derive(Default)]
struct Touched {
    inodes: SmallVec<[(Ino, bool); 2]>,
    /// Looked up: the name, in the only inode.
    name: Option<Name>,
}

impl Touched {
    fn of(call: &Call) -> Touched {
        let mut touched = Touched::default();
        let visit = |ino, changes| {
            touched.inodes.push((ino, changes));
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(()) = match call {
            Call::Op { op, .. } => op.footprint().visit(visit),
            call => call.visit_footprint(visit),
        };
        if let Call::Query(Query::Lookup { name, .. }) = call {
            touched.name = Some(name.clone());
        }
        touched
    }
}

impl ExclusionCache {
    pub(crate) fn new(inner: Arc<dyn Service>, world: SharedWorld) -> ExclusionCache {
        let is_any = AtomicBool::new(false);
        ExclusionCache(Arc::new(Knowing { inner, world, is_any, known: Mutex::default() }))
    }

    fn ask(
        &self,
        call: Call,
        ask: impl FnOnce(Call) -> Result<Answer, CallError>,
    ) -> Result<Answer, CallError> {
        let touched = Touched::of(&call);
        if self.0.refuses(&touched) {
            return Err(Refusal::Busy.into());
        }
        let answer = ask(call);
        self.0.learn(&touched, &answer);
        answer
    }
}

impl Knowing {
    /// True if it is known that a call that touches this is refused.
    fn refuses(&self, touched: &Touched) -> bool {
        if !self.is_any.load(Ordering::Acquire) {
            return false;
        }
        let now = self.world.monotonic();
        if touched.inodes.iter().any(|(ino, _)| now >= self.inner.valid_until(*ino)) {
            return false;
        }
        let known = self.known.lock();
        let recalls = self.inner.recalls();
        let mut inodes = touched.inodes.iter();
        if inodes.any(|(ino, changes)| known.refuses(*ino, *changes, recalls)) {
            return true;
        }
        match (touched.inodes.first(), &touched.name) {
            (Some((dir, _)), Some(name)) => known.refuses_name(*dir, name, recalls),
            _ => false,
        }
    }

    /// If that was refused: finds the root in the way, so that the server need not be asked again.
    fn learn(&self, touched: &Touched, answer: &Result<Answer, CallError>) {
        let now = self.world.monotonic();
        if !matches!(answer, Err(CallError::Refused(Refusal::Busy))) || now < self.known.lock().patience {
            return;
        }
        for (ino, _) in &touched.inodes {
            let mark = self.inner.recalls().now();
            let ask = RealmCall::BlockedBy { ino: *ino, name: touched.name.clone() };
            let answer = self.inner.call(&Cred::ROOT, Call::Realm(Box::new(ask)));
            let Ok(Answer::Realm(RealmAnswer::BlockedBy(Some(blocked)))) = answer else { continue };
            let mut known = self.known.lock();
            if blocked.leased {
                known.note(*ino, touched.name.as_ref(), blocked, mark);
                self.is_any.store(true, Ordering::Release);
            } else {
                known.patience = now + PATIENCE;
            }
        }
    }
}

impl Known {
    fn note(&mut self, ino: Ino, name: Option<&Name>, blocked: Blocked, mark: Mark) {
        if self.inodes.len() + self.names.len() >= NOTED_MAX {
            *self = Known::default();
        }
        let Blocked { root, only_writes, is_name, .. } = blocked;
        let note = Note { root, only_writes, mark };
        match name {
            Some(name) if is_name => drop(self.names.insert((ino, name.clone()), note)),
            _ => drop(self.inodes.insert(ino, note)),
        }
    }

    fn refuses(&self, ino: Ino, changes: bool, recalls: &Recalls) -> bool {
        self.inodes.get(&ino).is_some_and(|note| note.refuses(changes, recalls))
    }

    fn refuses_name(&self, dir: Ino, name: &Name, recalls: &Recalls) -> bool {
        self.names.get(&(dir, name.clone())).is_some_and(|note| note.refuses(false, recalls))
    }
}

impl Decorator for ExclusionCache {
    fn inner(&self) -> &dyn Service {
        &*self.0.inner
    }
}

impl Service for ExclusionCache {
    fn call(&self, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.ask(call, |call| self.inner().call(cred, call))
    }

    fn call_in(&self, session: SessionId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.ask(call, |call| self.inner().call_in(session, cred, call))
    }

    fn call_at(&self, plate: PlateId, cred: &Cred, call: Call) -> Result<Answer, CallError> {
        self.ask(call, |call| self.inner().call_at(plate, cred, call))
    }

    fn call_cancellable(
        &self,
        cred: &Cred,
        call: Call,
        token: &crate::CancelToken,
    ) -> Result<Answer, CallError> {
        self.inner().call_cancellable(cred, call, token)
    }

    fn start(&self, cred: &Cred, call: Call) -> Box<dyn Underway> {
        let touched = Touched::of(&call);
        if self.0.refuses(&touched) {
            return ready(Err(Refusal::Busy.into()));
        }
        let underway = self.inner().start(cred, call);
        Box::new(Learning { underway, touched, knowing: self.0.clone() })
    }

    fn create_lazily(&self, cred: &Cred, parent: Ino, names: &[&[u8]], mode: Mode) -> Vec<Attr> {
        self.inner().create_lazily(cred, parent, names, mode)
    }

    fn write_locally(&self, cred: &Cred, op: &Op, known: &Attr) -> Option<Attr> {
        self.inner().write_locally(cred, op, known)
    }
}

/// A call under way. The thread that waits for it learns from its refusal; a thread that polls must not be held up.
struct Learning {
    underway: Box<dyn Underway>,
    touched: Touched,
    knowing: Arc<Knowing>,
}

impl Future for Learning {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut *self.underway).poll(cx)
    }
}

impl Underway for Learning {
    fn wait(self: Box<Self>) -> Result<Answer, CallError> {
        let answer = self.underway.wait();
        self.knowing.learn(&self.touched, &answer);
        answer
    }
}
