//! Commands that are applied and not yet stored: their replies wait for the disk, and the daemon's loop does not.

use std::{collections::VecDeque, future::pending, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::command_handler::UnsentReply;
use spotter_state::PendingWrite;

/// A disk that does not answer delays a reply for this time at most; the change is in force all the same.
const REPLY_WITHIN: Duration = Duration::from_secs(5);

struct PendingConfirmation {
    write: PendingWrite,
    deadline: Instant,
    reply: UnsentReply,
}

/// In the order of the commands.
#[derive(Default)]
pub struct PendingConfirmations(VecDeque<PendingConfirmation>);

impl PendingConfirmations {
    pub fn push(&mut self, write: PendingWrite, reply: UnsentReply) {
        let deadline = Instant::now() + REPLY_WITHIN;
        self.0.push_back(PendingConfirmation {
            write,
            deadline,
            reply,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next command that is stored, or of which it is known that the disk fails. Dropping the future loses nothing.
    pub async fn next(&mut self) -> UnsentReply {
        loop {
            let Some(oldest) = self.0.front_mut() else {
                return pending().await;
            };
            _ = timeout_at(oldest.deadline, oldest.write.finished()).await;
            if let Some(oldest) = self.0.pop_front() {
                return oldest.reply;
            }
        }
    }
}
