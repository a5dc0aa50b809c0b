//! Requests to the scheduler, and its events.

use std::{sync::Arc, time::Duration};

use super::{
    backend::{AdapterNumber, LoadedAdapter},
    draft::DraftKey,
    sequence::Sequence,
    still::{PictureMeasure, ReuseRule, ViewKey},
};
use crate::model::{OutputPiece, SequenceOutput};
use spotter_core::{CameraId, Mono, Picture, PromptView, StageTimes, TokenCounts};

/// A look in the engine; rises with each arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookId(pub u64);

/// A look as the scheduler sees it: tokens instead of text.
#[derive(Clone, Debug)]
pub struct LookRequest {
    /// For fairness.
    pub camera: Option<CameraId>,
    /// `None`: text alone.
    pub picture: Option<Picture>,
    /// Crops into which the picture is cut; 0 without one.
    pub crops: usize,
    /// How the picture is looked at, which is already the view's part of the frame.
    pub view: PromptView,
    /// What the picture is compared by; `None`: all of it is encoded, and nothing is kept.
    pub measured: Option<MeasuredView>,
    /// To be started by then; later it is not begun.
    pub start_by: Mono,
    /// To be answered by then, but for free texts; later it is stopped.
    pub answer_by: Mono,
    /// At least one.
    pub asks: Vec<Ask>,
    /// What all its prompts are answered with.
    pub adapter: Option<Arc<LoadedAdapter>>,
}

impl LookRequest {
    pub fn adapter_number(&self) -> Option<AdapterNumber> {
        self.adapter.as_ref().map(|adapter| adapter.number)
    }
}

/// A view with the measure of what it shows.
#[derive(Clone, Debug)]
pub struct MeasuredView {
    pub view: ViewKey,
    pub measure: PictureMeasure,
}

/// A prompt of a look.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Before its first step.
    pub sequence: Sequence,
    /// Under which its answer is remembered and drafted.
    pub draft: Option<DraftKey>,
    /// An event for every part of its answer as soon as it is decided.
    pub in_pieces: bool,
    /// Its answer may be followed by further prompts of the look, for which the look keeps its image for a while.
    pub has_follow_up: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PromptResult {
    pub found: SequenceOutput,
    pub tokens: TokenCounts,
    pub marks: StageTimes,
    /// It is the last answer: the picture has not changed since.
    pub unchanged: bool,
}

/// Why a look cannot be answered, however long it waits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prompt {prompt} {what}")]
pub struct UnfitPrompt {
    /// Index in the look.
    pub prompt: usize,
    /// What it wants and what there is.
    pub what: String,
}

/// Why a look ends without its answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookFault {
    /// It never fits.
    #[error(transparent)]
    Prompt(UnfitPrompt),
    /// The device does not accept its picture.
    #[error("{0}")]
    Picture(String),
    /// A step of it has no results.
    #[error("{0}")]
    Step(String),
}

/// What happened to a look.
#[derive(Clone, Debug, PartialEq)]
pub enum LookEvent {
    /// A part of the answer to a prompt, given by its index in the look, is decided; more may follow.
    Piece(LookId, usize, OutputPiece),
    /// A prompt, given by its index in the look, is answered.
    Answer {
        look: LookId,
        prompt: usize,
        result: PromptResult,
        /// Pixels that the model saw; zeros without a picture.
        model_size: (u32, u32),
    },
    /// All prompts are answered but free texts, which are being written. Once before [`Self::Answered`].
    ShortAnswered { look: LookId },
    /// All prompts are answered.
    Answered { look: LookId },
    /// It was not started in time, or not answered in time.
    Late { look: LookId },
    /// It cannot be answered.
    Failed { look: LookId, why: LookFault },
}

/// How the engine works. On a device whose numbers do not depend on what is in a step (the CPU, the simulator), every combination gives the
/// same answers, except with [`PictureDetail::Cells`](super::still::PictureDetail). On a GPU a combination makes other steps, and some
/// decisions differ ([`cuda`](crate::cuda)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Steps in flight: 1 blocks, 2 is the pipeline, more runs ahead. The backend's slots bound it.
    pub depth: usize,
    /// Who turns a decision into the next input.
    pub decide: Decide,
    /// The previous answer rides along in the prefill.
    pub draft: bool,
    /// When what does not change is not computed again; `None`: never.
    pub reuse: Option<ReuseRule>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            depth: 2,
            decide: Decide::Device,
            draft: true,
            reuse: None,
        }
    }
}

/// Who turns a decision into the next input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// The device: the next step is launched before the decision is known.
    Device,
    /// The host: a row waits for the commit of its last step.
    Host,
}

/// Work done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub steps: u64,
    pub images: u64,
    /// Steps with an image.
    pub image_steps: u64,
    /// Crops that went through the vision encoder.
    pub crops_encoded: u64,
    /// Crops that did not have to.
    pub crops_reused: u64,
    /// Prefixes of images that did not have to be computed, because they were in the cache.
    pub prefixes_reused: u64,
    /// Prompts that got the last answer without a step.
    pub unchanged: u64,
    /// Prompts prefilled, those again that were evicted.
    pub prefills: u64,
    /// Rows that waited again because their pages were taken.
    pub evicted: u64,
    /// Rows of one position.
    pub decodes: u64,
    /// Decisions offered as drafts.
    pub drafted: u64,
    /// Of these, made by the model.
    pub accepted: u64,
    pub objects: u64,
    /// Time of the device on all looks.
    pub busy: Duration,
    /// Time of the device on looks that were not answered in time.
    pub wasted: Duration,
}
