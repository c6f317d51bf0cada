//! `--metrics`: the endpoint of this process for Prometheus.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use chiton_exporter::{Exporter, Render};
use chiton_server::Server;

use crate::failure::{Class, Failure, Outcome};

/// The endpoint, if there is to be one. It outlives a server of a cluster that joins anew.
pub(crate) struct Metrics {
    server: Arc<Mutex<Weak<Server>>>,
    _exporter: Option<Exporter>,
}

impl Metrics {
    /// Listens, before a server is started: a wrong address is refused at once.
    pub(crate) fn start(address: Option<SocketAddr>) -> Outcome<Metrics> {
        let server: Arc<Mutex<Weak<Server>>> = Arc::default();
        let Some(address) = address else { return Ok(Metrics { server, _exporter: None }) };
        let shown = server.clone();
        let render: Render = Arc::new(move || match shown.lock().map(|server| server.upgrade()) {
            Ok(Some(server)) => server.metrics(),
            _ => "# The server is starting or joining its cluster.\n".to_owned(),
        });
        let exporter = Exporter::start(address, render).map_err(|e| {
            Failure::new(
                Class::Busy,
                format!("cannot listen on {address} for --metrics: {e}; choose another port or address"),
            )
        })?;
        chiton_runtime::log_line!("metrics at http://{}/metrics", exporter.address());
        Ok(Metrics { server, _exporter: Some(exporter) })
    }

    /// From now on the metrics are those of this server, as long as it exists.
    pub(crate) fn show(&self, server: &Arc<Server>) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(server);
    }
}
