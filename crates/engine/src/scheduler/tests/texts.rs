//! Free texts: no short answer waits for them, and all of them end.

use std::time::Duration;

use super::{
    equality::{LIMITS, worker},
    grammar,
};
use crate::{
    model::Skill,
    scheduler::{
        backend::{BackendLimits, DecoderInput},
        request::{Ask, LookEvent, LookId, LookRequest, Options},
        sequence::{Bounds, Sequence},
        worker::Worker,
    },
};
use spotter_core::{CameraId, Clock as _, ManualClock, Mono, Picture};

const BOUNDS: Bounds = Bounds {
    max_objects: 5,
    max_tokens: 30,
};
const TEXTS: usize = 9;
/// Of the simulated device, with the host's work for a step.
const STEP: Duration = Duration::from_millis(7);

fn engine() -> (Worker, ManualClock) {
    let limits = BackendLimits {
        pages: 100,
        ..LIMITS
    };
    let options = Options {
        draft: false,
        ..Options::default()
    };
    worker(limits, options, Duration::from_millis(3))
}

fn look(camera: usize, picture: u8, skills: &[Skill]) -> LookRequest {
    let ask = |&skill: &Skill| Ask {
        sequence: Sequence::new(
            grammar(skill),
            vec![DecoderInput::Token(7), DecoderInput::Token(9)],
            BOUNDS,
        ),
        draft: None,
        in_pieces: false,
        has_follow_up: false,
    };
    LookRequest {
        crops: 1,
        view: Default::default(),
        camera: CameraId::new(&format!("c{camera}")).ok(),
        measured: None,
        picture: Picture::from_rgb(2, 4, vec![picture; 24]).ok(),
        start_by: Mono::from_nanos(u64::MAX),
        answer_by: Mono::from_nanos(u64::MAX),
        asks: skills.iter().map(ask).collect(),
        adapter: None,
    }
}

/// Turns until the look's short answers are there; counts the looks that end.
fn until_short(worker: &mut Worker, look: LookId, ended: &mut usize) {
    let mut is_short_answered = false;
    while !is_short_answered {
        for event in worker.turn().expect("a sound engine") {
            is_short_answered |= event == LookEvent::ShortAnswered { look };
            *ended += usize::from(matches!(event, LookEvent::Answered { .. }));
        }
    }
}

/// More texts than may have rows are under way, one on each camera, when a look comes.
#[test]
fn short_answer_waits_for_one_step_of_texts() {
    let mut most = Duration::ZERO;
    for picture in 0..40 {
        let request = look(0, picture, &[Skill::Detect]);
        let time = |worker: &mut Worker, clock: &ManualClock, ended: &mut usize| {
            let began = clock.now();
            let id = worker.admit(request.clone());
            until_short(worker, id, ended);
            clock.now().since(began)
        };
        let (mut worker, clock) = engine();
        let alone = time(&mut worker, &clock, &mut 0);
        let (mut worker, clock) = engine();
        let mut ended = 0;
        for text in 1..=TEXTS {
            let both = [Skill::Text, Skill::Detect];
            let mut both = look(text, picture + text as u8, &both);
            both.answer_by = clock.now().after(Duration::from_secs(1));
            let both = worker.admit(both);
            until_short(&mut worker, both, &mut ended);
        }
        let beside = time(&mut worker, &clock, &mut ended);
        most = most.max(beside.saturating_sub(alone));
        // A text may come later than its look was to be answered.
        clock.advance(Duration::from_secs(2));
        while !worker.is_idle() {
            for event in worker.turn().expect("a sound engine") {
                assert!(!matches!(event, LookEvent::Late { .. }), "{event:?}");
                ended += usize::from(matches!(event, LookEvent::Answered { .. }));
            }
        }
        assert_eq!(ended, TEXTS + 1, "all texts end");
        assert_eq!(worker.pages_in_use(), 0);
    }
    assert!(most <= 2 * STEP, "{most:?}");
}
