//! Processor time and memory of processes and threads, from `/proc` (proc(5)). What cannot be read is zero or `None`.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use crate::bench::cameras::ThreadUse;
use spotter::ops::process;

/// A tick of the machine's time in `/proc/stat`.
const TICK: Duration = Duration::from_millis(10);

/// Processor time at one moment.
#[derive(Clone, Debug, Default)]
pub struct CpuReading {
    pub own: Duration,
    pub server: Duration,
    /// Of everything on the machine.
    pub all: Duration,
    pub rss_mib: Option<f64>,
    /// Of each thread, by its id.
    threads: BTreeMap<u32, (String, Duration)>,
}

impl CpuReading {
    /// Reads this process, the machine and the process `server`.
    pub fn now(server: Option<u32>) -> Self {
        let used = |path: String| cpu_time(Path::new(&path));
        Self {
            own: used("/proc/self/stat".into()).unwrap_or_default(),
            server: server
                .and_then(|pid| used(format!("/proc/{pid}/stat")))
                .unwrap_or_default(),
            all: fs::read_to_string("/proc/stat")
                .ok()
                .as_deref()
                .and_then(busy_time)
                .unwrap_or_default(),
            rss_mib: process::resident_mib(),
            threads: threads(),
        }
    }
}

/// Threads by name, the largest users first. A thread that ended meanwhile is left out.
pub fn threads_between(before: &CpuReading, after: &CpuReading, took: Duration) -> Vec<ThreadUse> {
    let mut by_name: BTreeMap<&str, (usize, Duration)> = BTreeMap::new();
    for (id, (name, used)) in &after.threads {
        let earlier = before.threads.get(id).map_or(Duration::ZERO, |(_, t)| *t);
        let sum = by_name.entry(family(name)).or_default();
        sum.0 += 1;
        sum.1 += used.saturating_sub(earlier);
    }
    let uses = by_name.into_iter().map(|(name, (count, used))| ThreadUse {
        name: name.to_owned(),
        count,
        cpu_pct: used.as_secs_f64() / took.as_secs_f64().max(1e-9) * 100.0,
    });
    let mut uses: Vec<ThreadUse> = uses.collect();
    uses.sort_by(|a, b| b.cpu_pct.total_cmp(&a.cpu_pct));
    uses
}

/// The name without the number that GStreamer gives to elements: `rtpjitterbuffer12:src`.
fn family(name: &str) -> &str {
    let element = name.split(':').next().unwrap_or(name);
    element.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-')
}

fn threads() -> BTreeMap<u32, (String, Duration)> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    let thread = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let id = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let used = cpu_time(&entry.path().join("stat"))?;
        Some((id, (name.trim_end().to_owned(), used)))
    };
    tasks.filter_map(thread).collect()
}

fn cpu_time(stat: &Path) -> Option<Duration> {
    process::cpu_time(&fs::read_to_string(stat).ok()?)
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq and stolen time of all cores. All but idle,
/// iowait and stolen is work.
fn busy_time(stat: &str) -> Option<Duration> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u32> = all
        .split_whitespace()
        .map(|field| field.parse::<u64>().ok().map(|n| n as u32))
        .collect::<Option<_>>()?;
    let [user, nice, system, _, _, irq, softirq, ..] = ticks[..] else {
        return None;
    };
    let busy = [user, nice, system, irq, softirq].into_iter();
    Some(busy.map(|ticks| TICK * ticks).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_kind_are_one_line() {
        let reading = |used_ms: [u64; 3]| {
            let names = ["rtpjitterbuffer1:src", "rtpjitterbuffer12", "engine"];
            let of = |(id, name): (usize, &str)| {
                let used = Duration::from_millis(used_ms[id]);
                (id as u32, (name.to_owned(), used))
            };
            CpuReading {
                threads: names.into_iter().enumerate().map(of).collect(),
                ..CpuReading::default()
            }
        };
        let (before, after) = (reading([10, 20, 0]), reading([110, 220, 900]));
        let uses = threads_between(&before, &after, Duration::from_secs(1));
        let shown: Vec<_> = uses
            .iter()
            .map(|u| (u.name.as_str(), u.count, u.cpu_pct.round()))
            .collect();
        assert_eq!(shown, [("engine", 1, 90.0), ("rtpjitterbuffer", 2, 30.0)]);
        assert_eq!(family("pool-spotter-3"), "pool-spotter");
    }

    #[test]
    fn idle_and_stolen_time_is_no_work() {
        let stat = "cpu  100 10 50 9000 300 5 5 70 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_time(stat), Some(Duration::from_millis(1700)));
        assert_eq!(busy_time("cpu  1 2 3\n"), None);
        let now = CpuReading::now(Some(std::process::id()));
        assert!(now.threads.len() > 1 && now.rss_mib.is_some());
    }
}
