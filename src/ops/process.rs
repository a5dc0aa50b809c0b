//! Memory and processor time of this process, from `/proc/self` (proc(5)).

use std::{fs, time::Duration};

use spotter_core::Mono;

/// Linux counts processor time in ticks of 10 ms towards user space, on every architecture (`USER_HZ`).
const TICK_MS: u64 = 10;

/// Remembers the last reading, because a share of time needs two.
#[derive(Clone, Debug, Default)]
pub struct ProcessMeter {
    last: Option<(Mono, Duration)>,
}

impl ProcessMeter {
    /// Processor time since the last call, percent of one core; unknown at the first.
    pub fn cpu_pct(&mut self, now: Mono) -> Option<f64> {
        self.share(now, processor_time()?)
    }

    fn share(&mut self, now: Mono, time: Duration) -> Option<f64> {
        let (last, last_time) = self.last.replace((now, time))?;
        let elapsed = now.since(last).as_secs_f64();
        (elapsed > 0.0).then(|| time.saturating_sub(last_time).as_secs_f64() / elapsed * 100.0)
    }
}

/// The name in `ps` and `top` of a process that was started as `/proc/self/exe`. A failure does no harm.
pub fn name_process(name: &str) {
    let _ = fs::write("/proc/self/comm", name);
}

/// Resident memory of this process now.
pub fn resident_mib() -> Option<f64> {
    memory_mib(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The most resident memory that this process has had at once.
pub fn peak_mib() -> Option<f64> {
    memory_mib(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Processor time of this process since it began, of all its threads.
pub fn processor_time() -> Option<Duration> {
    cpu_time(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// A line of status, which is in kibibytes and independent of the page size (16 KiB on a Raspberry Pi 5).
fn memory_mib(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Fields 14 and 15 of stat, of a process or of a thread: user and system time. Counted after the last `)`, because the
/// program's name, field 2, may hold spaces.
pub fn cpu_time(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = user.checked_add(system)?;
    Some(Duration::from_millis(ticks.checked_mul(TICK_MS)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_does_not_shift_the_fields() {
        let stat = "1 (a) b c) S 2 3 4 5 6 7 8 9 10 11 150 50 0 0 20 0 1 0 5";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(cpu_time("nonsense"), None);
        // Sixteen busy cores fill 32 bits of ticks in a month.
        let old = "1 (a) S 2 3 4 5 6 7 8 9 10 11 4294967295 5 0 0 20 0 1 0 5";
        assert_eq!(cpu_time(old), Some(Duration::from_millis(42_949_673_000)));
    }

    #[test]
    fn memory_is_read_by_name_or_unknown() {
        let status = "Name:\tspotter\nVmHWM:\t  9000 kB\nVmRSS:\t    2048 kB\nRssAnon:\t 1 kB\n";
        assert_eq!(memory_mib(status, "VmRSS:"), Some(2.0));
        assert_eq!(memory_mib("Name:\tspotter\n", "VmRSS:"), None);
        assert_eq!(memory_mib("VmHWM:\tmany\n", "VmHWM:"), None);
    }

    #[test]
    fn processor_share_needs_two_readings() {
        let mut meter = ProcessMeter::default();
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        assert_eq!(meter.share(at(0), Duration::from_secs(1)), None);
        assert_eq!(meter.share(at(10), Duration::from_secs(6)), Some(50.0));
        assert!(meter.cpu_pct(at(20)).is_some());
        assert!(resident_mib().is_some_and(|mib| mib > 0.1));
    }
}
