//! Measuring: how right the answers are and how fast they are given.
//!
//! ```text
//!   eval    clip ─▶ ask ─▶ scores (score) ─▶ report      accuracy, over scenes of unseen seeds
//!   labels  scene ─▶ picture and truth    ─▶ files       labelled pictures for `spotter eval`
//!   regions scene ─▶ engine, whole and part ─▶ its report     accuracy of small things
//!   track   street ─▶ engine ─▶ tracker ─▶ stays ─▶ its report   track ids and events
//!   host    scheduler ─▶ simulated device ─▶ table       the host's work for a step
//!   load    clients ─▶ engine             ─▶ tables      requests a second, compared with what the device sustains
//!   steps   backend alone ─▶ periods      ─▶ table        speed of a device, step by step
//!   still   encoded video ─▶ scheduler    ─▶ table        work that unchanged pictures save; with a model, right answers
//!   cameras (delays, and figures of the caller) ─▶ its table    costs and delays of cameras
//!   soak    chance ─▶ engine              ─▶ verdict      correctness under random load
//! ```
//!
//! `scores`, `stays`, `report` and `cameras` are pure. The caller builds the engine; `spotter_street` has the scenes and
//! scores single answers.

mod ask;
pub mod cameras;
mod clip;
mod eval;
mod host;
mod labels;
mod load;
mod progress;
mod regions;
mod report;
mod scores;
mod soak;
mod spread;
mod stays;
mod steps;
mod still;
mod still_check;
mod tracks;

pub use eval::eval;
pub use host::host;
pub use labels::{LabelOptions, write_labels};
pub use load::{Ceiling, Load, LoadSubject, MachineCeilings, noise};
pub use progress::ProgressLine;
pub use regions::{RegionOptions, regions};
pub use report::EvalOptions;
pub use soak::{SoakOptions, SoakSubject, soak};
pub(crate) use spotter::cli::table::{self, TextTable};
pub use spread::Spread;
pub use steps::{STEPS_MIN, Steps, StepsReport};
pub use still::{StillOptions, still};
pub use still_check::{CheckOptions, check_still};
pub use tracks::{TrackOptions, track};

#[cfg(test)]
mod tests;
