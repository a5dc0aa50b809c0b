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
        mpsc::{self, RecvTimeoutError, Sender},
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

use super::{strain::Strain, tegra::TegraGpu};
use spotter_core::{Clock, Mono};

/// As the driver's package installs it; the name without the number is there for developers only.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Readings that are kept: seven minutes of the closest.
const KEPT: usize = 2048;
const MIB: f64 = 1048576.0;

/// The card. Of a Jetson nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuCard {
    pub name: String,
    /// Version of the driver.
    pub driver: String,
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
        let ((named, card), (stop, stopped)) = (mpsc::channel(), mpsc::channel());
        let (uuid, readings) = (uuid.to_owned(), Readings::default());
        let noted = Arc::clone(&readings);
        let body = move || {
            let on_reading = |strain| {
                note(&noted, clock.now(), strain);
                stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout)
            };
            if let Err(error) = watch(&uuid, &named, on_reading) {
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

/// Names the card, then reads it for as long as `on_reading` returns true. The error says why there is neither NVML nor a Jetson.
fn watch(
    uuid: &str,
    named: &Sender<GpuCard>,
    on_reading: impl Fn(Strain) -> bool,
) -> Result<(), String> {
    let tegra = TegraGpu::find(Path::new("/"));
    let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
    let opened = nvml.as_ref().map_err(ToString::to_string);
    let opened = opened.and_then(|nvml| card_of(nvml, uuid).map_err(|error| error.to_string()));
    let (device, card) = match opened {
        Err(error) if tegra.is_none() => return Err(error),
        opened => opened.ok().unzip(),
    };
    // The caller waits for the card.
    let _ = named.send(card.unwrap_or_default());
    let of_driver = || device.as_ref().map(strain).unwrap_or_default();
    let of_tegra = || tegra.as_ref().map(TegraGpu::strain).unwrap_or_default();
    while on_reading(of_driver().or(&of_tegra())) {}
    Ok(())
}

fn card_of<'a>(nvml: &'a Nvml, uuid: &str) -> Result<(Device<'a>, GpuCard), NvmlError> {
    let device = nvml.device_by_uuid(uuid)?;
    let card = GpuCard {
        name: device.name()?,
        driver: nvml.sys_driver_version()?,
    };
    Ok((device, card))
}

impl Strain {
    /// Each figure by itself.
    fn each(figure: impl Fn(fn(&Self) -> Option<f64>) -> Option<f64>) -> Self {
        Self {
            power_w: figure(|strain| strain.power_w),
            sm_mhz: figure(|strain| strain.sm_mhz),
            celsius: figure(|strain| strain.celsius),
            use_pct: figure(|strain| strain.use_pct),
            decoder_pct: figure(|strain| strain.decoder_pct),
            memory_mib: figure(|strain| strain.memory_mib),
        }
    }

    /// With the other's figures where it has none.
    fn or(&self, other: &Self) -> Self {
        Self::each(|of| of(self).or_else(|| of(other)))
    }
}

fn strain(device: &Device<'_>) -> Strain {
    Strain {
        power_w: device.power_usage().ok().map(|mw| f64::from(mw) / 1e3),
        sm_mhz: device.clock_info(ClockOf::SM).ok().map(f64::from),
        celsius: device
            .temperature(TemperatureSensor::Gpu)
            .ok()
            .map(f64::from),
        use_pct: device
            .utilization_rates()
            .ok()
            .map(|rates| rates.gpu.into()),
        decoder_pct: device
            .decoder_utilization()
            .ok()
            .map(|decoder| decoder.utilization.into()),
        memory_mib: device
            .memory_info()
            .ok()
            .map(|memory| memory.used as f64 / MIB),
    }
}

fn note(readings: &Mutex<VecDeque<(Mono, Strain)>>, now: Mono, strain: Strain) {
    let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
    if readings.len() == KEPT {
        readings.pop_front();
    }
    readings.push_back((now, strain));
}

fn mean(readings: impl Iterator<Item = Strain>) -> Option<Strain> {
    let readings: Vec<Strain> = readings.collect();
    let mean_of = |part: fn(&Strain) -> Option<f64>| {
        let known: Vec<f64> = readings.iter().filter_map(part).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    (!readings.is_empty()).then(|| Strain::each(mean_of))
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
        let readings = Readings::default();
        let at = |ms| Mono::default().after(Duration::from_millis(ms));
        for ms in 0..KEPT as u64 + 5 {
            note(&readings, at(ms), Strain::default());
        }
        let kept = readings.lock().unwrap();
        assert_eq!((kept.len(), kept[0].0), (KEPT, at(5)));
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
