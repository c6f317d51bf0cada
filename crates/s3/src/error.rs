//! Turns the client's errors into [`ObjectError`], by the caller's next step.

use std::error::Error;

use object_store::Error as Client;

use chiton_objects::ObjectError;

/// The whole chain of causes, in one line.
fn words(error: &Client) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The HTTP status that the service answered with, if it did.
///
/// The client's type for it is not public; its text is `… status code: 416 …`.
pub(super) fn status(error: &Client) -> Option<u16> {
    let text = words(error);
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// Whether a conditional put was refused because the object exists. False for every other error, also for a
/// conflict with a concurrent request (409), which decides nothing.
pub(super) fn is_there(error: &Client) -> bool {
    matches!(error, Client::AlreadyExists { .. } | Client::Precondition { .. }) && status(error) != Some(409)
}

/// Error codes after which a retry, or a corrected clock or token, may succeed, whatever the status.
const TRANSIENT_CODES: [&str; 9] = [
    "RequestTimeTooSkewed",
    "RequestExpired",
    "ExpiredToken",
    "ExpiredTokenException",
    "TokenRefreshRequired",
    "RequestTimeout",
    "SlowDown",
    "Throttling",
    "ServiceUnavailable",
];

pub(super) fn sort(key: &str, error: &Client) -> ObjectError {
    let (key, cause) = (key.to_owned(), words(error));
    let is = |code: &str| cause.contains(&format!("<Code>{code}</Code>"));
    if is("NoSuchBucket") {
        return ObjectError::Gone { key, cause };
    }
    if TRANSIENT_CODES.into_iter().any(is) {
        return ObjectError::Transient { key, cause };
    }
    match (error, status(error)) {
        (Client::NotFound { .. }, _) => ObjectError::NotFound { key },
        (Client::PermissionDenied { .. } | Client::Unauthenticated { .. }, _) => {
            ObjectError::Denied { key, cause }
        }
        (Client::NotSupported { .. } | Client::NotImplemented { .. }, _) | (_, Some(501)) => {
            ObjectError::Denied { key, cause }
        }
        // Listings are refused without a kind of their own.
        (_, Some(401 | 403)) => ObjectError::Denied { key, cause },
        (_, Some(507)) => ObjectError::NoSpace { key },
        _ if is("QuotaExceeded") || is("XMinioStorageFull") => ObjectError::NoSpace { key },
        (_, Some(408 | 409 | 429 | 500..)) => ObjectError::Transient { key, cause },
        (_, Some(_)) => ObjectError::Io { key, cause },
        // No answer: not reached, cut off, too late.
        (Client::Generic { .. }, None) => ObjectError::Transient { key, cause },
        _ => ObjectError::Io { key, cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Client {
        Client::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn errors_are_sorted_by_what_to_do() {
        let says = |text: &str| sort("k", &generic(text));
        assert!(says("error sending request: connection refused").is_transient());
        assert!(
            says("Server returned non-2xx status code: 503 Slow Down: <Code>SlowDown</Code>").is_transient()
        );
        let gone = says("non-2xx status code: 404 Not Found: <Error><Code>NoSuchBucket</Code></Error>");
        assert!(gone.is_gone(), "{gone:?}");
        assert!(matches!(says("status code: 403 Forbidden: x"), ObjectError::Denied { .. }));
        let skewed = "status code: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code></Error>";
        assert!(says(skewed).is_transient());
        assert!(says("status code: 400 Bad Request: <Code>ExpiredToken</Code>").is_transient());
        assert!(matches!(says("status code: 400 Bad Request: x"), ObjectError::Io { .. }));
        assert!(matches!(says("status code: 501 Not Implemented"), ObjectError::Denied { .. }));
        assert!(matches!(says("status code: 507 Insufficient Storage"), ObjectError::NoSpace { .. }));
    }

    #[test]
    fn a_conflict_is_not_taken_for_an_object() {
        let exists = |text: &str| Client::AlreadyExists { path: "k".into(), source: text.into() };
        assert!(is_there(&exists("status code: 412 Precondition Failed")));
        assert!(!is_there(&exists("status code: 409 Conflict: ConditionalRequestConflict")));
        assert!(sort("k", &exists("status code: 409 Conflict")).is_transient());
        assert!(!is_there(&generic("connection reset")));
    }
}
