//! How large a figure is, and where its data go.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chiton_runtime::{RealWorld, World};

use crate::{Result, Table, policies};

/// The amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The least that goes through every step: for tests. Its figures mean nothing.
    Smallest,
    /// All figures in less than five minutes.
    Small,
    /// As the paper, three runs of each.
    Full,
}

impl Scale {
    /// The value for this scale.
    pub fn pick<T>(self, smallest: T, small: T, full: T) -> T {
        match self {
            Scale::Smallest => smallest,
            Scale::Small => small,
            Scale::Full => full,
        }
    }

    pub fn runs(self) -> usize {
        self.pick(1, 2, 3)
    }

    pub fn clients(self) -> &'static [usize] {
        self.pick(&[1, 2], &[1, 5, 10, 20], &[1, 5, 10, 15, 20])
    }
}

/// The setting of all figures.
pub struct Setting {
    pub scale: Scale,
    /// `data/` and `policies/` are made here.
    pub out: PathBuf,
    /// File systems are made, and removed, here: a real disk.
    pub work: PathBuf,
    /// The program that servers are processes of: this one.
    pub program: PathBuf,
    /// Reports progress.
    pub report: fn(&str),
}

impl Setting {
    /// Writes the measured values to `data/<figure>.csv`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, figure: &str, table: &Table) -> Result<()> {
        let dir = self.out.join("data");
        fs::create_dir_all(&dir)?;
        Ok(fs::write(dir.join(format!("{figure}.csv")), table.csv())?)
    }

    /// The text of a policy that a figure runs with: a preset, or a file of `examples/policies/figures`. It is written to
    /// `policies/<name>.yml` too.
    ///
    /// # Errors
    /// There is none, or it cannot be written.
    pub fn policy(&self, name: &str) -> Result<String> {
        let text = policies::text(name).ok_or_else(|| format!("there is no policy {name}"))?;
        self.show_policy(name, text)
    }

    /// The same for a policy that is derived from such a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn show_policy(&self, name: &str, text: &str) -> Result<String> {
        let dir = self.out.join("policies");
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("{name}.yml")), text)?;
        Ok(text.to_owned())
    }

    /// Writes `data/setup.txt`: the machine and versions, one line each.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn describe(&self) -> Result<()> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = read("/proc/meminfo");
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).map(str::trim);
        let kib = kib.and_then(|rest| rest.trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0);
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        let uname = rustix::system::uname();
        let text = format!(
            "scale: {:?}, {} runs\nprocessors: {} ({})\nmemory: {} GiB\nkernel: {} {}\nbuild: {}\nload before: {}\n",
            self.scale,
            self.scale.runs(),
            std::thread::available_parallelism().map_or(0, usize::from),
            model.unwrap_or("unknown"),
            kib >> 20,
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy(),
            if cfg!(debug_assertions) { "dev: absolute figures mean nothing" } else { "release" },
            read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        );
        fs::create_dir_all(self.out.join("data"))?;
        Ok(fs::write(self.out.join("data/setup.txt"), text)?)
    }

    /// Reports progress.
    pub fn say(&self, text: impl AsRef<str>) {
        (self.report)(text.as_ref());
    }

    /// A folder for one server, removed when dropped.
    pub(crate) fn scratch(&self) -> Result<tempfile::TempDir> {
        fs::create_dir_all(&self.work)?;
        Ok(tempfile::tempdir_in(&self.work)?)
    }

    /// A figure in a test: the smallest scale, without reports.
    pub fn for_test(out: &Path, program: &Path) -> Setting {
        Setting {
            scale: Scale::Smallest,
            out: out.to_owned(),
            work: out.join("work"),
            program: program.to_owned(),
            report: |_| {},
        }
    }
}

/// The monotonic clock.
pub(crate) fn now() -> Duration {
    RealWorld.monotonic()
}

/// Processor time of this thread, in seconds.
pub(crate) fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs `body`; also returns the seconds.
pub(crate) fn timed<T>(body: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let begun = now();
    let made = body()?;
    Ok((made, (now() - begun).as_secs_f64()))
}
