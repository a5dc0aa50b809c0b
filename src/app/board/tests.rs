//! The board with looks and messages made by hand.

use super::*;
use crate::{
    app::rig,
    ops::page::{Mood, Place, Scene as _},
};
use spotter_core::{
    Answer, AnswerBody, DetectionBody, FoundObject, Location, ManualClock, NormBox, Prompt,
    PromptId, ScoreSource, SkippedSinceLast, StageTimes, Task, TrackId, TrackedObject, WallTime,
};

const CONFIG: &str = r#"
node.name = "edge1"
mqtt.url = "mqtt://127.0.0.1:1"
[camera.gate]
url = "rtsp://127.0.0.1/gate"
prompt.person.detect = "person"
[camera.yard]
url = "test://"
prompt.person.detect = "person"
"#;

fn board() -> (Board, ManualClock, CameraId) {
    let (config, card) = (rig::config(CONFIG), rig::card());
    let gate = config.cameras[0].id.clone();
    let seats = Seats::from([(gate.clone(), "cpu".to_owned())]);
    let clock = ManualClock::at(WallTime::from_unix_millis(1_787_393_730_123));
    let board = Board::new(&config, &card, &seats, Arc::new(clock.clone()));
    (board, clock, gate)
}

fn answer(left: f64, ended: Mono) -> Answer {
    let object = "person".to_owned();
    let prompt = Prompt {
        id: PromptId::new("person").unwrap(),
        revision: 1,
        task: Task::Detect { object },
    };
    let marks = StageTimes {
        taken: ended.before(Duration::from_millis(20)),
        prepared: ended,
        encoded: ended,
        prefilled: ended,
        generated: ended,
    };
    Answer {
        prompt: Arc::new(prompt),
        body: AnswerBody::Boxes(vec![FoundObject {
            place: NormBox::from_corners(left, 0.2, 0.9, 0.8),
            score: 0.83,
            source: ScoreSource::TokenProb,
            sharpness: 0.5,
        }]),
        truncated: false,
        marks,
    }
}

/// A look at frame `number`, as the desk tells of it.
fn look(board: &Board, camera: &CameraId, number: u64, left: f64) {
    let now = board.clock.now();
    let frame = rig::frame(camera, number, now);
    let answers = vec![answer(left, now)];
    let outcome = Outcome::Answered {
        frame: frame.clone(),
        model_size: (2, 2),
        answers: answers.clone(),
    };
    board.look(&outcome);
    board.answer(&Detection {
        frame: (&frame).into(),
        prompt: Arc::clone(&answers[0].prompt),
        body: DetectionBody::Objects(vec![TrackedObject {
            location: Location::Box(NormBox::from_corners(left, 0.2, 0.9, 0.8)),
            score: 0.83,
            score_source: ScoreSource::TokenProb,
            sharpness: 0.5,
            track: TrackId::new("b7c1", camera, 1),
            age: Duration::ZERO,
            zones: Vec::new(),
        }]),
        truncated: false,
        model: "a model".into(),
        model_size: (2, 2),
        stages: answers[0].marks,
        finished: now,
        since_last: SkippedSinceLast::default(),
    });
}

/// What is shown of the first camera: the frame, where its thing begins, and whether there is a picture.
fn shown(board: &Board, people: bool) -> (u64, f64, bool) {
    let view = board.view(people);
    let look = view.cameras[0].look.as_ref().unwrap();
    let Place::Box([left, ..]) = look.found[0].place else {
        panic!("{look:?}");
    };
    assert_eq!(look.found.len(), 1, "{look:?}");
    (look.frame, left, look.pictured)
}

async fn still(board: &Board, frame: u64) {
    let copied = || {
        board
            .still("gate")
            .is_some_and(|still| still.frame == frame)
    };
    while !copied() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_picture_is_copied_only_for_somebody_and_goes_with_the_boxes_of_its_look() {
    let (board, clock, gate) = board();
    look(&board, &gate, 1, 0.1);
    assert_eq!(shown(&board, false), (1, 0.1, false), "programs need none");
    look(&board, &gate, 2, 0.2);
    assert_eq!(
        shown(&board, true),
        (2, 0.2, false),
        "there was none to keep"
    );

    look(&board, &gate, 3, 0.3);
    still(&board, 3).await;
    assert_eq!(shown(&board, true), (3, 0.3, true));
    clock.advance(Duration::from_millis(900));
    look(&board, &gate, 4, 0.4);
    assert_eq!(shown(&board, true), (3, 0.3, true), "once a second");
    assert_eq!(
        board.view(true).cameras[0].prompts[0]
            .answer
            .as_ref()
            .unwrap()
            .age_ms,
        0
    );
    clock.advance(Duration::from_millis(100));
    look(&board, &gate, 5, 0.5);
    still(&board, 5).await;
    assert_eq!(shown(&board, true), (5, 0.5, true));

    clock.advance(WATCHED_FOR);
    board.tick(Facts::default());
    assert!(board.still("gate").is_none(), "nobody watches any more");
    look(&board, &gate, 6, 0.6);
    assert_eq!(shown(&board, false), (6, 0.6, false));
}

#[test]
fn what_the_daemon_knows_is_told_without_addresses_of_cameras() {
    let (board, clock, gate) = board();
    clock.advance(Duration::from_secs(10));
    look(&board, &gate, 1, 0.1);
    clock.advance(Duration::from_secs(1));
    let health = |state: &str, reason: Option<&str>| CameraHealth {
        state: state.into(),
        reason: reason.map(str::to_owned),
        ..CameraHealth::default()
    };
    let lost = Some("engine_lost: engine on cpu: gone");
    let cases = [
        ("streaming", None, Mood::Good, "streaming"),
        ("connecting", None, Mood::Busy, "connecting"),
        (
            "connecting",
            Some("unreachable: no route"),
            Mood::Bad,
            "connecting",
        ),
        (
            "auth_failed",
            Some("auth_failed: refused"),
            Mood::Bad,
            "auth_failed",
        ),
        (
            "disabled",
            Some("switched_off: by a command"),
            Mood::Off,
            "disabled",
        ),
        ("disabled", lost, Mood::Bad, "engine_lost"),
    ];
    let retry_at = clock.now().after(Duration::from_secs(30));
    for (told, reason, mood, state) in cases {
        board.tick(Facts {
            cameras: vec![(gate.clone(), health(told, reason))],
            engines: vec![("cpu".into(), page::EngineState::Ended)],
            broker: BrokerState::Backoff {
                reason: "connection refused".into(),
                retry_at,
            },
            ..Facts::default()
        });
        let view = board.view(false);
        let camera = &view.cameras[0];
        assert_eq!((camera.mood, camera.state.as_str()), (mood, state));
        assert_eq!(camera.reason.as_deref(), reason);
        assert_eq!(view.cameras[1].look, None);
        let engine = &view.engines[0];
        assert_eq!(
            (engine.state, engine.bars.len(), engine.busy_pct),
            (page::EngineState::Ended, 1, 0.4)
        );
        assert_eq!(
            (view.broker.mood, view.broker.next_retry_s),
            (Mood::Bad, Some(30.0))
        );
        let text = serde_json::to_string(&view).unwrap();
        assert!(!text.contains("rtsp:"), "{text}");
    }
}
