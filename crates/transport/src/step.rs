//! One step of a thread with one connection: read, decode, hand over.

use std::io;

use chiton_types::{Malformed, Take};
use chiton_wire::{
    Call, Channel, FRAME_BYTES_MAX, Hello, PROTOCOL_VERSION, PeerFrame, Query, RecallDone, RefuseReason,
    Request, Welcome,
};
use rustix::event::epoll::EventFlags;

use crate::frame::{FrameError, FrameKind};
use crate::sender::{BEHIND, Input, Sender, UNGREETED};
use crate::serve::{Closed, Service};

/// Most requests in one hand-over, so that limits on unanswered requests hold roughly.
const HAND_OVER_MAX: usize = 1024;
/// Requests whose answers may have so many bytes together end a hand-over.
const HAND_OVER_ANSWER_BYTES: usize = 8 << 20;
/// Reads in one step; then other connections come first.
const READS_MAX: usize = 16;

/// The buffers that a thread keeps from one step to the next.
#[derive(Default)]
pub(crate) struct Step {
    spare: Vec<u8>,
    batch: Vec<Request>,
}

/// How a step ended.
pub(crate) enum StepEnd {
    /// All that had come is handed over.
    Idle,
    /// Requests are left because too much is unanswered, or other connections come first now.
    Backlog,
    /// The connection is over.
    Close(Closed),
}

/// The result of a pass over the frames of the buffer.
enum Pass {
    /// This many frames; no complete one is left.
    Done(usize),
    /// Too much is unanswered, or the hello.
    Congested,
}

impl Step {
    /// Works on the events that `flags` announce. The caller arms or closes the connection afterwards.
    pub(crate) fn run(&mut self, peer: &Sender, flags: EventFlags, service: &dyn Service) -> StepEnd {
        let (mut input, free) = peer.begin();
        if let Some(kind) = peer.broken() {
            return StepEnd::Close(closed_by(kind));
        }
        if let Some(welcome) = peer.take_late() {
            let channel = input.greeting.take().expect("a hello was left for later");
            if let Err(why) = greet(&mut input, peer, channel, &welcome) {
                return StepEnd::Close(why);
            }
        } else if !free {
            // A client that is wholly gone takes no answers: there is nothing to wait for.
            let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            return if gone { StepEnd::Close(Closed::End) } else { StepEnd::Backlog };
        }
        let end = self.read_and_hand_over(&mut input, peer, service);
        input.frames.reclaim(&mut self.spare);
        peer.weigh_input(&mut input);
        match (end, peer.broken()) {
            // Where the server ended it, the end of the stream is its own doing.
            (StepEnd::Idle | StepEnd::Backlog | StepEnd::Close(Closed::End), Some(kind)) => {
                StepEnd::Close(closed_by(kind))
            }
            (end, _) => end,
        }
    }

    fn read_and_hand_over(&mut self, input: &mut Input, peer: &Sender, service: &dyn Service) -> StepEnd {
        // Requests that an earlier step left.
        match self.hand_over(input, peer, service) {
            Ok(Pass::Done(_)) => {}
            Ok(Pass::Congested) => return StepEnd::Backlog,
            Err(why) => return StepEnd::Close(why),
        }
        for _ in 0..READS_MAX {
            input.frames.lend(&mut self.spare);
            let Some(stream) = &input.stream else { return StepEnd::Close(Closed::End) };
            match input.frames.fill(stream, false) {
                Ok(0) => return StepEnd::Close(Closed::End),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return StepEnd::Idle,
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    return StepEnd::Close(untrusted(peer, &e));
                }
                Err(e) => return StepEnd::Close(closed_by(e.kind())),
            }
            let filled = !input.frames.has_room() || stream.holds_bytes();
            match self.hand_over(input, peer, service) {
                // A client that sends one at a time has sent nothing since: reading again would be for nothing.
                // One that keeps many in flight most likely has.
                Ok(Pass::Done(0 | 1)) if !filled => return StepEnd::Idle,
                Ok(Pass::Done(_)) => {}
                Ok(Pass::Congested) => return StepEnd::Backlog,
                Err(why) => return StepEnd::Close(why),
            }
        }
        // Nothing announces bytes that have come and are held.
        match input.stream.as_ref().is_some_and(|stream| stream.holds_bytes()) {
            true => StepEnd::Backlog,
            false => StepEnd::Idle,
        }
    }

    /// Decodes the complete frames of the buffer and hands them over.
    fn hand_over(&mut self, input: &mut Input, peer: &Sender, service: &dyn Service) -> Result<Pass, Closed> {
        let mut frames = 0;
        loop {
            let mut answer_bytes = 0;
            let mut stop = None;
            let mut more = false;
            while self.batch.len() < HAND_OVER_MAX && answer_bytes < HAND_OVER_ANSWER_BYTES {
                match next(input, peer, service) {
                    Ok(Next::Request(request)) => {
                        answer_bytes += answer_bytes_max(&request);
                        self.batch.push(request);
                        more = true;
                    }
                    Ok(Next::Other) => frames += 1,
                    Ok(Next::Later) => return Ok(Pass::Congested),
                    Ok(Next::Nothing) => {
                        more = false;
                        break;
                    }
                    Err(why) => {
                        stop = Some(why);
                        break;
                    }
                }
            }
            frames += self.batch.len();
            let mut free = true;
            if let Some((session, _)) = input.opened
                && !self.batch.is_empty()
            {
                let batch = &mut self.batch;
                free = peer.gather(batch.len(), || service.requests(session, peer, batch));
                batch.clear();
            }
            if let Some(why) = stop {
                return Err(why);
            }
            if !free {
                return Ok(Pass::Congested);
            }
            if !more {
                return Ok(Pass::Done(frames));
            }
        }
    }
}

#[expect(clippy::large_enum_variant, reason = "it is moved into the batch at once")]
enum Next {
    Request(Request),
    Other,
    /// A hello that is answered later: messages behind it wait.
    Later,
    Nothing,
}

/// Takes the next frame. All but requests are dealt with at once.
fn next(input: &mut Input, peer: &Sender, service: &dyn Service) -> Result<Next, Closed> {
    let malformed = |e: &dyn std::fmt::Display| Closed::Malformed(e.to_string());
    let frame = match input.frames.next_frame() {
        Ok(frame) => frame,
        Err(FrameError::Tls) => {
            let message = "the server speaks without TLS".to_owned();
            peer.say(&Welcome::Refused { reason: RefuseReason::Untrusted, message });
            return Err(untrusted(peer, &FrameError::Tls));
        }
        Err(e) => return Err(malformed(&e)),
    };
    let Some((kind, body)) = frame else { return Ok(Next::Nothing) };
    match (input.opened, kind) {
        (Some((_, Channel::Main)), FrameKind::Request) => {
            Ok(Next::Request(whole(body, Request::decode).map_err(|e| malformed(&e))?))
        }
        (Some((session, Channel::Recall)), FrameKind::RecallDone) => {
            let done = whole(body, RecallDone::decode).map_err(|e| malformed(&e))?;
            service.recall_done(session, peer, done);
            Ok(Next::Other)
        }
        (Some((server, Channel::Peer)), FrameKind::Peer) => {
            service.peer(server, peer, whole(body, PeerFrame::decode).map_err(|e| malformed(&e))?);
            Ok(Next::Other)
        }
        (None, FrameKind::Hello) => {
            let version = Hello::decode_version(&Take::new(body)).map_err(|e| malformed(&e))?;
            let (channel, welcome) = if version == PROTOCOL_VERSION {
                let hello = whole(body, Hello::decode).map_err(|e| malformed(&e))?;
                peer.greeting();
                (hello.channel, service.open(hello, peer))
            } else {
                let message = format!(
                    "the server speaks version {PROTOCOL_VERSION} of the protocol, the client version {version}; \
                     install the same release on both sides"
                );
                (Channel::Main, Some(Welcome::Refused { reason: RefuseReason::Version, message }))
            };
            match welcome {
                Some(welcome) => greet(input, peer, channel, &welcome).map(|()| Next::Other),
                None => {
                    input.greeting = Some(channel);
                    Ok(Next::Later)
                }
            }
        }
        (None, _) => Err(Closed::Malformed(format!("malformed stream: begins with {kind:?}, not Hello"))),
        (Some((_, channel)), _) => {
            Err(Closed::Malformed(format!("malformed stream: {kind:?} on the {channel:?} channel")))
        }
    }
}

fn untrusted(peer: &Sender, why: &dyn std::fmt::Display) -> Closed {
    Closed::Untrusted(match peer.remote() {
        Some(address) => format!("{why} (from {address})"),
        None => why.to_string(),
    })
}

/// Answers the greeting of a client.
fn greet(input: &mut Input, peer: &Sender, channel: Channel, welcome: &Welcome) -> Result<(), Closed> {
    if let Welcome::Accepted { session, .. } = welcome {
        input.frames.greeted();
        input.opened = Some((*session, channel));
        if channel == Channel::Main {
            peer.settle();
        }
    }
    peer.say(welcome);
    if input.opened.is_some() { Ok(()) } else { Err(Closed::Refused) }
}

/// Decodes a body that must end where the message does.
fn whole<T>(body: &[u8], decode: impl FnOnce(&mut Take<'_>) -> Result<T, Malformed>) -> Result<T, Malformed> {
    let mut body = Take::new(body);
    let message = decode(&mut body)?;
    body.finish()?;
    Ok(message)
}

/// Roughly the most bytes that the answer can have, for requests that ask for many.
fn answer_bytes_max(request: &Request) -> usize {
    match &request.call {
        Call::GetBlock { len, .. } => (*len as usize).min(FRAME_BYTES_MAX),
        Call::Query(Query::ReadDir { entries_max, .. }) => {
            (*entries_max as usize).saturating_mul(128).min(FRAME_BYTES_MAX)
        }
        Call::Query(Query::StatEach { targets, .. }) => targets.len() * 128,
        Call::Batch { ops, .. } | Call::Late { ops, .. } => ops.len() * 128,
        Call::WriteBehind { ops, .. } => ops.len() * 16,
        _ => 0,
    }
}

fn closed_by(kind: io::ErrorKind) -> Closed {
    match kind {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Closed::End,
        UNGREETED => Closed::Ungreeted,
        BEHIND => Closed::Behind,
        kind => Closed::Failed(kind),
    }
}
