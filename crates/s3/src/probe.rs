//! Checks that a service refuses a put "if absent" when the object exists.

use chiton_objects::{ObjectError, Objects};

/// Puts an object twice under the condition that it is absent, reads it back and removes it.
///
/// # Errors
/// The store's; [`ObjectError::Denied`] if it does not keep the condition.
pub fn probe_conditional_put(objects: &dyn Objects, nonce: u64) -> Result<(), ObjectError> {
    let key = format!("probe/{nonce:016x}");
    // Distinguishes a wrong bucket from a missing object before anything is written.
    objects.list("probe/", None, 1)?;
    let denied = |cause: &str| ObjectError::Denied { key: key.clone(), cause: cause.to_owned() };
    let won = objects.put_if_absent(&key, b"first")?;
    let again = objects.put_if_absent(&key, b"second");
    let content = objects.get(&key, None);
    let removed = objects.delete(&key);
    if again? || !won || content? != b"first" {
        return Err(denied(
            "it ignores the condition of a conditional put (If-None-Match), without which two servers could overwrite \
             each other's journal",
        ));
    }
    removed
}

/// Advice for an administrator.
pub(super) fn advice(error: &ObjectError, bucket: &str, service: &str) -> String {
    let text = error.to_string();
    let is = |code: &str| text.contains(code);
    if is("NoSuchBucket") || error.is_not_found() {
        return format!("there is no bucket {bucket:?} at {service}: make it first, or name another");
    }
    if is("If-None-Match") || is("501 ") {
        return format!(
            "the object store at {service} cannot be used: {text}; use one that has conditional writes (AWS S3, MinIO, \
             Ceph RGW, R2), or a newer version of it"
        );
    }
    match error {
        ObjectError::Denied { .. } => {
            format!(
                "{service} refuses access to bucket {bucket:?}: check the credentials and their rights ({text})"
            )
        }
        ObjectError::Transient { .. } => {
            format!(
                "{service} cannot be reached: check the endpoint (AWS_ENDPOINT_URL) and the network ({text})"
            )
        }
        _ => format!("bucket {bucket:?} at {service} cannot be used: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use chiton_objects::{MemoryObjects, ObjectInfo};

    /// A store that takes every put.
    struct Careless(MemoryObjects);

    impl Objects for Careless {
        fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
            self.0.get(key, range)
        }
        fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
            self.0.read_into(key, offset, into)
        }
        fn size(&self, key: &str) -> Result<u64, ObjectError> {
            self.0.size(key)
        }
        fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
            self.0.put(key, bytes)
        }
        fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
            self.0.put(key, bytes).map(|()| true)
        }
        fn delete(&self, key: &str) -> Result<(), ObjectError> {
            self.0.delete(key)
        }
        fn list(
            &self,
            prefix: &str,
            after: Option<&str>,
            max: usize,
        ) -> Result<Vec<ObjectInfo>, ObjectError> {
            self.0.list(prefix, after, max)
        }
        fn sync(&self) -> Result<(), ObjectError> {
            self.0.sync()
        }
    }

    #[test]
    fn a_store_that_ignores_conditions_is_found_out() {
        let good = MemoryObjects::new();
        assert_eq!(probe_conditional_put(&good, 7), Ok(()));
        assert_eq!(good.list("", None, 9), Ok(vec![]), "the probe leaves nothing");
        let error = probe_conditional_put(&Careless(MemoryObjects::new()), 7).expect_err("found out");
        assert!(error.to_string().contains("If-None-Match"), "{error}");
        assert!(advice(&error, "b", "http://x").contains("conditional writes"));
    }
}
