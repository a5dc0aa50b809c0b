//! `segment`: boxes of objects, and their outlines afterwards.

use crate::{
    forms::prelude::*,
    read::prelude::*,
    tables::prompt::kind::{BOX_KEYS, OBJECT_KEYS, PromptKind, TaskConfig},
};
use spotter_core::Task;

pub(super) const SEGMENT: PromptKind = PromptKind {
    key: "segment",
    keys: &[BOX_KEYS, OBJECT_KEYS, &["max_segments"]],
    read: |table, _| read(table),
};

fn read(table: &mut Reader<'_>) -> Option<TaskConfig> {
    keys! { table;
        /// Objects to find and to draw around, in plain words. The answer is a list of boxes, as with `detect`; outlines of the objects follow in later messages. Only with a model that draws outlines: a Moondream 3.
        segment = prompt_words().optional("none"), r#"segment = "red car""#;
        /// The most objects of a look whose outlines the model is asked for. Those whose outline is the oldest come first.
        max_segments = whole(1..=8, "").or(3), "max_segments = 1";
    }
    segment.map(|words| TaskConfig {
        task: Task::Detect {
            object: words.into(),
        },
        outlines_max: max_segments,
    })
}
