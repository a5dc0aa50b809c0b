//! Questions of the command `ask` that wait for a look. Pure: takes `now`.
//!
//! Faults: K11.

use std::{slice, sync::Arc, time::Duration};

use spotter_config::{AskedOnce, CameraConfig};
use spotter_control::{Refusal, RefusalCode};
use spotter_core::{Answer, AnswerBody, CameraId, LookNews, Mono, Outcome, Prompt, PromptId};
use spotter_events::track::OutlineMask;
use spotter_mqtt::ReplyValue;

/// Questions that may wait at the same time: each is a prompt of a look.
const QUESTIONS_MAX: usize = 16;
/// A question to a camera without frames fails after this time.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The questions, each with its requester.
#[derive(Debug)]
pub struct PendingQuestions<T> {
    waiting: Vec<PendingQuestion<T>>,
    number: u64,
}

impl<T> Default for PendingQuestions<T> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            number: 0,
        }
    }
}

#[derive(Debug)]
struct PendingQuestion<T> {
    camera: CameraId,
    /// Outlines show nothing in it.
    mask: OutlineMask,
    prompt: Arc<Prompt>,
    until: Mono,
    requester: T,
}

/// The requester of a question, with its answer.
pub type SettledQuestion<T> = (T, Result<ReplyValue, Refusal>);

impl<T> PendingQuestions<T> {
    /// A prompt for the next question.
    pub fn prompt(&mut self, asked: AskedOnce) -> Result<Arc<Prompt>, Refusal> {
        self.number += 1;
        let id = PromptId::new(&format!("ask-{}", self.number))
            .map_err(|error| Refusal::new(RefusalCode::Failed, error.to_string()))?;
        Ok(Arc::new(Prompt {
            adapter: asked.adapter,
            ..Prompt::new(id, Prompt::ONCE, asked.task)
        }))
    }

    /// Adds the prompt of a question about the camera's next frame.
    pub fn ask(
        &mut self,
        camera: &CameraConfig,
        prompt: &Arc<Prompt>,
        requester: T,
        now: Mono,
    ) -> Result<(), Refusal> {
        if self.waiting.len() >= QUESTIONS_MAX {
            let text = format!("{QUESTIONS_MAX} questions wait for an answer; ask again later");
            return Err(Refusal::new(RefusalCode::Conflict, text));
        }
        self.waiting.push(PendingQuestion {
            camera: camera.id.clone(),
            mask: OutlineMask::new(&camera.mask),
            prompt: Arc::clone(prompt),
            until: now.after(ANSWER_LIMIT),
            requester,
        });
        Ok(())
    }

    /// The questions that news of a look settle.
    pub fn look(&mut self, news: &LookNews) -> Vec<SettledQuestion<T>> {
        // Nearly always: questions are rare.
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (look, refusal) = match news {
            LookNews::Answer { frame, answer, .. } => {
                return self.settle(
                    |question| question.is(&frame.camera, slice::from_ref(&answer.prompt)),
                    |question| value(answer, frame.number, &question.mask),
                );
            }
            LookNews::Ended(Outcome::Late(look)) => {
                let text = "the model was too busy to answer in time; ask again";
                (look, Refusal::new(RefusalCode::Unavailable, text))
            }
            LookNews::Ended(Outcome::Failed(look, why)) => {
                (look, Refusal::new(RefusalCode::Failed, why.to_string()))
            }
            LookNews::Piece { .. }
            | LookNews::ShortAnswered(_)
            | LookNews::Ended(Outcome::Answered(_)) => return Vec::new(),
        };
        self.settle(
            |question| question.is(&look.frame.camera, &look.prompts),
            |_| Err(refusal.clone()),
        )
    }

    /// Refuses the questions to cameras without an engine.
    pub fn refuse(&mut self, cameras: &[CameraId], reason: &str) -> Vec<SettledQuestion<T>> {
        self.settle(
            |question| cameras.contains(&question.camera),
            |_| Err(Refusal::new(RefusalCode::Unavailable, reason)),
        )
    }

    /// Refuses the questions that waited too long.
    pub fn tick(&mut self, now: Mono) -> Vec<SettledQuestion<T>> {
        let late = |question: &PendingQuestion<T>| {
            let (camera, seconds) = (&question.camera, ANSWER_LIMIT.as_secs());
            let text = format!(
                "camera {camera} delivered no frame within {seconds} s; see its health topic"
            );
            Err(Refusal::new(RefusalCode::Unavailable, text))
        };
        self.settle(|question| question.until <= now, late)
    }

    fn settle(
        &mut self,
        is_settled: impl Fn(&PendingQuestion<T>) -> bool,
        result: impl Fn(&PendingQuestion<T>) -> Result<ReplyValue, Refusal>,
    ) -> Vec<SettledQuestion<T>> {
        let settled = self.waiting.extract_if(.., |question| is_settled(question));
        let settled = settled.map(|question| {
            let result = result(&question);
            (question.requester, result)
        });
        settled.collect()
    }
}

impl<T> PendingQuestion<T> {
    /// It is about this camera, and one of these prompts of a look.
    fn is(&self, camera: &CameraId, prompts: &[Arc<Prompt>]) -> bool {
        self.camera == *camera && prompts.contains(&self.prompt)
    }
}

/// `frame`: the number of the frame that was asked about.
fn value(answer: &Answer, frame: u64, mask: &OutlineMask) -> Result<ReplyValue, Refusal> {
    match &answer.body {
        AnswerBody::Text { text, score, .. } => Ok(ReplyValue::Answer {
            text: text.clone(),
            score: *score,
            reasoning: answer.reasoning.clone(),
        }),
        AnswerBody::Outline(outline) => Ok(ReplyValue::Outline(mask.outside_of(outline, frame))),
        AnswerBody::Boxes(_) | AnswerBody::Points(_) => {
            let text = "the model answered the question with places instead of text";
            Err(Refusal::new(RefusalCode::Failed, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::testing;
    use spotter_config::testing::camera;
    use spotter_core::{Frame, NormBox, NormPoint, Outline, ScoreSource, Task, testing::look_at};

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn gate() -> CameraConfig {
        camera("gate", Vec::new())
    }

    fn ask<T>(
        questions: &mut PendingQuestions<T>,
        camera: &CameraConfig,
        requester: T,
        now: Mono,
    ) -> Result<Arc<Prompt>, Refusal> {
        let prompt = questions.prompt(AskedOnce {
            task: Task::question("rain?"),
            adapter: None,
        })?;
        questions.ask(camera, &prompt, requester, now)?;
        Ok(prompt)
    }

    fn frame() -> Frame {
        testing::frame(&gate().id, 1, at(1))
    }

    #[test]
    fn question_is_settled_once_by_its_own_answer() {
        let mut questions = PendingQuestions::default();
        let mut asked = |requester| ask(&mut questions, &gate(), requester, at(0)).unwrap();
        let (a, b, c) = (asked("a"), asked("b"), asked("c"));
        let answered = |prompt: &Arc<Prompt>, text: &str| {
            let body = AnswerBody::Text {
                text: text.into(),
                score: 0.5,
                source: ScoreSource::TokenProb,
            };
            testing::answered(&frame(), prompt, body)
        };
        let of_camera = Arc::new(Prompt {
            revision: 1,
            ..(*a).clone()
        });
        let same_name = questions.look(&answered(&of_camera, "no"));
        assert!(same_name.is_empty());
        let says = |text: &str| {
            let text = text.into();
            Ok(ReplyValue::Answer {
                text,
                score: 0.5,
                reasoning: None,
            })
        };
        let no = answered(&b, "no");
        assert_eq!(questions.look(&no), [("b", says("no"))]);
        let yes = answered(&a, "yes");
        assert_eq!(questions.look(&yes), [("a", says("yes"))]);
        assert!(questions.look(&yes).is_empty(), "once");
        let late = Outcome::Late(look_at(frame(), &[c]));
        let settled = questions.look(&LookNews::Ended(late));
        assert_eq!(
            settled[0].1.as_ref().unwrap_err().code,
            RefusalCode::Unavailable
        );
    }

    #[test]
    fn outline_of_ask_is_cut_by_the_mask() {
        let square = |x0: f64, x1: f64| [(x0, 0.0), (x1, 0.0), (x1, 0.5), (x0, 0.5)];
        let corners = square(0.0, 0.5).map(|(x, y)| NormPoint { x, y });
        let drawn = AnswerBody::Outline(Outline {
            bounds: Some(NormBox::from_corners(0.0, 0.0, 0.5, 0.5)),
            path: "M0 0 L1 0 L1 1 L0 1 Z".into(),
            polygons: vec![corners.into()],
            parse_error: None,
            score: 0.75,
        });
        let mut questions = PendingQuestions::default();
        let mut outline = |mask| {
            let gate = CameraConfig { mask, ..gate() };
            let asked = ask(&mut questions, &gate, "a", at(0)).unwrap();
            let answered = testing::answered(&frame(), &asked, drawn.clone());
            let [(_, Ok(ReplyValue::Outline(outline)))] = &questions.look(&answered)[..] else {
                panic!("no outline");
            };
            outline
                .as_ref()
                .map(|it| (it.frame, (it.area * 1e4).round() / 1e4, it.path.clone()))
        };
        let whole = "M0 0 L1 0 L1 1 L0 1 Z".to_owned();
        assert_eq!(outline(Vec::new()), Some((1, 0.25, whole)));
        let half = "M 0 1 L 0 0 L 0.5 0 L 0.5 1 Z".to_owned();
        let right = square(0.25, 1.0).into();
        assert_eq!(outline(vec![right]), Some((1, 0.125, half)));
        assert_eq!(outline(vec![square(0.0, 1.0).into()]), None);
    }

    #[test]
    fn questions_to_a_camera_without_engine_are_refused() {
        let yard = camera("yard", Vec::new());
        let mut questions = PendingQuestions::default();
        for (camera, requester) in [(&gate(), "a"), (&yard, "b"), (&gate(), "c")] {
            ask(&mut questions, camera, requester, at(0)).unwrap();
        }
        let settled = questions.refuse(&[gate().id], "engine on cuda 0: it fell off the bus");
        let refusal = Refusal::new(
            RefusalCode::Unavailable,
            "engine on cuda 0: it fell off the bus",
        );
        assert_eq!(settled, [("a", Err(refusal.clone())), ("c", Err(refusal))]);
        let late: Vec<&str> = questions.tick(at(33)).into_iter().map(|(n, _)| n).collect();
        assert_eq!(late, ["b"]);
    }

    #[test]
    fn unanswered_questions_time_out_and_their_number_is_bounded() {
        let mut questions = PendingQuestions::default();
        for n in 0..QUESTIONS_MAX {
            ask(&mut questions, &gate(), n, at(n as u64)).unwrap();
        }
        let refusal = ask(&mut questions, &gate(), 99, at(20)).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Conflict);
        let late: Vec<usize> = questions.tick(at(33)).into_iter().map(|(n, _)| n).collect();
        assert_eq!(late, [0, 1, 2, 3]);
        assert!(ask(&mut questions, &gate(), 99, at(33)).is_ok());
    }
}
