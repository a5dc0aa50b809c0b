use super::*;
use crate::bench::{report::figures, tests::found};
use spotter_core::{ScoreSource, Task};
use spotter_street::{questions::questions, random, scene::Class, truth};

const BY_NIGHT: EvalSetting = EvalSetting {
    is_street: false,
    light: Daylight::Night,
};
const CAR: NormBox = NormBox {
    x0: 0.1,
    y0: 0.4,
    x1: 0.3,
    y1: 0.6,
};
/// 16 x 9 pixels.
const FAR_CAR: NormBox = NormBox {
    x0: 0.5,
    y0: 0.5,
    x1: 0.525,
    y1: 0.525,
};

fn boxed(boxes: &[NormBox]) -> AnswerBody {
    AnswerBody::Boxes(boxes.iter().copied().map(found).collect())
}

fn text(text: &str) -> AnswerBody {
    AnswerBody::Text {
        text: text.into(),
        score: 0.9,
        source: ScoreSource::TokenProb,
    }
}

fn detect(words: &str, boxes: &[NormBox]) -> Question {
    Question {
        kind: QuestionKind::Detect,
        class: Class::Car,
        task: Task::Detect {
            object: words.into(),
        },
        expected: ExpectedAnswer::Boxes(boxes.to_vec()),
    }
}

/// The answer of a model that is always right.
fn right_answer(question: &Question) -> AnswerBody {
    match &question.expected {
        ExpectedAnswer::Boxes(boxes) => boxed(boxes),
        ExpectedAnswer::PointsIn(boxes) => {
            AnswerBody::Points(boxes.iter().map(|b| found(b.centre())).collect())
        }
        ExpectedAnswer::Text(expected) => text(expected),
    }
}

#[test]
fn right_answers_meet_every_target() {
    let mut scores = Scores::default();
    for seed in 0..40 {
        let truth = truth(&random(seed));
        for question in questions(&truth, seed) {
            scores.add(BY_NIGHT, &question, &right_answer(&question));
        }
    }
    for figure in figures(&scores) {
        let has_questions = figure.of > 0 || figure.name.contains("unknown");
        assert!(has_questions, "{}", figure.name);
        assert_eq!(figure.missed_by, None, "{}", figure.name);
    }
    assert_eq!(scores.detect.f1(), Some(1.0));
    assert_eq!(scores.absent().hits, 0);
}

#[test]
fn wrong_answers_count_where_they_belong() {
    let mut scores = Scores::default();
    for (kind, expected, answer) in [
        (QuestionKind::YesNo, "Yes", text("yes.")),
        (QuestionKind::YesNo, "Yes", text("No")),
        (QuestionKind::Count, "3", text("13")),
        (QuestionKind::Colour, "red", boxed(&[CAR])),
    ] {
        let question = Question {
            kind,
            expected: ExpectedAnswer::Text(expected.into()),
            ..detect("car", &[])
        };
        scores.add(BY_NIGHT, &question, &answer);
    }
    let hits = [scores.yes_no, scores.count, scores.colour].map(|s| (s.hits, s.asked));
    assert_eq!(hits, [(1, 2), (0, 1), (0, 1)]);
}

#[test]
fn boxes_are_divided_by_class_light_scene_and_size() {
    let mut scores = Scores::default();
    // One found, the far one missed, a small box on nothing.
    let nothing = NormBox::from_corners(0.9, 0.9, 0.92, 0.92);
    let question = detect("car", &[CAR, FAR_CAR]);
    scores.add(BY_NIGHT, &question, &boxed(&[CAR, nothing]));
    for (part, counts) in [
        (("class", "car"), (1, 1, 1)),
        (("light", "night"), (1, 1, 1)),
        (("scene", "random"), (1, 1, 1)),
        (("size", "small"), (0, 1, 1)),
        // 128 x 72 pixels.
        (("size", "medium"), (1, 0, 0)),
    ] {
        let tally = scores.detect_by[&part];
        assert_eq!((tally.found, tally.missed, tally.wrong), counts, "{part:?}");
    }
}

#[test]
fn absent_things_are_counted_by_class_colour_and_word() {
    let mut scores = Scores::default();
    scores.add(BY_NIGHT, &detect("car", &[]), &boxed(&[CAR]));
    scores.add(BY_NIGHT, &detect("cars", &[]), &boxed(&[]));
    scores.add(BY_NIGHT, &detect("red cars", &[]), &boxed(&[CAR, FAR_CAR]));
    scores.add_unknown(&boxed(&[CAR]));
    scores.add_unknown(&boxed(&[]));
    for (share, expected) in [
        (scores.absent_class, (1, 2)),
        (scores.absent_colour, (1, 1)),
        (scores.unknown, (1, 2)),
        (scores.absent(), (2, 3)),
    ] {
        assert_eq!((share.hits, share.asked), expected);
    }
    // They also cost precision, but for words without a class.
    assert_eq!(scores.detect.wrong, 3);
}
