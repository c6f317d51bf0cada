//! A server's lease.

use std::sync::Arc;
use std::time::Duration;

use chiton_monitor::{Liveness, MonitorError};
use etcd_client::Error;

use crate::Shared;
use crate::calls::PATIENCE;

pub(crate) struct EtcdLiveness {
    shared: Arc<Shared>,
    id: u64,
    lease: i64,
    valid_for: Duration,
}

impl EtcdLiveness {
    /// `seconds`: the time to live that etcd granted.
    pub(crate) fn new(shared: Arc<Shared>, id: u64, lease: i64, seconds: i64) -> EtcdLiveness {
        let valid_for = Duration::from_secs(seconds.max(0).unsigned_abs());
        EtcdLiveness { shared, id, lease, valid_for }
    }
}

impl Liveness for EtcdLiveness {
    fn renew(&mut self) -> Result<(), MonitorError> {
        let lease = self.lease;
        // The caller tries again well before the lease ends.
        let is_alive = self.shared.calls.call(self.valid_for / 3, async |client| {
            match client.lease_keep_alive(lease).await {
                Ok(_) => Ok(true),
                // Each stream begins with an answer, and this is the library's word for a lease that is over.
                Err(Error::LeaseKeepAliveError(why)) if why.contains("not found") => Ok(false),
                Err(error) => Err(error),
            }
        })?;
        if is_alive { Ok(()) } else { Err(MonitorError::Expired { id: self.id }) }
    }

    fn valid_for(&self) -> Duration {
        self.valid_for
    }

    fn leave(self: Box<Self>) -> Result<(), MonitorError> {
        let lease = self.lease;
        self.shared.calls.call(PATIENCE, async |client| match client.lease_revoke(lease).await {
            // It has ended already, perhaps by an earlier try.
            Err(Error::GRpcStatus(status)) if status.message().contains("lease not found") => Ok(()),
            result => result.map(drop),
        })
    }
}
