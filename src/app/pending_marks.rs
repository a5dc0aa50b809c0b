//! Marks of events that are on their way to the disk: each is replied to when it is stored.

use std::{future::pending, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::timeout;

use super::{command_sender::CommandSender, pending_questions::SettledQuestion};
use spotter_control::{Refusal, RefusalCode};
use spotter_core::MarkOrder;
use spotter_history::{History, JudgingError};
use spotter_mqtt::ReplyValue;

/// More than people give.
const MARKS_MAX: usize = 64;
const STORED_WITHIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct PendingMarks(FuturesUnordered<BoxFuture<'static, SettledQuestion<CommandSender>>>);

impl PendingMarks {
    /// [`next`](Self::next) has the reply.
    pub fn mark(
        &mut self,
        history: Option<&History>,
        order: MarkOrder,
        sender: CommandSender,
    ) -> Result<(), Refusal> {
        let unavailable = |text: &str| Refusal::new(RefusalCode::Unavailable, text);
        let Some(history) = history.cloned() else {
            let text = "no events are stored; add [history] to the configuration";
            return Err(unavailable(text));
        };
        if self.0.len() >= MARKS_MAX {
            let text = "64 marks wait for the disk; send it again";
            return Err(unavailable(text));
        }
        self.0.push(Box::pin(async move {
            let stored = timeout(STORED_WITHIN, history.mark(order)).await;
            let late = "the disk did not answer within 5 s".to_owned();
            let stored = stored.unwrap_or(Err(JudgingError::NotStored(late)));
            (sender, stored.map(|()| ReplyValue::Done).map_err(refusal))
        }));
        Ok(())
    }

    /// The next one that is stored or refused. Dropping the future loses nothing.
    pub async fn next(&mut self) -> SettledQuestion<CommandSender> {
        match self.0.next().await {
            Some(settled) => settled,
            None => pending().await,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn refusal(error: JudgingError) -> Refusal {
    let code = match error {
        JudgingError::Unknown => RefusalCode::UnknownEvent,
        JudgingError::OtherKind(_) => RefusalCode::BadValue,
        JudgingError::NotStored(_) => RefusalCode::Failed,
    };
    Refusal::new(code, error.to_string())
}
