//! Hello and Welcome, and the two messages of the recall channel.

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Epoch, Ino, Position, SessionId};

use super::{bad, put_text, take_bool, take_lease, take_text};
use crate::message::{Channel, Grown, Hello, Recall, RecallDone, RefuseReason, Welcome};

/// Longest [`Hello::identity`], in bytes.
pub const IDENTITY_BYTES_MAX: usize = 256;

impl Hello {
    /// Appends the encoding. An identity that is too long is cut, at a character's border.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.version);
        out.put_u8(self.channel as u8);
        out.put_u8(u8::from(self.resume.is_some()));
        if let Some((session, secret)) = self.resume {
            out.put_u64(session.0);
            out.put_u64(secret);
        }
        out.put_u32(self.resend_count);
        out.put_u8(u8::from(self.decouples));
        let mut end = self.identity.len().min(IDENTITY_BYTES_MAX);
        while !self.identity.is_char_boundary(end) {
            end -= 1;
        }
        put_text(out, &self.identity[..end]);
    }

    /// The version alone: these four bytes stay where they are in every version of the protocol, the rest may
    /// change with it.
    ///
    /// # Errors
    /// With fewer than four bytes.
    pub fn decode_version(from: &Take<'_>) -> Result<u32, Malformed> {
        from.clone().u32()
    }

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are no `Hello` of this version's layout.
    pub fn decode(from: &mut Take<'_>) -> Result<Hello, Malformed> {
        let version = from.u32()?;
        let channel = match from.u8()? {
            0 => Channel::Main,
            1 => Channel::Recall,
            _ => return bad("a channel"),
        };
        let resume = if take_bool(from)? { Some((SessionId(from.u64()?), from.u64()?)) } else { None };
        let (resend_count, decouples) = (from.u32()?, take_bool(from)?);
        let identity = take_text(from)?;
        if identity.len() > IDENTITY_BYTES_MAX {
            return bad("an identity of at most 256 bytes");
        }
        Ok(Hello { version, channel, resume, identity, resend_count, decouples })
    }
}

impl Welcome {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Welcome::Accepted { session, secret, epoch, filesystem, boot, session_ms, durable, objects } => {
                out.put_u8(0);
                out.put_u64(session.0);
                out.put_u64(*secret);
                out.put_u64(epoch.0);
                out.put_u64(*filesystem);
                out.put_u64(*boot);
                out.put_u32(*session_ms);
                out.put_u64(durable.0);
                put_text(out, objects);
            }
            Welcome::Refused { reason, message } => {
                out.put_u8(*reason as u8);
                put_text(out, message);
            }
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn decode(from: &mut Take<'_>) -> Result<Welcome, Malformed> {
        let reason = match from.u8()? {
            0 => {
                return Ok(Welcome::Accepted {
                    session: SessionId(from.u64()?),
                    secret: from.u64()?,
                    epoch: Epoch(from.u64()?),
                    filesystem: from.u64()?,
                    boot: from.u64()?,
                    session_ms: from.u32()?,
                    durable: Position(from.u64()?),
                    objects: take_text(from)?,
                });
            }
            1 => RefuseReason::Version,
            2 => RefuseReason::SessionGone,
            3 => RefuseReason::Full,
            4 => RefuseReason::NotReady,
            _ => return bad("a welcome, or a reason against it"),
        };
        Ok(Welcome::Refused { reason, message: take_text(from)? })
    }
}

impl Recall {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.id);
        out.put_u64(self.ino.0);
        out.put_u8(self.keep as u8);
        out.put_u8(u8::from(self.grown.is_some()));
        if let Some(Grown { size, last }) = self.grown {
            out.put_u64(size);
            out.put_u8(last);
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn decode(from: &mut Take<'_>) -> Result<Recall, Malformed> {
        let (id, ino, keep) = (from.u64()?, Ino(from.u64()?), take_lease(from)?);
        let grown = if take_bool(from)? { Some(Grown { size: from.u64()?, last: from.u8()? }) } else { None };
        Ok(Recall { id, ino, keep, grown })
    }
}

impl RecallDone {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.id);
    }

    /// Reads one.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn decode(from: &mut Take<'_>) -> Result<RecallDone, Malformed> {
        Ok(RecallDone { id: from.u64()? })
    }
}
