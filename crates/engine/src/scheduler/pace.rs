//! What steps cost and how many a look takes, learned from those that ended; and from both a forecast of what a number of looks
//! in flight would give. Pure.
//!
//! ```text
//!   step = decode + images · image            both are means over the last steps
//!
//!   forecast, three looks in flight, each begun when one has ended
//!     step    1    2    3    4    5    6    7        ■ image and prompts   □ decode   · the end is noticed, the next begins
//!     look a  ■    □    □    ·    ■    □    …
//!     look b  ■    □    □    □    □    ·    ■
//!     look c  ■    ·    ■    □    ·    ■    …
//! ```

use std::{collections::VecDeque, time::Duration};

use super::plan::IMAGES_WITH_DECODE;

/// Looks whose numbers of steps are remembered.
const LOOKS_KEPT: usize = 32;
/// Steps over which their costs are averaged.
const COST_MEMORY: f64 = 8.0;
/// Looks over which their steps are averaged, for the time of a look alone.
const LENGTH_MEMORY: f64 = 64.0;

/// A mean over the last values, which weighs older ones less.
#[derive(Clone, Copy, Debug, Default)]
struct RecentMean {
    value: f64,
    count: f64,
}

impl RecentMean {
    /// Follows a change within about `memory` values.
    fn add(&mut self, value: f64, memory: f64) {
        self.count = (self.count + 1.0).min(memory);
        self.value += (value - self.value) / self.count;
    }

    fn get(self) -> Option<f64> {
        (self.count > 0.0).then_some(self.value)
    }
}

/// Costs of steps, seconds, and the steps of looks.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// A step without images.
    decode_s: RecentMean,
    /// What an image adds to it.
    image_s: RecentMean,
    /// Steps in which a look had rows, of the last looks.
    steps: VecDeque<u32>,
    /// Their mean over a longer time.
    length: RecentMean,
}

/// What a number of looks in flight gives when there are always frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    pub looks_per_s: f64,
    /// From the permit to the answer.
    pub mean: Duration,
    pub p95: Duration,
}

impl Pace {
    /// A step with this number of images was committed; the device took so long.
    pub fn step(&mut self, images: usize, took: Duration) {
        let took = took.as_secs_f64();
        match images {
            0 => self.decode_s.add(took, COST_MEMORY),
            _ => {
                let decode = self.decode_s.get().unwrap_or_default();
                let image = (took - decode).max(0.0) / images as f64;
                self.image_s.add(image, COST_MEMORY);
            }
        }
    }

    /// A look was answered; it had rows in this number of steps.
    pub fn look(&mut self, steps: u32) {
        if self.steps.len() == LOOKS_KEPT {
            self.steps.pop_front();
        }
        self.steps.push_back(steps);
        self.length.add(f64::from(steps), LENGTH_MEMORY);
    }

    /// Mean time of a look that has the device for itself; `None` before the first look.
    pub fn look_alone(&self) -> Option<Duration> {
        let decode_s = self.decode_s.get().unwrap_or_default();
        let seconds = self.image_s.get()? + self.length.get()? * decode_s;
        Some(Duration::from_secs_f64(seconds))
    }

    /// With a number of looks in flight on a device that has room for `images_max` in a step, where looks that run for longer than
    /// `hurry_after` get steps without new images. `None` before the first look.
    pub fn forecast(
        &self,
        in_flight: usize,
        images_max: usize,
        hurry_after: Duration,
    ) -> Option<Forecast> {
        let image_s = self.image_s.get()?;
        let decode_s = self.decode_s.get().unwrap_or_default();
        if self.steps.is_empty() {
            return None;
        }
        let mut run = ForecastRun {
            image_s,
            decode_s,
            images_max,
            hurry_s: hurry_after.as_secs_f64(),
            looks: vec![LookInFlight::default(); in_flight],
            now_s: 0.0,
        };
        let mut lives = Vec::new();
        let mut next = self.steps.iter().cycle().copied();
        let wanted = 2 * self.steps.len().max(LOOKS_KEPT / 2);
        while lives.len() < wanted {
            run.step(&mut next, &mut lives);
        }
        let looks_per_s = lives.len() as f64 / run.now_s.max(1e-9);
        // The first looks all begin at once.
        let mut settled = lives.split_off(in_flight.min(lives.len() / 2));
        settled.sort_by(f64::total_cmp);
        let rank = (settled.len() * 95).div_ceil(100).max(1) - 1;
        Some(Forecast {
            looks_per_s,
            mean: Duration::from_secs_f64(settled.iter().sum::<f64>() / settled.len() as f64),
            p95: Duration::from_secs_f64(settled[rank]),
        })
    }
}

/// A look of the forecast.
#[derive(Clone, Copy, Debug, Default)]
struct LookInFlight {
    /// It has its image.
    is_started: bool,
    /// Steps until it has its answer; 0: the next one begins.
    left: u32,
    began_s: f64,
    started_s: f64,
    /// The step behind its last one was launched already, so the next look misses that one.
    misses_step: bool,
}

struct ForecastRun {
    image_s: f64,
    decode_s: f64,
    images_max: usize,
    hurry_s: f64,
    looks: Vec<LookInFlight>,
    now_s: f64,
}

impl ForecastRun {
    fn step(&mut self, next: &mut impl Iterator<Item = u32>, lives: &mut Vec<f64>) {
        let decodes = self.looks.iter().any(|look| look.is_started);
        let (now_s, hurry_s) = (self.now_s, self.hurry_s);
        let is_late = |look: &LookInFlight| look.is_started && now_s - look.started_s > hurry_s;
        let hurry = self.looks.iter().any(is_late);
        if hurry {
            // No look begins meanwhile.
            for look in self.looks.iter_mut().filter(|look| !look.is_started) {
                look.began_s = now_s;
            }
        }
        let mut room = match decodes {
            true if hurry => 0,
            true => self.images_max.min(IMAGES_WITH_DECODE),
            false => self.images_max,
        };
        let (mut images, mut rows) = (0, 0);
        // Those that wait longest come first.
        self.looks.sort_by(|a, b| a.began_s.total_cmp(&b.began_s));
        for look in &mut self.looks {
            if look.misses_step && decodes {
                look.misses_step = false;
                continue;
            }
            look.misses_step = false;
            if look.left == 0 {
                look.left = next.next().unwrap_or(1).max(1);
            }
            if !look.is_started {
                if room == 0 {
                    continue;
                }
                room -= 1;
                images += 1;
                look.is_started = true;
                look.started_s = now_s;
            }
            rows += 1;
        }
        if rows == 0 {
            return;
        }
        self.now_s += self.decode_s + images as f64 * self.image_s;
        for look in self.looks.iter_mut().filter(|look| look.is_started) {
            look.left -= 1;
            if look.left == 0 {
                lives.push(self.now_s - look.began_s);
                *look = LookInFlight {
                    began_s: self.now_s,
                    misses_step: true,
                    ..LookInFlight::default()
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVER: Duration = Duration::MAX;

    /// Images of 200 ms, steps of 10 ms, and looks with these numbers of steps.
    fn pace(steps: &[u32]) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..20 {
            pace.step(0, Duration::from_millis(10));
            pace.step(2, Duration::from_millis(410));
        }
        steps.iter().for_each(|&steps| pace.look(steps));
        pace
    }

    #[test]
    fn look_alone_is_its_image_and_its_steps() {
        let pace = pace(&[5; 8]);
        assert_eq!(pace.look_alone(), Some(Duration::from_millis(250)));
        let alone = pace.forecast(1, 4, EVER).expect("looks are known");
        assert!((alone.mean.as_secs_f64() - 0.25).abs() < 1e-9, "{alone:?}");
        assert!((alone.looks_per_s - 4.0).abs() < 1e-6, "{alone:?}");
        assert_eq!(Pace::default().forecast(1, 4, EVER), None);
    }

    #[test]
    fn looks_in_a_hurry_end_together_and_need_fewer_steps() {
        // Both begin at once, and no image joins their four further steps.
        let two = pace(&[5; 8]).forecast(2, 4, Duration::from_millis(300));
        let two = two.expect("looks are known");
        assert!((two.p95.as_secs_f64() - 0.45).abs() < 1e-9, "{two:?}");
        assert!((two.looks_per_s - 2.0 / 0.45).abs() < 0.05, "{two:?}");
        // Without hurry an image joins each of them.
        let without = pace(&[5; 8]).forecast(6, 1, EVER).expect("looks are known");
        assert!(without.p95 > Duration::from_secs(1), "{without:?}");
    }

    #[test]
    fn costs_follow_a_slower_clock_within_twenty_steps() {
        let mut pace = pace(&[5; 8]);
        for _ in 0..10 {
            pace.step(0, Duration::from_millis(20));
            pace.step(1, Duration::from_millis(420));
        }
        let alone = pace.look_alone().expect("looks are known");
        assert!(alone > Duration::from_millis(380), "{alone:?}");
    }
}
