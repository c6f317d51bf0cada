//! Giving up a wait for a lock: the signal that interrupts fcntl(2) arrives on another thread.

use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::sync::{Condvar, Mutex};
use chiton_types::Cred;
use chiton_wire::Call;

use crate::service::Service;

/// A cancellation is sent again so often, in case it has overtaken its request.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    /// Number of the request that waits for the lock.
    request: Option<u64>,
    cancelled: bool,
    /// The service that knows the request by that number, if it is one of several.
    through: Option<Arc<dyn Service>>,
    over: bool,
}

/// Handed to a call that may wait; cancels it.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<(Mutex<State>, Condvar)>);

impl CancelToken {
    /// A fresh token, for one call.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// For services: the call waits as request `request`. False if it is cancelled already; then it must not wait.
    pub fn waits_as(&self, request: u64) -> bool {
        let mut state = self.0.0.lock();
        state.request = Some(request);
        !state.cancelled
    }

    /// For services that pass calls on: the call waits at this one.
    pub(crate) fn waits_at(&self, service: &Arc<dyn Service>) {
        self.0.0.lock().through = Some(service.clone());
    }

    /// A service calls this when the call has returned.
    pub fn over(&self) {
        let mut state = self.0.0.lock();
        (state.over, state.through) = (true, None);
        drop(state);
        self.0.1.notify_all();
    }

    pub(crate) fn cancel(&self, service: &dyn Service) {
        let mut state = self.0.0.lock();
        state.cancelled = true;
        while !state.over {
            let Some(id) = state.request else { return };
            let through = state.through.clone();
            chiton_runtime::sync::without_lock(&mut state, || {
                let service = through.as_deref().unwrap_or(service);
                // An error means that the link is down: the request is asked anew later, and so are we.
                drop(service.call(&Cred::ROOT, Call::CancelLock { id }));
            });
            if !state.over {
                self.0.1.wait_for(&mut state, AGAIN_AFTER);
            }
        }
    }
}
