/// What the source of a trigger says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerSignal {
    /// Something happened; nothing will say that it is over.
    Momentary,
    /// Something began, or still is; `Off` is expected.
    On,
    /// It is over.
    Off,
}

/// Which looks of a camera with triggers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggeredLooks {
    /// None of its triggers is active.
    None,
    /// One, because a command requests it.
    One,
    /// Those that are due.
    All,
}
