//! What a command asks once. Its keys are in no file.

use super::{forms::adapter_id, kind::PromptScope, places::places};
use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::{AdapterId, QueryOptions, Task};

/// What is asked once, and with which adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedOnce {
    pub task: Task,
    /// `None`: the model alone.
    pub adapter: Option<AdapterId>,
}

/// Reads a question or an object to draw around; `None` after noting what is wrong.
pub(crate) fn question(mut table: Reader<'_>, camera: PromptScope<'_>) -> Option<AskedOnce> {
    keys! { table;
        /// A question about the picture. The answer is text.
        text = prompt_words().optional("none"), r#"text = "Is it raining?""#;
        /// An object whose outline is wanted.
        segment = prompt_words().optional("none"), r#"segment = "red car""#;
        /// The model writes down its thoughts before it answers `text`.
        reasoning = flag().or(false), "reasoning = true";
        /// Places that it is about.
        refs = places(camera.zones).or_as("none", Vec::new()), r#"refs = ["drive"]"#;
        /// The adapter with which the model answers.
        adapter = adapter_id(camera.adapters).optional("the model alone"), r#"adapter = "plates""#;
    }
    if let (Some(value), Some(_)) = (table.given("reasoning"), table.given("segment")) {
        value.error("has no effect with segment; use it with text");
    }
    let given = ["text", "segment"].map(|key| table.given(key).is_some());
    if given[0] == given[1] {
        table.error("give exactly one of text, segment");
    }
    let task = match (text, segment) {
        (Some(question), None) => Some(Task::Query {
            question: question.into(),
            choices: Vec::new(),
            options: QueryOptions {
                places: refs,
                reasoning,
            },
        }),
        (None, Some(object)) => Some(Task::Segment {
            object: object.into(),
            places: refs,
        }),
        // Noted: both, none, or words that are none.
        _ => None,
    };
    table.finish();
    let task = task?;
    Some(AskedOnce { task, adapter })
}
