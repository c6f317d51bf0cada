//! `chiton dump` and `chiton load`.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write, stdin, stdout};
use std::path::Path;
use std::sync::Arc;

use chiton_admin::dump::{DumpOptions, LoadOptions, dump, load};
use chiton_client::{Client, ClientOptions};
use chiton_etcd::EtcdAddress;
use chiton_runtime::RealWorld;
use chiton_server::{DataAddress, Server, ServerOptions, StartError};
use chiton_types::counted;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{Dump, Load};
use crate::failure::{Class, Failure, Outcome};
use crate::{at_rest, reach, target};

/// Inodes between two looks at the bar.
const TELL_EVERY: u64 = 256;

/// A client for the user's target: of its running server, or of one in this process.
struct Access {
    client: Option<Client>,
    server: Option<Arc<Server>>,
}

impl Access {
    fn to(target: &str, monitor: Option<&EtcdAddress>) -> Outcome<Access> {
        reach::answering(Path::new(target))?;
        let failure = match target::client(target) {
            Ok(client) => return Ok(Access { client: Some(client), server: None }),
            Err(failure) => failure,
        };
        let data: DataAddress = target.parse().map_err(Failure::failed)?;
        if failure.class != Class::Absent {
            return Err(failure);
        }
        let at_rest = at_rest::of(&data, monitor)?;
        match Server::info_at_rest(&data, at_rest.as_ref()) {
            Ok(_) => {}
            Err(StartError::NotFormatted(_)) if target::is_place(target) => {
                return Err(Failure::absent(format!(
                    "{target} contains no file system: create one (chiton format {target}), then run the command again"
                )));
            }
            Err(StartError::NotFormatted(_)) => return Err(failure),
            Err(error) => return Err(error.into()),
        }
        let options = ServerOptions::default();
        let server = match &at_rest {
            Some(at_rest) => Server::start_at_rest(&data, at_rest, options, Arc::new(RealWorld)),
            None => Server::start(&data, options, Arc::new(RealWorld)),
        };
        let server = server.map_err(Failure::from)?;
        let client = chiton_embedded::client(&server, ClientOptions::default()).map_err(Failure::failed)?;
        Ok(Access { client: Some(client), server: Some(server) })
    }

    fn client(&self) -> &Client {
        self.client.as_ref().expect("there until the end")
    }

    fn end(mut self) -> Outcome {
        self.client.take();
        match self.server.take() {
            Some(server) => server.shutdown().map_err(Failure::failed),
            None => Ok(()),
        }
    }
}

pub(crate) fn run_dump(args: &Dump) -> Outcome {
    let mut out: Box<dyn Write> = match &args.output {
        None => Box::new(BufWriter::new(stdout().lock())),
        Some(path) => Box::new(BufWriter::new(File::create_new(path).map_err(|e| {
            Failure::failed(format!(
                "cannot make {}: {e}; a dump is written to a new file: name another",
                path.display()
            ))
        })?)),
    };
    let access = Access::to(&args.target, args.monitor.as_ref())?;
    let bar = bar("dumped");
    let options = DumpOptions { content: !args.no_content };
    let done = dump(access.client(), args.root.as_bytes(), &mut *out, options, &mut |done| {
        if done.inodes.is_multiple_of(TELL_EVERY) {
            bar.set_position(done.inodes);
            bar.set_message(HumanBytes(done.bytes).to_string());
        }
    });
    bar.finish_and_clear();
    let done = done.map_err(Failure::failed)?;
    if let Some(path) = &args.output {
        drop(out);
        // Make the backup durable before the command succeeds.
        sync(path).map_err(|e| {
            Failure::failed(format!(
                "cannot make {} durable: {e}; dump again, to another disk",
                path.display()
            ))
        })?;
    }
    access.end()?;
    chiton_runtime::log_line!("{}, {} of content", counted(done.inodes, "inode"), HumanBytes(done.bytes));
    match done.unreadable {
        0 => Ok(()),
        n => Err(Failure::failed(format!(
            "{n} places could not be read; the dump names each (lines with \"unreadable\" or \"could not be read\") \
             and has the rest; chiton fsck --content lists the damage"
        ))),
    }
}

fn sync(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

pub(crate) fn run_load(args: &Load) -> Outcome {
    let mut input: Box<dyn BufRead> = match &args.file {
        None => Box::new(stdin().lock()),
        Some(path) => {
            let file = File::open(path);
            let file =
                file.map_err(|e| Failure::absent(format!("cannot open the dump {}: {e}", path.display())))?;
            Box::new(BufReader::with_capacity(1 << 20, file))
        }
    };
    let access = Access::to(&args.target, args.monitor.as_ref())?;
    let bar = bar("loaded");
    let options = LoadOptions { resume: args.resume, no_content: args.no_content, no_owner: args.no_owner };
    let done = load(access.client(), args.into.as_bytes(), &mut *input, options, &mut |done| {
        if done.lines.is_multiple_of(TELL_EVERY) {
            bar.set_position(done.inodes + done.passed_over);
            bar.set_message(HumanBytes(done.bytes).to_string());
        }
    });
    bar.finish_and_clear();
    let done = done.map_err(|e| {
        Failure::failed(format!(
            "{e}; the part before it is loaded; if the dump is whole, the same command with --resume continues"
        ))
    });
    let ended = access.end();
    let done = done?;
    ended?;
    chiton_runtime::log_line!("{}, {} of content", counted(done.inodes, "inode"), HumanBytes(done.bytes));
    if done.passed_over > 0 {
        chiton_runtime::log_line!("{} existed already", done.passed_over);
    }
    if done.unreadable > 0 {
        return Err(Failure::failed(format!(
            "the dump lacks {} places, which were unreadable when it was written; they are holes now: chiton fsck --content on the original names them",
            done.unreadable
        )));
    }
    Ok(())
}

fn bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} {human_pos} inodes, {msg} {spinner} {per_sec}");
    bar.set_style(style.expect("a valid template"));
    bar.set_prefix(what);
    bar
}
