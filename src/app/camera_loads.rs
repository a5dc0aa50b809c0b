//! What each camera asks of an engine: from its configuration at first, then from its looks. Pure.
//!
//! ```text
//!   work = looks/s · cost of a look                     in looks of cost 1, as the engines were measured with at their opening
//!
//!   looks/s   answered, and lost because the engine was busy; at most what is configured
//!   cost      time of the device for the camera's looks, divided by the engine's time for a look of cost 1
//! ```

use std::{collections::BTreeMap, time::Duration};

use spotter_core::{CameraId, FrameCounters, Mono, config::CameraConfig};

/// Part of a new measurement in a mean.
const NEW_PART: f64 = 0.4;
/// A camera without frames is expected to return, so it counts for this part of what is configured.
const ABSENT_PART: f64 = 0.1;

/// The loads of all cameras.
#[derive(Debug)]
pub struct CameraLoads {
    cameras: BTreeMap<CameraId, CameraLoad>,
    measured_at: Mono,
}

#[derive(Debug, Default)]
struct CameraLoad {
    /// Looks per second by the configuration.
    configured_hz: f64,
    /// `None` before the first measurement.
    looks_hz: Option<f64>,
    /// Of a look; `None` before the first measured one.
    cost: Option<f64>,
    /// Of the answers since the last measurement.
    answered_cost: f64,
    /// At the last measurement.
    counters: FrameCounters,
}

impl CameraLoads {
    pub fn new(now: Mono) -> Self {
        Self {
            cameras: BTreeMap::new(),
            measured_at: now,
        }
    }

    /// Replaces the cameras; those that stay keep their measurements.
    pub fn set_cameras(&mut self, cameras: &[CameraConfig]) {
        let mut before = std::mem::take(&mut self.cameras);
        for camera in cameras {
            let load = before.remove(&camera.id).unwrap_or_default();
            let load = CameraLoad {
                configured_hz: configured_hz(camera),
                ..load
            };
            self.cameras.insert(camera.id.clone(), load);
        }
    }

    /// An answer took so long on a device that needs `look_s` seconds for a look of cost 1.
    pub fn answered(&mut self, camera: &CameraId, device: Duration, look_s: f64) {
        if let Some(load) = self.cameras.get_mut(camera) {
            load.answered_cost += device.as_secs_f64() / look_s;
        }
    }

    /// Time since the last measurement.
    pub fn age(&self, now: Mono) -> Duration {
        now.since(self.measured_at)
    }

    /// Ends a time of measuring. `counters` are those of the sampler.
    pub fn measure(&mut self, counters: &[(CameraId, FrameCounters)], now: Mono) {
        let seconds = self.age(now).as_secs_f64();
        self.measured_at = now;
        for (id, counters) in counters {
            if let (Some(load), true) = (self.cameras.get_mut(id), seconds > 0.0) {
                load.measure(*counters, seconds);
            }
        }
    }

    /// Looks of cost 1 that the camera asks for in a second. A look that was never measured costs what others cost.
    pub fn work(&self, camera: &CameraId) -> f64 {
        let Some(load) = self.cameras.get(camera) else {
            return 0.0;
        };
        let least_hz = ABSENT_PART * load.configured_hz;
        let looks_hz = load
            .looks_hz
            .map_or(load.configured_hz, |hz| hz.max(least_hz));
        looks_hz * load.cost.unwrap_or_else(|| self.mean_cost())
    }

    fn mean_cost(&self) -> f64 {
        let known = || self.cameras.values().filter_map(|load| load.cost);
        match known().count() {
            0 => 1.0,
            count => known().sum::<f64>() / count as f64,
        }
    }
}

impl CameraLoad {
    fn measure(&mut self, counters: FrameCounters, seconds: f64) {
        let before = std::mem::replace(&mut self.counters, counters);
        let looked = counters.looked.saturating_sub(before.looked) as f64;
        let lost = |counters: FrameCounters| counters.replaced + counters.late;
        let lost = lost(counters).saturating_sub(lost(before)) as f64;
        // While a look waits for the engine, every frame of the camera replaces the last one: more frames than looks are lost.
        let looks_hz = (looked + lost)
            .min(seconds * self.configured_hz)
            .max(looked)
            / seconds;
        follow(&mut self.looks_hz, looks_hz);
        let cost = std::mem::take(&mut self.answered_cost);
        if looked > 0.0 {
            follow(&mut self.cost, cost / looked);
        }
    }
}

/// The first value counts whole, later ones a part.
fn follow(mean: &mut Option<f64>, value: f64) {
    *mean = Some(mean.map_or(value, |mean| mean + NEW_PART * (value - mean)));
}

/// The camera's own rate, or that of its most frequent prompt.
fn configured_hz(camera: &CameraConfig) -> f64 {
    let enabled = camera.prompts.iter().filter(|prompt| prompt.enabled);
    let prompts_hz = enabled.map(|prompt| prompt.rate.hz()).fold(0.0, f64::max);
    match camera.enabled {
        true => prompts_hz.min(camera.rate.hz()),
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::testing::{self, rate};

    fn counters(looked: u64, replaced: u64) -> FrameCounters {
        FrameCounters {
            looked,
            replaced,
            ..FrameCounters::default()
        }
    }

    #[test]
    fn work_follows_configuration_then_measurements() {
        let [gate, yard] = ["gate", "yard"].map(|id| {
            let mut camera = testing::camera(id, vec![testing::prompt("person")]);
            (camera.rate, camera.prompts[0].rate) = (rate(4.0), rate(4.0));
            camera
        });
        let now = Mono::default();
        let mut loads = CameraLoads::new(now);
        let after = |seconds| now.after(Duration::from_secs(seconds));
        loads.set_cameras(&[gate.clone(), yard.clone()]);
        assert_eq!([loads.work(&gate.id), loads.work(&yard.id)], [4.0, 4.0]);

        // 20 looks in 10 s, each twice as long as a look of cost 1.
        for _ in 0..20 {
            loads.answered(&gate.id, Duration::from_millis(200), 0.1);
        }
        loads.measure(&[(gate.id.clone(), counters(20, 0))], after(10));
        assert!((loads.work(&gate.id) - 4.0).abs() < 1e-9);
        assert!((loads.work(&yard.id) - 8.0).abs() < 1e-9, "as others cost");

        // A busy engine loses frames; the camera asks for no more than is configured.
        loads.measure(&[(gate.id.clone(), counters(20, 900))], after(20));
        let expected = (2.0 + NEW_PART * 2.0) * 2.0;
        assert!((loads.work(&gate.id) - expected).abs() < 1e-9);

        // Without frames a part remains.
        for second in 3..60 {
            loads.measure(&[(gate.id.clone(), counters(20, 900))], after(10 * second));
        }
        assert!((loads.work(&gate.id) - 0.8).abs() < 1e-9);
        loads.set_cameras(&[
            CameraConfig {
                enabled: false,
                ..gate.clone()
            },
            yard,
        ]);
        assert!(loads.work(&gate.id) < 1e-3);
    }
}
