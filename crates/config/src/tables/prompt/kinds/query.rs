//! `query`: the answer to a question.

use crate::{
    forms::{choices::choice_list, prelude::*},
    read::prelude::*,
    tables::prompt::{
        kind::{PromptKind, PromptScope},
        places::places,
    },
};
use spotter_core::{QueryOptions, Task};

pub(super) const QUERY: PromptKind = PromptKind {
    key: "query",
    keys: &[&["choices", "reasoning", "refs", "frames", "stream"]],
    read: |table, camera| Some(read(table, camera)?.into()),
};

fn read(table: &mut Reader<'_>, camera: PromptScope<'_>) -> Option<Task> {
    keys! { table;
        /// A question about the picture. The answer is text.
        query = prompt_words().optional("none"), r#"query = "Is the door open?""#;
        /// The only answers to `query` that the model may give.
        choices = choice_list().or_as("any text", Vec::new()), r#"choices = ["open", "closed"]"#;
        /// The model writes down its thoughts before it answers `query`; the detection has them. An answer takes many times as long, and no look waits for it.
        reasoning = flag().or(false), "reasoning = true";
        /// Places in the whole picture that `query` is about: points, boxes (left, top, right, bottom), or zones, each as the box around it. Not with `frames` or `region = "motion"`.
        refs = places(camera.zones).or_as("none", Vec::new()), r#"refs = [[0.5, 0.6], [0.1, 0.2, 0.4, 0.9], "drive"]"#;
    }
    query.map(|words| Task::Query {
        question: words.into(),
        choices,
        options: QueryOptions {
            places: refs,
            reasoning,
        },
    })
}
