//! Servers of a cluster in one process, over a shared directory and a monitor in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chiton_client::{Client, ClientOptions, OpenFlags};
use chiton_cluster::{Ended, Member, MemberError, MemberOptions, OnEnd};
use chiton_monitor::{
    Alive, AuditLine, ChangeError, ClusterMap, Condition, Liveness, MapChange, MemoryMonitor, Monitor,
    MonitorError, Watch,
};
use chiton_runtime::sync::Mutex;
use chiton_runtime::thread::sleep;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{DataAddress, FormatOptions, Server, ServerOptions, StartError};
use chiton_transport::Address;
use tempfile::TempDir;

const PLATES: u16 = 4;
const LEASE_MS: u32 = 600;
/// How often something is looked for that must come, and the time between.
const LOOKS: usize = 600;
const PAUSE: Duration = Duration::from_millis(50);

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

/// The way of one server to the monitor, which can be cut.
#[derive(Clone)]
struct Way {
    monitor: MemoryMonitor,
    is_cut: Arc<AtomicBool>,
    /// Cuts the way when the server has stopped a plate and is about to report its new server.
    is_cut_in_hand_over: Arc<AtomicBool>,
}

impl Way {
    fn check(&self) -> Result<(), MonitorError> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => Err(MonitorError::Unavailable("the test has cut the way".to_owned())),
            false => Ok(()),
        }
    }
}

struct CutLiveness(Way, Box<dyn Liveness>);

impl Liveness for CutLiveness {
    fn renew(&mut self) -> Result<(), MonitorError> {
        self.0.check()?;
        self.1.renew()
    }

    fn valid_for(&self) -> Duration {
        self.1.valid_for()
    }

    fn leave(self: Box<Self>) -> Result<(), MonitorError> {
        self.0.check()?;
        self.1.leave()
    }
}

impl Monitor for Way {
    fn init(&self, filesystem: u64, plates: u32, lease_ms: u32) -> Result<(), MonitorError> {
        self.monitor.init(filesystem, plates, lease_ms)
    }

    fn map(&self) -> Result<ClusterMap, MonitorError> {
        self.check()?;
        self.monitor.map()
    }

    fn change(
        &self,
        expected_epoch: u64,
        requires: &[Condition],
        changes: &[MapChange],
        who: &str,
        why: &str,
    ) -> Result<u64, ChangeError> {
        if why == "hand-over" && self.is_cut_in_hand_over.load(Ordering::SeqCst) {
            self.is_cut.store(true, Ordering::SeqCst);
        }
        self.check()?;
        self.monitor.change(expected_epoch, requires, changes, who, why)
    }

    fn history(&self, count: usize) -> Result<Vec<AuditLine>, MonitorError> {
        self.monitor.history(count)
    }

    fn register(&self, id: u64, generation: u64) -> Result<Box<dyn Liveness>, MonitorError> {
        self.check()?;
        Ok(Box::new(CutLiveness(self.clone(), self.monitor.register(id, generation)?)))
    }

    fn alive(&self) -> Result<Alive, MonitorError> {
        self.check()?;
        self.monitor.alive()
    }

    fn watch(&self, since_epoch: u64) -> Box<dyn Watch> {
        self.monitor.watch(since_epoch)
    }
}

struct Cluster {
    dir: TempDir,
    monitor: MemoryMonitor,
}

/// A server, the switch of its way to the monitor, and the reason if it has ended without being asked to.
struct Running {
    member: Member,
    is_cut: Arc<AtomicBool>,
    is_cut_in_hand_over: Arc<AtomicBool>,
    ended: Arc<Mutex<Option<Ended>>>,
}

impl Cluster {
    fn new() -> Cluster {
        let dir = tempfile::tempdir().expect("a directory");
        let user = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid: user, plates: PLATES, ..FormatOptions::default() };
        let data = DataAddress::Dir(dir.path().join("data"));
        let info = Server::format_for_cluster(&data, &options, "memory:", &world()).expect("formatted");
        let monitor = MemoryMonitor::new(world());
        monitor.init(info.filesystem, PLATES.into(), LEASE_MS).expect("a new monitor");
        Cluster { dir, monitor }
    }

    fn data(&self) -> DataAddress {
        DataAddress::Dir(self.dir.path().join("data"))
    }

    fn address(&self, number: usize) -> Address {
        Address::Unix(self.dir.path().join(format!("socket-{number}")))
    }

    fn options(&self, number: usize, is_standby: bool) -> MemberOptions {
        let log = Arc::new(move |line: &str| println!("at {number}: {line}"));
        MemberOptions {
            listen: vec![self.address(number)],
            advertise: Vec::new(),
            domain: String::new(),
            weight: None,
            is_standby,
            server: ServerOptions { log, grace_ms: 2_000, ..ServerOptions::default() },
        }
    }

    fn join(&self, number: usize, is_standby: bool) -> Running {
        let (is_cut, is_cut_in_hand_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let way = Way {
            monitor: self.monitor.clone(),
            is_cut: is_cut.clone(),
            is_cut_in_hand_over: is_cut_in_hand_over.clone(),
        };
        let ended: Arc<Mutex<Option<Ended>>> = Arc::default();
        let notes = ended.clone();
        let on_end: OnEnd = Arc::new(move |why| *notes.lock() = Some(why));
        let options = self.options(number, is_standby);
        let member = Member::join(Arc::new(way), &self.data(), options, world(), on_end).expect("joined");
        Running { member, is_cut, is_cut_in_hand_over, ended }
    }

    /// Waits until the plates of the map are dealt out like this: how many plates each server has, by its number in the map.
    fn await_plates(&self, wanted: &[(u64, usize)]) {
        let counts = || {
            let map = self.monitor.map().expect("a map");
            let of = |id: u64| map.plates.iter().filter(|plate| plate.owner == Some(id)).count();
            wanted.iter().map(|(id, _)| (*id, of(*id))).collect::<Vec<_>>()
        };
        await_that("plates", || counts() == wanted);
    }

    /// Decides that a plate goes to another server.
    fn hand_over(&self, plate: u32, to: u64) {
        let map = self.monitor.map().expect("a map");
        let owner = map.plates[plate as usize].owner;
        let change = MapChange::SetPlate { plate, owner, next: Some(to) };
        self.monitor.change(map.epoch, &[], &[change], "test", "a hand-over").expect("changed");
    }

    fn client(&self, numbers: &[usize]) -> Client {
        let addresses: Vec<Address> = numbers.iter().map(|number| self.address(*number)).collect();
        for _ in 0..LOOKS {
            let (addresses, options) = (addresses.clone(), ClientOptions::default());
            if let Ok(client) = Client::connect_to_any(Box::new(move || addresses.clone()), true, options) {
                return client;
            }
            sleep(PAUSE);
        }
        panic!("no server answers");
    }
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        sleep(PAUSE);
    }
    panic!("{what} did not come");
}

fn grow(client: &Client, name: &str) {
    for n in 0..12 {
        let dir = format!("{name}-{n}/below");
        client.mkdir_all(&dir).expect("made");
        client.write_file(format!("{dir}/file"), format!("{name} {n}").as_bytes()).expect("written");
    }
}

fn check(client: &Client, name: &str) {
    for n in 0..12 {
        let path = format!("{name}-{n}/below/file");
        let content = client.read_file(&path).unwrap_or_else(|refusal| panic!("{path}: {refusal}"));
        assert_eq!(content, format!("{name} {n}").as_bytes());
    }
}

/// S120: servers share the plates; one that leaves in order, or dies, is replaced by the others.
#[test]
fn plates_go_to_those_that_live() {
    let cluster = Cluster::new();
    let one = cluster.join(1, false);
    cluster.await_plates(&[(1, 4)]);
    let client = cluster.client(&[1, 2]);
    grow(&client, "alone");
    let two = cluster.join(2, false);
    assert_eq!((one.member.id(), two.member.id()), (1, 2));
    // Plates do not move because a server joins.
    cluster.await_plates(&[(1, 4), (2, 0)]);
    one.member.leave().expect("left in order");
    cluster.await_plates(&[(1, 0), (2, 4)]);
    check(&client, "alone");
    grow(&client, "moved");
    let root = client.caller();
    let fh = client.open_path("moved-3/below/file", OpenFlags::READ_WRITE).expect("opened");
    client.write(&root, fh, 0, b"MOVED").expect("written");
    // The same server again: it has its number still.
    let one = cluster.join(1, false);
    assert_eq!(one.member.id(), 1);
    two.member.abandon();
    cluster.await_plates(&[(1, 4), (2, 0)]);
    client.fsync(fh, false).expect("nothing is lost");
    check(&client, "alone");
    grow(&client, "again");
    client.sync().expect("nothing is lost");
    let other = cluster.client(&[1]);
    check(&other, "again");
    assert_eq!(other.read_file("moved-3/below/file").expect("read"), b"MOVED 3");
    let history = cluster.monitor.history(100).expect("history");
    assert!(history.iter().any(|line| line.why == "the lease of server 2 has ended"), "{history:?}");
    drop((client, other));
    one.member.leave().expect("left in order");
}

/// A standby takes all plates of the first server that dies, while those of others stay.
#[test]
fn standby_replaces_the_first_that_dies() {
    let cluster = Cluster::new();
    let one = cluster.join(1, true);
    // Alone the standby has to take them.
    cluster.await_plates(&[(1, 4)]);
    let two = cluster.join(2, false);
    cluster.await_plates(&[(1, 4), (2, 0)]);
    let client = cluster.client(&[1, 2]);
    grow(&client, "before");
    two.member.abandon();
    one.member.leave().expect("left");
    let three = cluster.join(3, false);
    cluster.await_plates(&[(3, 4)]);
    let client = cluster.client(&[3]);
    check(&client, "before");
    let four = cluster.join(4, true);
    three.member.abandon();
    cluster.await_plates(&[(4, 4)]);
    let client = cluster.client(&[3, 4]);
    check(&client, "before");
    four.member.leave().expect("left");
}

/// S121: a server that cannot reach the monitor stops answering before its lease ends, and knows it when others have its plates.
#[test]
fn without_a_lease_nothing_is_answered() {
    let cluster = Cluster::new();
    let one = cluster.join(1, false);
    cluster.await_plates(&[(1, 4)]);
    let client = cluster.client(&[1]);
    grow(&client, "before");
    client.sync().expect("durable");
    let two = cluster.join(2, false);
    one.is_cut.store(true, Ordering::SeqCst);
    cluster.await_plates(&[(1, 0), (2, 4)]);
    // The client knows the old server only; that one still runs, and does not answer.
    let late = Client::connect(&cluster.address(1), ClientOptions::default()).is_ok();
    assert!(!late, "a server without a lease has answered");
    one.is_cut.store(false, Ordering::SeqCst);
    await_that("the end", || one.ended.lock().is_some());
    assert_eq!(*one.ended.lock(), Some(Ended::LeaseLost));
    one.member.abandon();
    let one = cluster.join(1, false);
    let other = cluster.client(&[2]);
    check(&other, "before");
    check(&client, "before");
    two.member.leave().expect("left");
    one.member.leave().expect("left");
}

/// The monitor is away for a while, for all: answers wait, and resume when it is back, with the map as it was.
#[test]
fn all_wait_for_the_monitor() {
    let cluster = Cluster::new();
    let one = cluster.join(1, false);
    cluster.await_plates(&[(1, 4)]);
    let client = cluster.client(&[1]);
    grow(&client, "before");
    let epoch = cluster.monitor.map().expect("a map").epoch;
    for _ in 0..3 {
        // Longer than it may answer, shorter than its lease.
        one.is_cut.store(true, Ordering::SeqCst);
        sleep(Duration::from_millis(u64::from(LEASE_MS) / 2));
        one.is_cut.store(false, Ordering::SeqCst);
        sleep(Duration::from_millis(u64::from(LEASE_MS)));
    }
    grow(&client, "after");
    check(&client, "before");
    client.sync().expect("nothing is lost");
    assert_eq!(cluster.monitor.map().expect("a map").epoch, epoch);
    assert_eq!(*one.ended.lock(), None);
    one.member.leave().expect("left");
}

/// A server ends although nobody can say that it may still answer.
#[test]
fn a_server_leaves_while_the_monitor_is_away() {
    let cluster = Cluster::new();
    let one = cluster.join(1, false);
    cluster.await_plates(&[(1, 4)]);
    let client = cluster.client(&[1, 2]);
    grow(&client, "before");
    client.sync().expect("durable");
    one.is_cut.store(true, Ordering::SeqCst);
    sleep(Duration::from_millis(u64::from(LEASE_MS)));
    std::thread::scope(|scope| {
        // Its answer is held back, and it goes to the next server.
        let waiting = scope.spawn(|| client.write_file("late", b"late").and_then(|()| client.sync()));
        sleep(PAUSE);
        // It may report that the monitor is away; its data are durable all the same.
        let _ = one.member.leave();
        let two = cluster.join(2, false);
        waiting.join().expect("a worker").expect("nothing is lost");
        check(&client, "before");
        assert_eq!(client.read_file("late").expect("read"), b"late");
        two.member.leave().expect("left");
    });
}

/// S122: plates are handed over one by one while clients work.
#[test]
fn plates_are_handed_over_under_load() {
    let cluster = Cluster::new();
    let one = cluster.join(1, false);
    cluster.await_plates(&[(1, 4)]);
    let two = cluster.join(2, false);
    let is_over = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let client = cluster.client(&[1, 2]);
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut n = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        client.mkdir_all(format!("{worker}-{n}/below")).expect("made");
                        let content = n.to_string();
                        client
                            .write_file(format!("{worker}-{n}/below/file"), content.as_bytes())
                            .expect("written");
                        n += 1;
                    }
                    client.sync().expect("nothing is lost");
                    n
                })
            })
            .collect();
        for step in 0..8u32 {
            let (plate, to) = (step % 4, if step < 4 { 2 } else { 1 });
            cluster.hand_over(plate, to);
            await_that("the hand-over", || {
                let map = cluster.monitor.map().expect("a map");
                map.plates[plate as usize].owner == Some(to)
            });
            sleep(PAUSE);
        }
        is_over.store(true, Ordering::SeqCst);
        workers.into_iter().map(|worker| worker.join().expect("worked")).collect::<Vec<_>>()
    });
    let client = cluster.client(&[2]);
    for (worker, made) in made.into_iter().enumerate() {
        assert!(made > 0);
        for n in 0..made {
            let content = client.read_file(format!("{worker}-{n}/below/file")).expect("read");
            assert_eq!(content, n.to_string().as_bytes());
        }
    }
    drop(client);
    one.member.leave().expect("left");
    two.member.leave().expect("left");
}

/// The old owner dies after it has stopped the plate, before the map names the new one: an ordinary take-over.
#[test]
fn old_owner_that_dies_in_a_hand_over_loses_nothing() {
    let cluster = Cluster::new();
    let one = cluster.join(1, false);
    cluster.await_plates(&[(1, 4)]);
    let two = cluster.join(2, false);
    let client = cluster.client(&[1, 2]);
    grow(&client, "before");
    client.write_file("open", b"before 3").expect("written");
    let root = client.caller();
    let fh = client.open_path("open", OpenFlags::READ_WRITE).expect("opened");
    client.write(&root, fh, 0, b"BEFORE").expect("written");
    one.is_cut_in_hand_over.store(true, Ordering::SeqCst);
    (0..u32::from(PLATES)).for_each(|plate| cluster.hand_over(plate, 2));
    await_that("a plate that has stopped", || one.is_cut.load(Ordering::SeqCst));
    one.member.abandon();
    cluster.await_plates(&[(1, 0), (2, 4)]);
    client.fsync(fh, false).expect("nothing is lost");
    check(&client, "before");
    assert_eq!(client.read_file("open").expect("read"), b"BEFORE 3");
    grow(&client, "after");
    client.sync().expect("nothing is lost");
    check(&client, "after");
    let history = cluster.monitor.history(100).expect("history");
    assert!(history.iter().all(|line| line.why != "hand-over"), "{history:?}");
    drop(client);
    two.member.leave().expect("left");
}

/// The new owner dies while the old one prepares: the plates stay, or come back by a take-over.
#[test]
fn new_owner_that_dies_in_a_hand_over_loses_nothing() {
    let cluster = Cluster::new();
    let one = cluster.join(1, false);
    cluster.await_plates(&[(1, 4)]);
    let two = cluster.join(2, false);
    let client = cluster.client(&[1]);
    grow(&client, "before");
    (0..u32::from(PLATES)).for_each(|plate| cluster.hand_over(plate, 2));
    two.member.abandon();
    await_that("an end of the hand-overs", || {
        let plates = cluster.monitor.map().expect("a map").plates;
        plates.iter().all(|entry| (entry.owner, entry.next) == (Some(1), None))
    });
    check(&client, "before");
    grow(&client, "after");
    client.sync().expect("nothing is lost");
    check(&client, "after");
    drop(client);
    one.member.leave().expect("left");
}

/// The data of a cluster is nobody else's, and a server with other data is refused.
#[test]
fn servers_and_tools_outside_the_cluster_are_refused() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let error = Server::start(cluster.data(), ServerOptions::default(), world()).err();
    assert!(matches!(error, Some(StartError::Clustered { .. })), "{error:?}");
    let on_end: OnEnd = Arc::new(|_| {});
    let monitor: Arc<dyn Monitor> = Arc::new(other.monitor.clone());
    let refused = Member::join(monitor, &cluster.data(), cluster.options(1, false), world(), on_end).err();
    let text = refused.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(matches!(refused, Some(MemberError::Another { .. })) && text.contains("same storage"), "{text}");
}
