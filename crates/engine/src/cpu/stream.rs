//! The stream: a thread that owns the [`CpuDevice`] and runs what it is given, in order.
//!
//! ```text
//!   caller   launch 0   launch 1   commit 0   finalize 1    launch 0   commit 1
//!               │          │          ▲           │             │          ▲
//!   stream      └▶ run 0 ──┴▶ run 1 ──┼───────────┴▶ decide 1 ──┴▶ run 0 ──┼─ ..
//!                    └─ results of 0 ─┘                 └── results of 1 ──┘
//! ```
//!
//! Results wait in a queue of their own for each slot, with room for the one that a slot can have, so the thread never
//! waits for a reader. A step that fails has its error as its result. When the thread panics, it is joined, and the panic is the error
//! of every later call.

use std::{
    any::Any,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{Builder, JoinHandle},
};

use super::device::CpuDevice;
use crate::scheduler::backend::{BackendError, RowMask, SlotId, Step, StepResult};

/// Commands that may wait for each slot: a launch and its masks. A caller that is further ahead waits.
const QUEUED_PER_SLOT: usize = 2;

/// What the thread is asked for.
pub(super) enum StreamCommand {
    /// A forward pass, and the decisions that need no mask.
    Run(SlotId, Step),
    Finalize(SlotId, Vec<RowMask>),
    /// A look at the device between two commands.
    #[cfg(test)]
    Inspect(Box<dyn FnOnce(&mut CpuDevice) + Send>),
}

/// What a slot's step gave.
type SlotResult = Result<StepResult, BackendError>;

/// The thread and the ways to it.
pub(super) struct CpuStream {
    /// `None` only while it is being dropped.
    commands: Option<SyncSender<StreamCommand>>,
    /// One for each slot.
    results: Vec<Receiver<SlotResult>>,
    /// `None` once it was joined.
    thread: Option<JoinHandle<()>>,
    /// Why it is gone, once it was joined.
    gone: String,
}

impl CpuStream {
    pub fn start(mut device: CpuDevice, slots: usize) -> Result<Self, BackendError> {
        let (commands, inbox) = sync_channel(slots * QUEUED_PER_SLOT);
        let (senders, results): (Vec<_>, Vec<_>) = (0..slots).map(|_| sync_channel(1)).unzip();
        let body = move || {
            for command in inbox {
                if let Some((slot, result)) = answer(&mut device, command) {
                    // Fails when the backend is being dropped; then the results are not needed.
                    let _ = senders[slot.0].send(result);
                }
            }
        };
        let thread = Builder::new()
            .name("cpu-stream".into())
            .spawn(body)
            .map_err(|e| {
                BackendError::Device(format!("starting the thread of the CPU's stream: {e}"))
            })?;
        Ok(Self {
            commands: Some(commands),
            results,
            thread: Some(thread),
            gone: String::new(),
        })
    }

    /// Hands over a command; waits only when the queue is full.
    pub fn send(&mut self, command: StreamCommand) -> Result<(), BackendError> {
        let sent = self.commands.as_ref().map(|queue| queue.send(command));
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(self.ended()),
        }
    }

    /// Waits for the results of the step in `slot`, which was launched and has all its masks.
    pub fn receive(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        let result = self.results[slot.0].recv();
        result.map_err(|_| self.ended())?
    }

    /// Why the thread is gone.
    fn ended(&mut self) -> BackendError {
        if let Some(thread) = self.thread.take() {
            self.gone = match thread.join() {
                Ok(()) => "the CPU's stream ended before its caller".into(),
                Err(panic) => format!("the CPU's stream panicked: {}", words(panic.as_ref())),
            };
        }
        BackendError::Device(self.gone.clone())
    }
}

impl Drop for CpuStream {
    /// Waits for the commands that were handed over, then for the thread.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened, and no caller is left.
            drop(thread.join());
        }
    }
}

/// Runs one command; a result when that was the last of a step.
fn answer(device: &mut CpuDevice, command: StreamCommand) -> Option<(SlotId, SlotResult)> {
    match command {
        // Inside of the pool: from outside, each of a step's hundreds of parallel parts would wake a worker and wait for it.
        StreamCommand::Run(slot, step) => {
            let result = match device.rank {
                // It waits for other ranks, which need the pool too.
                Some(_) => device.run(slot, step),
                None => rayon::scope(|_| device.run(slot, step)),
            };
            let result = result.transpose()?;
            Some((slot, result))
        }
        StreamCommand::Finalize(slot, masks) => Some((slot, device.finalize(slot, &masks))),
        #[cfg(test)]
        StreamCommand::Inspect(look) => {
            look(device);
            None
        }
    }
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
