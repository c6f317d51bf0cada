//! The directories that the figures of huge directories compare: their names are on one plate, or spread over all.

pub(crate) use chiton_policy::Huge;

use crate::servers::Servers;
use crate::site::{refused, set_policy};
use crate::{Result, Setting};

/// As in the files of `examples/policies/figures`.
const THRESHOLD: &str = "huge_threshold: 8000";

/// Makes a directory below which every new directory has this policy. Returns its path.
pub(crate) fn directory(
    setting: &Setting,
    servers: &Servers,
    huge: Huge,
    threshold: usize,
) -> Result<String> {
    let name = format!("huge-{huge}");
    let policy = setting.policy(&name)?.replace(THRESHOLD, &format!("huge_threshold: {threshold}"));
    setting.show_policy(&name, &policy)?;
    let client = servers.connect()?;
    let path = format!("/{huge}");
    let dir = client.mkdir_all(&path).map_err(refused)?.ino;
    set_policy(&client, dir, &policy)?;
    Ok(path)
}
