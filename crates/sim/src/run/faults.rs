//! Carries out a fault, from its beginning to its end.

use std::sync::Arc;
use std::time::Duration;

use chiton_runtime::thread;
use chiton_types::PlateId;

use super::Cluster;
use crate::disk::DiskFaults;
use crate::history::{ClientId, Happened};
use crate::net::Weather;
use crate::plan::Fault;
use crate::scheduler::scheduler;

/// So long a death waits for a step of a split or fold: after an earlier death nobody may work until sessions end.
const STEP_BEGINS: Duration = Duration::from_secs(30);

impl Cluster {
    /// A fault, from its beginning to its end.
    pub(super) fn happens(self: &Arc<Cluster>, fault: &Fault) {
        let disk = &self.rig.disk;
        match fault {
            Fault::CrashServer { down } => {
                self.crash_server();
                thread::sleep(*down);
                self.start();
            }
            Fault::CrashPlate { plate, amid, down } => {
                if let Some(after) = amid {
                    let begins = disk.await_step(PlateId(*plate), STEP_BEGINS);
                    self.recorder.line(format!("plate {plate}: a split or fold begins: {begins}"));
                    thread::sleep(*after);
                }
                self.plate_dies(PlateId(*plate), *down);
            }
            Fault::RestartServer { down } => {
                let live = self.serving.lock().live.take();
                if let Some(live) = live {
                    self.serving.lock().busy = true;
                    scheduler().pause(live.party, false);
                    if let Err(why) = live.shutdown(&self.rig) {
                        self.recorder.line(format!("shutdown: {why}"));
                    }
                    if !self.plan.setup.whole {
                        self.rig.disk.crash();
                    }
                    self.serving.lock().busy = false;
                }
                thread::sleep(*down);
                self.start();
            }
            Fault::PauseServer { time } => {
                let found = self.serving.lock().live.as_ref().map(|live| (live.party, live.id));
                if let Some((party, server)) = found {
                    scheduler().pause(party, true);
                    self.recorder.push(Happened::ServerPaused { server });
                    thread::sleep(*time);
                    scheduler().pause(party, false);
                    self.recorder.push(Happened::ServerResumed { server });
                }
            }
            Fault::TakeOver { time } => self.take_over(*time),
            Fault::CrashClient { client, down, late } => {
                let program = &self.clients[*client];
                let live = program.live.lock().take();
                let Some(live) = live.filter(|live| !live.is_over()) else { return };
                live.crash(&self.rig.net, &self.recorder, *late);
                self.power_lost(*client);
                thread::sleep(*down);
                self.begin_client(*client);
            }
            Fault::PauseClient { client, time } => {
                let party = self.clients[*client].live.lock().as_ref().map(|live| live.party);
                if let Some(party) = party {
                    scheduler().pause(party, true);
                    thread::sleep(*time);
                    scheduler().pause(party, false);
                }
            }
            Fault::Cut { client, late } => self.rig.net.cut_client(ClientId(*client as u32), *late),
            Fault::Isolate { client, time } => {
                self.rig.net.set_isolated(ClientId(*client as u32), true);
                thread::sleep(*time);
                self.rig.net.set_isolated(ClientId(*client as u32), false);
            }
            Fault::BadWeather { time, cuts, delay_us_max } => {
                self.rig.net.set_weather(Weather { delay_us: (30, *delay_us_max), cuts: *cuts });
                thread::sleep(*time);
                self.good_weather();
            }
            Fault::SlowDisk { time, slowness } => {
                self.for_a_while(*time, DiskFaults { slowness: *slowness, ..disk.faults() })
            }
            Fault::SilentDisk { time, often, refuses } => {
                let silent = DiskFaults { place_silent: *often, objects_silent: *often, ..disk.faults() };
                self.for_a_while(*time, DiskFaults { refuses: *refuses, ..silent });
            }
            Fault::RowsFail { time, often } => {
                self.for_a_while(*time, DiskFaults { rows_fail: *often, ..disk.faults() })
            }
            Fault::JournalFails { time, often } => {
                self.for_a_while(*time, DiskFaults { place_fail: *often, ..disk.faults() });
                if self.is_failed() {
                    self.crash_server();
                    self.start();
                }
            }
            Fault::FullDisk { time } => self.for_a_while(*time, DiskFaults { full: true, ..disk.faults() }),
            Fault::SetClock { wrong_ms } => {
                self.recorder.push(Happened::ClockSet);
                if let Some(live) = &self.serving.lock().live {
                    live.world.set_wrong(wrong_ms * 1_000_000);
                }
            }
        }
    }

    /// One plate dies and starts again, unless its server ends before.
    fn plate_dies(&self, plate: PlateId, down: Duration) {
        let live = {
            let mut serving = self.serving.lock();
            if serving.busy {
                return;
            }
            let Some(live) = serving.live.take() else { return };
            // Nothing else happens to the server meanwhile.
            serving.busy = true;
            live
        };
        live.crash_plate(&self.rig, plate);
        thread::sleep(down);
        let started = live.start_plate(&self.rig, plate);
        {
            let mut serving = self.serving.lock();
            serving.busy = false;
            serving.live = Some(live);
        }
        if let Err(why) = started {
            self.recorder.line(format!("plate {plate} does not start: {why}"));
            // An administrator starts the server anew.
            self.crash_server();
            self.start();
        }
    }

    pub(super) fn good_weather(&self) {
        self.rig.net.set_weather(Weather { delay_us: (30, self.plan.setup.delay_us_max), cuts: 0 });
    }

    fn for_a_while(&self, time: Duration, faults: DiskFaults) {
        self.rig.disk.set_faults(faults);
        thread::sleep(time);
        self.rig.disk.set_faults(DiskFaults::GOOD);
    }

    /// The server stands still, and another one takes its place.
    fn take_over(&self, time: Duration) {
        let first = {
            let mut serving = self.serving.lock();
            let Some(live) = serving.live.take() else { return };
            serving.servers += 1;
            live
        };
        scheduler().pause(first.party, true);
        self.recorder.push(Happened::ServerPaused { server: first.id });
        self.rig.net.hide();
        self.start();
        thread::sleep(time);
        scheduler().pause(first.party, false);
        self.recorder.push(Happened::ServerResumed { server: first.id });
        // A client with an old connection may still ask it; it may answer, but acknowledge nothing.
        thread::sleep(Duration::from_secs(2));
        first.crash(&self.rig);
    }
}
