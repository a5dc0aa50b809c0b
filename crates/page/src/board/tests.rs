//! The board with scripted looks and messages.

use std::time::Duration;

use super::*;
use spotter_config::{
    LineConfig, ZoneConfig, ZonePoint,
    testing::{camera, prompt},
};
use spotter_core::{
    DetectionBody, DirectionId, LineId, Location, ManualClock, NormBox, NormPoint, ObjectOutline,
    Phase, Prompt, ScoreSource, SkippedSinceLast, StageTimes, Task, TrackId, TrackedObject,
    WallTime, ZoneId, testing::frame_at,
};

use crate::status::{AnswerStatus, CameraLooks, MarkPlace, Mood, PromptStatus};

fn local(pictured: bool) -> StatusRequest {
    StatusRequest {
        pictured,
        visitor: Visitor::Local,
        has_login: false,
        has_history: false,
    }
}

fn cameras() -> Vec<CameraConfig> {
    ["gate", "yard"]
        .map(|id| camera(id, vec![prompt("person")]))
        .to_vec()
}

fn board() -> (Board, ManualClock, CameraId) {
    let cameras = cameras();
    let clock = ManualClock::at(WallTime::from_unix_millis(1_787_393_730_123));
    let draw = |_: &Picture, _: usize| Ok(vec![0xff, 0xd8]);
    let board = Board::new(&cameras, Arc::new(clock.clone()), draw, None);
    (board, clock, cameras[0].id.clone())
}

/// A look at frame `number`, with one answer.
fn look(board: &Board, camera: &CameraId, number: u64, left: f64) {
    let now = board.clock.now();
    let frame = Frame {
        number,
        ..frame_at(camera, Duration::from_nanos(now.as_nanos()))
    };
    let object = "person".to_owned();
    let prompt = Prompt::new(PromptId::new("person").unwrap(), 1, Task::Detect { object });
    board.look(&frame);
    board.answer(&Detection {
        region: None,
        frame: (&frame).into(),
        prompt: Arc::new(prompt),
        body: DetectionBody::Objects(vec![TrackedObject {
            location: Location::Box(NormBox::from_corners(left, 0.2, 0.9, 0.8)),
            score: 0.83,
            score_source: ScoreSource::TokenProb,
            sharpness: 0.5,
            track: TrackId::new("b7c1", camera, 1),
            age: Duration::ZERO,
            zones: Vec::new(),
            dwell: Vec::new(),
            outline: None,
        }]),
        reasoning: None,
        truncated: false,
        unchanged: false,
        model: "a model".into(),
        model_size: (2, 2),
        stages: StageTimes::default(),
        finished: now,
        since_last: SkippedSinceLast::default(),
    });
}

/// Of the first camera: the frame, the left side of its box, and whether the look has a thumbnail.
fn shown(board: &Board, pictured: bool) -> (u64, f64, bool) {
    let status = board.status(local(pictured));
    let look = status.cameras[0].looks.look.as_ref().unwrap();
    let [mark] = look.found.as_slice() else {
        panic!("{look:?}");
    };
    let MarkPlace::Box([left, ..]) = mark.place else {
        panic!("{look:?}");
    };
    (look.frame, left, look.pictured)
}

/// Waits for the thumbnail of the first camera, without asking for it.
async fn made(board: &Board, frame: u64) {
    let is_made = || {
        let status = board.status(local(true));
        let look = status.cameras[0].looks.look.as_ref().unwrap();
        look.pictured && look.frame == frame
    };
    while !is_made() {
        tokio::task::yield_now().await;
    }
}

/// Asks for the thumbnail of the first camera when it is made.
async fn thumbnail(board: &Board, frame: u64) {
    made(board, frame).await;
    assert_eq!(board.thumbnail("gate", None).unwrap().frame, frame);
}

#[tokio::test]
async fn thumbnail_is_of_the_shown_look_and_follows_requests() {
    let (board, clock, gate) = board();
    look(&board, &gate, 1, 0.1);
    thumbnail(&board, 1).await;
    assert!(board.thumbnail("yard", None).is_none(), "no look yet");
    clock.advance(Duration::from_millis(900));
    look(&board, &gate, 2, 0.2);
    assert_eq!(shown(&board, false), (2, 0.2, false), "a program");
    assert_eq!(shown(&board, true), (1, 0.1, true), "once a second");
    let prompts = &board.status(local(true)).cameras[0].looks.prompts;
    assert_eq!(prompts[0].answer.as_ref().unwrap().age_ms, 0);
    clock.advance(Duration::from_millis(100));
    look(&board, &gate, 3, 0.3);
    thumbnail(&board, 3).await;
    assert_eq!(shown(&board, true), (3, 0.3, true));
    // A browser that has the page of before asks for its picture.
    let frames = [None, Some(1), Some(2), Some(3)].map(|look| {
        let thumbnail = board.thumbnail("gate", look).unwrap();
        assert_eq!(&thumbnail.jpeg[..2], [0xff, 0xd8]);
        thumbnail.frame
    });
    assert_eq!(frames, [3, 1, 3, 3]);
    // A camera that is looked at less often than browsers ask.
    clock.advance(camera::WATCHED_FOR);
    look(&board, &gate, 4, 0.4);
    made(&board, 4).await;
    // Its thumbnail was not asked for: it is out of view.
    clock.advance(camera::THUMBNAIL_UNWATCHED - Duration::from_millis(1));
    look(&board, &gate, 5, 0.5);
    assert_eq!(shown(&board, true), (4, 0.4, true), "unwatched");
    clock.advance(Duration::from_millis(1));
    look(&board, &gate, 6, 0.6);
    made(&board, 6).await;
}

// Faults: H25.
#[tokio::test]
async fn another_mask_ends_the_pictures_of_frames_before() {
    let (board, clock, gate) = board();
    look(&board, &gate, 1, 0.1);
    thumbnail(&board, 1).await;
    clock.advance(Duration::from_millis(1));
    let mut masked = cameras();
    masked[0]
        .mask
        .push(vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)]);
    board.apply(&ConfigChange::between(&cameras(), &masked));
    assert!(board.thumbnail("gate", None).is_none());
    assert!(board.thumbnail("gate", Some(1)).is_none());
    // Its look began with the mask before.
    look(&board, &gate, 2, 0.2);
    assert_eq!(shown(&board, true), (2, 0.2, false));
    clock.advance(Duration::from_millis(1));
    look(&board, &gate, 3, 0.3);
    thumbnail(&board, 3).await;
    assert_eq!(shown(&board, true), (3, 0.3, true));
}

#[test]
fn camera_has_its_reported_figures_or_is_connecting() {
    let (board, clock, _) = board();
    let reported = |id: &str| CameraStatus {
        id: id.into(),
        state: Phase::Streaming,
        mood: Mood::Good,
        ..CameraStatus::default()
    };
    board.tick(Status {
        cameras: vec![reported("removed"), reported("yard")],
        ..Status::default()
    });
    let status = board.status(local(false));
    let states = status.cameras.iter();
    let states: Vec<_> = states.map(|c| (c.id.as_str(), c.state)).collect();
    assert_eq!(
        states,
        [("gate", Phase::Connecting), ("yard", Phase::Streaming)]
    );
    assert_eq!((status.v, status.time_ms), (1, clock.wall().unix_millis()));
    assert_eq!(status.cameras[1].looks.prompts[0].words, "person");
}

#[test]
fn zones_lines_and_counts_follow_a_reload() {
    let (board, _, gate) = board();
    let shown = |board: &Board| board.status(local(false)).cameras.swap_remove(0).looks;
    assert_eq!((shown(&board).zones, shown(&board).lines), (vec![], vec![]));
    let mut cameras = cameras();
    let door = LineConfig {
        id: LineId::new("door").unwrap(),
        points: vec![(0.2, 0.5), (0.8, 0.5)],
        directions: DirectionId::in_and_out(),
        point: ZonePoint::Bottom,
        reset: None,
    };
    let drive = ZoneConfig {
        id: ZoneId::new("drive").unwrap(),
        polygon: vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)],
        point: ZonePoint::Bottom,
    };
    cameras[0].lines.push(door.clone());
    cameras[0].zones.push(drive.clone());
    cameras[0].prompts[0].lines.push(door.id.clone());
    board.apply(&ConfigChange::between(&self::cameras(), &cameras));
    let [into, out] = DirectionId::in_and_out();
    let count = PromptState::LineCount {
        line: door.id.clone(),
        direction: out.clone(),
        count: 3,
    };
    board.states(&gate, &PromptId::new("person").unwrap(), &[count]);
    let looks = shown(&board);
    assert_eq!(
        (&looks.zones, &looks.lines),
        (&vec![drive], &vec![door.clone()])
    );
    let counts = &looks.prompts[0].lines[&door.id];
    assert_eq!((counts[&into], counts[&out]), (0, 3));
    let before = self::cameras();
    board.apply(&ConfigChange::between(&cameras, &before));
    assert_eq!(shown(&board).prompts[0].lines.len(), 0);
    board.apply(&ConfigChange::between(&before, &before[1..]));
    board.apply(&ConfigChange::between(&before[1..], &before));
    let ids = board
        .status(local(false))
        .cameras
        .into_iter()
        .map(|it| it.id);
    assert_eq!(Vec::from_iter(ids), ["yard", "gate"]);
}

#[tokio::test]
async fn outline_is_drawn_into_the_looks_of_its_frame() {
    let (board, clock, gate) = board();
    let track = TrackId::new("b7c1", &gate, 1);
    let corners = [(0.1, 0.2), (0.9, 0.2), (0.5, 0.8)].map(|(x, y)| NormPoint::new(x, y));
    let outline = |frame| ObjectOutline {
        frame,
        bounds: NormBox::from_corners(0.1, 0.2, 0.9, 0.8),
        path: String::new(),
        polygons: vec![corners.into()],
        area: 0.24,
        score: 0.5,
    };
    look(&board, &gate, 1, 0.1);
    thumbnail(&board, 1).await;
    clock.advance(Duration::from_millis(100));
    look(&board, &gate, 2, 0.1);
    board.outlined(&gate, &track, &outline(1));
    board.outlined(&gate, &TrackId::new("b7c1", &gate, 2), &outline(2));
    let polygon = |pictured| {
        let status = board.status(local(pictured));
        let look = status.cameras[0].looks.look.as_ref().unwrap();
        look.found[0].polygon.clone()
    };
    let drawn = vec![vec![[0.1, 0.2], [0.9, 0.2], [0.5, 0.8]]];
    assert_eq!(polygon(true), Some(drawn));
    assert_eq!(polygon(false), None, "the track of another object");
}

// Faults: H16.
#[tokio::test]
async fn stranger_sees_neither_picture_nor_text() {
    let (board, _, gate) = board();
    look(&board, &gate, 1, 0.1);
    thumbnail(&board, 1).await;
    let answer = AnswerStatus {
        text: Some("a man with a parcel".into()),
        count: Some(1),
        ..AnswerStatus::default()
    };
    let prompt = PromptStatus {
        answer: Some(answer),
        ..board.status(local(true)).cameras[0].looks.prompts[0].clone()
    };
    let mut looks = CameraLooks {
        prompts: vec![prompt],
        ..CameraLooks::default()
    };
    looks.hide();
    let shown = looks.prompts[0].answer.as_ref().unwrap();
    assert_eq!((shown.text.as_ref(), shown.count), (None, Some(1)));
    let stranger = StatusRequest {
        visitor: Visitor::Stranger,
        ..local(true)
    };
    assert!(
        !board.status(stranger).cameras[0]
            .looks
            .look
            .as_ref()
            .unwrap()
            .pictured
    );
}
