//! How far tensors are from the golden ones, kind by kind, beside how far the reference's own run in bf16 is.
//!
//! Belongs here: what an error is, the table, and what it is held to. Not here: where tensors come from
//! ([`golden_run`](super::golden_run)) and which are compared ([`golden_figures`](super::golden_figures)).

use std::collections::BTreeMap;

/// Largest and mean difference of a tensor, both in parts of the root mean square of what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distance {
    pub max: f64,
    pub rms: f64,
}

impl Distance {
    /// Of `got` from `want`; infinite where a value is not a number.
    pub fn between(got: &[f32], want: &[f32]) -> Self {
        assert_eq!(got.len(), want.len(), "number of values");
        let scale = rms(want);
        let (mut max, mut squares) = (0.0, 0.0);
        for (got, want) in got.iter().zip(want) {
            let off = (f64::from(*got) - f64::from(*want)).abs();
            let off = if off.is_nan() { f64::INFINITY } else { off };
            max = f64::max(max, off);
            squares += off * off;
        }
        Self {
            max: max / scale,
            rms: (squares / want.len() as f64).sqrt() / scale,
        }
    }

    /// The larger of each.
    fn worst(self, other: Self) -> Self {
        Self {
            max: self.max.max(other.max),
            rms: self.rms.max(other.rms),
        }
    }
}

pub fn rms(values: &[f32]) -> f64 {
    let squares: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
    (squares / values.len() as f64).sqrt()
}

/// A number of [`Distance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Max,
    /// Their root mean square.
    Rms,
}

/// An error larger than it may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Beyond {
    /// Of which kind of tensor.
    pub kind: String,
    pub measure: Measure,
    pub ours: f64,
    /// What the reference in bf16 has.
    pub reference: f64,
}

/// What the reference in bf16 has for a kind of tensor; not every set holds both numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reference {
    max: Option<f64>,
    rms: Option<f64>,
}

/// The worst of a kind's tensors.
#[derive(Clone, Debug, Default)]
struct Figure {
    tensors: usize,
    ours: Distance,
    reference: Reference,
}

/// A table of errors by kind of tensor.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<String, Figure>);

impl Figures {
    /// A tensor of `kind` and what it should be.
    pub fn add(&mut self, kind: &str, got: &[f32], want: &[f32]) {
        let figure = self.0.entry(kind.to_owned()).or_default();
        figure.tensors += 1;
        figure.ours = figure.ours.worst(Distance::between(got, want));
    }

    /// What the reference in bf16 has for `kind`.
    pub fn reference(&mut self, kind: &str, max: Option<f64>, rms: Option<f64>) {
        self.0.entry(kind.to_owned()).or_default().reference = Reference { max, rms };
    }

    /// A tensor of the reference in bf16; the worst of a kind counts.
    pub fn reference_run(&mut self, kind: &str, run: &[f32], want: &[f32]) {
        let reference = &mut self.0.entry(kind.to_owned()).or_default().reference;
        let off = Distance::between(run, want);
        reference.max = Some(reference.max.unwrap_or(0.0).max(off.max));
        reference.rms = Some(reference.rms.unwrap_or(0.0).max(off.rms));
    }

    /// Largest error of the reference in bf16 for `kind`, in parts of the root mean square; 0 where it is not known.
    pub fn reference_max(&self, kind: &str) -> f64 {
        let figure = self.0.get(kind);
        figure.and_then(|f| f.reference.max).unwrap_or(0.0)
    }

    /// Kinds that were compared.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        let compared = self.0.iter().filter(|(_, figure)| figure.tensors > 0);
        compared.map(|(kind, _)| kind.as_str())
    }

    pub fn print(&self, title: &str) {
        let cell = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2e}"));
        println!(
            "{title}: largest |difference| and rms of differences, in parts of the rms of what is wanted"
        );
        println!(
            "  {:32} {:>7} {:>9} {:>9} {:>9} {:>9}",
            "tensor", "tensors", "our max", "our rms", "bf16 max", "bf16 rms"
        );
        for (kind, figure) in &self.0 {
            let Figure {
                tensors,
                ours,
                reference,
            } = figure;
            let ours = [ours.max, ours.rms].map(|x| cell(Some(x).filter(|_| *tensors > 0)));
            println!(
                "  {kind:32} {tensors:7} {:>9} {:>9} {:>9} {:>9}",
                ours[0],
                ours[1],
                cell(reference.max),
                cell(reference.rms)
            );
        }
    }

    /// Kinds that the reference in bf16 has an error for and that were not compared.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        let missing = self.0.iter().filter(|(_, figure)| figure.tensors == 0);
        missing.map(|(kind, _)| kind.as_str())
    }

    /// Errors of more than `factor` times the reference's, in what is known of that.
    pub fn beyond(&self, factor: f64) -> Vec<Beyond> {
        let mut beyond = Vec::new();
        for (kind, figure) in &self.0 {
            let (ours, reference) = (figure.ours, figure.reference);
            for (measure, ours, reference) in [
                (Measure::Max, ours.max, reference.max),
                (Measure::Rms, ours.rms, reference.rms),
            ] {
                if let Some(reference) = reference.filter(|reference| ours > factor * reference) {
                    beyond.push(Beyond {
                        kind: kind.clone(),
                        measure,
                        ours,
                        reference,
                    });
                }
            }
        }
        beyond
    }

    /// Largest differences above `most`.
    pub fn above(&self, most: f64) -> Vec<String> {
        let above = self.0.iter().filter(|(_, figure)| figure.ours.max > most);
        above
            .map(|(kind, figure)| format!("{kind}: {:.2e}", figure.ours.max))
            .collect()
    }
}

#[test]
fn an_error_is_in_parts_of_what_is_wanted() {
    let off = Distance::between(&[3.0, -4.0, 6.0, 8.0], &[3.0, -4.0, 6.0, 4.0]);
    let scale = (77.0_f64 / 4.0).sqrt();
    assert!((off.max - 4.0 / scale).abs() < 1e-12);
    assert!((off.rms - 2.0 / scale).abs() < 1e-12);
    let lost = Distance::between(&[f32::NAN, 1.0], &[1.0, 1.0]);
    assert_eq!((lost.max, lost.rms), (f64::INFINITY, f64::INFINITY));
}

#[test]
fn the_worst_tensor_of_a_kind_counts_on_both_sides() {
    let mut figures = Figures::default();
    let want = [1.0, -1.0, 1.0, -1.0];
    figures.add("a", &[1.1, -1.0, 1.0, -1.0], &want);
    figures.add("a", &[1.0, -1.0, 1.0, -1.0], &want);
    figures.reference_run("a", &[1.06, -1.0, 1.0, -1.0], &want);
    figures.reference_run("a", &[1.0, -1.01, 1.0, -1.0], &want);
    figures.add("b", &want, &want);
    assert_eq!(figures.kinds().collect::<Vec<_>>(), ["a", "b"]);
    assert!(figures.beyond(2.0).is_empty() && figures.above(0.11).is_empty());
    // The largest is 0.1 beside 0.06; both have one difference in four values.
    let beyond = figures.beyond(1.5);
    let measures: Vec<_> = beyond.iter().map(|beyond| beyond.measure).collect();
    assert_eq!(measures, [Measure::Max, Measure::Rms]);
    assert_eq!(figures.above(0.09), ["a: 1.00e-1"]);
    figures.reference("c", Some(0.5), None);
    assert_eq!(figures.missing().collect::<Vec<_>>(), ["c"]);
}
