//! The etcd of a cluster, where no option names it: that of `CHITON_MONITOR`.

use chiton_etcd::EtcdAddress;

use crate::failure::{Failure, Outcome};

/// The variable of the environment, which saves the option `--monitor`.
pub(crate) const VARIABLE: &str = "CHITON_MONITOR";

/// The address in the environment, if there is one.
pub(crate) fn of_environment() -> Outcome<Option<EtcdAddress>> {
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    let parsed = text.parse().map_err(|why| Failure::failed(format!("{VARIABLE}={text}: {why}")))?;
    Ok(Some(parsed))
}
