//! Which precision a model runs in where the configuration says `auto`. Pure.

use crate::cuda::PrecisionSpeed;
use spotter_core::GpuPrecision;

/// A precision with fewer bits can change answers, so it has to be this much faster: 8 bits than bf16, 4 bits than 8.
const GAIN: f64 = 1.15;

/// A precision, and why it is that.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenPrecision {
    pub precision: GpuPrecision,
    /// `None`: it is configured.
    pub reason: Option<String>,
}

impl ChosenPrecision {
    /// The fastest of those that `fit` into the memory; `None`: none does.
    pub fn fastest(speeds: &[PrecisionSpeed], fits: impl Fn(GpuPrecision) -> bool) -> Option<Self> {
        let fit = speeds.iter().filter(|speed| fits(speed.precision));
        // At a higher or lower rate than its own, for what is worth a change of answers.
        let worth = |speed: &PrecisionSpeed| match speed.precision {
            GpuPrecision::Bf16 => GAIN * speed.tflop_per_s,
            GpuPrecision::Fp8 | GpuPrecision::Int8 => speed.tflop_per_s,
            GpuPrecision::Int4 => speed.tflop_per_s / GAIN,
        };
        let best = fit.max_by(|a, b| worth(a).total_cmp(&worth(b)))?;
        let measured = speeds.iter().map(|speed| {
            let PrecisionSpeed {
                precision,
                tflop_per_s,
            } = speed;
            let room = if fits(*precision) {
                ""
            } else {
                ", does not fit"
            };
            format!("{} {tflop_per_s:.0}{room}", precision.name())
        });
        let measured: Vec<String> = measured.collect();
        Some(Self {
            precision: best.precision,
            reason: Some(format!(
                "precision {}, of \"auto\": large products run at {} TFLOP/s",
                best.precision.name(),
                measured.join("; ")
            )),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEEDS: [PrecisionSpeed; 3] = [
        speed(GpuPrecision::Bf16, 100.0),
        speed(GpuPrecision::Fp8, 114.0),
        speed(GpuPrecision::Int8, 180.0),
    ];

    const fn speed(precision: GpuPrecision, tflop_per_s: f64) -> PrecisionSpeed {
        PrecisionSpeed {
            precision,
            tflop_per_s,
        }
    }

    fn chosen(fits: impl Fn(GpuPrecision) -> bool) -> Option<GpuPrecision> {
        ChosenPrecision::fastest(&SPEEDS, fits).map(|chosen| chosen.precision)
    }

    #[test]
    fn fastest_that_fits_is_taken_and_bf16_unless_much_slower() {
        assert_eq!(chosen(|_| true), Some(GpuPrecision::Int8));
        let without_int8 = |precision| precision != GpuPrecision::Int8;
        assert_eq!(chosen(without_int8), Some(GpuPrecision::Bf16));
        assert_eq!(chosen(|p| p == GpuPrecision::Fp8), Some(GpuPrecision::Fp8));
        assert_eq!(chosen(|_| false), None);
    }

    #[test]
    fn int4_is_chosen_where_alone_or_much_faster() {
        let chosen = |int4, fits: &dyn Fn(GpuPrecision) -> bool| {
            let speeds = [&SPEEDS[..], &[speed(GpuPrecision::Int4, int4)]].concat();
            let chosen = ChosenPrecision::fastest(&speeds, fits);
            chosen.map(|chosen| chosen.precision)
        };
        let any = |_| true;
        assert_eq!(chosen(200.0, &any), Some(GpuPrecision::Int8));
        assert_eq!(chosen(210.0, &any), Some(GpuPrecision::Int4));
        let alone = |precision| precision == GpuPrecision::Int4;
        assert_eq!(chosen(50.0, &alone), Some(GpuPrecision::Int4));
    }

    #[test]
    fn reason_has_the_measured_speeds() {
        let chosen = ChosenPrecision::fastest(&SPEEDS, |p| p != GpuPrecision::Bf16);
        assert_eq!(
            chosen.expect("two fit").reason.expect("measured"),
            "precision int8, of \"auto\": large products run at bf16 100, does not fit; fp8 114; int8 180 TFLOP/s"
        );
    }
}
