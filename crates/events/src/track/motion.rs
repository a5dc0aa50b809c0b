//! Predicts the location of an object from the locations where it was seen.
//!
//! Each number of a location (centre and size of a box, or the coordinates of a point) has a value and a speed with their
//! variances: a Kalman filter with constant speed and random acceleration. So the time between two looks may vary, and each
//! prediction has its variance. Numbers are shares of the picture; times are those at which frames were received.

use spotter_core::{Location, Mono, NormBox, NormPoint};

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
    centre: [Axis; 2],
    /// `None` for a point.
    size: Option<[Axis; 2]>,
    /// The time of the values.
    at: Mono,
    /// The last look did not find the object.
    missed: bool,
}

impl MotionFilter {
    pub fn new(place: Location, at: Mono) -> Self {
        let seen = Measurement::new(place);
        let axis = |value, error, speed| Axis::new(value, error, speed);
        Self {
            centre: [0, 1].map(|i| axis(seen.centre[i], seen.centre_error[i], SPEED_USUAL)),
            size: seen
                .size
                .map(|size| [0, 1].map(|i| axis(size[i], seen.size_error[i], GROWTH_USUAL))),
            at,
            missed: false,
        }
    }

    /// The prediction for `now`.
    #[must_use]
    pub fn expected(&self, now: Mono) -> Self {
        let seconds = now.since(self.at).as_secs_f64();
        let mut next = self.clone();
        next.axes().for_each(|axis| axis.pass(seconds));
        next.at = now;
        next
    }

    /// The prediction for an object that has been still for long: its location does not depend on the time since the last look,
    /// except for a movement in the last [`START_S`].
    #[must_use]
    pub fn at_rest(&self, now: Mono) -> Self {
        let seconds = now.since(self.at).as_secs_f64().min(START_S);
        let mut next = self.clone();
        next.axes().for_each(|axis| {
            axis.stop();
            axis.pass(seconds);
        });
        next.at = now;
        next
    }

    /// A look saw the object at `place`, at the time of this prediction.
    #[must_use]
    pub fn seen(mut self, place: Location) -> Self {
        let seen = Measurement::new(self.whole(place));
        let happened = self
            .residuals(&seen, &self.values())
            .is_some_and(|residuals| judge(&residuals).happened);
        for i in 0..2 {
            self.centre[i].correct(seen.centre[i], seen.centre_error[i], happened);
        }
        if let (Some(own), Some(size)) = (&mut self.size, seen.size) {
            for i in 0..2 {
                own[i].correct(size[i], seen.size_error[i], happened);
                own[i].value = own[i].value.clamp(0.0, 1.0);
            }
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
        let residuals = match self.place() {
            Some(part) => {
                let Measurement { centre, size, .. } = Measurement::new(part);
                self.residuals(&Measurement::new(place), &CentreAndSize { centre, size })
            }
            None if self.missed => None,
            None => self.residuals(&Measurement::new(self.whole(place)), &self.values()),
        };
        Some(judge(&residuals?).surprise)
    }

    /// The difference of `seen` and `expected` in each number. `None` for a point and a box.
    fn residuals(&self, seen: &Measurement, expected: &CentreAndSize) -> Option<Vec<Residual<'_>>> {
        let of_centre = |i: usize| Residual {
            axis: &self.centre[i],
            off: seen.centre[i] - expected.centre[i],
            error: seen.centre_error[i],
        };
        let mut residuals = vec![of_centre(0), of_centre(1)];
        match (&self.size, seen.size, expected.size) {
            (None, None, None) => {}
            (Some(axes), Some(seen_size), Some(size)) => {
                residuals.extend((0..2).map(|i| Residual {
                    axis: &axes[i],
                    off: seen_size[i] - size[i],
                    error: seen.size_error[i],
                }));
            }
            _ => return None,
        }
        Some(residuals)
    }

    fn values(&self) -> CentreAndSize {
        let values = |axes: &[Axis; 2]| [axes[0].value, axes[1].value];
        CentreAndSize {
            centre: values(&self.centre),
            size: self.size.as_ref().map(values),
        }
    }

    /// The part in the picture; `None` when it is outside.
    fn place(&self) -> Option<Location> {
        let [x, y] = &self.centre;
        match &self.size {
            None => {
                let near = |value: f64| (-POINT_ERROR..=1.0 + POINT_ERROR).contains(&value);
                (near(x.value) && near(y.value))
                    .then(|| Location::Point(NormPoint::new(x.value, y.value)))
            }
            Some([width, height]) => {
                let part = NormBox::from_centre(x.value, y.value, width.value, height.value);
                (part.area() > 0.0).then_some(Location::Box(part))
            }
        }
    }

    /// The box with the part that the picture's edge cuts off: the hidden side moves with the visible one.
    fn whole(&self, place: Location) -> Location {
        let (Location::Box(seen), Some(size)) = (place, &self.size) else {
            return place;
        };
        let expected = |i: usize| {
            let half = size[i].value / 2.0;
            let centre = self.centre[i].value;
            AxisRange {
                from: centre - half,
                to: centre + half,
            }
        };
        let seen_x = AxisRange {
            from: seen.x0,
            to: seen.x1,
        };
        let seen_y = AxisRange {
            from: seen.y0,
            to: seen.y1,
        };
        let x = over_the_edge(seen_x, expected(0));
        let y = over_the_edge(seen_y, expected(1));
        // The constructors would cut it again.
        Location::Box(NormBox {
            x0: x.from,
            y0: y.from,
            x1: x.to,
            y1: y.to,
        })
    }

    fn axes(&mut self) -> impl Iterator<Item = &mut Axis> {
        self.centre.iter_mut().chain(self.size.iter_mut().flatten())
    }
}

/// A box along one axis, shares of the picture.
#[derive(Clone, Copy)]
struct AxisRange {
    from: f64,
    to: f64,
}

/// `seen`; if the picture's edge hides one of its ends, that end is where `expected` has it.
fn over_the_edge(seen: AxisRange, expected: AxisRange) -> AxisRange {
    match (seen.from <= EDGE, seen.to >= 1.0 - EDGE) {
        (true, false) => AxisRange {
            from: seen.from.min(expected.from + (seen.to - expected.to)),
            ..seen
        },
        (false, true) => AxisRange {
            to: seen.to.max(expected.to + (seen.from - expected.from)),
            ..seen
        },
        _ => seen,
    }
}

/// The values of a filter, or of the part of its box in the picture.
struct CentreAndSize {
    centre: [f64; 2],
    /// `None` for a point.
    size: Option<[f64; 2]>,
}

/// The difference of one number of a look and its expected value.
struct Residual<'a> {
    axis: &'a Axis,
    off: f64,
    error: f64,
}

struct MotionEvidence {
    surprise: f64,
    /// An abrupt change of speed is the more probable explanation.
    happened: bool,
}

/// An abrupt change concerns the whole object, so its cost is added once and not per number.
fn judge(residuals: &[Residual]) -> MotionEvidence {
    let plain = |o: &Residual| o.axis.surprise(o.off, o.error);
    let pushed = |o: &Residual| o.axis.pushed().surprise(o.off, o.error).min(plain(o));
    let nothing: f64 = residuals.iter().map(plain).sum();
    let something = residuals.iter().map(pushed).sum::<f64>() + PUSHED_SURPRISE;
    MotionEvidence {
        surprise: nothing.min(something),
        happened: something < nothing,
    }
}

/// The numbers of a location with their standard deviations.
struct Measurement {
    centre: [f64; 2],
    centre_error: [f64; 2],
    size: Option<[f64; 2]>,
    size_error: [f64; 2],
}

impl Measurement {
    fn new(place: Location) -> Self {
        match place {
            Location::Point(NormPoint { x, y }) => Self {
                centre: [x, y],
                centre_error: [POINT_ERROR; 2],
                size: None,
                size_error: [0.0; 2],
            },
            Location::Box(found) => {
                let size = [found.x1 - found.x0, found.y1 - found.y0];
                let NormPoint { x, y } = found.centre();
                Self {
                    centre: [x, y],
                    centre_error: size.map(|size| CENTRE_ERROR * size + ERROR_MIN),
                    size: Some(size),
                    size_error: size.map(|size| SIZE_ERROR * size + ERROR_MIN),
                }
            }
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
    fn new(value: f64, error: f64, speed_usual: f64) -> Self {
        Self {
            value,
            speed: 0.0,
            value_variance: error * error,
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

    fn correct(&mut self, seen: f64, error: f64, happened: bool) {
        let off = seen - self.value;
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
