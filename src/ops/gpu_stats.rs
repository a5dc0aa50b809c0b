//! What a GPU's driver reports while it works: use, memory, power, clock, temperature.
//!
//! By way of NVML, which is what `nvidia-smi` asks too; it comes with the driver and is loaded where it is there. What NVML does
//! not report of a Jetson is read from the kernel ([`tegra`](super::tegra)). A thread of its own reads, because a driver in trouble
//! may take its time and no caller may wait for it. Another machine without NVML has no such figures, which is no error.
//!
//! Belongs here: reading and averaging. Not here: what is made of the figures (benchmarks, `app::housekeeping`).

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{Clock as ClockOf, TemperatureSensor},
    error::NvmlError,
};
use serde::Serialize;

use super::tegra::TegraGpu;
use spotter_core::{Clock, Mono};

/// As the driver's package installs it; the name without the number is there for developers only.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Readings that are kept: seven minutes of the closest.
const KEPT: usize = 2048;
const MIB: f64 = 1048576.0;

/// The card. What the driver does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuCard {
    pub name: String,
    /// Version of the driver.
    pub driver: String,
    /// Watts that it may take.
    pub power_limit_w: Option<f64>,
    /// Clock of its multiprocessors that it may reach, MHz.
    pub sm_max_mhz: Option<f64>,
}

/// Means over some time. What the driver does not report is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Strain {
    pub power_w: Option<f64>,
    /// Clock of the multiprocessors, MHz.
    pub sm_mhz: Option<f64>,
    pub celsius: Option<f64>,
    /// Share of time in which a kernel of anybody ran, percent.
    pub use_pct: Option<f64>,
    /// Share of time in which its video decoders worked, percent.
    pub decoder_pct: Option<f64>,
    /// Memory that anybody uses, MiB.
    pub memory_mib: Option<f64>,
}

type Readings = Arc<Mutex<VecDeque<(Mono, Strain)>>>;

/// Reads a GPU for as long as it lives.
pub struct Gauge {
    card: GpuCard,
    readings: Readings,
    /// Nothing is ever sent; the thread ends when it is closed.
    _stop: Sender<()>,
}

impl Gauge {
    /// Begins to read the GPU that the driver calls `uuid`, so often; `None` when NVML is not there or does not know it, and the
    /// machine is no Jetson. Blocks until it has named the card.
    pub fn start(uuid: &str, every: Duration, clock: Arc<dyn Clock>) -> Option<Self> {
        let (uuid, readings) = (uuid.to_owned(), Readings::default());
        let noted = Arc::clone(&readings);
        let ((named, card), (stop, stopped)) = (mpsc::channel(), mpsc::channel());
        let body = move || {
            let watched = watch(&uuid, &named, |read| {
                note_until(&stopped, every, || {
                    note(&noted, clock.now(), read());
                });
            });
            if let Err(error) = watched {
                tracing::debug!(uuid, %error, "no figures of the GPU from its driver");
            }
        };
        let thread = thread::Builder::new().name("gauge".into()).spawn(body);
        thread.ok()?;
        Some(Self {
            card: card.recv().ok()?,
            readings,
            _stop: stop,
        })
    }

    pub fn card(&self) -> &GpuCard {
        &self.card
    }

    /// Means of what was read between two moments; `None` when nothing was, or is forgotten.
    pub fn between(&self, from: Mono, to: Mono) -> Option<Strain> {
        let readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let within = readings.iter().filter(|(at, _)| *at >= from && *at <= to);
        mean(within.map(|(_, strain)| *strain))
    }
}

/// Names the card, and hands on how it is read.
fn watch(
    uuid: &str,
    named: &Sender<GpuCard>,
    on: impl FnOnce(&dyn Fn() -> Strain),
) -> Result<(), String> {
    let tegra = TegraGpu::find(Path::new("/"));
    let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
    let nvml = nvml.as_ref().map_err(NvmlError::to_string);
    let opened = nvml.and_then(|nvml| card_of(nvml, uuid).map_err(|e| e.to_string()));
    // Who asked waits for the card.
    match (opened, tegra) {
        (Ok((device, card)), tegra) => {
            let _ = named.send(card);
            on(&|| strain(&device).or(tegra.as_ref().map(TegraGpu::strain)));
        }
        (Err(_), Some(tegra)) => {
            let _ = named.send(tegra.card());
            on(&|| tegra.strain());
        }
        (Err(error), None) => return Err(error),
    }
    Ok(())
}

fn card_of<'a>(nvml: &'a Nvml, uuid: &str) -> Result<(Device<'a>, GpuCard), NvmlError> {
    let device = nvml.device_by_uuid(uuid)?;
    let card = GpuCard {
        name: device.name()?,
        driver: nvml.sys_driver_version()?,
        power_limit_w: reported(device.power_management_limit(), watts),
        sm_max_mhz: reported(device.max_clock_info(ClockOf::SM), f64::from),
    };
    Ok((device, card))
}

impl Strain {
    /// With the other's figures where it has none.
    fn or(self, other: Option<Self>) -> Self {
        let other = other.unwrap_or_default();
        Self {
            power_w: self.power_w.or(other.power_w),
            sm_mhz: self.sm_mhz.or(other.sm_mhz),
            celsius: self.celsius.or(other.celsius),
            use_pct: self.use_pct.or(other.use_pct),
            decoder_pct: self.decoder_pct.or(other.decoder_pct),
            memory_mib: self.memory_mib.or(other.memory_mib),
        }
    }
}

fn strain(device: &Device<'_>) -> Strain {
    Strain {
        power_w: reported(device.power_usage(), watts),
        sm_mhz: reported(device.clock_info(ClockOf::SM), f64::from),
        celsius: reported(device.temperature(TemperatureSensor::Gpu), f64::from),
        use_pct: reported(device.utilization_rates(), |rates| f64::from(rates.gpu)),
        decoder_pct: reported(device.decoder_utilization(), |decoder| {
            f64::from(decoder.utilization)
        }),
        memory_mib: reported(device.memory_info(), |memory| memory.used as f64 / MIB),
    }
}

/// A card need not have everything that can be asked of one.
fn reported<T>(answer: Result<T, NvmlError>, figure: impl FnOnce(T) -> f64) -> Option<f64> {
    answer.ok().map(figure)
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// Does something again and again until the other end is closed.
fn note_until(stopped: &Receiver<()>, every: Duration, mut note: impl FnMut()) {
    loop {
        note();
        if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn note(readings: &Mutex<VecDeque<(Mono, Strain)>>, now: Mono, strain: Strain) {
    let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
    if readings.len() == KEPT {
        readings.pop_front();
    }
    readings.push_back((now, strain));
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
        use_pct: of(|strain| strain.use_pct),
        decoder_pct: of(|strain| strain.decoder_pct),
        memory_mib: of(|strain| strain.memory_mib),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::SystemClock;
    use spotter_engine::cuda;

    #[test]
    fn means_leave_out_missing_readings() {
        let reading = |power_w, use_pct| Strain {
            power_w,
            use_pct,
            ..Strain::default()
        };
        let readings = [
            reading(Some(600.0), Some(90.0)),
            reading(None, Some(50.0)),
            reading(Some(650.5), Some(70.0)),
        ];
        let mean_of_all = mean(readings.into_iter()).unwrap();
        assert_eq!(mean_of_all, reading(Some(625.25), Some(70.0)));
        assert_eq!(mean([].into_iter()), None);
    }

    #[test]
    fn readings_are_kept_for_their_window_only() {
        let (stop, stopped) = mpsc::channel();
        let readings = Readings::default();
        let (mut number, mut stop) = (0, Some(stop));
        note_until(&stopped, Duration::ZERO, || {
            number += 1;
            let at = Mono::default().after(Duration::from_millis(number));
            note(&readings, at, Strain::default());
            if number == KEPT as u64 + 5 {
                stop = None;
            }
        });
        let kept = readings.lock().unwrap();
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0].0, Mono::default().after(Duration::from_millis(6)));
    }

    #[test]
    fn unknown_gpu_has_no_gauge() {
        let clock = Arc::new(SystemClock::new());
        let every = Duration::from_millis(10);
        assert!(Gauge::start("GPU-0", every, clock).is_none());
    }

    #[test]
    #[ignore = "needs a GPU; run make test-gpu"]
    fn gpu_reports_temperature_use_and_memory() {
        let gpu = cuda::open(0).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let begun = clock.now();
        let gauge = Gauge::start(&gpu.uuid, Duration::from_millis(10), Arc::clone(&clock));
        let gauge = gauge.expect("NVML is there where the driver is");
        assert_eq!(gauge.card().name, gpu.name);
        let strain = loop {
            if let Some(strain) = gauge.between(begun, clock.now()) {
                break strain;
            }
            thread::sleep(Duration::from_millis(1));
        };
        println!("{:?} {strain:?}", gauge.card());
        let within = |figure: Option<f64>, low: f64, high: f64| {
            figure.is_some_and(|figure| (low..=high).contains(&figure))
        };
        assert!(within(strain.celsius, 5.0, 120.0), "{strain:?}");
        assert!(within(strain.use_pct, 0.0, 100.0), "{strain:?}");
        let memory_mib = gpu.memory_bytes as f64 / MIB;
        // Its context alone takes some.
        assert!(within(strain.memory_mib, 1.0, memory_mib), "{strain:?}");
    }
}
