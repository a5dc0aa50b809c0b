//! `spotter-lab engine`: gain, savings and costs of the pipelined engine.
//!
//! ```text
//!   published   published step costs ─▶ simulated device, virtual time ─▶ depth 2 against depth 1
//!   step        32 rows              ─▶ simulated device, real time    ─▶ the host's work for a step
//!   street      the demo's camera    ─▶ the model, each feature off and on ─▶ saved work
//!   cameras     many of them         ─▶ the model, depth 1 and 2       ─▶ looks a second, time by stage
//! ```
//!
//! Each part is a file with its report; `street_camera` has the cameras of the last two, `depth` the costs of steps with the
//! gain they predict, `trace` writes a timeline. The caller builds the engines.

mod cameras;
mod depth;
mod host;
mod pipeline;
mod published;
mod report;
mod street;
mod street_camera;
mod trace;

use spotter_engine::model::{AnswerGrammar, ModelConfig, Skill};

pub(super) use cameras::tasks;
pub(super) use depth::{COLUMNS, DepthCost, StepSums, percent};
pub use report::{EngineOptions, EnginePart, engine};
pub use trace::chrome_trace;

/// The answers of models that exist only as costs: those of the released model.
fn simulated_grammar(skill: Skill) -> AnswerGrammar {
    ModelConfig::default().grammar(skill)
}

#[cfg(test)]
mod tests;
