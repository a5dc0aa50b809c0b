//! `frames` and `over` of a prompt: the strip that its question is about.

use super::{
    defaults::{STRIP_OVER, STRIP_OVER_RANGE},
    reader::ConfigValue,
};
use crate::{PromptRegion, StripShape, Task};

/// The two keys of a prompt.
pub(super) struct StripKeys<'a> {
    pub frames: Option<ConfigValue<'a>>,
    pub over: Option<ConfigValue<'a>>,
}

/// What of a prompt the keys must fit to.
#[derive(Clone, Copy)]
pub(super) struct StripQuestion<'a> {
    pub task: Option<&'a Task>,
    pub is_describing: bool,
    pub region: PromptRegion,
}

/// The strip; `None` without one, or after noting what is wrong.
pub(super) fn read(keys: &StripKeys<'_>, question: StripQuestion<'_>) -> Option<StripShape> {
    let StripKeys { frames, over } = keys;
    let time = over.as_ref().map(|over| over.duration(STRIP_OVER_RANGE));
    let Some(value) = frames else {
        if let Some(over) = over {
            over.error("has no effect without frames; add frames = 4 or frames = 9");
        }
        return None;
    };
    let is_query = matches!(question.task, Some(Task::Query { .. }));
    if question.task.is_some() && !is_query && !question.is_describing {
        value.error("has no effect without a question; use it with query, or with describe");
        return None;
    }
    if is_query && question.region == PromptRegion::Motion {
        value.error("not together with region = \"motion\", which is elsewhere in each frame; write a fixed region");
        return None;
    }
    let frames = match value.whole(0..=u64::MAX)? {
        1 => return None,
        frames @ (4 | 9) => frames as u8,
        other => {
            value.error(format!(
                "{other} frames are no strip; write 4 or 9, or 1 for a single frame"
            ));
            return None;
        }
    };
    Some(StripShape {
        frames,
        over: time.unwrap_or(Some(STRIP_OVER))?,
    })
}
