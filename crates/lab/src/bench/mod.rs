//! Measuring: how right the answers are and how fast they are given.
//!
//! ```text
//!   eval    clip ─▶ ask ─▶ scores (score) ─▶ report      accuracy, over scenes of unseen seeds
//!   track   street ─▶ engine ─▶ tracker ─▶ stays ─▶ its report   track ids and events
//!   engine  sim, the street ─▶ engine      ─▶ its tables     gain and costs of the pipeline
//!   load    clients ─▶ engine             ─▶ tables      requests a second, compared with what the device sustains
//!   steps   backend alone ─▶ periods      ─▶ table        speed of a device, step by step
//!   cameras (delays, and figures of the caller) ─▶ its table    costs and delays of cameras
//!   soak    chance ─▶ engine              ─▶ verdict      correctness and memory over ten minutes and more
//! ```
//!
//! `scores`, `stays`, `report`, `work` and `cameras` are pure. The caller builds the engine; `spotter_street` has the scenes and
//! scores single answers.

mod ask;
mod calibration;
pub mod cameras;
mod clip;
pub mod engine;
mod eval;
mod load;
mod progress;
mod report;
mod scores;
mod soak;
mod spread;
mod stays;
mod steps;
mod tracks;
mod work;

pub use ask::MeasureError;
pub use eval::{EvalOptions, eval};
pub use load::{
    Ceiling, Load, LoadCounters, LoadOptions, LoadPart, LoadReport, LoadRow, MachineCeilings,
    PromptsRow, SteadyRow, TextRow, TextRun,
};
pub use progress::ProgressLine;
pub use report::{EvalFigure, EvalReport, PartFigures, Target};
pub use scores::{Aspect, EvalSetting, Origin, Scores};
pub use soak::{SoakError, SoakMemory, SoakOptions, SoakReport, SoakSubject, SoakTally, soak};
pub use spread::Spread;
pub use stays::{StayTally, Stays};
pub use steps::{STEPS_MIN, Steps, StepsReport, StepsRow};
pub use tracks::{ClassStays, TrackOptions, TrackReport, track};
pub use work::{DetectWork, LookWork, look_work};

#[cfg(test)]
mod tests;
