//! The limit of a wire: a server that sends back each message, with plain blocking calls and a thread per
//! connection.
//!
//! ```text
//!   frame:  length (4 bytes, little endian, of what follows) | payload
//! ```
//!
//! Invariants:
//! - Both sides coalesce: replies go out in one call when no whole request is waiting any more.
//! - The client counts replies that it has read and checked for length, not requests sent.
//! - A frame is at most [`FRAME_BYTES_MAX`], on either side.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use crate::stopwatch::Stopwatch;

/// Largest payload of a frame.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
const HEADER_BYTES: usize = 4;
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Unix,
    /// TCP over loopback, without Nagle's delay.
    Tcp,
}

#[derive(Clone, Copy, Debug)]
pub struct EchoOptions {
    pub transport: Transport,
    /// Connections, each with a client and a server thread.
    pub connections: usize,
    /// Requests under way on a connection.
    pub in_flight: usize,
    /// Bytes of a record, header included when a message holds one record.
    pub record_bytes: usize,
    /// Records in a message.
    pub records_per_message: usize,
    /// Messages sent on each connection.
    pub messages: u64,
    /// Several messages may go out in one call. Without it each message has its own call, as if the peer had to act
    /// on each before it knows the next.
    pub coalesce: bool,
}

impl EchoOptions {
    /// One 75-byte request at a time on one connection.
    pub fn one_at_a_time(transport: Transport, messages: u64) -> EchoOptions {
        EchoOptions {
            transport,
            connections: 1,
            in_flight: 1,
            record_bytes: 75,
            records_per_message: 1,
            messages,
            coalesce: true,
        }
    }

    /// 64 requests under way on one connection.
    pub fn pipelined(transport: Transport, messages: u64) -> EchoOptions {
        EchoOptions { in_flight: 64, ..EchoOptions::one_at_a_time(transport, messages) }
    }

    /// 64 requests in flight on one connection, each written in its own call.
    pub fn pipelined_singly(transport: Transport, messages: u64) -> EchoOptions {
        EchoOptions { coalesce: false, ..EchoOptions::pipelined(transport, messages) }
    }

    /// 64 connections with one request under way each; `messages` on each.
    pub fn many_connections(transport: Transport, messages: u64) -> EchoOptions {
        EchoOptions { connections: 64, ..EchoOptions::one_at_a_time(transport, messages) }
    }

    /// Messages of 1,000 records, one message at a time.
    pub fn batched(transport: Transport, messages: u64) -> EchoOptions {
        EchoOptions { records_per_message: 1_000, ..EchoOptions::one_at_a_time(transport, messages) }
    }

    fn payload_bytes(&self) -> usize {
        let bytes = self.record_bytes * self.records_per_message;
        assert!((HEADER_BYTES + 1..=FRAME_BYTES_MAX).contains(&bytes), "a message of {bytes} bytes");
        bytes - HEADER_BYTES
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EchoRate {
    pub round_trips: u64,
    pub records: u64,
    /// Until the last reply was read.
    pub seconds: f64,
}

impl EchoRate {
    /// Messages answered per second.
    pub fn round_trips_per_second(&self) -> f64 {
        self.round_trips as f64 / self.seconds
    }

    /// Records answered per second.
    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / self.seconds
    }
}

/// Runs the load against a new server.
///
/// # Errors
/// The sockets could not be made, or broke.
pub fn measure(options: &EchoOptions) -> io::Result<EchoRate> {
    match options.transport {
        Transport::Unix => measure_over(options, UnixStream::pair),
        Transport::Tcp => {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            let address = listener.local_addr()?;
            measure_over(options, || {
                let client = TcpStream::connect(address)?;
                let (server, _) = listener.accept()?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                Ok((client, server))
            })
        }
    }
}

fn measure_over<S>(options: &EchoOptions, connect: impl Fn() -> io::Result<(S, S)>) -> io::Result<EchoRate>
where
    S: Send,
    for<'a> &'a S: Read + Write,
{
    assert!(options.connections >= 1 && options.in_flight >= 1, "an echo without a request");
    let pairs: Vec<(S, S)> = (0..options.connections).map(|_| connect()).collect::<io::Result<_>>()?;
    let (clients, servers): (Vec<S>, Vec<S>) = pairs.into_iter().unzip();
    thread::scope(|scope| {
        // Each thread owns its end, so that its failure ends the other end too.
        let serving: Vec<_> =
            servers.into_iter().map(|s| scope.spawn(move || serve(&s, options.coalesce))).collect();
        let watch = Stopwatch::start();
        let asking: Vec<_> = clients.into_iter().map(|c| scope.spawn(move || ask(&c, options))).collect();
        let mut round_trips = 0;
        for client in asking {
            round_trips += client.join().expect("an echo client panicked")?;
        }
        let seconds = watch.seconds();
        for server in serving {
            server.join().expect("an echo server panicked")?;
        }
        Ok(EchoRate { round_trips, records: round_trips * options.records_per_message as u64, seconds })
    })
}

fn serve<S>(stream: &S, coalesce: bool) -> io::Result<()>
where
    for<'a> &'a S: Read + Write,
{
    let mut requests = BufReader::with_capacity(BUFFER_BYTES, stream);
    let mut replies = BufWriter::with_capacity(BUFFER_BYTES, stream);
    let mut payload = Vec::new();
    while !requests.fill_buf()?.is_empty() {
        read_frame(&mut requests, &mut payload)?;
        write_frame(&mut replies, &payload)?;
        if !coalesce || !has_whole_frame(requests.buffer()) {
            replies.flush()?;
        }
    }
    Ok(())
}

fn ask<S>(stream: &S, options: &EchoOptions) -> io::Result<u64>
where
    for<'a> &'a S: Read + Write,
{
    let mut requests = BufWriter::with_capacity(BUFFER_BYTES, stream);
    let mut replies = BufReader::with_capacity(BUFFER_BYTES, stream);
    let (payload, mut reply) = (vec![7u8; options.payload_bytes()], Vec::new());
    let (mut sent, mut answered) = (0, 0);
    while answered < options.messages {
        while sent < options.messages && sent - answered < options.in_flight as u64 {
            write_frame(&mut requests, &payload)?;
            sent += 1;
            if !options.coalesce {
                requests.flush()?;
            }
        }
        requests.flush()?;
        loop {
            read_frame(&mut replies, &mut reply)?;
            if reply.len() != payload.len() {
                return Err(io::Error::other("a reply of another length than its request"));
            }
            answered += 1;
            if !has_whole_frame(replies.buffer()) {
                break;
            }
        }
    }
    Ok(answered)
}

fn has_whole_frame(buffered: &[u8]) -> bool {
    buffered
        .split_first_chunk::<HEADER_BYTES>()
        .is_some_and(|(header, rest)| rest.len() >= u32::from_le_bytes(*header) as usize)
}

fn read_frame(from: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    let bytes = u32::from_le_bytes(header) as usize;
    if bytes > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!(
            "a frame of {bytes} bytes, at most {FRAME_BYTES_MAX} are allowed"
        )));
    }
    payload.resize(bytes, 0);
    from.read_exact(payload)
}

fn write_frame(to: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    to.write_all(&(payload.len() as u32).to_le_bytes())?;
    to.write_all(payload)
}
