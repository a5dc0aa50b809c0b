//! The seam between the scheduler and a device: one *step* at a time.
//!
//! A step is one forward pass over some rows. It encodes the images of its prefills (if any), writes the KV of every
//! position it is given, and decides from the hidden states of each row's last positions ([`Pick`]). Prefill and decode
//! are the same step: a prefill is a row with many positions. The phases of a slot:
//!
//! ```text
//!            launch                    finalize                       commit
//!   Free ───────────────▶ Launched ───────────────▶ Finalized ─────────────────▶ Free
//!            forward starts,           host masks for the      waits for the results;
//!            returns at once           rows that want one      only now the slot is free again
//!                 └── no row wants a host mask: Finalized at once ──┘
//!
//!   host     launch t+1 │ commit t, advance its rows │ finalize t+1 │ launch t+2 │ commit t+1 …
//!   device   ─ sample t ┤ forward t+1 ───────────────┤ sample t+1 ──┤ forward t+2 ────────────
//! ```
//!
//! What a device may rely on:
//!
//! 1. All calls come from one thread. `launch` and `finalize` do not wait for the device; `commit` does.
//! 2. Steps run in the order of their launches; commits come in that order too.
//! 3. At most the newest step wants masks: nothing is launched behind a step that is not finalized.
//! 4. A carried row names a row of a step that is launched and not committed ([`RowRef`]); that row has one pick.
//! 5. Pages that a step in flight names are not given to another row before its commit.
//! 6. An entry of features is read only after an image filled it, in an earlier step or before in the same one: an image that fills
//!    an entry fills it for the images behind it, and those before it read what was there.
//!
//! A call may fail ([`BackendError`]). What fails with it is part of the error: a look, the looks of the step, or the device. After an
//! error of `launch` nothing of the step runs and the slot is free. After an error of `finalize` or `commit` the slot is free, and what
//! the step was to write is undefined.
//!
//! Belongs here: the contract and its types. Not here: policy (the scheduler's) and tensors (the backend's).

use crate::model::AdapterWeights;
pub use crate::model::{DecoderInput, ValueTokens};
use std::sync::Arc;

use spotter_core::{CameraId, Mono, Picture, PromptView};

/// A fixed-size block of KV positions in the backend's cache, [`BackendLimits::page_tokens`] positions for all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Everything a step in flight needs, allocated once; there are [`BackendLimits::slots`] of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(pub usize);

/// What the backend offers; it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendLimits {
    /// Steps that can be in flight.
    pub slots: usize,
    /// Rows in one step.
    pub rows: usize,
    pub pages: usize,
    /// Positions a page holds.
    pub page_tokens: usize,
    /// Positions a row may have.
    pub context: usize,
    /// Positions of an image prefix: BOS and the image tokens.
    pub prefix_positions: usize,
    /// Images in one step.
    pub images: usize,
    /// Positions of rows in one step; at least the context, so that every row fits alone.
    pub positions: usize,
    /// Tokens chosen in one step ([`Pick::Token`]); at least the rows. What is beyond is for drafts.
    pub tokens: usize,
    /// Decisions in one step ([`Row::picks`]); at least the rows. What is beyond is for drafts.
    pub picks: usize,
    /// Pixels of a picture. Larger ones are scaled before they are admitted.
    pub picture_pixels: usize,
    /// Crops whose features the backend keeps, in entries `0..kept_crops`.
    pub kept_crops: usize,
    /// Different adapters that rows and images of steps in flight may have.
    pub adapters: usize,
}

/// Where a row's KV is. Positions `0..prefix_positions` are in `prefix`, shared by all rows of the image; the rest in
/// `own`, from the start of its first page. Without an image `prefix` is empty and `prefix_positions` is 0.
///
/// A row writes the pages of `own` from its `position` on, and no other row writes them; full pages before it may be shared
/// with rows that begin with the same text. A position without a page (slot -1 of a device's table) is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvTable {
    /// Pages of the image prefix, which all rows of a look share.
    pub prefix: Arc<[PageId]>,
    /// Positions in them.
    pub prefix_positions: usize,
    /// Pages behind it.
    pub own: Vec<PageId>,
}

impl KvTable {
    /// All pages, which are the table's no more.
    pub fn take_pages(&mut self) -> impl Iterator<Item = PageId> + use<> {
        let Self { prefix, own, .. } = std::mem::take(self);
        let prefix = (0..prefix.len()).map(move |i| prefix[i]);
        prefix.chain(own)
    }
}

/// Place of a crop's features in the backend's memory, below [`BackendLimits::kept_crops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FeatureEntry(pub u32);

/// Where a crop's features come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CropSource {
    /// From the vision encoder; the entry, if any, keeps them.
    Encoded(Option<FeatureEntry>),
    /// From an entry; the crop's pixels are not read.
    Kept(FeatureEntry),
}

/// Number of an adapter that was loaded; rises with each, so that nothing which is remembered of one is used for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterNumber(pub u32);

/// An adapter in memory. Rows that use it hold it: it is released when the engine has given it up and the last row has left.
#[derive(Debug)]
pub struct LoadedAdapter {
    pub number: AdapterNumber,
    pub weights: AdapterWeights,
}

impl PartialEq for LoadedAdapter {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// An image to encode and prefill (bidirectional, positions `0..prefix_positions`).
#[derive(Clone, Debug)]
pub struct ImageJob {
    pub picture: Picture,
    /// How it is looked at: decides the crops. The picture is already the view's part of the frame.
    pub view: PromptView,
    /// Whose picture it is; a device without a model answers by it.
    pub camera: Option<CameraId>,
    /// Pages that take its prefix.
    pub pages: Arc<[PageId]>,
    /// One for each crop, the whole picture first; empty: all are encoded and none is kept.
    pub crops: Vec<CropSource>,
    /// What its prefix is computed with; the encoder has no adapters.
    pub adapter: Option<Arc<LoadedAdapter>>,
}

impl ImageJob {
    /// Where the features of its crops come from, `count` by the picture's tiling; an error when there are not as many.
    pub fn sources(&self, count: usize) -> Result<Vec<CropSource>, BackendError> {
        match self.crops.len() {
            0 => Ok(vec![CropSource::Encoded(None); count]),
            given if given == count => Ok(self.crops.clone()),
            given => Err(BackendError::Step(format!(
                "an image of {count} crops has sources for {given}"
            ))),
        }
    }
}

/// A row of a step in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowRef {
    /// Launched and not committed.
    pub slot: SlotId,
    /// Index in its step.
    pub row: usize,
}

/// The inputs at a row's positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Feed {
    /// At `position`, `position + 1`, …; at least one.
    Host(Vec<DecoderInput>),
    /// One position: what that row decides, made into an input on the device, so that the token never visits the host.
    ///
    /// If it decided [`PickResult::End`] or nothing, this row is a zombie: the backend computes something harmless or
    /// nothing, writes KV to this row's own pages at most, and reports [`PickResult::Nothing`].
    Carry(RowRef),
}

impl Feed {
    /// Positions that it fills.
    pub fn positions(&self) -> usize {
        match self {
            Self::Host(inputs) => inputs.len(),
            Self::Carry(_) => 1,
        }
    }
}

/// Which tokens may be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaskSource {
    /// All but these ids, known at the launch.
    Banned(Vec<u32>),
    /// Those of the mask that [`Backend::finalize`] brings.
    Host,
}

/// A set of token ids as packed bits: id `i` is bit `i % 32` of word `i / 32`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask(pub Vec<u32>);

impl TokenMask {
    /// None of `vocab` ids.
    pub fn none(vocab: usize) -> Self {
        Self(vec![0; vocab.div_ceil(32)])
    }

    /// Adds an id; ids beyond the vocabulary are left out.
    pub fn allow(&mut self, id: u32) {
        if let Some(word) = self.0.get_mut(id as usize / 32) {
            *word |= 1 << (id % 32);
        }
    }

    /// True when the id may be chosen.
    pub fn allows(&self, id: u32) -> bool {
        let word = self.0.get(id as usize / 32);
        word.is_some_and(|word| word & (1 << (id % 32)) != 0)
    }
}

/// The mask of a row whose pick is a token with [`MaskSource::Host`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowMask {
    /// Index in the step.
    pub row: usize,
    /// At least one id.
    pub mask: TokenMask,
}

/// What to decide from a hidden state.
#[derive(Clone, Debug, PartialEq)]
pub enum Pick {
    /// x of a point or box, or the end: the end when its logit beats the coordinate's.
    CoordOrEnd,
    Coord,
    /// Width and height bins.
    Size,
    /// A token of the vocabulary: the largest logit of those that the mask allows; the lowest id among equals. Of a token that means
    /// a value, the value is the decision, as of [`Self::Coord`] and [`Self::Size`] from the same hidden state.
    Token {
        mask: MaskSource,
        values: ValueTokens,
    },
}

impl Pick {
    /// A token that means itself alone.
    pub fn token(mask: MaskSource) -> Self {
        let values = ValueTokens::default();
        Self::Token { mask, values }
    }

    /// True for a token whose mask the host brings.
    pub fn wants_mask(&self) -> bool {
        matches!(self, Self::Token { mask, .. } if *mask == MaskSource::Host)
    }

    /// True for a token of the vocabulary.
    pub fn is_token(&self) -> bool {
        matches!(self, Self::Token { .. })
    }
}

/// One row of a step: consecutive positions of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The inputs at them.
    pub inputs: Feed,
    /// The first of them; everything before it is in the cache, or is written by a step launched before.
    pub position: usize,
    /// Where the row's KV is; must hold all positions up to the last input.
    pub kv: KvTable,
    /// Decisions after the last `picks.len()` positions. None: the row only writes KV. One: the usual. More: a draft is
    /// verified, each of its positions deciding what should have stood at the next one.
    pub picks: Vec<Pick>,
    /// That of everything before `position`, too.
    pub adapter: Option<Arc<LoadedAdapter>>,
}

impl Row {
    /// True when [`Backend::finalize`] has to bring a mask. Such a row has one pick.
    pub fn wants_mask(&self) -> bool {
        self.picks.iter().any(Pick::wants_mask)
    }
}

/// One forward pass: images first, then rows (which may belong to these images).
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub images: Vec<ImageJob>,
    pub rows: Vec<Row>,
}

/// A decision. Probabilities are 0..1 and are the model's own, before any ban.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PickResult {
    End {
        /// Probability of the end against the coordinate.
        probability: f32,
    },
    Coord {
        /// 0..1024; the value is `bin / 1024`.
        bin: u16,
        /// Probability of going on, or of the token (1 where nothing else was possible).
        probability: f32,
        /// Probability mass within two bins of the chosen one.
        sharpness: f32,
    },
    Size {
        /// 0..1024; the value is `2^(bin/1023*10-10)`.
        width_bin: u16,
        height_bin: u16,
        /// As of a coordinate.
        probability: f32,
        /// Smaller of the two masses within two bins of the chosen one.
        sharpness: f32,
    },
    Token {
        id: u32,
        probability: f32,
    },
    /// The row was a zombie, or got no mask.
    Nothing,
}

impl PickResult {
    /// Of the decision; 0 for none.
    pub fn probability(&self) -> f32 {
        match *self {
            Self::End { probability } => probability,
            Self::Coord { probability, .. }
            | Self::Size { probability, .. }
            | Self::Token { probability, .. } => probability,
            Self::Nothing => 0.0,
        }
    }

    /// Of the bins; 1 where there are none.
    pub fn sharpness(&self) -> f32 {
        match *self {
            Self::Coord { sharpness, .. } | Self::Size { sharpness, .. } => sharpness,
            Self::End { .. } | Self::Token { .. } | Self::Nothing => 1.0,
        }
    }
}

/// Results of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepResult {
    /// For each row one decision for each of its picks.
    pub picked: Vec<Vec<PickResult>>,
    /// Pixels that the model saw of each image, after tiling.
    pub model_sizes: Vec<(u32, u32)>,
    /// Crops that went through the vision encoder.
    pub crops_encoded: usize,
    /// Crops whose features were kept.
    pub crops_reused: usize,
    /// How long the parts took on the device.
    pub times: StepTimes,
}

/// Parts of a step's time on the device, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// When the device began.
    pub started: Mono,
    /// Scaling and cutting of the images.
    pub prepare: std::time::Duration,
    /// Vision encoder, projection and prefix prefill.
    pub encode: std::time::Duration,
    /// Forward pass of the rows.
    pub rows: std::time::Duration,
    /// Idle: the host's masks were not there yet.
    pub mask_wait: std::time::Duration,
    /// Decisions. Zero where the backend does not separate them from the forward pass.
    pub sampling: std::time::Duration,
}

impl StepTimes {
    /// When the results were there.
    pub fn ended(&self) -> Mono {
        let forward = self.prepare + self.encode + self.rows;
        self.started.after(forward + self.mask_wait + self.sampling)
    }
}

/// Why a device did not run a step, by what fails with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The device does not accept a picture of the step: the picture's look fails, the step's other rows run in another step. An error of
    /// [`Backend::launch`] alone.
    #[error("{reason}")]
    Image {
        /// Index in the step.
        image: usize,
        reason: String,
    },
    /// The device did not run the step: the looks of its rows fail, and the device is used further.
    #[error("{0}")]
    Step(String),
    /// The device is lost: every look fails, and the engine stops.
    #[error("{0}")]
    Device(String),
}

/// A device that runs steps.
pub trait Backend {
    fn limits(&self) -> BackendLimits;

    /// Starts the forward pass of `step` in the free slot `slot` and returns. Rows that want no host mask are decided in
    /// it.
    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError>;

    /// Brings the masks of the step launched in `slot` and returns; its decisions follow the forward pass. Called once
    /// for a step with rows that want a mask, never for another. A row that gets none is not decided.
    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError>;

    /// Waits for the results of the step in `slot`, which is finalized and the oldest in flight, and frees the slot.
    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError>;

    /// No step launched from now on reads these pages before it writes them. The simulated device checks that; others do
    /// nothing.
    fn release(&mut self, pages: &[PageId]) {
        let _ = pages;
    }

    /// Prepares one shape of steps that ran kernel by kernel, so that its next step is launched as one. A short piece of the
    /// host's work, for moments when no step waits for the host; the device may be busy. False when nothing is left to prepare; an error
    /// when the device is lost, because a shape that cannot be prepared stays as slow as it is.
    fn prepare_shape(&mut self) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// How parts of steps were launched so far.
    fn graph_use(&self) -> GraphUse {
        GraphUse::default()
    }
}

/// Counts of a device that launches recorded work as one. Zeros of other devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphUse {
    /// Shapes that were recorded; never while a step was being launched.
    pub recorded: u64,
    /// Parts of steps that were launched as one.
    pub launched: u64,
    /// Parts of steps that were queued kernel by kernel, for want of a recording.
    pub queued: u64,
}
