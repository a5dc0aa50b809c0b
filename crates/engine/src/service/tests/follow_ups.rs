//! Prompts that follow an answer, while the look's image is in the cache.

use super::*;
use crate::{
    scheduler::backend::BackendLimits,
    service::{
        engine_loop::EngineLoop,
        handle::{EngineHandle, SubmittedLook},
        look_limit::LookRule,
    },
};
use spotter_core::FollowUp;

/// Longer than a look waits for what follows its answers.
const TOO_LONG: Duration = Duration::from_secs(3);

/// An engine with a look of which the answer to `p0` may be followed by two prompts.
struct Rig {
    handle: EngineHandle,
    turns: EngineLoop,
    clock: ManualClock,
    seen: Arc<Mutex<Seen>>,
    look: SubmittedLook,
    news: Vec<LookNews>,
}

fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

impl Rig {
    fn new(limits: BackendLimits) -> Self {
        let text = vec![72, 73, 0, 74, 75, 0];
        let (engine, clock, seen) = writing_engine(limits, None, text);
        let (handle, _, turns) = handle::start_here(engine, LookRule::fixed(1));
        let mut asked = look(2, Mono::from_nanos(u64::MAX));
        Arc::make_mut(&mut asked.prompts[0]).outlines_max = 2;
        let look = ready(handle.permit()).expect("a free engine").look(asked);
        let mut rig = Self {
            handle,
            turns,
            clock,
            seen,
            look,
            news: Vec::new(),
        };
        rig.turn();
        rig
    }

    /// Turns until there is nothing to do.
    fn turn(&mut self) {
        loop {
            self.turns.turn().expect("a device");
            if let Some(news) = ready(self.look.next()) {
                self.news.extend(news);
            }
            if self.turns.is_idle() {
                return;
            }
        }
    }

    /// Takes it from the answer of `p0`, when only that is awaited.
    fn follow_up(&mut self) -> FollowUp {
        assert!(self.turns.is_idle(), "the loop sleeps");
        assert!(self.outcome().is_none(), "{:?}", self.news);
        let short = |news: &LookNews| matches!(news, LookNews::ShortAnswered(_));
        assert!(self.news.iter().any(short), "no look waits for it");
        assert!(ready(self.handle.permit()).is_some());
        let mut offered = self.news.iter_mut().filter_map(|news| match news {
            LookNews::Answer {
                answer, follow_up, ..
            } => {
                assert_eq!(follow_up.is_some(), answer.prompt.id.as_str() == "p0");
                follow_up.take()
            }
            _ => None,
        });
        let follow_up = offered.next().expect("an answer to p0");
        assert!(offered.next().is_none());
        follow_up
    }

    fn outcome(&self) -> Option<&Outcome> {
        match self.news.last() {
            Some(LookNews::Ended(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// Prompts that were answered, in this order.
    fn answered(&self) -> Vec<&str> {
        let news = self.news.iter();
        let answered = news.filter_map(|news| match news {
            LookNews::Answer { answer, .. } => Some(answer.prompt.id.as_str()),
            _ => None,
        });
        answered.collect()
    }

    /// The engine has kept nothing of the look.
    fn is_over(&mut self) -> bool {
        let worker = self.turns.engine().worker();
        worker.is_empty() && worker.pages_in_use() == 0
    }
}

fn question(name: &str) -> Arc<Prompt> {
    let id = PromptId::new(name).expect("id");
    Arc::new(Prompt::new(id, Prompt::ONCE, Task::question("Which?")))
}

#[test]
fn follow_up_prompts_are_answered_behind_the_same_image() {
    let mut rig = Rig::new(LIMITS);
    let follow_up = rig.follow_up();
    follow_up.ask(["q0", "q1", "q2"].map(question).to_vec());
    rig.turn();
    assert!(matches!(rig.outcome(), Some(Outcome::Answered(_))));
    let mut answered = rig.answered();
    answered[2..].sort();
    assert_eq!(answered[2..], ["q0", "q1"], "as many as it may have");
    assert_eq!(rig.seen.lock().expect("one thread").images, 1);
    assert!(rig.is_over());
}

#[test]
fn look_ends_when_its_follow_up_is_dropped_or_late() {
    let mut dropped = Rig::new(LIMITS);
    drop(dropped.follow_up());
    dropped.turn();
    let mut expired = Rig::new(LIMITS);
    let follow_up = expired.follow_up();
    expired.clock.advance(TOO_LONG);
    expired.turn();
    for rig in [&mut dropped, &mut expired] {
        assert!(matches!(rig.outcome(), Some(Outcome::Answered(_))));
        assert!(rig.is_over());
    }
    follow_up.ask(vec![question("q0")]);
    expired.turn();
    assert_eq!(expired.answered().len(), 2);
}

#[test]
fn cancelled_look_keeps_no_image_for_its_follow_up() {
    let mut rig = Rig::new(LIMITS);
    let follow_up = rig.follow_up();
    let Rig {
        mut turns, look, ..
    } = rig;
    drop(look);
    turns.turn().expect("a device");
    follow_up.ask(vec![question("q0")]);
    turns.turn().expect("a device");
    assert!(turns.is_idle() && turns.engine().worker().is_empty());
    assert_eq!(turns.engine().worker().pages_in_use(), 0);
}

#[test]
fn follow_up_that_the_model_cannot_answer_fails_alone() {
    let mut rig = Rig::new(LIMITS);
    let outline = Prompt {
        task: Task::Segment {
            object: "car".into(),
            places: Vec::new(),
        },
        ..(*question("outline")).clone()
    };
    rig.follow_up().ask(vec![Arc::new(outline), question("q0")]);
    rig.turn();
    assert_eq!(rig.answered()[2..], ["q0"]);
    let Some(Outcome::Failed(look, LookFailure::Unfit(_))) = rig.outcome() else {
        panic!("{:?}", rig.outcome())
    };
    assert_eq!(look.prompts[0].id.as_str(), "outline");
    assert!(rig.is_over());
}

/// The engine sleeps then until a message comes, and none can.
#[tokio::test]
async fn engine_whose_handles_are_gone_waits_for_no_follow_up() {
    let build = || Ok((engine(LIMITS, None).0, 1));
    let (handle, end) = handle::start(build).await.expect("an engine");
    let mut asked = look(1, Mono::from_nanos(u64::MAX));
    Arc::make_mut(&mut asked.prompts[0]).outlines_max = 1;
    let mut look = handle.permit().await.look(asked);
    drop(handle);
    let mut news = Vec::new();
    while look.unanswered().is_some() {
        news.extend(look.next().await);
    }
    assert!(matches!(
        news.last(),
        Some(LookNews::Ended(Outcome::Answered(_)))
    ));
    end.over().await;
}
