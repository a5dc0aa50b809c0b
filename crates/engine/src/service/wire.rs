//! The messages between the daemon and the process of an engine. Pure: the caller brings the connection.
//!
//! ```text
//!   ┌ bytes of header ┬ bytes of body ┬ header ┬ body ───────────────┐
//!   │ u32             │ u32           │ JSON   │ the look's pictures │    numbers little endian
//!   └─────────────────┴───────────────┴────────┴─────────────────────┘
//!
//!   process                               daemon
//!   Hello ──────────────────────────────▶
//!         ◀────────────────────────────── Order        what engine is wanted, and what time it is
//!   Opened::Ready or Failed ────────────▶
//!         ◀────────────────────────────── Request      looks, prompts that follow answers, cancelled looks, adapters
//!   News ───────────────────────────────▶              answers, ends of looks, beats, broken adapters, the reason of the end
//! ```
//!
//! Both ends are the same program, so there are no versions. Both check what they receive all the same: lengths are checked
//! before memory is taken, values are checked by their types, and what cannot be read is an error that ends the connection.
//!
//! Belongs here: messages, and bytes to messages and back. Not here: which message is sent when (`inside`, `outside`).

mod shape;

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shape::PictureShape;

use super::adapters::BrokenAdapter;
use spotter_config::AdapterConfig;
use spotter_core::{
    Answer, AnswerBody, AnswerPiece, CameraId, FoundObject, Frame, Look, LookFailure, LookNews,
    LookToken, Mono, NormBox, NormPoint, OUTLINE_POINTS_MAX, Outcome, Picture, Prompt,
    PromptRegion, Reasoning, RegionBox, StageTimes, Strip, StripShape, Task, TokenCounts,
};

/// Longest header, bytes: many times that of a look whose prompts all found as much as they may.
const HEADER_MAX_BYTES: usize = 8 << 20;
/// Bytes for which memory is taken before they have arrived.
const READ_BYTES: usize = 4 << 20;
/// Longest body, bytes: a packed picture of 16384 x 16384 pixels in NV12 fits.
const BODY_MAX_BYTES: usize = 384 << 20;

/// Looks that may be inside an engine at once, at most: many times those of the largest GPU.
const LOOKS_MAX: usize = 1024;
/// The longest time that a device spends on a look.
const DEVICE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Scores and places are sums of rounded numbers: they may be this far outside of 0..1.
const ROUNDING: f64 = 1e-3;

/// A number of looks, 0..=[`LOOKS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
pub struct LookCount(usize);

impl TryFrom<usize> for LookCount {
    type Error = String;
    fn try_from(count: usize) -> Result<Self, String> {
        match count <= LOOKS_MAX {
            true => Ok(Self(count)),
            false => Err(format!("{count} looks at once, limit {LOOKS_MAX}")),
        }
    }
}

impl From<LookCount> for usize {
    fn from(count: LookCount) -> Self {
        count.0
    }
}

impl LookCount {
    /// That number, or the most.
    pub fn of(count: usize) -> Self {
        Self(count.min(LOOKS_MAX))
    }
}

/// Why a message cannot be had or given.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other side is gone, be it in the middle of a message.
    #[error("the connection is closed: {0}")]
    Closed(io::Error),
    /// More than any message may have. When it was to be sent, nothing of it was.
    #[error("a message's {part} has {bytes} bytes, limit {limit}")]
    TooLong {
        /// Header or body.
        part: &'static str,
        /// Bytes it would have.
        bytes: usize,
        /// Bytes it may have.
        limit: usize,
    },
    /// Not a message, or not one that is allowed at this point. If it was to be sent, nothing of it was.
    #[error("a message is invalid: {0}")]
    Malformed(String),
}

/// The first message of an engine's process: it listens.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hello {
    Hello,
}

/// What engine is wanted. `what` belongs to those who make engines.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireOrder<S> {
    /// The daemon's time now, from which the process counts on.
    pub now: Mono,
    /// Device, model, settings.
    pub what: S,
}

/// What became of the order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenReply<T> {
    /// The engine waits for looks.
    Ready {
        /// Looks that may be inside at once.
        permits: LookCount,
        /// More about it, for those who ordered it.
        report: T,
    },
    /// It cannot be had.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
}

/// What is asked of an engine.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireRequest {
    /// A look, whose pictures are the body: its frame, then its strips.
    Look(WireLook),
    /// The prompts that follow an answer, or none.
    FollowUp {
        id: u64,
        /// Index of the answered prompt in the look.
        prompt: usize,
        prompts: Vec<Arc<Prompt>>,
    },
    Cancel {
        id: u64,
    },
    /// Looks have these adapters from now on.
    Adapters {
        /// Rises with each list.
        number: u64,
        wanted: Vec<AdapterConfig>,
    },
}

/// Of a look what an engine needs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireLook {
    /// Different for each look of this connection.
    pub id: u64,
    /// `None`: the picture is from no camera.
    camera: Option<CameraId>,
    picture: PictureShape,
    start_by: Mono,
    answer_by: Mono,
    prompts: Vec<Arc<Prompt>>,
    moved: Option<RegionBox>,
    strips: Vec<WireStrip>,
}

/// A strip whose picture is a part of the body.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WireStrip {
    shape: StripShape,
    region: PromptRegion,
    picture: PictureShape,
}

/// A message of the engine.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the large variant, and one is in memory at a time"
)]
pub enum WireNews {
    Look {
        id: u64,
        news: WireLookNews,
    },
    Beat {
        /// Turns of the engine's loop.
        beats: u64,
    },
    /// How many looks may be inside from now on.
    Places {
        count: LookCount,
    },
    /// Looks have the adapters of a list, but for those that cannot be used.
    Adapters {
        number: u64,
        broken: Vec<BrokenAdapter>,
    },
    /// The engine has stopped; nothing follows.
    Stopped {
        reason: String,
    },
}

/// News of a look without what the daemon knows itself.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum WireLookNews {
    /// As [`LookNews::Piece`].
    Piece {
        /// Index in the look.
        prompt: usize,
        piece: AnswerPiece,
    },
    /// As [`LookNews::Answer`].
    Answer {
        /// Index in the look.
        prompt: usize,
        model_size: (u32, u32),
        answer: WireAnswer,
        /// Further prompts can follow it.
        has_follow_up: bool,
    },
    /// As [`LookNews::ShortAnswered`].
    ShortAnswered,
    /// As [`Outcome::Answered`].
    Answered,
    /// As [`Outcome::Late`].
    Late,
    /// As [`Outcome::Failed`].
    Failed(LookFailure),
}

/// An answer without its prompt.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct WireAnswer {
    body: AnswerBody,
    reasoning: Option<Reasoning>,
    truncated: bool,
    unchanged: bool,
    tokens: TokenCounts,
    marks: StageTimes,
}

/// Sends a message without a body. Blocks until the connection has taken it.
pub fn write(out: &mut impl Write, header: &impl Serialize) -> Result<(), WireError> {
    write_with(out, header, &[])
}

/// Sends a look as `id`. Blocks until the connection has taken it, and while a picture comes from a device.
pub fn write_look(out: &mut impl Write, id: u64, look: &Look) -> Result<(), WireError> {
    let (camera, picture) = (&look.frame.camera, &look.frame.picture);
    let strip = |strip: &Strip| WireStrip {
        shape: strip.shape,
        region: strip.region,
        picture: PictureShape::of(&strip.picture),
    };
    let asked = WireLook {
        id,
        camera: (!camera.is_of_still()).then(|| camera.clone()),
        picture: PictureShape::of(picture),
        start_by: look.start_by,
        answer_by: look.answer_by,
        prompts: look.prompts.clone(),
        moved: look.moved,
        strips: look.strips.iter().map(strip).collect(),
    };
    let strips = look.strips.iter().map(|strip| &strip.picture);
    let pictures: Vec<&Picture> = [picture].into_iter().chain(strips).collect();
    write_with(out, &WireRequest::Look(asked), &pictures)
}

fn write_with(
    out: &mut impl Write,
    header: &impl Serialize,
    pictures: &[&Picture],
) -> Result<(), WireError> {
    let header = serde_json::to_vec(header).map_err(malformed)?;
    let sizes = pictures
        .iter()
        .map(|picture| PictureShape::of(picture).bytes());
    let body = sizes.sum::<Result<usize, WireError>>()?;
    let lengths = lengths(header.len(), body, BODY_MAX_BYTES)?.map(u32::to_le_bytes);
    // At once, for those who write straight into the connection.
    let beginning = [lengths.as_flattened(), &header].concat();
    out.write_all(&beginning).map_err(WireError::Closed)?;
    for row in pictures.iter().flat_map(|picture| shape::rows(picture)) {
        out.write_all(row).map_err(WireError::Closed)?;
    }
    out.flush().map_err(WireError::Closed)
}

/// Receives a message without a body. Blocks until all of it is there.
pub fn read<M: DeserializeOwned>(input: &mut impl Read) -> Result<M, WireError> {
    read_with(input, 0).map(|(message, _)| message)
}

/// Receives a request, with the pictures of a look. Blocks until all of it is there.
pub fn read_request(input: &mut impl Read) -> Result<(WireRequest, Vec<u8>), WireError> {
    read_with(input, BODY_MAX_BYTES)
}

fn read_with<M: DeserializeOwned>(
    input: &mut impl Read,
    body_max: usize,
) -> Result<(M, Vec<u8>), WireError> {
    let mut announced = [[0; 4]; 2];
    for length in &mut announced {
        input.read_exact(length).map_err(WireError::Closed)?;
    }
    let [header, body] = announced.map(|length| u32::from_le_bytes(length) as usize);
    lengths(header, body, body_max)?;
    let header = read_bytes(input, header)?;
    let message = serde_json::from_slice(&header).map_err(malformed)?;
    Ok((message, read_bytes(input, body)?))
}

/// Memory is taken as the bytes arrive, in steps of at most as many as there are.
fn read_bytes(input: &mut impl Read, count: usize) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::with_capacity(count.min(READ_BYTES));
    let read = input.take(count as u64).read_to_end(&mut bytes);
    match read {
        Ok(read) if read == count => Ok(bytes),
        Ok(_) => Err(WireError::Closed(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(WireError::Closed(error)),
    }
}

/// The lengths of header and body, if a message may have them.
fn lengths(header: usize, body: usize, body_max: usize) -> Result<[u32; 2], WireError> {
    let within = |part, bytes, limit| {
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= limit);
        length.ok_or(WireError::TooLong { part, bytes, limit })
    };
    Ok([
        within("header", header, HEADER_MAX_BYTES)?,
        within("body", body, body_max)?,
    ])
}

pub(super) fn malformed(reason: impl ToString) -> WireError {
    WireError::Malformed(reason.to_string())
}

impl WireLook {
    /// The look, with the body of its message. Its frame has only the fields that an engine reads.
    pub fn look(self, mut body: Vec<u8>) -> Result<Look, WireError> {
        if self.prompts.is_empty() {
            return Err(malformed("a look without prompts"));
        }
        let mut strips = VecDeque::new();
        // From the last one to the first, each a cut of the end of the body.
        for strip in self.strips.into_iter().rev() {
            let WireStrip {
                shape,
                region,
                picture,
            } = strip;
            let begin = body.len().saturating_sub(picture.bytes()?);
            let picture = picture.picture(body.split_off(begin))?;
            strips.push_front(Strip {
                shape,
                region,
                picture,
            });
        }
        let picture = self.picture.picture(body)?;
        let still = Look::still(picture, []);
        Ok(Look {
            frame: Frame {
                camera: self.camera.unwrap_or_else(CameraId::of_still),
                number: self.id,
                ..still.frame
            },
            prompts: self.prompts,
            moved: self.moved,
            strips: strips.into(),
            start_by: self.start_by,
            answer_by: self.answer_by,
            token: LookToken::default(),
        })
    }
}

impl WireLookNews {
    /// News of a look with these prompts.
    pub fn of(news: LookNews, prompts: &[Arc<Prompt>]) -> Self {
        let index_of = |prompt: &Arc<Prompt>| {
            let mut prompts = prompts.iter();
            prompts.position(|other| Arc::ptr_eq(other, prompt))
        };
        let (model_size, answer, follow_up) = match news {
            LookNews::Piece { prompt, piece, .. } => {
                let prompt = index_of(&prompt).filter(|_| piece_numbers(&piece).all(is_share));
                return match prompt {
                    Some(prompt) => Self::Piece { prompt, piece },
                    None => Self::unfit_numbers(),
                };
            }
            LookNews::ShortAnswered(_) => return Self::ShortAnswered,
            LookNews::Ended(Outcome::Answered(_)) => return Self::Answered,
            LookNews::Ended(Outcome::Late(_)) => return Self::Late,
            LookNews::Ended(Outcome::Failed(_, why)) => return Self::Failed(why),
            LookNews::Answer {
                model_size,
                answer,
                follow_up,
                ..
            } => (model_size, answer, follow_up),
        };
        let prompt = index_of(&answer.prompt);
        let mut numbers = numbers(&answer.body, answer.reasoning.as_ref());
        match prompt.filter(|_| numbers.all(is_share)) {
            Some(prompt) => Self::Answer {
                prompt,
                model_size,
                answer: WireAnswer {
                    body: answer.body,
                    reasoning: answer.reasoning,
                    truncated: answer.truncated,
                    unchanged: answer.unchanged,
                    tokens: answer.tokens,
                    marks: answer.marks,
                },
                has_follow_up: follow_up.is_some(),
            },
            None => Self::unfit_numbers(),
        }
    }

    fn unfit_numbers() -> Self {
        let why = "the model's answer has places or scores that are no numbers from 0 to 1; check its weights";
        Self::Failed(LookFailure::Engine(why.into()))
    }

    /// True when nothing follows.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Piece { .. } | Self::Answer { .. } | Self::ShortAnswered => false,
            Self::Answered | Self::Late | Self::Failed(_) => true,
        }
    }
}

impl WireAnswer {
    /// The answer to a prompt that saw `region` of the picture. An error when it is none to such a prompt, or has numbers that no answer
    /// has.
    pub fn answer(self, prompt: Arc<Prompt>, region: Option<NormBox>) -> Result<Answer, WireError> {
        let is_of_task = matches!(
            (&prompt.task, &self.body),
            (Task::Detect { .. }, AnswerBody::Boxes(_))
                | (Task::Point { .. }, AnswerBody::Points(_))
                | (Task::Segment { .. }, AnswerBody::Outline(_))
                | (
                    Task::Query { .. } | Task::Caption { .. },
                    AnswerBody::Text { .. }
                )
        );
        if !is_of_task {
            return Err(malformed("an answer of another kind than its prompt's"));
        }
        if let AnswerBody::Outline(outline) = &self.body
            && outline.polygons.iter().map(Vec::len).sum::<usize>() > OUTLINE_POINTS_MAX
        {
            return Err(malformed("an outline with too many points"));
        }
        let mut numbers = numbers(&self.body, self.reasoning.as_ref());
        if !numbers.all(is_share) || self.marks.device > DEVICE_TIME_MAX {
            return Err(malformed("an answer with numbers that are out of range"));
        }
        Ok(Answer {
            prompt,
            region,
            body: self.body,
            reasoning: self.reasoning,
            truncated: self.truncated,
            unchanged: self.unchanged,
            tokens: self.tokens,
            marks: self.marks,
        })
    }
}

/// A piece of an answer to `prompt`. An error when it is none to such a prompt, or has numbers that no answer has.
pub fn checked_piece(prompt: &Prompt, piece: AnswerPiece) -> Result<AnswerPiece, WireError> {
    let is_of_task = matches!(
        (&prompt.task, &piece),
        (Task::Detect { .. }, AnswerPiece::Box(_))
            | (Task::Point { .. }, AnswerPiece::Point(_))
            | (Task::Query { .. }, AnswerPiece::Thought(_))
            | (
                Task::Segment { .. },
                AnswerPiece::Bounds(_) | AnswerPiece::Path(_)
            )
            | (
                Task::Query { .. } | Task::Caption { .. },
                AnswerPiece::Text(_)
            )
    );
    match is_of_task && piece_numbers(&piece).all(is_share) {
        true => Ok(piece),
        false => Err(malformed("a piece of no answer to its prompt")),
    }
}

/// True for a number that a score or a place may be; both ends ask this, so that an answer which one sends does not end the other.
fn is_share(number: f64) -> bool {
    (-ROUNDING..=1.0 + ROUNDING).contains(&number)
}

/// All scores and places of an answer.
fn numbers(body: &AnswerBody, reasoning: Option<&Reasoning>) -> impl Iterator<Item = f64> + use<> {
    let numbers: Vec<f64> = match body {
        AnswerBody::Boxes(found) => found.iter().flat_map(box_numbers).collect(),
        AnswerBody::Points(found) => found.iter().flat_map(point_numbers).collect(),
        AnswerBody::Text { score, .. } => vec![*score],
        AnswerBody::Outline(outline) => {
            let bounds = outline.bounds.map(|b| [b.x0, b.y0, b.x1, b.y1]);
            let points = outline.polygons.iter().flatten();
            let points = points.flat_map(|p| [p.x, p.y]);
            let places = bounds.into_iter().flatten().chain(points);
            places.chain([outline.score]).collect()
        }
    };
    let points = reasoning.into_iter().flat_map(Reasoning::points);
    let points: Vec<f64> = points.flat_map(|p| [p.x, p.y]).collect();
    numbers.into_iter().chain(points)
}

/// The same of a piece.
fn piece_numbers(piece: &AnswerPiece) -> impl Iterator<Item = f64> {
    let numbers = match piece {
        AnswerPiece::Box(found) => box_numbers(found).to_vec(),
        AnswerPiece::Point(found) => point_numbers(found).to_vec(),
        AnswerPiece::Bounds(b) => vec![b.x0, b.y0, b.x1, b.y1],
        AnswerPiece::Thought(_) | AnswerPiece::Text(_) | AnswerPiece::Path(_) => Vec::new(),
    };
    numbers.into_iter()
}

fn box_numbers(found: &FoundObject<NormBox>) -> [f64; 6] {
    let NormBox { x0, y0, x1, y1 } = found.place;
    [x0, y0, x1, y1, found.score, found.sharpness]
}

fn point_numbers(found: &FoundObject<NormPoint>) -> [f64; 4] {
    let NormPoint { x, y } = found.place;
    [x, y, found.score, found.sharpness]
}

#[cfg(test)]
mod tests;
