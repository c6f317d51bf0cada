//! Resources that a process uses, from /proc.

use std::fs;

use crate::Result;

/// Totals since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    /// Processor time of all threads, in clock ticks.
    pub(crate) ticks: u64,
    /// Bytes that it sent to the disk.
    pub(crate) disk_bytes: u64,
    /// Bytes over the loopback device, of all processes on this machine.
    pub(crate) network_bytes: u64,
}

impl Used {
    pub(crate) fn by(pid: u32) -> Result<Used> {
        let read = |path: String| fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"));
        let found =
            |what: &str, value: Option<u64>| value.ok_or_else(|| format!("/proc does not report {what}"));
        Ok(Used {
            ticks: found("processor time", ticks(&read(format!("/proc/{pid}/stat"))?))?,
            disk_bytes: found("bytes to the disk", written(&read(format!("/proc/{pid}/io"))?))?,
            network_bytes: found("bytes of the loopback device", loopback(&read("/proc/net/dev".into())?))?,
        })
    }
}

/// Of clock ticks.
pub(crate) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Processor time of all processes and of the kernel since the machine started, in clock ticks of one processor.
pub(crate) fn ticks_of_all() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
    Ok(busy_ticks(&stat).ok_or("/proc/stat has no line of all processors")?)
}

/// In the first line of /proc/stat: all but idle time and waits for the disk. Time of guests is in that of users.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = fields.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _wait, irq, soft_irq, steal, ..] = ticks[..] else { return None };
    Some(user + nice + system + irq + soft_irq + steal)
}

/// User and system time in /proc/PID/stat: fields 14 and 15. The name, field 2, may hold anything, also parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// `write_bytes` in /proc/PID/io.
fn written(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.trim().parse().ok()
}

/// Bytes received on `lo` in /proc/net/dev, which equal the bytes sent there.
fn loopback(dev: &str) -> Option<u64> {
    let line = dev.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_formats_are_parsed() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 100 0 0 0 700 23 0 0 20 0 9 0 12345 1000 200";
        assert_eq!(ticks(stat), Some(723));
        assert_eq!(written("rchar: 5\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n"), Some(8192));
        assert_eq!(busy_ticks("cpu  1 2 4 800 1600 8 16 32 1 0\ncpu0 9 9 9 9 9 9 9 9 9 9\n"), Some(63));
        assert_eq!(busy_ticks("cpu0 1 2"), None);
        let dev = "Inter-|   Receive\n face |bytes\n  eth0: 9 1\n    lo: 123456 78 0\n";
        assert_eq!(loopback(dev), Some(123_456));
        for nothing in ["", "42 (x", "lo:"] {
            assert_eq!((ticks(nothing), written(nothing), loopback(nothing)), (None, None, None));
        }
    }

    #[test]
    fn this_process_uses_something() {
        let used = Used::by(std::process::id()).expect("reported");
        assert!(
            Used { network_bytes: 0, ..used } != Used { ticks: 1 << 60, disk_bytes: 0, network_bytes: 0 }
        );
    }
}
