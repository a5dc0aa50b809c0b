//! Every message there and back, and what is none.

use std::time::Duration;

use proptest::{collection::vec, prelude::*};

use super::*;
use spotter_core::{
    CaptionLength, ColourMatrix, ColourRange, FoundObject, GroundedSpan, Outline, PixelFormat,
    PromptRegion, PromptView, ScoreSource, SpatialReference, SystemClock, Task,
    testing::planar_picture,
};

use crate::testing::{
    simulated,
    wire::{daemon_reads, engine_reads},
};

fn carried<M: Serialize + DeserializeOwned>(message: &M) -> M {
    let mut bytes = Vec::new();
    write(&mut bytes, message).unwrap();
    let mut rest = &bytes[..];
    let carried = read(&mut rest).unwrap();
    assert!(rest.is_empty());
    carried
}

fn error<M: DeserializeOwned>(mut bytes: &[u8]) -> WireError {
    match read_with::<M>(&mut bytes, BODY_MAX_BYTES) {
        Ok(_) => panic!("{bytes:?} is no message"),
        Err(error) => error,
    }
}

/// Lengths as they stand before a header.
fn lengths_of(header: u32, body: u32) -> Vec<u8> {
    [header.to_le_bytes(), body.to_le_bytes()].concat()
}

fn picture(format: PixelFormat, size: (usize, usize), gap: usize) -> Picture {
    planar_picture(format, size, gap, |plane, i| (i * 31 + plane * 7) as u8)
}

fn rows(picture: &Picture) -> Vec<Vec<u8>> {
    shape::rows(picture).map(<[u8]>::to_vec).collect()
}

fn tasks() -> Vec<Task> {
    let object = "a \"red\" car\nor Straße".to_owned();
    vec![
        Task::Detect {
            object: object.clone(),
        },
        Task::Point { object },
        Task::Query {
            question: "open?".into(),
            choices: vec!["yes".into(), "no".into()],
            options: Default::default(),
        },
        Task::Caption {
            length: CaptionLength::Long,
        },
        Task::Segment {
            object: "cat".into(),
            places: vec![SpatialReference::from_shares(&[0.1, 0.2]).unwrap()],
        },
    ]
}

fn look(picture: Picture) -> Look {
    let still = Look::still(picture, tasks());
    Look {
        moved: None,
        strips: Vec::new(),
        start_by: Mono::from_nanos(u64::MAX - 1),
        answer_by: Mono::from_nanos(u64::MAX),
        frame: Frame {
            camera: CameraId::new("yard").unwrap(),
            ..still.frame
        },
        ..still
    }
}

fn number() -> impl Strategy<Value = f64> {
    let small = (0.0..1.0, 0..300).prop_map(|(share, tens): (f64, i32)| share * 10_f64.powi(-tens));
    prop_oneof![0.0..1.0, small, Just(0.0), Just(-0.0), Just(1.0)]
}

fn source() -> impl Strategy<Value = ScoreSource> {
    prop_oneof![
        Just(ScoreSource::TokenProb),
        Just(ScoreSource::Calibrated),
        Just(ScoreSource::Verify),
        Just(ScoreSource::VerifyCalibrated),
    ]
}

fn body() -> impl Strategy<Value = AnswerBody> {
    fn found<T>(place: T, (score, sharpness, source): (f64, f64, ScoreSource)) -> FoundObject<T> {
        FoundObject {
            place,
            score,
            source,
            sharpness,
        }
    }
    let scores = || (number(), number(), source());
    let corners = (number(), number(), number(), number());
    let boxes = (corners, scores())
        .prop_map(|((x0, y0, x1, y1), scores)| found(NormBox { x0, y0, x1, y1 }, scores));
    let corner = || (number(), number()).prop_map(|(x, y)| NormPoint { x, y });
    let bounds = (corner(), corner()).prop_map(|(a, b)| NormBox {
        x0: a.x,
        y0: a.y,
        x1: b.x,
        y1: b.y,
    });
    let outlined = (proptest::option::of(bounds), vec(vec(corner(), 0..4), 0..3));
    let points =
        (number(), number(), scores()).prop_map(|(x, y, scores)| found(NormPoint { x, y }, scores));
    prop_oneof![
        vec(boxes, 0..4).prop_map(AnswerBody::Boxes),
        vec(points, 0..4).prop_map(AnswerBody::Points),
        (".*", number(), source()).prop_map(|(text, score, source)| AnswerBody::Text {
            text,
            score,
            source,
        }),
        (outlined, number()).prop_map(|((bounds, polygons), score)| AnswerBody::Outline(Outline {
            bounds,
            path: "M 0 0".into(),
            polygons,
            parse_error: bounds.is_none().then(|| "no box".into()),
            score,
        })),
    ]
}

fn reasoning() -> Reasoning {
    let point = NormPoint { x: 0.25, y: 0.5 };
    Reasoning {
        text: "it is big".into(),
        grounding: vec![GroundedSpan {
            start: 0,
            end: 9,
            points: vec![point],
        }],
    }
}

proptest! {
    #[test]
    fn a_look_arrives_with_every_pixel(
        format in prop::sample::select(vec![PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420]),
        size in (1_usize..40, 1_usize..40),
        gap in 0_usize..9,
    ) {
        let mut asked = look(picture(format, size, gap));
        let region = RegionBox::new(NormBox::from_corners(0.1, 0.2, 0.3, 0.4));
        asked.moved = Some(region);
        let view = PromptView { region: PromptRegion::Fixed(region), crops_max: Some(3), width_max: None, strip: None };
        asked.prompts[0] = Arc::new(Prompt { view, ..(*asked.prompts[0]).clone() });
        let shape = StripShape { frames: 9, over: Duration::from_millis(4500) };
        let strip = |(region, width)| Strip { shape, region, picture: picture(format, (width, size.0), gap) };
        asked.strips = [(PromptRegion::Whole, 22), (view.region, 7)].map(strip).to_vec();
        let mut bytes = Vec::new();
        write_look(&mut bytes, 7, &asked).unwrap();
        let (WireRequest::Look(header), body) = read_request(&mut &bytes[..]).unwrap() else {
            panic!("a look")
        };
        prop_assert_eq!(header.id, 7);
        let got = header.look(body).unwrap();
        prop_assert_eq!(rows(&got.frame.picture), rows(&asked.frame.picture));
        prop_assert_eq!(PictureShape::of(&got.frame.picture), PictureShape::of(&asked.frame.picture));
        prop_assert_eq!(got.strips.len(), 2);
        for (got, asked) in got.strips.iter().zip(&asked.strips) {
            prop_assert_eq!((got.shape, got.region), (asked.shape, asked.region));
            prop_assert_eq!(rows(&got.picture), rows(&asked.picture));
        }
        prop_assert_eq!(got.frame.camera, asked.frame.camera);
        prop_assert_eq!((got.prompts, got.moved), (asked.prompts, asked.moved));
        prop_assert_eq!((got.start_by, got.answer_by), (asked.start_by, asked.answer_by));
    }

    #[test]
    fn an_answer_arrives_to_the_bit(bodies in vec(body(), 5), taken in any::<u64>(), truncated: bool, unchanged: bool) {
        let mut asked = look(picture(PixelFormat::Rgb, (20, 10), 0));
        let area = NormBox::from_corners(0.2, 0.0, 0.4, 0.6);
        let view = PromptView { region: PromptRegion::Fixed(RegionBox::new(area)), ..PromptView::default() };
        asked.prompts[0] = Arc::new(Prompt { view, ..(*asked.prompts[0]).clone() });
        let marks = StageTimes { taken: Mono::from_nanos(taken), ..StageTimes::default() };
        let answer = |(prompt, body): (&Arc<Prompt>, &AnswerBody)| Answer {
            region: None,
            prompt: Arc::clone(prompt),
            body: body.clone(),
            reasoning: truncated.then(reasoning),
            truncated,
            unchanged,
            tokens: TokenCounts { prompt: 410, answer: 7 },
            marks,
        };
        for (index, (prompt, body)) in asked.prompts.iter().zip(&bodies).enumerate() {
            let news = LookNews::Answer {
                frame: asked.frame.clone(),
                model_size: (84, 56),
                since_last: spotter_core::SkippedSinceLast::default(),
                answer: answer((prompt, body)),
                follow_up: None,
            };
            let news = WireNews::Look { id: u64::MAX, news: WireLookNews::of(news, &asked.prompts) };
            let WireNews::Look { id: u64::MAX, news } = carried(&news) else { panic!("another message") };
            let WireLookNews::Answer { prompt: its_index, model_size, answer, .. } = news else {
                panic!("no answer")
            };
            prop_assert_eq!((its_index, model_size), (index, (84, 56)));
            let region = asked.region_of(&prompt.view);
            let is_of_task = matches!(
                (&prompt.task, body),
                (Task::Detect { .. }, AnswerBody::Boxes(_))
                    | (Task::Point { .. }, AnswerBody::Points(_))
                    | (Task::Segment { .. }, AnswerBody::Outline(_))
                    | (Task::Query { .. } | Task::Caption { .. }, AnswerBody::Text { .. })
            );
            let Ok(answer) = answer.answer(Arc::clone(prompt), region) else {
                prop_assert!(!is_of_task);
                continue;
            };
            prop_assert!(is_of_task);
            // Debug shows -0.0 and 0.0 differently.
            prop_assert_eq!(format!("{:?}", answer.body), format!("{body:?}"));
            prop_assert_eq!(answer.reasoning, truncated.then(reasoning));
            prop_assert_eq!((answer.truncated, answer.unchanged, answer.marks), (truncated, unchanged, marks));
        }
    }

    #[test]
    fn truncated_or_random_input_is_an_error_never_a_panic(
        cut in 0.0..1.0,
        garbage in vec(any::<u8>(), 0..200),
        (header, size) in (0_u32..300, 0_u32..3000),
    ) {
        let mut bytes = Vec::new();
        write_look(&mut bytes, 1, &look(picture(PixelFormat::Nv12, (5, 3), 2))).unwrap();
        let part = &bytes[..(bytes.len() as f64 * cut) as usize];
        prop_assert!(matches!(error::<WireRequest>(part), WireError::Closed(_)));
        error::<WireRequest>(&garbage);
        // Lengths that are right, before words that are not.
        let mut message = lengths_of(header, size);
        message.extend(garbage.iter().cycle().take((header + size) as usize));
        error::<WireRequest>(&message);
    }
}

#[test]
fn short_messages_arrive() {
    assert_eq!(carried(&Hello::Hello), Hello::Hello);
    let order = WireOrder {
        now: Mono::from_nanos(u64::MAX),
        what: tasks(),
    };
    assert_eq!(carried(&order), order);
    for opened in [
        OpenReply::Ready {
            permits: LookCount::of(8),
            report: "cuda 1".to_owned(),
        },
        OpenReply::Failed {
            reason: "no memory".into(),
        },
    ] {
        assert_eq!(carried(&opened), opened);
    }
    let cancel = WireRequest::Cancel { id: 3 };
    assert_eq!(carried(&cancel), cancel);
    let look = |news| WireNews::Look { id: 1, news };
    for news in [
        look(WireLookNews::ShortAnswered),
        look(WireLookNews::Answered),
        look(WireLookNews::Late),
        look(WireLookNews::Failed(LookFailure::Unfit(
            "the prompt is too long".into(),
        ))),
        look(WireLookNews::Failed(LookFailure::EngineStopped)),
        WireNews::Beat { beats: u64::MAX },
        WireNews::Stopped {
            reason: "device: it fell off the bus".into(),
        },
    ] {
        assert_eq!(carried(&news), news);
    }
}

#[test]
fn impossible_lengths_are_rejected_before_allocation() {
    let header = error::<WireNews>(&lengths_of(u32::MAX, 0));
    assert!(matches!(header, WireError::TooLong { part: "header", .. }));
    let body = error::<WireNews>(&lengths_of(2, u32::MAX));
    assert!(matches!(body, WireError::TooLong { part: "body", .. }));
    // News have no body.
    let body = read::<WireNews>(&mut &lengths_of(2, 1)[..]);
    assert!(matches!(body, Err(WireError::TooLong { part: "body", .. })));
}

#[test]
fn picture_of_another_size_than_its_message_is_rejected() {
    let mut bytes = Vec::new();
    write_look(&mut bytes, 1, &look(picture(PixelFormat::I420, (5, 3), 0))).unwrap();
    let look_with = |change: &dyn Fn(&mut PictureShape), body: &[u8]| {
        let (WireRequest::Look(mut asked), _) = read_request(&mut &bytes[..]).unwrap() else {
            panic!("a look")
        };
        change(&mut asked.picture);
        asked.look(body.to_vec()).map(drop)
    };
    // 15 of luma, twice 6 of chroma.
    assert!(look_with(&|_| {}, &[0; 27]).is_ok());
    let refused = |change: &dyn Fn(&mut PictureShape), body: &[u8]| match look_with(change, body) {
        Err(WireError::Malformed(why)) => why,
        other => panic!("{other:?}"),
    };
    let why = refused(&|_| {}, &[0; 26]);
    assert!(why.ends_with("has 27 bytes, its message 26"), "{why}");
    let why = refused(&|shape| shape.width = usize::MAX, &[0; 27]);
    assert!(why.contains("pixels"), "{why}");
    let why = refused(&|shape| shape.height = 0, &[]);
    assert!(why.contains("does not fit its layout"), "{why}");
}

#[test]
fn a_look_too_large_for_a_message_is_not_begun() {
    struct Endless;
    impl spotter_core::Planes for Endless {
        fn plane(&self, _: usize) -> &[u8] {
            panic!("nothing of it is sent")
        }
        fn plane_len(&self, _: usize) -> usize {
            usize::MAX
        }
    }
    let size = (32_000, 32_000);
    let colour = (ColourMatrix::Bt601, ColourRange::Full);
    let strides = [96_000, 0, 0];
    let huge = Picture::new(
        spotter_core::PictureLayout {
            format: PixelFormat::Rgb,
            size,
            strides,
            colour,
        },
        Arc::new(Endless),
    );
    let mut bytes = Vec::new();
    let refused = write_look(&mut bytes, 1, &look(huge.unwrap()));
    assert!(matches!(
        refused,
        Err(WireError::TooLong { part: "body", .. })
    ));
    assert!(bytes.is_empty());
}

// Faults: E14.
/// What the writer sends, the reader accepts: the reader's error would end the connection.
#[test]
fn answer_with_impossible_numbers_fails_its_look_alone() {
    for (score, is_possible) in [
        (0.0, true),
        (1.0 + ROUNDING, true),
        (-ROUNDING, true),
        (1.01, false),
        (-0.01, false),
        (f64::MAX, false),
        (f64::INFINITY, false),
        (f64::NAN, false),
    ] {
        let asked = look(picture(PixelFormat::Rgb, (1, 1), 0));
        let answer = Answer {
            region: None,
            prompt: Arc::clone(&asked.prompts[3]),
            body: AnswerBody::Text {
                text: "a street".into(),
                score,
                source: ScoreSource::TokenProb,
            },
            reasoning: None,
            truncated: false,
            unchanged: false,
            tokens: TokenCounts::default(),
            marks: StageTimes::default(),
        };
        let news = LookNews::Answer {
            frame: asked.frame,
            model_size: (1, 1),
            since_last: spotter_core::SkippedSinceLast::default(),
            answer,
            follow_up: None,
        };
        match WireLookNews::of(news, &asked.prompts) {
            WireLookNews::Answer { answer, .. } => {
                assert!(is_possible, "{score} is sent");
                let read = answer.answer(Arc::clone(&asked.prompts[3]), None);
                assert!(read.is_ok(), "{score} is sent, and then refused");
            }
            WireLookNews::Failed(LookFailure::Engine(why)) => {
                assert!(!is_possible, "{score} is not sent");
                assert!(why.contains("no numbers from 0 to 1"), "{why}");
            }
            other => panic!("{score}: {other:?}"),
        }
    }
}

// Faults: E15.
#[test]
fn outline_with_more_points_than_any_has_is_refused() {
    let object = "car".into();
    let places = Vec::new();
    let prompt = spotter_core::testing::asked("car", 1, Task::Segment { object, places });
    for (points, is_read) in [(OUTLINE_POINTS_MAX, true), (OUTLINE_POINTS_MAX + 1, false)] {
        let body = AnswerBody::Outline(Outline {
            bounds: None,
            path: String::new(),
            polygons: vec![vec![NormPoint { x: 0.5, y: 0.5 }; points]],
            parse_error: None,
            score: 0.5,
        });
        let answer = wire_answer(body).answer(Arc::clone(&prompt), None);
        assert_eq!(answer.is_ok(), is_read);
    }
}

/// Complete, and without thoughts.
fn wire_answer(body: AnswerBody) -> WireAnswer {
    WireAnswer {
        body,
        reasoning: None,
        truncated: false,
        unchanged: false,
        tokens: TokenCounts::default(),
        marks: StageTimes::default(),
    }
}

/// Values that no message has in most of its places.
fn hostile() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::json;
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(2),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(1e308),
        json!(-0.5),
        json!(""),
        json!("x".repeat(100_000)),
        json!("../\u{0}\n"),
        json!([]),
        json!({}),
        json!([[[[1]]]]),
        json!({ "secs": u64::MAX, "nanos": u32::MAX }),
    ])
}

/// Puts `value` at a place of the tree, counted from its root.
fn put(tree: &mut serde_json::Value, place: &mut usize, value: &serde_json::Value) {
    if *place == 0 {
        *tree = value.clone();
    }
    let Some(left) = place.checked_sub(1) else {
        *place = usize::MAX;
        return;
    };
    *place = left;
    match tree {
        serde_json::Value::Array(all) => all.iter_mut().for_each(|part| put(part, place, value)),
        serde_json::Value::Object(all) => all.values_mut().for_each(|part| put(part, place, value)),
        _ => {}
    }
}

/// A message without its body, as a tree.
fn tree(message: &[u8]) -> (serde_json::Value, &[u8]) {
    let header = u32::from_le_bytes(*message.first_chunk().unwrap()) as usize;
    let (header, body) = message[8..].split_at(header);
    (serde_json::from_slice(header).unwrap(), body)
}

fn message(header: &serde_json::Value, body: &[u8]) -> Vec<u8> {
    let header = serde_json::to_vec(header).unwrap();
    let lengths = lengths_of(header.len() as u32, body.len() as u32);
    [&lengths, &header, body].concat()
}

proptest! {
    // Faults: E15.
    #[test]
    fn look_with_hostile_values_is_refused_or_ends(place in 1_usize..80, value in hostile(), cut in 0_usize..3) {
        let mut asked = look(picture(PixelFormat::Nv12, (6, 4), 0));
        asked.moved = Some(RegionBox::new(NormBox::from_corners(0.1, 0.2, 0.9, 0.8)));
        let region = PromptRegion::Motion;
        let shape = StripShape { frames: 4, over: Duration::from_secs(2) };
        let view = PromptView { region, crops_max: Some(3), width_max: Some(320), strip: Some(shape) };
        asked.prompts[0] = Arc::new(Prompt { view, ..(*asked.prompts[0]).clone() });
        asked.strips = vec![Strip { shape, region, picture: picture(PixelFormat::Nv12, (4, 4), 0) }];
        let mut bytes = Vec::new();
        write_look(&mut bytes, 1, &asked).unwrap();
        let (mut header, body) = tree(&bytes);
        put(&mut header, &mut place.clone(), &value);
        let mut engine = simulated::engine(simulated::device(2), Arc::new(SystemClock::new()));
        for look in engine_reads(&message(&header, &body[cut..])) {
            prop_assert!(!look.prompts.is_empty());
            // Refused for its prompts, or answered, or late; never a panic, and nothing waits for ever.
            let _ = engine.submit(look);
            for _ in 0..200 {
                engine.turn().unwrap();
            }
            prop_assert!(engine.is_idle());
        }
    }

    // Faults: E15.
    #[test]
    fn news_with_hostile_values_are_refused_or_in_range(place in 1_usize..40, value in hostile(), bodies in vec(body(), 5)) {
        let asked = look(picture(PixelFormat::Rgb, (2, 2), 0));
        let mut bytes = Vec::new();
        write(&mut bytes, &Hello::Hello).unwrap();
        let ready = OpenReply::Ready { permits: LookCount::of(2), report: "cpu" };
        write(&mut bytes, &ready).unwrap();
        for (index, body) in bodies.into_iter().enumerate() {
            let tokens = TokenCounts { prompt: 900, answer: 4 };
            let answer = WireAnswer { reasoning: Some(reasoning()), unchanged: true, tokens, ..wire_answer(body) };
            let news = WireLookNews::Answer { prompt: index, model_size: (84, 84), answer, has_follow_up: false };
            let mut one = Vec::new();
            write(&mut one, &WireNews::Look { id: 3, news }).unwrap();
            let (mut header, _) = tree(&one);
            put(&mut header, &mut place.clone(), &value);
            let read = read::<WireNews>(&mut &message(&header, &[])[..]);
            if let Ok(WireNews::Look { news: WireLookNews::Answer { prompt, answer, .. }, .. }) = read
                && let Some(prompt) = asked.prompts.get(prompt)
                && let Ok(answer) = answer.answer(Arc::clone(prompt), None)
            {
                prop_assert!(numbers(&answer.body, answer.reasoning.as_ref()).all(|number| number.abs() <= 1.0 + ROUNDING));
                prop_assert!(answer.marks.device <= DEVICE_TIME_MAX);
            }
            bytes.extend(message(&header, &[]));
        }
        daemon_reads(&bytes, &asked.prompts);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        let asked = look(picture(PixelFormat::Rgb, (2, 2), 0));
        prop_assert_eq!(daemon_reads(&bytes, &asked.prompts), 0);
        prop_assert!(engine_reads(&bytes).is_empty());
    }
}

#[test]
fn more_looks_than_any_engine_has_are_refused() {
    for (count, is_read) in [
        (0, true),
        (16, true),
        (LOOKS_MAX, true),
        (LOOKS_MAX + 1, false),
    ] {
        let header = serde_json::json!({ "Places": { "count": count } });
        let read = read::<WireNews>(&mut &message(&header, &[])[..]);
        assert_eq!(read.is_ok(), is_read, "{count}");
    }
}
