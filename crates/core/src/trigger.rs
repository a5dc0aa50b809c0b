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
