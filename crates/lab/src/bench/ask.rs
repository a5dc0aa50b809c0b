//! One picture with several prompts, submitted to the engine directly.

use spotter_core::{Answer, Look, Picture, Task, WholeLook};
use spotter_engine::service::Engine;

/// Submits all tasks in one look, so that they share the picture's prefix; answers are in the order of `tasks`. Blocks for
/// the whole work.
pub(super) fn ask(
    engine: &mut Engine,
    picture: Picture,
    tasks: impl IntoIterator<Item = Task>,
) -> anyhow::Result<Vec<Answer>> {
    answers_of(engine.look(Look::still(picture, tasks))?)
}

/// The answers of a look, or why it has none.
pub(super) fn answers_of(look: WholeLook) -> anyhow::Result<Vec<Answer>> {
    let answers = look.into_answers();
    answers.map_err(|reason| anyhow::anyhow!("answering: {reason}"))
}
