//! What is asked of a frame.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantNames};

use super::{AdapterId, NormBox, PromptId, PromptView, SpatialReference};

/// How long a caption may be.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    EnumString,
    VariantNames,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "lowercase")]
pub enum CaptionLength {
    /// The caption is one short sentence.
    Short,
    /// The caption is one or two sentences.
    #[default]
    Normal,
    /// The caption is a paragraph.
    Long,
}

/// One skill of the model with its words. The words are trimmed and not empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "lowercase")]
pub enum Task {
    /// Boxes of every `object`.
    Detect {
        /// What to look for, in plain words.
        object: String,
    },
    /// A point on every `object`.
    Point {
        /// What to look for, in plain words.
        object: String,
    },
    Query {
        question: String,
        /// The texts that the answer must be one of, each trimmed and not empty; empty: the answer is free.
        choices: Vec<String>,
        /// Stored tasks of 0.1.0 have none.
        #[serde(default)]
        options: QueryOptions,
    },
    /// The outline of one `object`. Not every model draws one.
    Segment {
        object: String,
        /// Where in the whole picture it is.
        places: Vec<SpatialReference>,
    },
    /// A description of the picture.
    Caption { length: CaptionLength },
}

/// What a question has beside its words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueryOptions {
    /// Places in the whole picture that it is about.
    pub places: Vec<SpatialReference>,
    /// The model writes down its thoughts before it answers.
    pub reasoning: bool,
}

/// What an answer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerShape {
    Boxes,
    Points,
    Text,
    Outline,
}

impl AnswerShape {
    /// It is a list of objects at places in the picture.
    pub fn has_objects(self) -> bool {
        matches!(self, Self::Boxes | Self::Points)
    }
}

impl Task {
    /// A question whose answer is free.
    pub fn question(question: impl Into<String>) -> Self {
        Self::Query {
            question: question.into(),
            choices: Vec::new(),
            options: QueryOptions::default(),
        }
    }

    pub fn shape(&self) -> AnswerShape {
        match self {
            Self::Detect { .. } => AnswerShape::Boxes,
            Self::Point { .. } => AnswerShape::Points,
            Self::Query { .. } | Self::Caption { .. } => AnswerShape::Text,
            Self::Segment { .. } => AnswerShape::Outline,
        }
    }

    /// `detect`, `point`, `query`, `segment` or `caption`.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Its objects become events.
    pub fn finds_objects(&self) -> bool {
        matches!(
            self,
            Self::Detect { .. } | Self::Point { .. } | Self::Segment { .. }
        )
    }

    /// True when the answer is a text of the model's own words, which takes many steps: a question without choices or with thoughts
    /// before its answer, a caption, an outline.
    pub fn is_free_text(&self) -> bool {
        match self {
            Self::Query {
                choices, options, ..
            } => choices.is_empty() || options.reasoning,
            Self::Segment { .. } | Self::Caption { .. } => true,
            Self::Detect { .. } | Self::Point { .. } => false,
        }
    }

    /// The places in the whole picture that the words are about.
    pub fn places(&self) -> &[SpatialReference] {
        match self {
            Self::Query { options, .. } => &options.places,
            Self::Segment { places, .. } => places,
            Self::Detect { .. } | Self::Point { .. } | Self::Caption { .. } => &[],
        }
    }

    /// The same task about a part of the picture, with its places in shares of the part.
    #[must_use]
    pub fn about_part(mut self, part: &NormBox) -> Self {
        if let Self::Query {
            options: QueryOptions { places, .. },
            ..
        }
        | Self::Segment { places, .. } = &mut self
        {
            places
                .iter_mut()
                .for_each(|place| *place = place.inside(part));
        }
        self
    }

    /// The user's words; empty for a caption.
    pub fn text(&self) -> &str {
        match self {
            Self::Detect { object } | Self::Point { object } | Self::Segment { object, .. } => {
                object
            }
            Self::Query { question, .. } => question,
            Self::Caption { .. } => "",
        }
    }
}

/// A task with its name on a camera. `revision` rises by one at each accepted change of the words, so that an
/// answer is never read with the wrong question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Its name on the camera.
    pub id: PromptId,
    /// Starts at 1; [`Prompt::ONCE`] for a question that is asked once.
    pub revision: u32,
    pub task: Task,
    /// The part of the picture that it is about.
    pub view: PromptView,
    /// What the model answers it with; `None`: the model alone.
    pub adapter: Option<AdapterId>,
    /// Of the objects of an answer to `detect`, so many at most get an outline afterwards; 0: none.
    pub outlines_max: u8,
    /// The engine also reports parts of the answer, as soon as they are decided
    /// ([`LookNews::Piece`](super::LookNews::Piece)).
    pub in_pieces: bool,
}

impl Prompt {
    /// About the whole picture, answered by the model alone.
    pub fn new(id: PromptId, revision: u32, task: Task) -> Self {
        Self {
            id,
            revision,
            task,
            view: PromptView::default(),
            adapter: None,
            outlines_max: 0,
            in_pieces: false,
        }
    }

    /// `segment` when objects get outlines, else that of its task.
    pub fn kind(&self) -> &'static str {
        match self.outlines_max {
            0 => self.task.kind(),
            _ => "segment",
        }
    }

    /// True when its look may go on for seconds after its short answers: its answer is a free text, or outlines follow it.
    pub fn keeps_look(&self) -> bool {
        self.task.is_free_text() || self.outlines_max > 0
    }

    /// The revision of questions that are asked once. No prompt of a camera ever has it, so that an answer to a question is
    /// never taken for one to a prompt of the same name.
    pub const ONCE: u32 = 0;
}
