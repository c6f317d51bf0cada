//! Calls to the members of an etcd.
//!
//! Invariants: a failure that another member may not have moves all later calls there; a call ends within its time.

use std::error::Error as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chiton_monitor::MonitorError;
use etcd_client::{Client, ConnectOptions, Error};

use crate::address::EtcdAddress;

/// How long a call may take, with everything that it tries.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long one member may take to answer. Elections take about a second.
const TRY: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// A connection is checked when it was silent for so long, and is over if nothing comes in the same time.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

pub(crate) struct Calls {
    members: Vec<Client>,
    names: Vec<String>,
    /// The member that is asked.
    now: AtomicUsize,
}

impl Calls {
    pub(crate) fn open(address: &EtcdAddress) -> Result<Calls, MonitorError> {
        let options = ConnectOptions::new()
            .with_connect_timeout(TRY / 2)
            .with_keep_alive(KEEP_ALIVE, KEEP_ALIVE)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        let open = |member: &String| {
            let (member, options) = (format!("http://{member}"), Some(options.clone()));
            chiton_async::block_on(Client::connect([member], options))
        };
        let members = address.members.iter().map(open).collect::<Result<_, _>>();
        let members = members.map_err(|e| MonitorError::Unavailable(format!("{address}: {}", words(&e))))?;
        Ok(Calls { members, names: address.members.clone(), now: AtomicUsize::new(0) })
    }

    /// The member that is asked now, to be given to [`Calls::leave`].
    pub(crate) fn member(&self) -> (usize, Client) {
        let now = self.now.load(Ordering::Relaxed);
        (now, self.members[now].clone())
    }

    /// This member failed: another is asked from now on.
    pub(crate) fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        // Another thread may have left it already.
        let _ = self.now.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Does the call, again with other members after failures that pass. It may happen more than once.
    pub(crate) fn call<T>(
        &self,
        patience: Duration,
        call: impl AsyncFn(&mut Client) -> Result<T, Error>,
    ) -> Result<T, MonitorError> {
        chiton_async::block_on(async {
            let mut failure = "no answer".to_owned();
            let tries = async {
                loop {
                    let (member, mut client) = self.member();
                    let name = &self.names[member];
                    match tokio::time::timeout(TRY.min(patience / 2), call(&mut client)).await {
                        Ok(Ok(done)) => return Ok(done),
                        Ok(Err(error)) if !passes(&error) => {
                            return Err(MonitorError::Unavailable(format!(
                                "etcd at {name} refuses: {}; its log says more",
                                words(&error)
                            )));
                        }
                        Ok(Err(error)) => failure = format!("etcd at {name}: {}", words(&error)),
                        Err(_) => failure = format!("etcd at {name} is silent"),
                    }
                    self.leave(member);
                    tokio::time::sleep(PAUSE).await;
                }
            };
            match tokio::time::timeout(patience, tries).await {
                Ok(result) => result,
                Err(_) => Err(MonitorError::Unavailable(format!(
                    "{failure}; start etcd there, or name the etcd of the cluster (--monitor)"
                ))),
            }
        })
    }
}

/// A failure and the chain of its causes. A status of gRPC would show its cause with the names of types.
pub(crate) fn words(error: &Error) -> String {
    let (first, mut cause): (String, Option<&dyn std::error::Error>) = match error {
        Error::GRpcStatus(status) if status.message().is_empty() => {
            (status.code().to_string(), status.source())
        }
        Error::GRpcStatus(status) => (status.message().to_owned(), status.source()),
        Error::TransportError(error) => (error.to_string(), error.source()),
        other => (other.to_string(), None),
    };
    let mut words = first;
    while let Some(error) = cause {
        let more = error.to_string();
        // Some repeat their cause.
        if !words.ends_with(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

/// Whether the same call may succeed later, or elsewhere.
pub(crate) fn passes(error: &Error) -> bool {
    // The codes of gRPC.
    const CANCELLED: i32 = 1;
    const UNKNOWN: i32 = 2;
    const DEADLINE_EXCEEDED: i32 = 4;
    const ABORTED: i32 = 10;
    const INTERNAL: i32 = 13;
    const UNAVAILABLE: i32 = 14;
    match error {
        Error::GRpcStatus(status) => matches!(
            status.code() as i32,
            CANCELLED | UNKNOWN | DEADLINE_EXCEEDED | ABORTED | INTERNAL | UNAVAILABLE
        ),
        Error::InvalidArgs(_) | Error::InvalidUri(_) => false,
        _ => true,
    }
}
