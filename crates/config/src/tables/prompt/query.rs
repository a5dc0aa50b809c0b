//! `query`: the answer to a question.

use super::kind::PromptKind;
use crate::{
    forms::{choices::choice_list, prelude::*},
    read::prelude::*,
};
use spotter_core::Task;

pub(super) const QUERY: PromptKind = PromptKind {
    key: "query",
    keys: &[&["choices", "frames"]],
    read: |table, _| read(table),
};

fn read(table: &mut Reader<'_>) -> Option<Task> {
    keys! { table;
        /// A question about the picture. The answer is text.
        query = prompt_words().optional("none"), r#"query = "Is the door open?""#;
        /// The only answers to `query` that the model may give.
        choices = choice_list().or_as("any text", Vec::new()), r#"choices = ["open", "closed"]"#;
    }
    query.map(|words| Task::Query {
        question: words.into(),
        choices,
        options: Default::default(),
    })
}
