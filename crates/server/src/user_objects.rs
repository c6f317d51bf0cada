//! The object store as clients of the server meet it.
//!
//! Invariants:
//! - New content is refused while the disk is tight: a block that no operation will name stays until its session is over.
//! - What fails for now is waited for. A put whose reply was lost is known again by its content.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use chiton_objects::{ObjectError, ObjectInfo, Objects};

use crate::away::{Away, BLOCKS};

pub(crate) struct UserObjects {
    pub(crate) objects: Arc<dyn Objects>,
    pub(crate) tight: Arc<AtomicBool>,
    pub(crate) away: Arc<Away>,
    /// It is a service, which may come to let us in again.
    pub(crate) is_remote: bool,
}

impl UserObjects {
    fn check(&self, key: &str) -> Result<(), ObjectError> {
        match self.tight.load(Relaxed) {
            true => Err(ObjectError::NoSpace { key: key.to_owned() }),
            false => Ok(()),
        }
    }

    /// `op` is passed whether it was tried before.
    fn wait<T>(&self, op: impl Fn(bool) -> Result<T, ObjectError>) -> Result<T, ObjectError> {
        let mut again = false;
        loop {
            let result = op(again);
            match &result {
                Err(error) if self.may_pass(error) && self.away.note(BLOCKS, error) => {}
                Err(error) if self.may_pass(error) => return result,
                _ => {
                    self.away.note_back(BLOCKS);
                    return result;
                }
            }
            self.away.pause();
            again = true;
        }
    }

    fn may_pass(&self, error: &ObjectError) -> bool {
        error.is_transient() || (self.is_remote && matches!(error, ObjectError::Denied { .. }))
    }
}

impl Objects for UserObjects {
    fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Vec<u8>, ObjectError> {
        self.wait(|_| self.objects.get(key, range.clone()))
    }

    fn read_into(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        let into = std::cell::RefCell::new(into);
        self.wait(|_| self.objects.read_into(key, offset, &mut into.borrow_mut()))
    }

    fn will_need(&self, key: &str) -> bool {
        self.objects.will_need(key)
    }

    fn size(&self, key: &str) -> Result<u64, ObjectError> {
        self.wait(|_| self.objects.size(key))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        self.check(key)?;
        self.wait(|_| self.objects.put(key, bytes))
    }

    fn put_if_absent(&self, key: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        self.check(key)?;
        self.wait(|again| {
            let won = self.objects.put_if_absent(key, bytes)?;
            // An earlier try may have landed.
            Ok(won || (again && self.objects.get(key, None)? == bytes))
        })
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.wait(|_| self.objects.delete(key))
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<ObjectInfo>, ObjectError> {
        self.wait(|_| self.objects.list(prefix, after, max))
    }

    fn sync(&self) -> Result<(), ObjectError> {
        self.wait(|_| self.objects.sync())
    }
}
