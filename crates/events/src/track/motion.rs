//! Predicts the location of an object from the locations where it was seen.
//!
//! Each number of a location (centre and size of a box, or the coordinates of a point) has a value and a speed with their
//! variances: a Kalman filter with constant speed and random acceleration. So the time between two looks may vary, and each
//! prediction has its variance. Numbers are shares of the picture; times are those at which frames were received.

use spotter_core::{Location, Mono, NormBox, NormPoint, duration_from_secs};

/// Standard deviation of the speed of a new object, shares of the picture a second. A walker near the camera needs some ten
/// seconds from side to side, a running dog six.
const SPEED_USUAL: f64 = 0.12;
/// Upper limit of a speed, shares of the picture a second.
const SPEED_MAX: f64 = 1.0;
/// Standard deviation of the speed of a new object's size. Most of the change is at the picture's edge.
const GROWTH_USUAL: f64 = 0.04;
/// A still object may have started to move this number of seconds ago.
const START_S: f64 = 1.0;
/// Change of the variance of a speed in a second, shares squared: objects turn, start and stop.
const PUSH: f64 = 0.0025;
/// In one look of a hundred the speed has changed abruptly (natural logarithm), by this multiple of the usual speed.
const PUSHED_SURPRISE: f64 = 4.6;
const PUSHED_BY: f64 = 2.0;
/// Share of those looks in which the box is wrong instead: of a half hidden object the model often boxes the half.
const ODD_SHARE: f64 = 0.5;
/// Adaptation to objects that are steadier than most: weight of the newest look, smallest factor, and largest deviation of
/// one look (variances).
const LEARNS: f64 = 0.5;
const UNREST_MIN: f64 = 0.02;
const STRAYED_MAX: f64 = 9.0;
/// Upper limit of the standard deviation of a location, shares of the picture.
const SPREAD_MAX: f64 = 0.3;
/// Standard deviation of the model's boxes, as a share of their size: of centres, and of sizes, which change with every step
/// of a walker.
const CENTRE_ERROR: f64 = 0.1;
const SIZE_ERROR: f64 = 0.2;
/// Smallest standard deviation of a box, shares of the picture: a few of the model's 1024 bins.
const ERROR_MIN: f64 = 0.004;
/// Standard deviation of points, which may be anywhere on an object.
const POINT_ERROR: f64 = 0.015;
/// A box that ends nearer to the picture's edge may be cut off by it.
const EDGE: f64 = 0.004;

/// Location and speed of one object.
#[derive(Clone, Debug)]
pub struct MotionFilter {
    /// Of the numbers of a location, in their order.
    axes: Vec<Axis>,
    /// The time of the values.
    at: Mono,
    /// The last look did not find the object.
    missed: bool,
}

impl MotionFilter {
    pub fn new(place: Location, at: Mono) -> Self {
        let speeds = [SPEED_USUAL, SPEED_USUAL, GROWTH_USUAL, GROWTH_USUAL];
        let seen = numbers_of(place).into_iter().zip(speeds);
        Self {
            axes: seen.map(|(seen, speed)| Axis::new(seen, speed)).collect(),
            at,
            missed: false,
        }
    }

    /// The prediction for `now`.
    #[must_use]
    pub fn expected(&self, now: Mono) -> Self {
        let seconds = now.since(self.at).as_secs_f64();
        let mut next = self.clone();
        next.axes.iter_mut().for_each(|axis| axis.pass(seconds));
        next.at = now;
        next
    }

    /// The prediction for an object that has been still for long: its location does not depend on the time since the last look,
    /// except for a movement in the last [`START_S`].
    #[must_use]
    pub fn at_rest(&self, now: Mono) -> Self {
        let mut still = self.clone();
        still.axes.iter_mut().for_each(Axis::stop);
        still.at = still.at.max(now.before(duration_from_secs(START_S)));
        still.expected(now)
    }

    /// A look saw the object at `place`, at the time of this prediction.
    #[must_use]
    pub fn seen(mut self, place: Location) -> Self {
        let seen = numbers_of(self.whole(place));
        let evidence = self.judge(&seen, &self.values());
        let happened = evidence.is_some_and(|evidence| evidence.happened);
        for (axis, seen) in self.axes.iter_mut().zip(seen) {
            axis.correct(seen, happened);
        }
        for size in self.axes.iter_mut().skip(2) {
            size.value = size.value.clamp(0.0, 1.0);
        }
        self.missed = false;
        self
    }

    pub fn missed(&mut self) {
        self.missed = true;
    }

    /// Minus the logarithm of the probability density at `place`. `None` when the object has left the picture, or for a point
    /// and a box. It has left when it is predicted outside and the last look did not find it: an object that the last look
    /// found may be slower than predicted.
    pub fn surprise(&self, place: Location) -> Option<f64> {
        let evidence = match self.place() {
            Some(part) => {
                let expected = numbers_of(part).into_iter().map(|number| number.value);
                self.judge(&numbers_of(place), &Vec::from_iter(expected))
            }
            None if self.missed => None,
            None => self.judge(&numbers_of(self.whole(place)), &self.values()),
        };
        Some(evidence?.surprise)
    }

    /// Judges the difference of `seen` and `expected` in each number. `None` for a point and a box. An abrupt change concerns the whole
    /// object, so its cost is added once and not per number.
    fn judge(&self, seen: &[SeenNumber], expected: &[f64]) -> Option<MotionEvidence> {
        if seen.len() != self.axes.len() {
            return None;
        }
        let (mut nothing, mut something) = (0.0, 0.0);
        for ((axis, seen), expected) in self.axes.iter().zip(seen).zip(expected) {
            let off = seen.value - expected;
            let plain = axis.surprise(off, seen.error);
            nothing += plain;
            something += axis.pushed().surprise(off, seen.error).min(plain);
        }
        let something = something + PUSHED_SURPRISE;
        Some(MotionEvidence {
            surprise: nothing.min(something),
            happened: something < nothing,
        })
    }

    fn values(&self) -> Vec<f64> {
        self.axes.iter().map(|axis| axis.value).collect()
    }

    /// The part in the picture; `None` when it is outside.
    fn place(&self) -> Option<Location> {
        match self.values()[..] {
            [x, y, width, height] => {
                let part = NormBox::from_centre(x, y, width, height);
                (part.area() > 0.0).then_some(Location::Box(part))
            }
            [x, y] => {
                let near = |value: f64| (-POINT_ERROR..=1.0 + POINT_ERROR).contains(&value);
                (near(x) && near(y)).then(|| Location::Point(NormPoint::new(x, y)))
            }
            _ => None,
        }
    }

    /// The box with the part that the picture's edge cuts off: the hidden side moves with the visible one.
    fn whole(&self, place: Location) -> Location {
        let (Location::Box(seen), [x, y, width, height]) = (place, &self.values()[..]) else {
            return place;
        };
        let [x0, x1] = over_the_edge([seen.x0, seen.x1], *x, *width);
        let [y0, y1] = over_the_edge([seen.y0, seen.y1], *y, *height);
        // The constructors would cut it again.
        Location::Box(NormBox { x0, y0, x1, y1 })
    }
}

/// The ends of a box along one axis; if the picture's edge hides one of them, it is where the expected centre and size have it.
fn over_the_edge([from, to]: [f64; 2], centre: f64, size: f64) -> [f64; 2] {
    let (expected_from, expected_to) = (centre - size / 2.0, centre + size / 2.0);
    match (from <= EDGE, to >= 1.0 - EDGE) {
        (true, false) => [from.min(expected_from + (to - expected_to)), to],
        (false, true) => [from, to.max(expected_to + (from - expected_from))],
        _ => [from, to],
    }
}

struct MotionEvidence {
    surprise: f64,
    /// An abrupt change of speed is the more probable explanation.
    happened: bool,
}

/// A number of a location with its standard deviation.
#[derive(Clone, Copy)]
struct SeenNumber {
    value: f64,
    error: f64,
}

/// Centre and size of a box; the coordinates of a point.
fn numbers_of(place: Location) -> Vec<SeenNumber> {
    let number = |value, error| SeenNumber { value, error };
    match place {
        Location::Point(NormPoint { x, y }) => [x, y].map(|at| number(at, POINT_ERROR)).to_vec(),
        Location::Box(found) => {
            let NormPoint { x, y } = found.centre();
            let (width, height) = (found.x1 - found.x0, found.y1 - found.y0);
            let error = |share: f64, size: f64| share * size + ERROR_MIN;
            vec![
                number(x, error(CENTRE_ERROR, width)),
                number(y, error(CENTRE_ERROR, height)),
                number(width, error(SIZE_ERROR, width)),
                number(height, error(SIZE_ERROR, height)),
            ]
        }
    }
}

/// One number with its speed.
#[derive(Clone, Debug)]
struct Axis {
    value: f64,
    /// Change of the value per second.
    speed: f64,
    /// Variances of value and speed, and their covariance.
    value_variance: f64,
    speed_variance: f64,
    covariance: f64,
    speed_usual: f64,
    /// Factor of the variances: below 1 for an object that is steadier than most.
    unrest: f64,
    /// Time since the last look that saw it.
    seconds: f64,
}

impl Axis {
    fn new(seen: SeenNumber, speed_usual: f64) -> Self {
        Self {
            value: seen.value,
            speed: 0.0,
            value_variance: seen.error * seen.error,
            speed_variance: speed_usual * speed_usual,
            covariance: 0.0,
            speed_usual,
            unrest: 1.0,
            seconds: 0.0,
        }
    }

    fn pass(&mut self, seconds: f64) {
        let push = PUSH * self.unrest;
        self.value += self.speed * seconds;
        self.value_variance += seconds
            * (2.0 * self.covariance + seconds * (self.speed_variance + push * seconds / 3.0));
        self.covariance += seconds * (self.speed_variance + push * seconds / 2.0);
        self.speed_variance += push * seconds;
        self.seconds = seconds;
        let most = SPREAD_MAX * SPREAD_MAX;
        if self.value_variance > most {
            // After this time without a look the speed does not predict the location.
            self.value_variance = most;
            self.speed_variance = self.speed_usual * self.speed_usual;
            self.covariance = 0.0;
        }
    }

    fn stop(&mut self) {
        self.speed = 0.0;
        self.covariance = 0.0;
        self.speed_variance = 0.0;
    }

    /// The same with an abrupt change of speed directly after the last look.
    fn pushed(&self) -> Self {
        let push = (PUSHED_BY * self.speed_usual).powi(2);
        Self {
            value_variance: self.value_variance + push * self.seconds * self.seconds,
            covariance: self.covariance + push * self.seconds,
            speed_variance: self.speed_variance + push,
            ..self.clone()
        }
    }

    fn variance(&self, error: f64) -> f64 {
        self.value_variance + error * error * self.unrest
    }

    fn correct(&mut self, seen: SeenNumber, happened: bool) {
        let SeenNumber { value, error } = seen;
        let off = value - self.value;
        let strayed = (off * off / self.variance(error)).min(STRAYED_MAX);
        let pushed = self.pushed();
        *self = if happened && pushed.surprise(off, error) < self.surprise(off, error) {
            pushed.corrected(off, error).or(self, ODD_SHARE)
        } else {
            self.corrected(off, error)
        };
        let unrest = self.unrest * (1.0 - LEARNS + LEARNS * strayed);
        self.unrest = unrest.clamp(UNREST_MIN, 1.0);
    }

    /// The same after a look with this deviation.
    fn corrected(&self, off: f64, error: f64) -> Self {
        let variance = self.variance(error);
        let (trust, lean) = (self.value_variance / variance, self.covariance / variance);
        Self {
            value: self.value + trust * off,
            speed: (self.speed + lean * off).clamp(-SPEED_MAX, SPEED_MAX),
            value_variance: self.value_variance * (1.0 - trust),
            speed_variance: self.speed_variance - lean * self.covariance,
            covariance: self.covariance * (1.0 - trust),
            ..self.clone()
        }
    }

    /// The mixture of both, with the probability `share` of `other`: mean and variance of the mixture.
    fn or(&self, other: &Self, share: f64) -> Self {
        let mix = |own: f64, other: f64| own + share * (other - own);
        let (apart, speeds_apart) = (other.value - self.value, other.speed - self.speed);
        let both = share * (1.0 - share);
        Self {
            value: mix(self.value, other.value),
            speed: mix(self.speed, other.speed),
            value_variance: mix(self.value_variance, other.value_variance) + both * apart * apart,
            speed_variance: mix(self.speed_variance, other.speed_variance)
                + both * speeds_apart * speeds_apart,
            covariance: mix(self.covariance, other.covariance) + both * apart * speeds_apart,
            ..self.clone()
        }
    }

    fn surprise(&self, off: f64, error: f64) -> f64 {
        let variance = self.variance(error);
        (off * off / variance + (std::f64::consts::TAU * variance).ln()) / 2.0
    }
}
