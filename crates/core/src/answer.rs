//! Looks and answers: the input and the output of the engine.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{
    AdapterId, CameraId, FollowUp, Frame, FrameEnd, FrameId, FrameTimes, LookToken, Mono, NormBox,
    NormPoint, Picture, Prompt, PromptId, PromptView, RegionBox, SkippedSinceLast, Strip, Task,
};

/// A frame with every prompt that is due on it. The image is encoded once for all prompts with the same view.
#[derive(Clone, Debug)]
pub struct Look {
    pub frame: Frame,
    /// Never empty: at least one prompt.
    pub prompts: Vec<Arc<Prompt>>,
    /// What [`PromptRegion::Motion`](super::PromptRegion::Motion) means in this look; `None`: the whole picture.
    pub moved: Option<RegionBox>,
    /// One for each shape and region of the prompts that see a strip.
    pub strips: Vec<Strip>,
    /// The engine drops and counts a look that it did not begin by this time.
    pub start_by: Mono,
    /// The engine stops and counts a look that it did not answer by this time: other looks wait for its permit. Free texts may
    /// come later, because their look has given its permit back ([`LookNews::ShortAnswered`]).
    pub answer_by: Mono,
    /// Counts the end of a camera's look.
    pub token: LookToken,
}

impl Look {
    /// A look without time limits at a picture that is not from a camera. An engine remembers nothing of it.
    pub fn still(picture: Picture, tasks: impl IntoIterator<Item = Task>) -> Self {
        let frame = Frame {
            camera: CameraId::of_still(),
            number: 1,
            camera_size: (picture.width() as u32, picture.height() as u32),
            key: true,
            times: FrameTimes::default(),
            picture,
        };
        let prompt =
            |(number, task)| Arc::new(Prompt::new(PromptId::numbered("ask", number), 1, task));
        Self {
            frame,
            prompts: (0..).zip(tasks).map(prompt).collect(),
            moved: None,
            strips: Vec::new(),
            start_by: Mono::from_nanos(u64::MAX),
            answer_by: Mono::from_nanos(u64::MAX),
            token: LookToken::default(),
        }
    }

    /// All its prompts are answered with this adapter.
    #[must_use]
    pub fn with_adapter(mut self, adapter: Option<&AdapterId>) -> Self {
        for prompt in &mut self.prompts {
            Arc::make_mut(prompt).adapter = adapter.cloned();
        }
        self
    }

    /// The engine also reports parts of their answers, as soon as they are decided.
    #[must_use]
    pub fn in_pieces(mut self) -> Self {
        for prompt in &mut self.prompts {
            Arc::make_mut(prompt).in_pieces = true;
        }
        self
    }

    /// The part of the picture that a prompt of this look sees; `None`: all of it.
    pub fn region_of(&self, view: &PromptView) -> Option<NormBox> {
        let size = self.frame.picture.size();
        Some(view.part(size, self.moved)?.norm_box(size))
    }

    /// The strip that a prompt of this look sees; `None`: it sees the frame.
    pub fn strip_of(&self, view: &PromptView) -> Option<&Strip> {
        let is_seen =
            |strip: &&Strip| Some(strip.shape) == view.strip && strip.region == view.region;
        self.strips.iter().find(is_seen)
    }
}

/// The origin of a score (`score_src` in docs/mqtt.md section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub enum ScoreSource {
    /// Probability of the model's own decision.
    #[default]
    TokenProb,
    /// Probability of the yes to a verification question.
    Verify,
    /// Share of answers with this probability that was right when `spotter eval` asked about pictures whose answers are known.
    Calibrated,
    /// The same of the yes to a verification question.
    VerifyCalibrated,
}

impl ScoreSource {
    /// The value of `score_src` in messages and in the JSON of commands.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The source of an event's score whose question was answered with a score of this source.
    pub fn of_verification(self) -> Self {
        match self {
            Self::TokenProb | Self::Verify => Self::Verify,
            Self::Calibrated | Self::VerifyCalibrated => Self::VerifyCalibrated,
        }
    }

    pub fn is_of_verification(self) -> bool {
        matches!(self, Self::Verify | Self::VerifyCalibrated)
    }
}

/// One object that the model found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundObject<T> {
    pub place: T,
    /// How sure the model is that the object is there, 0..1.
    pub score: f64,
    pub source: ScoreSource,
    /// How sure the model is of the place, 0..1: the probability that it gave to the place it chose and its nearest
    /// neighbours, for the least sure of x, y, width and height.
    pub sharpness: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AnswerBody {
    /// To `detect`, in the model's order.
    Boxes(Vec<FoundObject<NormBox>>),
    /// To `point`, in the model's order.
    Points(Vec<FoundObject<NormPoint>>),
    /// To `query` and `caption`.
    Text {
        /// Without white space at its ends.
        text: String,
        /// Geometric mean of the probabilities of its tokens and of its end, 0..1. They are the model's own, before any
        /// token was forbidden: one of several `choices` that the model would not have given by itself has a low score.
        score: f64,
        source: ScoreSource,
    },
    /// To `segment`.
    Outline(Outline),
}

impl AnswerBody {
    /// The number of found objects; `None` for text.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Boxes(found) => Some(found.len()),
            Self::Points(found) => Some(found.len()),
            Self::Text { .. } => None,
            Self::Outline(outline) => Some(usize::from(outline.bounds.is_some())),
        }
    }
}

/// What the model wrote before an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reasoning {
    pub text: String,
    /// Parts of the text that are about places in the picture, in their order.
    pub grounding: Vec<GroundedSpan>,
}

impl Reasoning {
    /// The points, which are in shares of a part of the picture, in shares of the picture.
    #[must_use]
    pub fn in_picture(mut self, part: &NormBox) -> Self {
        let spans = self.grounding.iter_mut();
        for point in spans.flat_map(|span| &mut span.points) {
            *point = part.point_in_picture(*point);
        }
        self
    }

    /// All points that it is about.
    pub fn points(&self) -> impl Iterator<Item = NormPoint> {
        let spans = self.grounding.iter();
        spans.flat_map(|span| span.points.iter().copied())
    }
}

/// A part of a text that is about points in the picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroundedSpan {
    /// Its first Unicode code point in the text.
    pub start: usize,
    /// The one behind its last.
    pub end: usize,
    /// At least one.
    pub points: Vec<NormPoint>,
}

/// An object as the model draws it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outline {
    /// The object's box; `None` when the model gave none.
    pub bounds: Option<NormBox>,
    /// An SVG path in shares of the box, 0..1 inside of it. Empty when the model drew none, or no path that can be read.
    pub path: String,
    /// The same path as polygons in the picture, simplified. Empty without a box. The last vertex is joined to the first; what is
    /// inside of two polygons that run in opposite directions is outside of the object.
    pub polygons: Vec<Vec<NormPoint>>,
    /// Why the path is empty although the model wrote one.
    pub parse_error: Option<String>,
    /// Geometric mean of the probabilities of its tokens and of its end, 0..1.
    pub score: f64,
}

/// Moments on the way of one prompt through the engine, in order. Stage times are their differences, so they add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    /// The engine began the look (end of waiting).
    pub taken: Mono,
    /// Scaled and cut into crops.
    pub prepared: Mono,
    /// Image encoded and its prefix in the KV cache (shared by the look's prompts).
    pub encoded: Mono,
    /// This prompt prefilled and its first decision made.
    pub prefilled: Mono,
    /// The last token was decided.
    pub generated: Mono,
    /// Time of the device on the look since its previous answer, so the answers of a look add up to its cost. Steps are shared
    /// with other looks; this is the look's part of them.
    pub device: Duration,
}

/// What an answer took of the model, in tokens. An answer that is given again took none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Positions before the answer: those of the picture, the text and its template.
    pub prompt: u32,
    /// Of the answer, with its end.
    pub answer: u32,
}

/// The answer to one prompt of a look.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The prompt as it was when the look began.
    pub prompt: Arc<Prompt>,
    /// The part of the picture that the model saw; `None`: all of it. Locations in `body` are in the whole picture.
    pub region: Option<NormBox>,
    pub body: AnswerBody,
    /// `None`: the model was not asked to reason.
    pub reasoning: Option<Reasoning>,
    /// The object or token limit was reached before the model ended.
    pub truncated: bool,
    /// It is the last answer again, without a run of the model: the picture has not changed since.
    pub unchanged: bool,
    pub tokens: TokenCounts,
    pub marks: StageTimes,
}

/// A part of an answer that is not complete yet. The pieces of an answer, in their order, are the whole answer; none of them is taken
/// back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AnswerPiece {
    /// An object of `detect`.
    Box(FoundObject<NormBox>),
    /// An object of `point`.
    Point(FoundObject<NormPoint>),
    /// What the thoughts before the answer go on with; never empty. White space at their ends and places are left out.
    Thought(String),
    /// The same of the text of the answer.
    Text(String),
    /// The box of an outline, before its path.
    Bounds(NormBox),
    /// What the path of an outline goes on with, in shares of the box; never empty. A path that turns out to be malformed goes on no
    /// further, and its answer has none.
    Path(String),
}

impl AnswerPiece {
    /// More than an answer has pieces: each is a token at least, and no model has a context of so many.
    pub const MAX: usize = 4096;
}

/// What becomes of a look: each answer as soon as its prompt is finished, then one end.
#[derive(Clone, Debug)]
pub enum LookNews {
    /// A part of an answer, before that answer. Only of a prompt [in pieces](Prompt::in_pieces).
    Piece {
        frame: FrameId,
        prompt: Arc<Prompt>,
        piece: AnswerPiece,
    },
    Answer {
        frame: Frame,
        /// Pixels across and down that the model saw (after tiling).
        model_size: (u32, u32),
        /// Frames that were lost for the prompt since its answer before.
        since_last: SkippedSinceLast,
        answer: Answer,
        /// To be asked before the look ends; `None`: the prompt has none, or the picture was not encoded.
        follow_up: Option<FollowUp>,
    },
    /// All short answers are there, and at most free texts are left: the permit is free. Once, unless the look is late or fails
    /// before.
    ShortAnswered(Frame),
    /// Nothing follows.
    Ended(Outcome),
}

/// How a look ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All prompts were answered.
    Answered(Frame),
    /// The engine did not begin it by [`Look::start_by`], or did not answer it by [`Look::answer_by`]. The prompts of this look
    /// are those that have no answer.
    Late(Look),
    /// The prompts of this look are those that have no answer.
    Failed(Look, LookFailure),
}

/// Why a look failed: what was tried and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LookFailure {
    /// The model cannot answer such a prompt or see such a picture: it fails each time.
    #[error("{0}")]
    Unfit(String),
    /// The engine failed at this look; the next one may succeed.
    #[error("{0}")]
    Engine(String),
    /// The file of the prompt's adapter is missing or does not fit the model; others are answered.
    #[error("adapter {id}: {reason}")]
    Adapter { id: AdapterId, reason: String },
    #[error("the engine has stopped")]
    EngineStopped,
}

impl Outcome {
    /// How the look's frame is counted.
    pub fn frame_end(&self) -> FrameEnd {
        match self {
            Self::Answered(_) => FrameEnd::Looked,
            Self::Late(_) => FrameEnd::Late,
            Self::Failed(..) => FrameEnd::Failed,
        }
    }

    /// The frame of an answered look, or why it is not answered.
    pub fn answered(self) -> Result<Frame, String> {
        match self {
            Self::Answered(frame) => Ok(frame),
            Self::Late(_) => Err("the look was not begun or not answered by its time".into()),
            Self::Failed(_, why) => Err(why.to_string()),
        }
    }
}

/// The news of a look together, for callers that wait for its end.
#[derive(Clone, Debug)]
pub struct WholeLook {
    prompts: Vec<Arc<Prompt>>,
    pub model_size: (u32, u32),
    /// In the order of the look's prompts.
    pub answers: Vec<Answer>,
    /// `None` until it has ended.
    pub outcome: Option<Outcome>,
}

impl WholeLook {
    /// Without news yet.
    pub fn new(look: &Look) -> Self {
        Self {
            prompts: look.prompts.clone(),
            model_size: (0, 0),
            answers: Vec::new(),
            outcome: None,
        }
    }

    pub fn add(&mut self, news: LookNews) {
        match news {
            LookNews::Answer {
                model_size, answer, ..
            } => {
                self.model_size = model_size;
                let index_of = |answer: &Answer| {
                    let mut prompts = self.prompts.iter();
                    prompts.position(|prompt| Arc::ptr_eq(prompt, &answer.prompt))
                };
                let index = index_of(&answer);
                let place = self.answers.partition_point(|a| index_of(a) < index);
                self.answers.insert(place, answer);
            }
            LookNews::Piece { .. } | LookNews::ShortAnswered(_) => {}
            LookNews::Ended(outcome) => self.outcome = Some(outcome),
        }
    }

    /// The answers to all prompts, or why some have none.
    pub fn into_answers(self) -> Result<Vec<Answer>, String> {
        let outcome = self.outcome.ok_or("the look has not ended")?;
        outcome.answered().map(|_| self.answers)
    }
}

/// The truth value of an answer that is nothing but yes or no. Never a search in the text: "yes" occurs in
/// "yesterday" and "no" in "I do not know".
pub fn yes_or_no(text: &str) -> Option<bool> {
    match text.trim_end_matches(['.', '!']).to_lowercase().as_str() {
        "yes" | "true" => Some(true),
        "no" | "false" => Some(false),
        _ => None,
    }
}
