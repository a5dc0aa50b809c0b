//! Measuring: how right a model is (`eval`), its scores and scales (`eval --write`, `model calibrate`), how many cameras a machine can
//! watch (`bench`). Answers are compared with the truth by [`spotter_street::score`], as the laboratory does.

mod bench;
mod calibrate;
mod eval;
mod judged_answer;
mod labels;
mod pictures;
mod score_fit;

pub use bench::bench;
pub use calibrate::calibrate;
pub use eval::eval;
