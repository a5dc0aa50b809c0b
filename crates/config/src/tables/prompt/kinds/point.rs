//! `point`: points on objects.

use crate::{
    forms::prelude::*,
    read::prelude::*,
    tables::prompt::kind::{OBJECT_KEYS, PromptKind},
};
use spotter_core::Task;

pub(super) const POINT: PromptKind = PromptKind {
    key: "point",
    keys: &[OBJECT_KEYS],
    read: |table, _| Some(read(table)?.into()),
};

fn read(table: &mut Reader<'_>) -> Option<Task> {
    keys! { table;
        /// Objects to find, in plain words. The answer is a list of points.
        point = prompt_words().optional("none"), r#"point = "crane hook""#;
    }
    point.map(|words| Task::Point {
        object: words.into(),
    })
}
