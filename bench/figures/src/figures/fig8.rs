//! Figure 8 of the paper's draft: a second command looks at, or touches, all files of a directory in which a client creates.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::load::{look_and_create_one, names};
use crate::setting::timed;
use crate::site::{Shape, Site, refused, set_policy};
use crate::walk::Walk;
use crate::{Result, Setting, Table};

/// The draft's second client begins at 15 s. Its first one takes 195 s for 100 thousand files (513/s); here the
/// same share of the files exists when the second begins.
const BEGINS: f64 = 15.0 / 195.0;

/// The client that runs the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The client that creates, in a second thread: the draft's "client 0".
    Same,
    /// Another client: the paper's "client 1".
    Other,
}

const WALKS: [(&str, Walk); 2] = [("stat", Walk::Stat), ("touch", Walk::Touch)];
const WHO: [(&str, By); 2] = [("the same client", By::Same), ("another client", By::Other)];

pub(super) fn run(setting: &Setting) -> Result<()> {
    let policy = setting.policy("posix")?;
    let names = names(setting.scale.pick(60, 10_000, 100_000));
    let mut table = Table::default();
    for run in 0..setting.scale.runs() {
        let mut add = |what: &str, job: &Took| {
            if let Some(created) = job.created {
                table.add("job", what, run, created, "s");
            }
            if let Some((files, seconds)) = job.walked {
                table.add("command", what, run, seconds, "s");
                table.add("files of the command", what, run, files as f64, "files");
            }
        };
        let (alone, walks) = isolated(setting, &policy, &names)?;
        add("alone", &alone);
        walks.iter().for_each(|(command, took)| add(&format!("{command}, alone"), took));
        for (command, walk) in WALKS {
            for (who, by) in WHO {
                add(&format!("{command} by {who}"), &beside(setting, &policy, &names, walk, by)?);
            }
        }
        setting.say(format!("fig8, run {}", run + 1));
    }
    table.add("files", "job", 0, names.len() as f64, "files");
    setting.write("fig8", &table)
}

/// The measured times of the steps.
struct Took {
    /// Seconds until the job had all its files.
    created: Option<f64>,
    /// Files that the command dealt with, and seconds.
    walked: Option<(u64, f64)>,
}

/// The job alone, and each command alone when it is done, by a client that has nothing cached.
fn isolated(setting: &Setting, policy: &str, names: &[String]) -> Result<(Took, Vec<(&'static str, Took)>)> {
    let site = Site::start(setting, Shape::default())?;
    let client = site.client()?;
    let dir = client.mkdir_all("/job").map_err(refused)?.ino;
    set_policy(&client, dir, policy)?;
    let create = || names.iter().try_for_each(|name| look_and_create_one(&client, dir, name));
    let ((), created) = timed(create)?;
    let walk = |(command, walk): (&'static str, Walk)| {
        let other = site.client()?;
        let walked = timed(|| walk.run(&other, dir, &|| false).map_err(refused))?;
        Ok((command, Took { created: None, walked: Some(walked) }))
    };
    let walks = WALKS.into_iter().map(walk).collect::<Result<_>>()?;
    Ok((Took { created: Some(created), walked: None }, walks))
}

/// The job, and a command that begins while it works.
fn beside(setting: &Setting, policy: &str, names: &[String], walk: Walk, by: By) -> Result<Took> {
    let site = Site::start(setting, Shape::default())?;
    let (client, other) = (site.client()?, site.client()?);
    let dir = client.mkdir_all("/job").map_err(refused)?.ino;
    set_policy(&client, dir, policy)?;
    let (made, begins) = (AtomicUsize::new(0), (names.len() as f64 * BEGINS) as usize);
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            while made.load(Ordering::Relaxed) < begins {
                thread::sleep(Duration::from_micros(100));
            }
            let client = if by == By::Same { &client } else { &other };
            timed(|| walk.run(client, dir, &|| false).map_err(refused))
        });
        let job = timed(|| {
            for name in names {
                let done = look_and_create_one(&client, dir, name);
                // Also if it failed: the other one is not to wait for ever.
                made.store(
                    if done.is_ok() { made.load(Ordering::Relaxed) + 1 } else { names.len() },
                    Ordering::Relaxed,
                );
                done?;
            }
            Ok(())
        });
        let walked = second.join().map_err(|_| "the second client panicked")??;
        Ok(Took { created: Some(job?.1), walked: Some(walked) })
    })
}
