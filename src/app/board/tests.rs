//! The board with scripted looks and messages.

use super::*;
use crate::{
    app::test_support,
    ops::{
        facts::{CameraFacts, EngineFacts},
        page::{EngineState, Mood},
    },
};
use spotter_core::{
    Answer, AnswerBody, DetectionBody, FoundObject, FrameCounters, Location, ManualClock, NormBox,
    Phase, Prompt, PromptId, ScoreSource, SkippedSinceLast, StageTimes, Task, TrackId,
    TrackedObject, TriggerId, WallTime, WebhookId,
};
use spotter_events::triggers::TriggerReport;
use spotter_mqtt::{BrokerState, CameraHealth};
use spotter_webhook::{WebhookCounters, WebhookState, WebhookStatus};

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
    let (config, card) = (test_support::config(CONFIG), test_support::card());
    let gate = config.cameras[0].id.clone();
    let seats = CameraAssignment::from([(gate.clone(), "cpu".to_owned())]);
    let clock = ManualClock::at(WallTime::from_unix_millis(1_787_393_730_123));
    let board = Board::new(&config, &card, &seats, Arc::new(clock.clone()));
    (board, clock, gate)
}

fn answer(left: f64, ended: Mono) -> Answer {
    let object = "person".to_owned();
    let prompt = Prompt {
        view: Default::default(),
        id: PromptId::new("person").unwrap(),
        revision: 1,
        task: Task::Detect { object },
        adapter: None,
    };
    let marks = StageTimes {
        taken: ended.before(Duration::from_millis(20)),
        prepared: ended,
        encoded: ended,
        prefilled: ended,
        generated: ended,
        device: Duration::ZERO,
    };
    Answer {
        region: None,
        prompt: Arc::new(prompt),
        body: AnswerBody::Boxes(vec![FoundObject {
            place: NormBox::from_corners(left, 0.2, 0.9, 0.8),
            score: 0.83,
            source: ScoreSource::TokenProb,
            sharpness: 0.5,
        }]),
        truncated: false,
        unchanged: false,
        reasoning: None,
        tokens: spotter_core::TokenCounts::default(),
        marks,
    }
}

/// A look at frame `number`, with one answer.
fn look(board: &Board, camera: &CameraId, number: u64, left: f64) {
    let now = board.clock.now();
    let frame = test_support::frame(camera, number, now);
    let answer = answer(left, now);
    board.look(&frame, &answer.marks);
    board.answer(&Detection {
        region: None,
        frame: (&frame).into(),
        prompt: Arc::clone(&answer.prompt),
        body: DetectionBody::Objects(vec![TrackedObject {
            location: Location::Box(NormBox::from_corners(left, 0.2, 0.9, 0.8)),
            score: 0.83,
            score_source: ScoreSource::TokenProb,
            sharpness: 0.5,
            track: TrackId::new("b7c1", camera, 1),
            age: Duration::ZERO,
            zones: Vec::new(),
            dwell: Vec::new(),
        }]),
        truncated: false,
        unchanged: false,
        model: "a model".into(),
        model_size: (2, 2),
        stages: answer.marks,
        finished: now,
        since_last: SkippedSinceLast::default(),
    });
}

/// Of the first camera: the frame, the left side of its box, and whether the look has a thumbnail.
fn shown(board: &Board, people: bool) -> (u64, f64, bool) {
    let view = board.status(people);
    let look = view.cameras[0].look.as_ref().unwrap();
    let [answer] = look.answers.as_slice() else {
        panic!("{look:?}");
    };
    let [
        TrackedObject {
            location: Location::Box(bounds),
            ..
        },
    ] = answer.body.objects()
    else {
        panic!("{look:?}");
    };
    (look.frame, bounds.x0, look.pictured)
}

async fn thumbnail(board: &Board, frame: u64) {
    let copied = || {
        board
            .thumbnail("gate", None)
            .is_some_and(|thumbnail| thumbnail.frame == frame)
    };
    while !copied() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn thumbnail_is_made_at_once_then_every_half_minute() {
    let (board, clock, gate) = board();
    look(&board, &gate, 1, 0.1);
    thumbnail(&board, 1).await;
    clock.advance(camera::THUMBNAIL_UNWATCHED - Duration::from_millis(1));
    look(&board, &gate, 2, 0.2);
    assert_eq!(shown(&board, false), (2, 0.2, false), "a program");
    assert_eq!(shown(&board, true), (1, 0.1, true), "a first visitor");
    clock.advance(WATCHED_FOR);
    look(&board, &gate, 3, 0.3);
    thumbnail(&board, 3).await;
    let jpeg = board.thumbnail("gate", None).unwrap().jpeg.clone();
    assert_eq!(&jpeg[..2], [0xff, 0xd8]);
    assert!(board.thumbnail("yard", None).is_none(), "no look yet");
}

#[tokio::test]
async fn thumbnail_of_a_watched_page_is_of_the_shown_look() {
    let (board, clock, gate) = board();
    look(&board, &gate, 3, 0.3);
    thumbnail(&board, 3).await;
    assert_eq!(shown(&board, true), (3, 0.3, true));
    clock.advance(Duration::from_millis(900));
    look(&board, &gate, 4, 0.4);
    assert_eq!(shown(&board, true), (3, 0.3, true), "once a second");
    let prompts = &board.status(true).cameras[0].prompts;
    assert_eq!(prompts[0].answer.as_ref().unwrap().age_ms, 0);
    clock.advance(Duration::from_millis(100));
    look(&board, &gate, 5, 0.5);
    thumbnail(&board, 5).await;
    assert_eq!(shown(&board, true), (5, 0.5, true));
    // A browser that has the page of before asks for its picture.
    let frames = [None, Some(3), Some(4), Some(5)].map(|look| {
        let thumbnail = board.thumbnail("gate", look).unwrap();
        thumbnail.frame
    });
    assert_eq!(frames, [5, 3, 5, 5]);

    clock.advance(WATCHED_FOR);
    look(&board, &gate, 6, 0.6);
    assert_eq!(shown(&board, false), (6, 0.6, false));
}

#[tokio::test]
async fn status_shows_state_and_reason_without_camera_addresses() {
    let (board, clock, gate) = board();
    clock.advance(Duration::from_secs(10));
    look(&board, &gate, 1, 0.1);
    clock.advance(Duration::from_secs(1));
    let health = |state: Phase, reason: Option<&str>| CameraHealth {
        state,
        reason: reason.map(str::to_owned),
        ..CameraHealth::default()
    };
    let cases = [
        (Phase::Streaming, None, Mood::Good),
        (Phase::Connecting, None, Mood::Busy),
        (Phase::Connecting, Some("unreachable: no route"), Mood::Bad),
        (Phase::AuthFailed, Some("auth_failed: refused"), Mood::Bad),
        (
            Phase::Disabled,
            Some("switched_off: by a command"),
            Mood::Off,
        ),
    ];
    let retry_at = clock.now().after(Duration::from_secs(30));
    for (state, reason, mood) in cases {
        board.tick(Facts {
            cameras: vec![(
                gate.clone(),
                CameraFacts {
                    health: health(state, reason),
                    ..CameraFacts::default()
                },
            )],
            engines: vec![EngineFacts {
                device: "cpu".into(),
                state: EngineState::Ended,
                ..EngineFacts::default()
            }],
            broker: BrokerState::Backoff {
                reason: "connection refused".into(),
                retry_at,
            },
            ..Facts::default()
        });
        let view = board.status(false);
        let camera = &view.cameras[0];
        assert_eq!((camera.mood, camera.health.state), (mood, state));
        assert_eq!(camera.health.reason.as_deref(), reason);
        assert_eq!(view.cameras[1].look, None);
        let engine = &view.engines[0];
        assert_eq!(
            (engine.state, engine.bars.len(), engine.busy_pct),
            (EngineState::Ended, 1, 0.4)
        );
        assert_eq!(
            (view.broker.mood, view.broker.next_retry_s),
            (Mood::Bad, Some(30.0))
        );
        let text = serde_json::to_string(&view).unwrap();
        assert!(!text.contains("rtsp:"), "{text}");
    }
}

#[test]
fn camera_without_an_active_trigger_waits_and_is_fine() {
    let (board, _, gate) = board();
    for (states, waits) in [
        (&[][..], false),
        (&[false, false], true),
        (&[false, true], false),
    ] {
        let trigger = |is_active: &bool| TriggerReport {
            id: TriggerId::new("bell").unwrap(),
            is_active: *is_active,
            activations: 3,
        };
        let health = CameraHealth {
            state: Phase::Streaming,
            ..CameraHealth::default()
        };
        let facts = CameraFacts {
            health,
            triggers: states.iter().map(trigger).collect(),
            ..CameraFacts::default()
        };
        board.tick(Facts {
            cameras: vec![(gate.clone(), facts)],
            ..Facts::default()
        });
        let camera = &board.status(false).cameras[0];
        assert_eq!(
            (camera.mood, camera.waits_for_trigger()),
            (Mood::Good, waits)
        );
        let active = camera.triggers.iter().map(|trigger| trigger.active);
        assert!(active.eq(states.iter().copied()));
    }
}

#[test]
fn zones_and_lines_follow_a_reload() {
    let (board, _, _) = board();
    let shown = |board: &Board| {
        let camera = board.status(false).cameras.swap_remove(0);
        let ids = camera.zones.iter().map(|zone| zone.id.to_string());
        let points = camera.lines.iter().map(|line| line.points.clone());
        (ids.collect::<Vec<_>>(), points.collect::<Vec<_>>())
    };
    assert_eq!(shown(&board), (vec![], vec![]));
    let drawn = "[camera.gate.zone.drive]\npolygon = [[0, 0], [1, 0], [1, 1]]\n\
         [camera.gate.line.door]\npoints = [[0.2, 0.5], [0.8, 0.5]]\n";
    let config = test_support::config(&format!("{CONFIG}{drawn}"));
    board.change(&config.cameras, &CameraAssignment::new());
    let door = vec![(0.2, 0.5), (0.8, 0.5)];
    assert_eq!(shown(&board), (vec!["drive".into()], vec![door]));
}

#[test]
fn webhook_shows_what_its_receiver_answered_last() {
    let (board, clock, _) = board();
    let reason = || "flows:443 answered with HTTP 503".to_owned();
    let retry_at = clock.now().after(Duration::from_secs(30));
    let disk = || Some("cannot keep events".to_owned());
    for (state, disk_trouble, mood, word) in [
        (WebhookState::Unused, None, Mood::Good, "no event yet"),
        (WebhookState::Accepting, None, Mood::Good, "accepting"),
        (WebhookState::Accepting, disk(), Mood::Bad, "accepting"),
        (
            WebhookState::Refusing { reason: reason() },
            None,
            Mood::Bad,
            "refusing",
        ),
        (
            WebhookState::Failing {
                reason: reason(),
                retry_at,
            },
            None,
            Mood::Bad,
            "failing",
        ),
    ] {
        let is_failing = matches!(state, WebhookState::Failing { .. });
        board.tick(Facts {
            webhooks: vec![WebhookStatus {
                id: WebhookId::new("door").unwrap(),
                address: "flows:443".into(),
                state,
                counters: WebhookCounters::default(),
                waiting: 2,
                disk_trouble,
            }],
            ..Facts::default()
        });
        let line = &board.status(false).webhooks[0];
        assert_eq!((line.mood, line.state, line.waiting), (mood, word, 2));
        assert_eq!(line.reason.is_some(), mood == Mood::Bad);
        assert_eq!(line.next_retry_s, is_failing.then_some(30.0));
    }
}

#[test]
fn looks_per_second_survive_a_sum_that_shrinks() {
    let (board, clock, _) = board();
    let looked = |looked| {
        board.tick(Facts {
            frames: FrameCounters {
                looked,
                ..FrameCounters::default()
            },
            ..Facts::default()
        });
        clock.advance(Duration::from_secs(1));
        board.status(false).node.looks_per_s
    };
    assert_eq!(
        (looked(100), looked(110), looked(120)),
        (None, Some(10.0), Some(10.0))
    );
    assert_eq!(looked(40), Some(0.0));
}
