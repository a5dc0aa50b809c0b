//! Power, clock and temperature of a GPU while it works, as `nvidia-smi` tells them.
//!
//! A process beside ours, because the driver brings it wherever there is a GPU to measure: a crate for NVML would be one more
//! dependency for three numbers, and bindings of our own more `unsafe`. It writes a line five times a second, and a thread
//! notes when each came. A machine without it has no such figures, which is no error.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use serde::Serialize;

use crate::domain::{Clock, Mono};

/// What is asked about the card once.
const CARD: &str = "--query-gpu=name,driver_version,power.limit,clocks.max.sm";
/// What is asked again and again.
const READING: &str = "--query-gpu=power.draw,clocks.sm,temperature.gpu";
const FORMAT: &str = "--format=csv,noheader,nounits";
const EVERY_MS: &str = "--loop-ms=200";

/// The card. What the driver does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuCard {
    /// Marketing name.
    pub name: String,
    /// Version of the driver.
    pub driver: String,
    /// Watts that it may take.
    pub power_limit_w: Option<f64>,
    /// Clock of its multiprocessors that it may reach, MHz.
    pub sm_max_mhz: Option<f64>,
}

/// Means over some time. What the driver does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Strain {
    /// Watts.
    pub power_w: Option<f64>,
    /// Clock of the multiprocessors, MHz.
    pub sm_mhz: Option<f64>,
    /// Degrees Celsius.
    pub celsius: Option<f64>,
}

type Readings = Arc<Mutex<Vec<(Mono, Strain)>>>;

/// Reads a GPU for as long as it lives.
pub struct Gauge {
    card: GpuCard,
    readings: Readings,
    process: Child,
    reader: Option<JoinHandle<()>>,
}

impl Gauge {
    /// Begins to read the GPU that the driver calls `uuid`; `None` when `nvidia-smi` is not there or does not know it. Blocks
    /// until it has named the card.
    pub fn start(uuid: &str, clock: Arc<dyn Clock>) -> Option<Self> {
        Self::of("nvidia-smi".as_ref(), uuid, clock)
    }

    fn of(program: &OsStr, uuid: &str, clock: Arc<dyn Clock>) -> Option<Self> {
        let smi = || {
            let mut command = Command::new(program);
            command.args([&format!("--id={uuid}"), FORMAT]);
            command
        };
        let card = smi().arg(CARD).stderr(Stdio::null()).output().ok()?;
        let card = card_of(String::from_utf8_lossy(&card.stdout).lines().next()?)?;
        let mut process = smi()
            .args([READING, EVERY_MS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let readings = Readings::default();
        let noted = Arc::clone(&readings);
        let lines = process.stdout.take()?;
        let reader = thread::Builder::new()
            .name("gauge".into())
            .spawn(move || read(lines, &noted, clock.as_ref()));
        Some(Self {
            card,
            readings,
            process,
            reader: reader.ok(),
        })
    }

    /// What is read.
    pub fn card(&self) -> &GpuCard {
        &self.card
    }

    /// Means of what was read between two moments; `None` when nothing was.
    pub fn between(&self, from: Mono, to: Mono) -> Option<Strain> {
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let within = readings.iter().filter(|(at, _)| *at >= from && *at <= to);
        mean(within.map(|(_, strain)| *strain))
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        // A process that has ended by itself cannot be killed, and has nothing to say either.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Until the process ends.
fn read(lines: ChildStdout, readings: &Mutex<Vec<(Mono, Strain)>>, clock: &dyn Clock) {
    for line in BufReader::new(lines).lines().map_while(Result::ok) {
        let reading = (clock.now(), strain_of(&line));
        let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
        readings.push(reading);
    }
}

/// `NVIDIA H200, 580.159.04, 700.00, 1980`
fn card_of(line: &str) -> Option<GpuCard> {
    let mut fields = line.split(',').map(str::trim);
    let (name, driver) = (fields.next()?, fields.next()?);
    let number = |field: Option<&str>| field?.parse().ok();
    Some(GpuCard {
        name: name.to_owned(),
        driver: driver.to_owned(),
        power_limit_w: number(fields.next()),
        sm_max_mhz: number(fields.next()),
    })
}

/// `688.12, 1710, 61`; a field that the card does not have is `[N/A]`.
fn strain_of(line: &str) -> Strain {
    let mut fields = line.split(',').map(|field| field.trim().parse().ok());
    let mut next = || fields.next().flatten();
    Strain {
        power_w: next(),
        sm_mhz: next(),
        celsius: next(),
    }
}

fn mean(readings: impl Iterator<Item = Strain> + Clone) -> Option<Strain> {
    readings.clone().next()?;
    let of = |part: fn(&Strain) -> Option<f64>| {
        let known: Vec<f64> = readings
            .clone()
            .filter_map(|strain| part(&strain))
            .collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    Some(Strain {
        power_w: of(|strain| strain.power_w),
        sm_mhz: of(|strain| strain.sm_mhz),
        celsius: of(|strain| strain.celsius),
    })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::*;
    use crate::domain::ManualClock;

    #[test]
    fn a_card_as_nvidia_smi_writes_it() {
        let card = card_of("NVIDIA H200, 580.159.04, 700.00, 1980").unwrap();
        assert_eq!(
            (card.name.as_str(), card.driver.as_str()),
            ("NVIDIA H200", "580.159.04")
        );
        assert_eq!(
            (card.power_limit_w, card.sm_max_mhz),
            (Some(700.0), Some(1980.0))
        );
        let modest = card_of("Some GPU, 535.1, [N/A], 1200").unwrap();
        assert_eq!(
            (modest.power_limit_w, modest.sm_max_mhz),
            (None, Some(1200.0))
        );
        assert_eq!(card_of("No devices were found"), None);
    }

    #[test]
    fn means_leave_out_what_is_not_told() {
        let readings = ["600.0, 1700, 60", "[N/A], 1500, 62", "650.5, 1600, 61"].map(strain_of);
        let mean_of_all = mean(readings.into_iter()).unwrap();
        assert_eq!(mean_of_all.power_w, Some(625.25));
        assert_eq!(
            (mean_of_all.sm_mhz, mean_of_all.celsius),
            (Some(1600.0), Some(61.0))
        );
        assert_eq!(mean([].into_iter()), None);
    }

    #[test]
    fn without_nvidia_smi_there_is_no_gauge() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let nowhere = Path::new("/nowhere/nvidia-smi").as_os_str();
        assert!(Gauge::of(nowhere, "GPU-0", clock).is_none());
    }

    #[test]
    fn lines_are_noted_as_they_come_and_the_process_ends_with_the_gauge() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-smi");
        let script = "#!/bin/sh\ncase \"$*\" in\n  *--id=GPU-7*loop*) while echo '600.5, 1605, 58'; do sleep 0.02; done ;;\n  \
                      *) echo 'Some GPU, 580.1, 700.00, 1980' ;;\nesac\n";
        // Put in its place by a process of its own: a child that another test forks while this process writes a file
        // would hold it open, and such a file cannot be run.
        let draft = folder.path().join("draft");
        std::fs::write(&draft, script).unwrap();
        let mut install = Command::new("install");
        let installed = install
            .args(["-m", "755"])
            .args([&draft, &program])
            .status();
        assert!(installed.unwrap().success());
        let clock = ManualClock::default();
        let gauge = Gauge::of(program.as_os_str(), "GPU-7", Arc::new(clock.clone())).unwrap();
        assert_eq!(gauge.card().name, "Some GPU");
        let strain = loop {
            if let Some(strain) = gauge.between(Mono::default(), clock.now()) {
                break strain;
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((strain.power_w, strain.sm_mhz), (Some(600.5), Some(1605.0)));
        let later = clock.now().after(Duration::from_secs(1));
        assert_eq!(gauge.between(later, later), None);
        // Waits for the process and the thread.
        drop(gauge);
    }
}
