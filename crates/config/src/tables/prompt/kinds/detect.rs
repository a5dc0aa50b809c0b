//! `detect`: boxes of objects.

use crate::{
    forms::prelude::*,
    read::prelude::*,
    tables::prompt::kind::{BOX_KEYS, OBJECT_KEYS, PromptKind},
};
use spotter_core::Task;

pub(super) const DETECT: PromptKind = PromptKind {
    key: "detect",
    keys: &[BOX_KEYS, OBJECT_KEYS],
    read: |table, _| Some(read(table)?.into()),
};

fn read(table: &mut Reader<'_>) -> Option<Task> {
    keys! { table;
        /// Objects to find, in plain words. The answer is a list of boxes.
        detect = prompt_words().optional("none"), r#"detect = "red car""#;
    }
    detect.map(|words| Task::Detect {
        object: words.into(),
    })
}
