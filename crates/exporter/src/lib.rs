//! The HTTP endpoint from which Prometheus fetches the metrics of this process.
//!
//! ```text
//!   Prometheus ── GET /metrics ──▶ tiny_http ──▶ the endpoint's thread: render() ──▶ text
//! ```
//!
//! Invariants:
//! - It answers `GET` and `HEAD` of `/metrics` only, one request at a time, and reads no body.
//! - `render` runs on the endpoint's own thread, so it may wait for locks and holds nobody up but other scrapes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use chiton_runtime::thread::{self, JoinHandle};
use tiny_http::{Header, Method, Request, Response, Server};

/// Makes the text of all metrics.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// The content type of Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The endpoint, until it is dropped.
pub struct Exporter {
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle>,
}

impl Exporter {
    /// Listens at `address`, and answers each scrape with the text that `render` makes.
    ///
    /// # Errors
    /// If nothing can listen there.
    pub fn start(address: SocketAddr, render: Render) -> io::Result<Exporter> {
        let server = Arc::new(Server::http(address).map_err(io::Error::other)?);
        let address = server.server_addr().to_ip().ok_or_else(|| io::Error::other("no address of a port"))?;
        let answering = server.clone();
        let thread = thread::spawn("chiton-metrics", move || {
            for request in answering.incoming_requests() {
                answer(request, &*render);
            }
        })?;
        Ok(Exporter { server, address, thread: Some(thread) })
    }

    /// Where it listens, with the port that was given for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.server.unblock();
        // Its panic has been reported where it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(request: Request, render: &dyn Fn() -> String) {
    let path = request.url().split('?').next().unwrap_or_default();
    let (status, kind, text) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => (200, TEXT, render()),
        (Method::Get | Method::Head, _) => {
            (404, PLAIN, "the metrics of this Chiton server are at /metrics\n".to_owned())
        }
        _ => (405, PLAIN, "only GET and HEAD are answered here\n".to_owned()),
    };
    let header = |name: &str, value: &str| Header::from_bytes(name, value).expect("it is plain ASCII");
    let mut response = Response::from_string(text).with_status_code(status);
    // The library's own content type is replaced.
    response.add_header(header("Content-Type", kind));
    if status == 405 {
        response.add_header(header("Allow", "GET, HEAD"));
    }
    // A client that has gone asks again.
    let _ = request.respond(response);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Status line, headers and body of the answer to these words.
    fn ask(at: SocketAddr, words: &str) -> String {
        let mut stream = std::net::TcpStream::connect(at).expect("it listens");
        write!(stream, "{words} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("it answers");
        said
    }

    #[test]
    fn only_the_metrics_are_served() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let exporter = Exporter::start(any, Arc::new(|| "chiton_up 1\n".to_owned())).expect("a port");
        let said = ask(exporter.address(), "GET /metrics");
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("chiton_up 1\n"), "{said}");
        assert!(said.contains("Content-Type: text/plain; version=0.0.4"), "{said}");
        assert_eq!(said.matches("Content-Type").count(), 1, "{said}");
        assert!(ask(exporter.address(), "GET /").starts_with("HTTP/1.1 404"));
        assert!(ask(exporter.address(), "POST /metrics").starts_with("HTTP/1.1 405"));
        assert!(ask(exporter.address(), "HEAD /metrics").ends_with("\r\n\r\n"));
        assert!(Exporter::start(exporter.address(), Arc::new(String::new)).is_err(), "the port is taken");
    }
}
