//! NFS on this machine, as a baseline: the server Ganesha exports a local directory, and processes create in it through libnfs. No kernel
//! needs a client of NFS for that.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::setting::now;
use crate::{Result, Setting};

const CLIENT: &str = include_str!("../nfs-creates.py");
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// Why it cannot be measured here. None: it can.
pub(crate) fn missing() -> Option<&'static str> {
    let runs = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !rustix::process::geteuid().is_root() {
        Some("it needs root")
    } else if !runs(&["ganesha.nfsd", "-v"]) {
        Some("it needs Ganesha (Debian: apt-get install nfs-ganesha nfs-ganesha-vfs)")
    } else if !runs(&["python3", "-c", "import ctypes; ctypes.CDLL('libnfs.so.13')"]) {
        Some("it needs python3 and libnfs.so.13 (Debian: apt-get install libnfs13)")
    } else {
        None
    }
}

/// Ends together with its content.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Creates a second of so many files by processes in a directory of a new export.
pub(crate) fn creates(setting: &Setting, files: usize, clients: usize) -> Result<f64> {
    let dir = setting.scratch()?;
    for name in ["export", "recovery"] {
        fs::create_dir(dir.path().join(name))?;
    }
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let _server = serve(dir.path(), port)?;
    let script = dir.path().join("client.py");
    fs::write(&script, CLIENT)?;
    let mut processes = Processes(Vec::new());
    let mut answers = Vec::new();
    for rank in 0..clients {
        let mut command = Command::new("python3");
        command.arg(&script).args([usize::from(port), rank, files / clients].map(|n| n.to_string()));
        let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        answers.push(BufReader::new(client.stdout.take().ok_or("a client without output")?));
        processes.0.push(client);
    }
    answers.iter_mut().try_for_each(|answers| says(answers, "connected"))?;
    let begun = now();
    for client in &mut processes.0 {
        client.stdin.as_mut().ok_or("a client without input")?.write_all(b"\n")?;
    }
    answers.iter_mut().try_for_each(|answers| says(answers, "done"))?;
    let seconds = (now() - begun).as_secs_f64();
    Ok((files / clients * clients) as f64 / seconds)
}

/// A client's next line, which it does not write if something failed: its reason is on standard error.
fn says(answers: &mut BufReader<ChildStdout>, wanted: &str) -> Result<()> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    if line.trim() == wanted { Ok(()) } else { Err("a client of NFS failed; its reason is above".into()) }
}

/// Ganesha with one export, once it answers.
fn serve(dir: &Path, port: u16) -> Result<Processes> {
    let path = |name: &str| dir.join(name).display().to_string();
    let settings = format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {recovery}; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; Protocols = 4;\n\
         SecType = sys; Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
        recovery = path("recovery"),
        export = path("export"),
    );
    fs::write(path("ganesha.conf"), settings)?;
    let log = path("ganesha.log");
    let mut command = Command::new("ganesha.nfsd");
    command.args(["-F", "-f", &path("ganesha.conf"), "-p", &path("ganesha.pid"), "-L", &log]);
    let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut server = Processes(vec![server]);
    let begun = now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if server.0[0].try_wait()?.is_some() || now() - begun > PATIENCE {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("Ganesha does not answer: {said}").into());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(server)
}
