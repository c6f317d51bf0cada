//! `chiton cluster init --from`: a file system that one server has served becomes the file system of a cluster.

use std::sync::Arc;

use chiton_admin::fsck::{Offline, Progress};
use chiton_admin::growth::{self, Grown};
use chiton_runtime::RealWorld;
use chiton_server::{Became, DataAddress, FilesystemInfo, GrowthTarget, Server, StartError};

use super::Init;
use crate::failure::{Class, Failure, Outcome};
use crate::progress::Work;
use crate::{size, target};

/// The file system at `data`, copied from the one at `from`; also if an earlier run of the command has done a part of that.
pub(super) fn grown(
    args: &Init,
    from: &DataAddress,
    data: &DataAddress,
    monitor: &str,
) -> Outcome<FilesystemInfo> {
    let from = target::absolute(from)?;
    check_apart(&from, data)?;
    let became = Became::read(&from)?;
    if let Ok(info) = Server::info_of_any(data) {
        return completed(&from, data, became, info);
    }
    let is_here =
        |cluster: &Became| (cluster.data.as_str(), cluster.monitor.as_str()) == (&data.to_string(), monitor);
    if let Some(cluster) = became.filter(|cluster| !is_here(cluster)) {
        return Err(StartError::Became { data: from, cluster }.into());
    }
    let source = opened(&from, args.take_over)?;
    let examined = growth::examine(&source, args.plates).map_err(Failure::failed)?;
    if !examined.obstacles.is_empty() {
        return Err(Failure::failed(format!(
            "{from} cannot become a cluster as it is:\n  {}\nthen end the mount and repeat the command",
            examined.obstacles.join("\n  ")
        )));
    }
    if !examined.parted.is_empty() {
        chiton_runtime::log_line!(
            "chiton: subtrees that will lie on several plates: {}. Clients of the cluster work there through the servers, and cannot \
             decouple them. A copy can be decoupled: in the cluster, make a directory, set the policy on it, and cp -a the files into it",
            examined.parted.join(", ")
        );
    }
    if examined.sessions > 0 {
        chiton_runtime::log_line!(
            "chiton: {} clients had not ended their sessions when the server of {from} ended: what a mount that still waits has not \
             sent is not copied; unmount such mounts",
            examined.sessions
        );
    }
    let target = GrowthTarget::begin(data, source.info(), args.plates, monitor, &RealWorld)?;
    let done = copied(&source, &target)?;
    let not_finished = |what: String| Failure::failed(format!("{what}; run the command again"));
    // From here on nobody serves the old one; then the new one can be served.
    let cluster =
        Became { data: data.to_string(), monitor: monitor.to_owned(), filesystem: target.info().filesystem };
    cluster.write(&from).map_err(|e| not_finished(format!("{from} cannot be closed for servers: {e}")))?;
    target.finish().map_err(|e| not_finished(format!("{data} cannot be completed: {e}")))?;
    say(&from, args, &done);
    Ok(target.info().clone())
}

fn say(from: &DataAddress, args: &Init, done: &Grown) {
    if args.monitored.json {
        return;
    }
    let summary = &done.summary;
    println!(
        "{from} was copied and compared: {} inodes, {} names, {} blocks ({}), of which {} were copied now",
        summary.inodes,
        summary.entries,
        summary.blocks,
        size::human(summary.block_bytes),
        done.copied
    );
    println!("servers refuse {from} from now on; remove it when you have seen your files in the cluster");
}

/// Both must not lie within each other.
fn check_apart(from: &DataAddress, data: &DataAddress) -> Outcome {
    let is_within = match (from, data) {
        (DataAddress::Dir(from), DataAddress::Dir(data)) => from.starts_with(data) || data.starts_with(from),
        (DataAddress::S3(_), DataAddress::S3(_)) => {
            let (from, data) = (format!("{from}/"), format!("{data}/"));
            from.starts_with(&data) || data.starts_with(&from)
        }
        (DataAddress::Dir(_), DataAddress::S3(_)) | (DataAddress::S3(_), DataAddress::Dir(_)) => false,
    };
    if is_within {
        return Err(Failure::failed(format!(
            "{data} and {from} lie within each other: choose another place for the cluster, since the old file system stays until \
             the copy is complete"
        )));
    }
    Ok(())
}

/// The copy of an earlier run, if that was complete.
fn completed(
    from: &DataAddress,
    data: &DataAddress,
    became: Option<Became>,
    info: FilesystemInfo,
) -> Outcome<FilesystemInfo> {
    match became {
        Some(cluster) if cluster.filesystem == info.filesystem => Ok(info),
        _ => Err(Failure::new(
            Class::Busy,
            format!(
                "{data} already contains a file system, which {from} has not become, or from which it has gone on since: choose \
                 another place"
            ),
        )),
    }
}

fn opened(from: &DataAddress, take_over: bool) -> Outcome<Offline> {
    let work = Work::begin("replaying the journal");
    let mut progress =
        |bytes_done, bytes_total| work.report(chiton_journal::Progress { bytes_done, bytes_total });
    let source = match Offline::open_to_grow(from, take_over, Arc::new(RealWorld), &mut progress) {
        Ok(source) => source,
        Err(StartError::Held { data, holder, .. }) => {
            let next = "end it in order first (chiton umount for a mount, SIGTERM for a server), or have this command do that \
                        (--take-over)"
                .to_owned();
            return Err(StartError::Held { data, holder, next }.into());
        }
        Err(error) => return Err(error.into()),
    };
    match source.journal_damage() {
        None => Ok(source),
        Some(cause) => Err(Failure::failed(format!(
            "the journal of {from} is damaged, and a damaged file system is not copied: {cause}; see chiton journal inspect"
        ))),
    }
}

fn copied(source: &Offline, target: &GrowthTarget) -> Outcome<Grown> {
    let mut work: Option<(&'static str, Work)> = None;
    let mut progress = |p: Progress| {
        if work.as_ref().is_none_or(|(pass, _)| *pass != p.pass) {
            work = Some((p.pass, Work::counting(p.pass, "steps")));
        }
        if let Some((_, work)) = &work {
            work.count(p.done, p.total.max(p.done));
        }
    };
    growth::grow(source, target, &growth::Options::default(), &mut progress).map_err(Failure::failed)
}
