//! What steps cost and how many a look takes, learned from those that ended; and from both a forecast of what a number of looks
//! in flight would give. Pure.
//!
//! ```text
//!   step without images = decode                          the mean of the last ones
//!   step with images    = fixed + work of images · slope  a line through the last ones
//!
//!   forecast, three looks in flight, each begun when one has ended
//!     step    1    2    3    4    5    6    7        ■ image and prompts   □ decode   · the end is noticed, the next begins
//!     look a  ■    □    □    ·    ■    □    …
//!     look b  ■    □    □    □    □    ·    ■
//!     look c  ■    ·    ■    □    ·    ■    …
//! ```

use std::{collections::VecDeque, ops::Range, time::Duration};

use super::plan::ImageRoom;
use spotter_core::duration_from_secs;

/// Steps with images over which their cost is averaged.
const IMAGE_MEMORY: f64 = 8.0;
/// Steps with images of unusual work over which their slope is averaged: it follows from differences, which are small.
const SLOPE_MEMORY: f64 = 64.0;
/// Work that differs from its mean by more than this part is unusual.
const LEAST_DEVIATION_PART: f64 = 0.1;
/// The slope is at least this part of what it is when nothing is fixed but a decode, so that chance promises little.
const LEAST_SLOPE_PART: f64 = 0.7;
/// Steps without images over which their cost is averaged: a look has several, and they differ by their rows.
const DECODE_MEMORY: f64 = 32.0;
/// Looks whose numbers of steps are remembered.
const LENGTHS_KEPT: usize = 512;
/// The last looks, which are compared with those before them.
const LENGTHS_RECENT: usize = 20;
/// Their mean is another one when it differs by this many standard errors; chance alone hardly does that.
const STANDARD_ERRORS: f64 = 4.5;
/// Looks of a forecast: quantiles of those that are remembered.
const FORECAST_LOOKS: usize = 32;
/// Order of the quantiles in a forecast: long and short looks mixed. It has no factor in common with [`FORECAST_LOOKS`].
const QUANTILE_STRIDE: usize = 13;

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

/// Times of the last steps with images, by the work of these.
#[derive(Clone, Copy, Debug, Default)]
struct ImageSteps {
    work: RecentMean,
    took_s: RecentMean,
    /// Of the work, and of work and time together, from their means before.
    variance: RecentMean,
    covariance: RecentMean,
    /// Work of an image.
    image_work: RecentMean,
}

impl ImageSteps {
    fn add(&mut self, works: &[usize], took_s: f64) {
        let work = works.iter().sum::<usize>() as f64;
        if let (Some(mean_work), Some(mean_s)) = (self.work.get(), self.took_s.get()) {
            let deviation = work - mean_work;
            // Steps of usual work say nothing about the slope, so they don't make it forgotten.
            if deviation.abs() > LEAST_DEVIATION_PART * mean_work {
                self.variance.add(deviation.powi(2), SLOPE_MEMORY);
                self.covariance
                    .add(deviation * (took_s - mean_s), SLOPE_MEMORY);
            }
        }
        self.work.add(work, IMAGE_MEMORY);
        self.took_s.add(took_s, IMAGE_MEMORY);
        self.image_work.add(work / works.len() as f64, IMAGE_MEMORY);
    }

    /// Beside steps without images that take `decode_s`; `None` before the first step.
    fn costs(&self, decode_s: f64) -> Option<ImageCosts> {
        let (work, took_s) = (self.work.get()?, self.took_s.get()?);
        let most = (took_s - decode_s).max(0.0) / work;
        let slope = match self.variance.get() {
            Some(variance) => self.covariance.value / variance,
            None => most,
        };
        let slope = slope.clamp(LEAST_SLOPE_PART * most, most);
        let image_work = self.image_work.get()?;
        Some(ImageCosts {
            fixed_s: took_s - slope * work,
            image_s: slope * image_work,
            image_work: image_work.round() as usize,
        })
    }
}

/// What images cost.
#[derive(Clone, Copy, Debug)]
struct ImageCosts {
    /// A step with images, before the first of them.
    fixed_s: f64,
    /// What an image adds to it.
    image_s: f64,
    /// Arithmetic of an image ([`image_work`](super::plan::image_work)).
    image_work: usize,
}

/// The numbers of steps of the last looks. Answers with many objects take many steps, so the numbers scatter widely, and a mean of
/// few of them says little. A scene that changes is followed all the same: when the last looks have another mean than those before,
/// only the last ones are remembered.
#[derive(Clone, Debug, Default)]
struct LookLengths(VecDeque<u32>);

impl LookLengths {
    fn add(&mut self, steps: u32) {
        if self.0.len() == LENGTHS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(steps.max(1));
        let before = self.0.len().saturating_sub(LENGTHS_RECENT);
        if before >= LENGTHS_RECENT && self.has_changed(before) {
            self.0.drain(..before + self.last_change(before));
        }
    }

    /// Natural logarithms are compared, because the scatter of lengths grows with their mean.
    fn logs(&self, range: Range<usize>) -> Vec<f64> {
        let logs = self.0.range(range).map(|&steps| f64::from(steps).ln());
        logs.collect()
    }

    /// True when the looks from the `before`-th on have another mean than those before. A scatter below an eighth is rounding.
    fn has_changed(&self, before: usize) -> bool {
        let logs = self.logs(0..self.0.len());
        let (old, recent) = logs.split_at(before);
        let old_mean = mean(old);
        let deviations = old.iter().map(|log| (log - old_mean).powi(2));
        let variance = (deviations.sum::<f64>() / before as f64).max(1.0 / 64.0);
        let error = (variance * (1.0 / before as f64 + 1.0 / recent.len() as f64)).sqrt();
        (mean(recent) - old_mean).abs() > STANDARD_ERRORS * error
    }

    /// Which of the looks from the `before`-th on is the first of the new scene: both sides of it differ most.
    fn last_change(&self, before: usize) -> usize {
        let logs = self.logs(before..self.0.len());
        let difference = |split: usize| {
            let (old, new) = logs.split_at(split);
            let weight = old.len() * new.len();
            weight as f64 * (mean(new) - mean(old)).powi(2)
        };
        let splits = 1..logs.len();
        let best = splits.max_by(|&a, &b| difference(a).total_cmp(&difference(b)));
        best.unwrap_or_default()
    }

    fn mean(&self) -> Option<f64> {
        let sum: u32 = self.0.iter().sum();
        (!self.0.is_empty()).then(|| f64::from(sum) / self.0.len() as f64)
    }

    /// As many quantiles as a forecast has looks, long and short ones mixed; empty before the first look.
    fn quantiles(&self) -> Vec<u32> {
        let mut sorted: Vec<u32> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        // The middle of each of as many equal parts.
        let quantile = |rank: usize| {
            let at = ((2 * rank + 1) * sorted.len()).saturating_sub(FORECAST_LOOKS);
            sorted.get(at / (2 * FORECAST_LOOKS)).copied()
        };
        let ranks = (0..FORECAST_LOOKS).map(|i| i * QUANTILE_STRIDE % FORECAST_LOOKS);
        ranks.filter_map(quantile).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Costs of steps, seconds, and the steps of looks.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// A step without images.
    decode_s: RecentMean,
    /// Steps with images.
    images: ImageSteps,
    /// Steps in which a look had rows.
    lengths: LookLengths,
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
    /// A step with images of this work was committed; the device took so long.
    pub fn step(&mut self, works: &[usize], took: Duration) {
        match works {
            [] => self.decode_s.add(took.as_secs_f64(), DECODE_MEMORY),
            works => self.images.add(works, took.as_secs_f64()),
        }
    }

    /// A look was answered; it had rows in this number of steps.
    pub fn look(&mut self, steps: u32) {
        self.lengths.add(steps);
    }

    /// Zero before the first step without images.
    fn decode_s(&self) -> f64 {
        self.decode_s.get().unwrap_or_default()
    }

    /// Mean time that so many images add to a step; zero before the first one.
    pub fn images(&self, count: usize) -> Duration {
        let costs = self.images.costs(self.decode_s());
        duration_from_secs(costs.map_or(0.0, |costs| costs.image_s * count as f64))
    }

    /// Mean time of a look that has the device for itself; `None` before the first look.
    pub fn look_alone(&self) -> Option<Duration> {
        let costs = self.images.costs(self.decode_s())?;
        let decodes = self.lengths.mean()? - 1.0;
        let seconds = costs.fixed_s + costs.image_s + decodes * self.decode_s();
        Some(duration_from_secs(seconds))
    }

    /// Forecasts from what is known now, on a device that has room for `images_max` in a step. `None` before the first look.
    pub fn forecaster(&self, images_max: usize) -> Option<Forecaster> {
        let steps = self.lengths.quantiles();
        (!steps.is_empty()).then_some(Forecaster {
            images: self.images.costs(self.decode_s())?,
            decode_s: self.decode_s(),
            images_max,
            steps,
        })
    }
}

/// What steps cost and how many of them looks take, at one moment.
#[derive(Clone, Debug)]
pub struct Forecaster {
    images: ImageCosts,
    decode_s: f64,
    images_max: usize,
    steps: Vec<u32>,
}

impl Forecaster {
    /// With a number of looks in flight, where looks that run for longer than `hurry_after` keep others from beginning.
    pub fn forecast(&self, in_flight: usize, hurry_after: Duration) -> Forecast {
        let mut run = ForecastRun {
            costs: self,
            hurry_s: hurry_after.as_secs_f64(),
            looks: vec![LookInFlight::default(); in_flight],
            now_s: 0.0,
        };
        // Of looks that ended together, the first one's step is launched before the others come.
        for look in run.looks.iter_mut().skip(1).step_by(2) {
            look.misses_step = true;
        }
        let mut lives = Vec::new();
        let mut next = self.steps.iter().cycle().copied();
        while lives.len() < 2 * self.steps.len() {
            run.step(&mut next, &mut lives);
        }
        let looks_per_s = lives.len() as f64 / run.now_s.max(1e-9);
        // The first looks all begin at once.
        let mut settled = lives.split_off(in_flight.min(lives.len() / 2));
        settled.sort_by(f64::total_cmp);
        let rank = (settled.len() * 95).div_ceil(100).max(1) - 1;
        Forecast {
            looks_per_s,
            mean: duration_from_secs(settled.iter().sum::<f64>() / settled.len() as f64),
            p95: duration_from_secs(settled[rank]),
        }
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
    /// It came when a step was launched already, and misses that one.
    misses_step: bool,
}

struct ForecastRun<'a> {
    costs: &'a Forecaster,
    hurry_s: f64,
    /// Those that began first come first.
    looks: Vec<LookInFlight>,
    now_s: f64,
}

impl ForecastRun<'_> {
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
        let images_max = if hurry { 0 } else { self.costs.images_max };
        let mut room = ImageRoom::of_step(images_max, decodes);
        let (mut images, mut rows) = (0_u32, 0);
        for look in &mut self.looks {
            if std::mem::take(&mut look.misses_step) {
                continue;
            }
            if look.left == 0 {
                look.left = next.next().unwrap_or(1).max(1);
            }
            if !look.is_started {
                if !room.take(self.costs.images.image_work) {
                    continue;
                }
                images += 1;
                look.is_started = true;
                look.started_s = now_s;
            }
            rows += 1;
        }
        if rows == 0 {
            return;
        }
        let costs = self.costs.images;
        self.now_s += match images {
            0 => self.costs.decode_s,
            images => costs.fixed_s + f64::from(images) * costs.image_s,
        };
        let in_flight = self.looks.len();
        let now_s = self.now_s;
        self.looks.retain_mut(|look| {
            look.left -= u32::from(look.is_started);
            let has_ended = look.is_started && look.left == 0;
            lives.extend(has_ended.then_some(now_s - look.began_s));
            !has_ended
        });
        let begins = LookInFlight {
            began_s: now_s,
            misses_step: true,
            ..LookInFlight::default()
        };
        self.looks.resize(in_flight, begins);
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
            pace.step(&[], Duration::from_millis(10));
            pace.step(&[12; 2], Duration::from_millis(410));
        }
        steps.iter().for_each(|&steps| pace.look(steps));
        pace
    }

    fn forecast(pace: &Pace, in_flight: usize, images_max: usize, hurry: Duration) -> Forecast {
        let forecaster = pace.forecaster(images_max);
        forecaster
            .expect("looks are known")
            .forecast(in_flight, hurry)
    }

    #[test]
    fn look_alone_is_its_image_and_its_steps() {
        let pace = pace(&[5; 8]);
        assert_eq!(pace.look_alone(), Some(Duration::from_millis(250)));
        let alone = forecast(&pace, 1, 4, EVER);
        assert!((alone.mean.as_secs_f64() - 0.25).abs() < 1e-9, "{alone:?}");
        assert!((alone.looks_per_s - 4.0).abs() < 1e-6, "{alone:?}");
        assert!(Pace::default().forecaster(4).is_none());
    }

    #[test]
    fn larger_steps_that_cost_less_raise_the_rate() {
        let rates = |fixed_ms: u64| {
            let mut pace = Pace::default();
            for images in [1, 2, 3, 2].into_iter().cycle().take(80) {
                pace.step(&[], Duration::from_millis(1));
                let ms = fixed_ms + (30 - fixed_ms / 3) * images;
                pace.step(&[4].repeat(images as usize), Duration::from_millis(ms));
            }
            (0..20).for_each(|_| pace.look(1));
            [2, 16].map(|looks| forecast(&pace, looks, 8, EVER).looks_per_s)
        };
        let [few, many] = rates(1);
        assert!(many / few < 1.03, "{few} {many}");
        let [few, many] = rates(12);
        assert!((1.35..1.4).contains(&(many / few)), "{few} {many}");
    }

    #[test]
    fn looks_in_a_hurry_end_together_and_need_fewer_steps() {
        // The second one's image joins the second step of the first, and none joins the others.
        let two = forecast(&pace(&[5; 8]), 2, 4, Duration::from_millis(300));
        assert!((two.p95.as_secs_f64() - 0.46).abs() < 1e-9, "{two:?}");
        assert!((two.looks_per_s - 2.0 / 0.46).abs() < 0.05, "{two:?}");
        // Without hurry an image joins each of them.
        let without = forecast(&pace(&[5; 8]), 6, 1, EVER);
        assert!(without.p95 > Duration::from_secs(1), "{without:?}");
    }

    #[test]
    fn lengths_of_another_scene_replace_the_old_ones() {
        // Few objects, many, few: each scatters by a factor of four.
        let look = |lengths: &mut LookLengths, scene: u32, looks: u32| {
            (0..looks).for_each(|i| lengths.add(scene + i % 4 * scene));
            lengths.mean().expect("looks are known") / f64::from(scene)
        };
        let mut lengths = LookLengths::default();
        for scene in [3, 20, 3] {
            let early = look(&mut lengths, scene, 20);
            assert!((early - 2.5).abs() < 0.5, "{scene}: {early}");
            let late = look(&mut lengths, scene, 300);
            assert!((late - 2.5).abs() < 0.1, "{scene}: {late}");
        }
    }

    #[test]
    fn costs_follow_a_slower_clock_within_twenty_looks() {
        let mut pace = pace(&[5; 8]);
        for _ in 0..20 {
            (0..4).for_each(|_| pace.step(&[], Duration::from_millis(20)));
            pace.step(&[12], Duration::from_millis(420));
        }
        let alone = pace.look_alone().expect("looks are known");
        assert!(alone > Duration::from_millis(380), "{alone:?}");
    }
}
