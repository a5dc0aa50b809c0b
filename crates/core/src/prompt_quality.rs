use serde::Serialize;

/// How right the alarms of a prompt are, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PromptQuality {
    /// Alarms that were drawn by chance and judged; repeats count once.
    pub right: u32,
    pub wrong: u32,
    /// Alarms without a mark.
    pub unmarked: u32,
    /// The share of right alarms is within it in 95 of 100 cases, 0 to 1; `None`: none is judged.
    pub interval: Option<[f64; 2]>,
}
