//! Counts the HTTP requests of this process to S3 services, as a bill counts them: each attempt and each page, of the journal, of
//! blocks and of the metadata store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

static COUNTS: [AtomicU64; Requests::KINDS.len()] = [const { AtomicU64::new(0) }; Requests::KINDS.len()];
static FAILED: AtomicU64 = AtomicU64::new(0);
static SENT_BYTES: AtomicU64 = AtomicU64::new(0);

/// Requests since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    counts: [u64; Requests::KINDS.len()],
    /// Requests without an answer, or with one of the service's own failures (5xx).
    pub failed: u64,
    /// Bytes of request bodies.
    pub sent_bytes: u64,
}

impl Requests {
    /// Kinds, as price lists have them. A `put` is also a part of a large upload, and a copy.
    pub const KINDS: [&str; 5] = ["get", "put", "list", "delete", "head"];

    /// The requests of this process so far.
    pub fn so_far() -> Requests {
        Requests {
            counts: std::array::from_fn(|kind| COUNTS[kind].load(Relaxed)),
            failed: FAILED.load(Relaxed),
            sent_bytes: SENT_BYTES.load(Relaxed),
        }
    }

    /// The counts by kind.
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Requests::KINDS.into_iter().zip(self.counts)
    }
}

/// The index of a request's kind.
fn kind(method: &str, query: &str) -> usize {
    let name = match method {
        "GET" if query.split('&').any(|word| word.starts_with("list-type=")) => "list",
        "GET" => "get",
        "HEAD" => "head",
        "DELETE" => "delete",
        // POST begins and ends a large upload, or deletes many objects, which a bill counts like a put at most.
        _ => "put",
    };
    Requests::KINDS.iter().position(|kind| *kind == name).expect("each name is one of them")
}

/// Makes clients that count.
#[derive(Debug)]
pub(crate) struct CountingConnector;

#[derive(Debug)]
struct Counting(HttpClient);

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Counting(ReqwestConnector::default().connect(options)?)))
    }
}

#[async_trait]
impl HttpService for Counting {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        COUNTS[kind(request.method().as_str(), request.uri().query().unwrap_or(""))].fetch_add(1, Relaxed);
        SENT_BYTES.fetch_add(request.body().content_length() as u64, Relaxed);
        let answer = self.0.execute(request).await;
        if answer.as_ref().map_or(true, |answer| answer.status().is_server_error()) {
            FAILED.fetch_add(1, Relaxed);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sorted_by_what_they_cost() {
        let check =
            |method: &str, query: &str, name: &str| assert_eq!(Requests::KINDS[kind(method, query)], name);
        check("GET", "", "get");
        check("GET", "prefix=a&list-type=2", "list");
        check("HEAD", "", "head");
        check("PUT", "partNumber=3&uploadId=x", "put");
        check("POST", "uploads", "put");
        check("DELETE", "", "delete");
    }
}
