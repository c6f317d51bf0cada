//! A watch over the map and the living servers, which survives its connections.
//!
//! ```text
//!   catch up: map and increments of one revision ──▶ stream of what comes after that revision ──▶ events
//!        ▲                                                     │ lost, compacted, or an epoch is missing
//!        └─────────────────────────────────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chiton_monitor::{Event, MonitorError, Watch};
use etcd_client::{Client, Error, EventType, GetOptions, WatchOptions, WatchResponse, WatchStream};

use crate::calls::PATIENCE;
use crate::{Increments, Shared, StoredIncrement, map_of};

/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct EtcdWatch {
    shared: Arc<Shared>,
    /// The last that was put into `events`.
    epoch: u64,
    /// With the member that it comes from.
    stream: Option<(usize, WatchStream)>,
    events: VecDeque<Event>,
}

impl EtcdWatch {
    pub(crate) fn new(shared: Arc<Shared>, epoch: u64) -> EtcdWatch {
        EtcdWatch { shared, epoch, stream: None, events: VecDeque::new() }
    }

    /// May be dropped at any point and called again.
    async fn event(&mut self) -> Event {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let Some((member, stream)) = &mut self.stream else {
                let (member, mut client) = self.shared.calls.member();
                match tokio::time::timeout(PATIENCE, self.connect(&mut client)).await {
                    Ok(Ok((stream, events, epoch))) => {
                        self.stream = Some((member, stream));
                        self.epoch = epoch;
                        self.events.push_back(Event::Servers);
                        self.events.extend(events);
                    }
                    _ => {
                        self.shared.calls.leave(member);
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                continue;
            };
            let member = *member;
            let message = stream.message().await;
            let is_well = match &message {
                Ok(Some(response)) if !response.canceled() => self.take(response),
                _ => {
                    self.shared.calls.leave(member);
                    false
                }
            };
            if !is_well {
                self.stream = None;
            }
        }
    }

    /// The events since the last epoch, the epoch that they lead to, and a stream of later events.
    async fn connect(&self, client: &mut Client) -> Result<(WatchStream, Vec<Event>, u64), Error> {
        let keys = &self.shared.keys;
        let found = client.get(keys.map(), None).await?;
        let revision = found.header().map_or(0, |header| header.revision());
        let corrupt = |e: MonitorError| Error::Internal(e.to_string());
        let map = found.kvs().first().map(|kv| map_of(kv.value())).transpose().map_err(corrupt)?;
        let mut events = Vec::new();
        let mut epoch = self.epoch;
        if let Some(map) = map.filter(|map| map.epoch != self.epoch) {
            let since = GetOptions::new().with_range(keys.increment(u64::MAX)).with_revision(revision);
            let found = client.get(keys.increment(self.epoch + 1), Some(since)).await?;
            let increments = found
                .kvs()
                .iter()
                .map(|kv| {
                    StoredIncrement::from_json(kv.value())
                        .map(|stored| (stored.increment.to, stored.increment))
                })
                .collect::<Result<Increments, _>>()
                .map_err(corrupt)?;
            let missed = map.epoch.checked_sub(self.epoch).filter(|_| self.epoch > 0);
            epoch = map.epoch;
            match missed == Some(increments.len() as u64) {
                true => events.extend(increments.into_values().map(Event::Map)),
                false => events.push(Event::Whole(map)),
            }
        }
        let after = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
        let stream = client.watch(keys.events(), Some(after)).await?;
        Ok((stream, events, epoch))
    }

    /// Takes the events of a message; false if an epoch is missing.
    fn take(&mut self, response: &WatchResponse) -> bool {
        let keys = &self.shared.keys;
        let (living, increments) = (keys.living(), keys.increments());
        for event in response.events() {
            let Some(kv) = event.kv() else { continue };
            if kv.key().starts_with(living.as_bytes()) {
                if self.events.back() != Some(&Event::Servers) {
                    self.events.push_back(Event::Servers);
                }
            } else if event.event_type() == EventType::Put && kv.key().starts_with(increments.as_bytes()) {
                match StoredIncrement::from_json(kv.value()) {
                    Ok(stored) if stored.increment.from == self.epoch && self.epoch > 0 => {
                        self.epoch = stored.increment.to;
                        self.events.push_back(Event::Map(stored.increment));
                    }
                    _ => return false,
                }
            }
        }
        true
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self, timeout: Duration) -> Option<Event> {
        chiton_async::block_on(async { tokio::time::timeout(timeout, self.event()).await.ok() })
    }
}
