//! The cost of creating files in one directory for one client, under whole compositions of mechanisms. The cost of
//! a mechanism is the difference of two compositions, computed where it is drawn, as in the paper.

use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Realm, Realms, RealmsOptions};
use chiton_runtime::RealWorld;
use chiton_server::{Server, ServerOptions};
use chiton_types::Ino;

use crate::load::create;
use crate::setting::{now, processor_time, timed};
use crate::site::{Shape, Site, refused, set_policy};
use crate::{Result, Setting};

/// How large the directory was when.
pub(crate) struct Grown {
    /// Number of entries.
    pub(crate) entries: usize,
    /// Seconds since the directory was empty.
    pub(crate) seconds: f64,
    /// The same in processor time of the creating thread, which other load does not affect.
    pub(crate) processor: f64,
}

/// A series with a growing number of entries.
pub(crate) type Growth = Vec<Grown>;

/// The times of a client.
pub(crate) struct Created {
    /// Seconds until all files were created, and as durable as the policy says.
    pub(crate) seconds: f64,
    /// The growth of the directory meanwhile.
    pub(crate) growth: Growth,
}

/// Remote procedure calls, one in flight.
pub(crate) fn strong(setting: &Setting, policy: &str, shape: Shape, names: &[String]) -> Result<Created> {
    let site = Site::start(setting, shape)?;
    let party = site.party("state")?;
    let dir = party.mkdir("/job")?;
    set_policy(&party.client, dir, policy)?;
    created(&party.client, dir, names)
}

/// Creates in a decoupled subtree without a merge.
pub(crate) fn appended(setting: &Setting, policy: &str, names: &[String]) -> Result<Created> {
    let site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let realm = party.take("/job", policy)?;
    let created = created(realm.client(), realm.root(), names)?;
    realm.abandon();
    Ok(created)
}

fn created(client: &Client, dir: Ino, names: &[String]) -> Result<Created> {
    let (growth, seconds) = timed(|| {
        let growth = grow(client, dir, names)?;
        client.sync().map_err(refused)?;
        Ok(growth)
    })?;
    Ok(Created { seconds, growth })
}

/// The times of a decoupled client.
pub(crate) struct Alone {
    /// Seconds until all files were created, and as durable as the policy says.
    pub(crate) created: f64,
    /// Seconds of the merge.
    pub(crate) merged: f64,
    /// Length of the journal before the merge.
    pub(crate) journal_bytes: u64,
}

/// Creates in a subtree that the client has for itself, and a merge by the server.
pub(crate) fn alone(setting: &Setting, policy: &str, names: &[String]) -> Result<Alone> {
    let site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let realm = party.take("/job", policy)?;
    let created = created(realm.client(), realm.root(), names)?.seconds;
    let journal_bytes = realm.status().journal_bytes;
    let ((), merged) = timed(|| merge(&realm))?;
    Ok(Alone { created, merged, journal_bytes })
}

/// The times of a decoupled client whose journal was merged while no server ran.
pub(crate) struct Offline {
    /// Seconds until all files were made, and their journal lay in the object store.
    pub(crate) created: f64,
    /// Seconds in which a process without clients opened the file system, merged the journal, and closed it.
    pub(crate) applied: f64,
}

/// Creates in a subtree that the client has for itself, and a merge after the server's end.
pub(crate) fn offline(setting: &Setting, policy: &str, names: &[String]) -> Result<Offline> {
    let mut site = Site::start(setting, Shape::default())?;
    let party = site.party("state")?;
    let realm = party.take("/job", policy)?;
    let created = created(realm.client(), realm.root(), names)?.seconds;
    let id = realm.id();
    drop(realm);
    if let Some(error) = party.realms.close().pop() {
        return Err(error.to_string().into());
    }
    drop(party);
    site.end_server()?;
    let data = site.path("data");
    let ((), applied) = timed(|| {
        let server = Server::start(data.as_path(), ServerOptions::default(), Arc::new(RealWorld))
            .map_err(|e| e.to_string())?;
        let client =
            Arc::new(chiton_embedded::client(&server, ClientOptions::default()).map_err(|e| e.to_string())?);
        let options = RealmsOptions {
            state_dir: site.path("tool"),
            client: ClientOptions::default(),
            accept_truncated: false,
        };
        let realms = Realms::new(client.clone(), options);
        let realm = realms.adopt(id).map_err(|e| e.to_string())?;
        merge(&realm)?;
        client.sync().map_err(refused)?;
        drop((realm, realms, client));
        Ok(server.shutdown()?)
    })?;
    Ok(Offline { created, applied })
}

/// All of it, and nothing may be lost.
fn merge(realm: &Realm) -> Result<()> {
    let report = realm.merge(&|_| {}).map_err(|e| e.to_string())?;
    if !report.ended || report.lost_count > 0 {
        return Err(format!("it was not merged: {report:?}").into());
    }
    Ok(())
}

/// Creates them all, and notes the time at 10, 20, 50, 100, … entries and at the end.
fn grow(client: &Client, dir: Ino, names: &[String]) -> Result<Growth> {
    let (begun, processor, mut growth, mut made) = (now(), processor_time(), Growth::new(), 0);
    for entries in marks(names.len()) {
        create(client, dir, &names[made..entries])?;
        made = entries;
        let (seconds, processor) = ((now() - begun).as_secs_f64(), processor_time() - processor);
        growth.push(Grown { entries, seconds, processor });
    }
    Ok(growth)
}

/// 10, 20, 50, 100, … below the number, and the number.
fn marks(last: usize) -> Vec<usize> {
    let decades = (1..).map(|decade| 10_usize.pow(decade)).take_while(|decade| *decade < last);
    let mut marks: Vec<usize> =
        decades.flat_map(|decade| [1, 2, 5].map(|n| n * decade)).filter(|mark| *mark < last).collect();
    marks.push(last);
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_rise_to_the_last() {
        assert_eq!(marks(100), [10, 20, 50, 100]);
        assert_eq!(marks(60), [10, 20, 50, 60]);
        assert_eq!(marks(1_000_000).len(), 16);
        assert_eq!((marks(1), marks(10)), (vec![1], vec![10]));
    }
}
