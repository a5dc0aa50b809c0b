//! Questions that were asked once and wait for a look. Pure: takes `now`.

use std::{sync::Arc, time::Duration};

use spotter_core::{
    AnswerBody, CameraId, Mono, Outcome, Prompt, PromptId, Refusal, RefusalCode, Task,
};
use spotter_mqtt::Value;

/// Questions that may wait at once: each is a prompt of a look.
const MOST: usize = 16;
/// A camera whose frames do not come is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The questions, each with what its asker is known by.
#[derive(Debug)]
pub struct Asks<T> {
    waiting: Vec<Waiting<T>>,
    number: u64,
}

/// One question.
#[derive(Debug)]
pub struct Waiting<T> {
    camera: CameraId,
    prompt: Arc<Prompt>,
    until: Mono,
    asker: T,
}

/// A question that is settled.
pub type Settled<T> = (T, Result<Value, Refusal>);

impl<T> Asks<T> {
    /// A new question: the prompt for the camera's next frame.
    pub fn ask(
        &mut self,
        camera: &CameraId,
        question: String,
        asker: T,
        now: Mono,
    ) -> Result<Arc<Prompt>, Refusal> {
        if self.waiting.len() >= MOST {
            let text = format!("{MOST} questions wait for an answer; ask again later");
            return Err(Refusal::new(RefusalCode::Conflict, text));
        }
        self.number += 1;
        let id = PromptId::new(&format!("ask-{}", self.number))
            .map_err(|error| Refusal::new(RefusalCode::Failed, error.to_string()))?;
        let task = Task::Query {
            question,
            choices: Vec::new(),
        };
        let prompt = Arc::new(Prompt {
            id,
            revision: Prompt::ONCE,
            task,
        });
        self.waiting.push(Waiting {
            camera: camera.clone(),
            prompt: Arc::clone(&prompt),
            until: now.after(PATIENCE),
            asker,
        });
        Ok(prompt)
    }

    /// A look ended: the questions that it settles.
    pub fn outcome(&mut self, outcome: &Outcome) -> Vec<Settled<T>> {
        // Nearly every look is one that nobody waits for.
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let unavailable = |text: &str| Err(Refusal::new(RefusalCode::Unavailable, text));
        let (camera, ended): (_, Vec<_>) = match outcome {
            Outcome::Answered { frame, answers, .. } => {
                let ended = answers.iter().map(|a| (&a.prompt, value(&a.body)));
                (&frame.camera, ended.collect())
            }
            Outcome::Late(look) => {
                let late = || unavailable("the model was too busy to answer in time; ask again");
                let ended = look.prompts.iter().map(|prompt| (prompt, late()));
                (&look.frame.camera, ended.collect())
            }
            Outcome::Failed(look, why) => {
                let failed = || Err(Refusal::new(RefusalCode::Failed, why.clone()));
                let ended = look.prompts.iter().map(|prompt| (prompt, failed()));
                (&look.frame.camera, ended.collect())
            }
        };
        let mut settled = Vec::new();
        for (prompt, result) in ended {
            let is_it = |w: &Waiting<T>| w.camera == *camera && w.prompt == *prompt;
            if let Some(place) = self.waiting.iter().position(is_it) {
                settled.push((self.waiting.swap_remove(place).asker, result));
            }
        }
        settled
    }

    /// Nobody looks at these cameras any more, for that `reason`: the questions about them.
    pub fn lose(&mut self, cameras: &[CameraId], reason: &str) -> Vec<Settled<T>> {
        let (lost, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| cameras.contains(&waiting.camera));
        self.waiting = waiting;
        let refusal = Refusal::new(RefusalCode::Unavailable, reason.to_owned());
        let refused = |lost: Waiting<T>| (lost.asker, Err(refusal.clone()));
        Vec::into_iter(lost).map(refused).collect()
    }

    /// Time passed: the questions that nobody answered.
    pub fn tick(&mut self, now: Mono) -> Vec<Settled<T>> {
        let (late, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.until <= now);
        self.waiting = waiting;
        let refused = |late: Waiting<T>| {
            let seconds = PATIENCE.as_secs();
            let text = format!(
                "camera {} gave no picture to look at within {seconds} s; its health says why",
                late.camera
            );
            (
                late.asker,
                Err(Refusal::new(RefusalCode::Unavailable, text)),
            )
        };
        Vec::into_iter(late).map(refused).collect()
    }
}

impl<T> Default for Asks<T> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            number: 0,
        }
    }
}

fn value(body: &AnswerBody) -> Result<Value, Refusal> {
    match body {
        AnswerBody::Text { text, score } => Ok(Value::Answer {
            text: text.clone(),
            score: *score,
        }),
        AnswerBody::Boxes(_) | AnswerBody::Points(_) => {
            let text = "the model answered a question with places";
            Err(Refusal::new(RefusalCode::Failed, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::rig;
    use spotter_core::{Answer, Look, StageTimes};

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn gate() -> CameraId {
        CameraId::new("gate").unwrap()
    }

    fn look(prompts: Vec<Arc<Prompt>>) -> Look {
        Look {
            frame: rig::frame(&gate(), 1, at(1)),
            prompts,
            start_by: at(2),
            answer_by: at(3),
        }
    }

    #[test]
    fn each_question_is_settled_once_by_its_own_answer() {
        let mut asks = Asks::default();
        let mut ask = |asker| asks.ask(&gate(), "rain?".into(), asker, at(0)).unwrap();
        let (a, b, c) = (ask("a"), ask("b"), ask("c"));
        let text = |text: &str| AnswerBody::Text {
            text: text.into(),
            score: 0.5,
        };
        let answer = |prompt: &Arc<Prompt>, body| Answer {
            prompt: Arc::clone(prompt),
            body,
            truncated: false,
            marks: StageTimes::default(),
        };
        let of_camera = Arc::new(Prompt {
            revision: 1,
            ..(*a).clone()
        });
        let answered = |answers| Outcome::Answered {
            frame: rig::frame(&gate(), 1, at(1)),
            model_size: (2, 2),
            answers,
        };
        let other = answered(vec![answer(&of_camera, text("no"))]);
        assert!(asks.outcome(&other).is_empty(), "a prompt of the same name");
        let both = answered(vec![answer(&b, text("no")), answer(&a, text("yes"))]);
        let says = |text: &str| {
            let text = text.into();
            Ok(Value::Answer { text, score: 0.5 })
        };
        assert_eq!(asks.outcome(&both), [("b", says("no")), ("a", says("yes"))]);
        assert!(asks.outcome(&both).is_empty(), "once");
        let settled = asks.outcome(&Outcome::Late(look(vec![c])));
        assert_eq!(
            settled[0].1.as_ref().unwrap_err().code,
            RefusalCode::Unavailable
        );
    }

    #[test]
    fn nobody_waits_for_a_camera_that_lost_its_engine() {
        let yard = CameraId::new("yard").unwrap();
        let mut asks = Asks::default();
        for (camera, asker) in [(&gate(), "a"), (&yard, "b"), (&gate(), "c")] {
            asks.ask(camera, "rain?".into(), asker, at(0)).unwrap();
        }
        let settled = asks.lose(&[gate()], "engine on cuda 0: it fell off the bus");
        let refusal = Refusal::new(
            RefusalCode::Unavailable,
            "engine on cuda 0: it fell off the bus",
        );
        assert_eq!(settled, [("a", Err(refusal.clone())), ("c", Err(refusal))]);
        let late: Vec<&str> = asks.tick(at(33)).into_iter().map(|(n, _)| n).collect();
        assert_eq!(late, ["b"]);
    }

    #[test]
    fn nobody_waits_for_ever_and_not_too_many_wait() {
        let mut asks = Asks::default();
        for n in 0..MOST {
            asks.ask(&gate(), "rain?".into(), n, at(n as u64)).unwrap();
        }
        let refusal = asks.ask(&gate(), "rain?".into(), 99, at(20)).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Conflict);
        let late: Vec<usize> = asks.tick(at(33)).into_iter().map(|(n, _)| n).collect();
        assert_eq!(late, [0, 1, 2, 3]);
        assert!(asks.ask(&gate(), "rain?".into(), 99, at(33)).is_ok());
    }
}
