//! Marks of events that are on their way to the disk: each is replied to when it is stored.

use std::{future::pending, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::timeout;

use super::{command_sender::CommandSender, pending_questions::SettledQuestion};
use spotter_control::{Refusal, RefusalCode};
use spotter_core::MarkOrder;
use spotter_history::{History, JudgingError, NO_HISTORY};
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
            return Err(unavailable(NO_HISTORY));
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
        JudgingError::OtherPicture => RefusalCode::Conflict,
        JudgingError::OtherKind(_) => RefusalCode::BadValue,
        JudgingError::NotStored(_) => RefusalCode::Failed,
    };
    Refusal::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spotter_history::testing::{EVENT_ID, stored_event};
    use tokio::sync::mpsc;

    use super::*;

    fn order(event: &str) -> MarkOrder {
        MarkOrder {
            event: serde_json::from_value(json!(event)).unwrap(),
            mark: serde_json::from_value(json!({"mark": "wrong"})).unwrap(),
            picture: None,
        }
    }

    fn sender() -> CommandSender {
        CommandSender::Page {
            head: Default::default(),
            reply: mpsc::channel(1).0,
        }
    }

    #[tokio::test]
    async fn mark_is_replied_to_when_it_is_stored_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let history = stored_event(folder.path());
        let mut marks = PendingMarks::default();
        let mut settled = async |event: &str| {
            marks.mark(Some(&history), order(event), sender()).unwrap();
            marks.next().await.1.map_err(|refusal| refusal.code)
        };
        assert_eq!(settled(EVENT_ID).await, Ok(ReplyValue::Done));
        assert_eq!(settled("none").await, Err(RefusalCode::UnknownEvent));
        assert!(marks.is_empty());
        let refused = marks.mark(None, order(EVENT_ID), sender()).unwrap_err();
        assert_eq!(refused.code, RefusalCode::Unavailable);
    }
}
