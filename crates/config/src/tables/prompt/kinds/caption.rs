//! `caption`: a description of the picture.

use crate::{forms::prelude::*, read::prelude::*, tables::prompt::kind::PromptKind};
use spotter_core::{CaptionLength, Task};

pub(super) const CAPTION: PromptKind = PromptKind {
    key: "caption",
    keys: &[&["stream"]],
    read: |table, _| Some(read(table)?.into()),
};

fn read(table: &mut Reader<'_>) -> Option<Task> {
    const LENGTHS: &[(&str, CaptionLength)] = &[
        ("short", CaptionLength::Short),
        ("normal", CaptionLength::Normal),
        ("long", CaptionLength::Long),
    ];
    keys! { table;
        /// A description of the picture: a short sentence, one or two sentences, or a paragraph. The answer is text.
        caption = words(LENGTHS).optional("none"), r#"caption = "normal""#;
    }
    caption.map(|length| Task::Caption { length })
}
