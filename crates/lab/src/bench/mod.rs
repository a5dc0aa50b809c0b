//! Measuring: how right the answers are (`spotter eval`, the demo's test) and how fast they come (`spotter bench`).
//!
//! ```text
//!   eval    clip ─▶ ask ─▶ scores (score) ─▶ report      how right, over scenes of unseen seeds
//!   track   street ─▶ engine ─▶ tracker ─▶ stays ─▶ its report   how well things are followed
//!   engine  sim, the street ─▶ engine      ─▶ its tables     what the pipeline gains, saves and costs
//!   load    clients ─▶ engine             ─▶ tables      requests a second, beside what the device could do
//!   steps   backend alone ─▶ periods      ─▶ table        how fast a device is, step by step
//!   cameras (delays, and figures of the caller) ─▶ its table    what cameras cost, and whether they stay in time
//!   soak    chance ─▶ engine              ─▶ verdict      whether it stays right and alive, for ten minutes and more
//!   live    published boxes and the street's truth ─▶ F1 over a run
//! ```
//!
//! `score`, `scores`, `stays`, `report`, `live`, `work` and `cameras` are pure. Belongs here: what is asked, how it is scored, what is
//! printed. Not here: which model runs on which device (the caller builds the engine) and the scenes themselves (`demo`).

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
pub use soak::{SoakError, SoakMemory, SoakOptions, SoakReport, SoakTally, Soaked, soak};
pub use spread::Spread;
pub use stays::{StayTally, Stays};
pub use steps::{Steps, StepsReport, StepsRow};
pub use tracks::{ClassStays, TrackOptions, TrackReport, track};
pub use work::{DetectWork, LookWork, look_work};

#[cfg(test)]
mod tests;
