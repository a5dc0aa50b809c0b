//! What a model found, in its own terms: bins and token ids.

use spotter_core::NormBox;

/// A found object as the model's bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectBins {
    /// 0..1024; [`super::coord_from_bin`] gives the share of the width.
    pub x_bin: u16,
    /// The same for the height.
    pub y_bin: u16,
    /// Width and height bins of a box; [`super::size_from_bin`] gives the shares. `None` for a point.
    pub size_bins: Option<(u16, u16)>,
    /// Probability of going on instead of ending, when this object was begun.
    pub probability: f32,
    /// Probability mass within two bins of the chosen one, 0..1: the smallest of x, y, width and height. How sure the
    /// model is of the place, as `probability` is of the object.
    pub sharpness: f32,
}

/// The value that goes with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueBins {
    Coord(u16),
    /// Width and height bins.
    Size(u16, u16),
}

/// Thoughts, as far as they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thoughts {
    pub tokens: Vec<u32>,
    /// What those of the tokens stand for that have a value, in their order.
    pub values: Vec<ValueBins>,
}

/// A point in shares of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Vertex {
    pub x: f64,
    pub y: f64,
}

/// An outline as the model drew it.
#[derive(Clone, Debug, PartialEq)]
pub struct DrawnOutline {
    /// In the picture that the model saw; `None` when it gave no box.
    pub bounds: Option<NormBox>,
    /// An SVG path in shares of the box; empty when the words are none.
    pub path: String,
    /// The same as polygons, curves as chords.
    pub polygons: Vec<Vec<Vertex>>,
    /// Why the words are no path.
    pub parse_error: Option<String>,
}

/// What was found so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceOutput {
    /// Of detect and point.
    pub objects: Vec<ObjectBins>,
    /// Token ids of the answer.
    pub tokens: Vec<u32>,
    /// What the tokens of the answer stand for that have a value, in their order.
    pub values: Vec<ValueBins>,
    /// What the model wrote before the answer.
    pub thoughts: Thoughts,
    /// Sum of the natural logarithms of the answer tokens' probabilities, the end included.
    pub log_probability: f64,
    /// A bound ended it, not the model.
    pub truncated: bool,
}

/// A part of an output that is decided.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputPiece {
    Object(ObjectBins),
    /// Tokens of the thoughts that follow those of the pieces before; not empty.
    Thoughts(Vec<u32>),
    /// Values of the answer, before the tokens that stand for them.
    Values(Vec<ValueBins>),
    /// Tokens of the answer.
    Tokens(Vec<u32>),
}

/// How long an output is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLength {
    pub objects: usize,
    pub thoughts: usize,
    pub values: usize,
    pub tokens: usize,
}

impl OutputLength {
    /// The longer one of both, for each kind.
    pub fn max(self, other: Self) -> Self {
        Self {
            objects: self.objects.max(other.objects),
            thoughts: self.thoughts.max(other.thoughts),
            values: self.values.max(other.values),
            tokens: self.tokens.max(other.tokens),
        }
    }
}

impl SequenceOutput {
    pub fn length(&self) -> OutputLength {
        OutputLength {
            objects: self.objects.len(),
            thoughts: self.thoughts.tokens.len(),
            values: self.values.len(),
            tokens: self.tokens.len(),
        }
    }

    /// What follows its first `known` parts, of which it may have less.
    pub fn pieces_after(&self, known: OutputLength) -> impl Iterator<Item = OutputPiece> {
        let objects = self.objects.iter().skip(known.objects);
        let after = |tokens: &[u32], known| {
            let new = tokens.get(known..).unwrap_or_default();
            (!new.is_empty()).then(|| new.to_vec())
        };
        let thoughts = after(&self.thoughts.tokens, known.thoughts).map(OutputPiece::Thoughts);
        let values = self.values.get(known.values..).unwrap_or_default();
        let values = (!values.is_empty()).then(|| OutputPiece::Values(values.to_vec()));
        let tokens = after(&self.tokens, known.tokens).map(OutputPiece::Tokens);
        let objects = objects.copied().map(OutputPiece::Object);
        objects.chain(thoughts).chain(values).chain(tokens)
    }
}
