//! The first session of a client with a plate.

use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::{World, thread};
use chiton_wire::{Channel, RefuseReason, Welcome};

use crate::ConnectError;
use crate::connected::{ConnectedOptions, hello};
use crate::wire::{Dialer, RecallWire, Wire};

/// Pause between two attempts to reach a server that is not ready.
const READY_PAUSE: Duration = Duration::from_millis(50);

/// The connections of a session that has begun.
pub(crate) struct Begun {
    pub(crate) welcome: Welcome,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) recall: Arc<dyn RecallWire>,
    /// Monotonic time at which the greeting was sent.
    pub(crate) sent: Duration,
}

/// Begins a session. While the plate moves from one server to another there may be none that runs it: it is asked again until the time
/// is over.
pub(crate) fn begin(
    dialer: &dyn Dialer,
    options: &ConnectedOptions,
    world: &dyn World,
) -> Result<Begun, ConnectError> {
    loop {
        let sent = world.monotonic();
        let failure = match begin_once(dialer, options, sent)? {
            Ok(begun) => return Ok(begun),
            Err(failure) => failure,
        };
        if world.monotonic() >= options.ready_by {
            return Err(failure);
        }
        thread::sleep(READY_PAUSE);
    }
}

/// One attempt. The inner error passes when the plate runs.
fn begin_once(
    dialer: &dyn Dialer,
    options: &ConnectedOptions,
    sent: Duration,
) -> Result<Result<Begun, ConnectError>, ConnectError> {
    let (welcome, wire) = dialer.dial(&hello(options, Channel::Main, None)).map_err(ConnectError)?;
    let (session, secret) = match &welcome {
        Welcome::Accepted { session, secret, .. } => (*session, *secret),
        Welcome::Refused { reason: RefuseReason::NotReady, message } => {
            return Ok(Err(ConnectError(message.clone())));
        }
        Welcome::Refused { message, .. } => return Err(ConnectError(message.clone())),
        Welcome::Elsewhere { addresses, .. } => {
            let there = addresses.join(" or ");
            return Err(ConnectError(format!("another server has the plate; connect to {there}")));
        }
    };
    let greeting = hello(options, Channel::Recall, Some((session, secret)));
    match (wire, dialer.dial_recall(&greeting).map_err(ConnectError)?) {
        (Some(wire), (Welcome::Accepted { .. }, Some(recall))) => {
            Ok(Ok(Begun { welcome, wire, recall, sent }))
        }
        // The plate has stopped since, and the session begins anew where it runs next.
        _ => Ok(Err(ConnectError("the server refuses the channel for recalls".into()))),
    }
}
