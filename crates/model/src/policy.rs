//! What is recorded about the policy of a directory.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Time};

/// Longest text of a policy.
pub const POLICY_BYTES_MAX: usize = 16 << 10;
/// Changes of policies that are remembered.
pub const POLICY_HISTORY_MAX: u64 = 4096;

/// A policy, or that there is none any more: the state of a directory, and a line of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    pub ino: Ino,
    /// Number of the change: 1, 2, 3 …
    pub version: u64,
    /// Where the directory was then.
    pub path: Vec<u8>,
    /// The text; `None`: removed.
    pub text: Option<Vec<u8>>,
    pub uid: u32,
    pub time: Time,
}

impl PolicyChange {
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.ino.0);
        out.put_varint(self.version);
        out.put_bytes(&self.path);
        out.put_u8(u8::from(self.text.is_some()));
        if let Some(text) = &self.text {
            out.put_bytes(text);
        }
        out.put_u32(self.uid);
        out.put_i64(self.time.0);
    }

    pub fn take(from: &mut Take<'_>) -> Result<PolicyChange, Malformed> {
        let ino = Ino(from.u64()?);
        let version = from.varint()?;
        let path = from.bytes()?.to_vec();
        let text = match from.u8()? {
            0 => None,
            1 => Some(from.bytes()?.to_vec()),
            _ => return Err(Malformed { expected: "a flag" }),
        };
        if text.as_ref().is_some_and(|t| t.len() > POLICY_BYTES_MAX) {
            return Err(Malformed { expected: "a policy of bounded size" });
        }
        Ok(PolicyChange { ino, version, path, text, uid: from.u32()?, time: Time(from.i64()?) })
    }

    pub fn decode(value: &[u8]) -> Result<PolicyChange, Malformed> {
        let mut v = Take::new(value);
        let change = PolicyChange::take(&mut v)?;
        v.finish()?;
        Ok(change)
    }
}
