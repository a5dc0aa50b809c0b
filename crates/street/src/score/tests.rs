use super::*;

fn bounds(x0: f64, y0: f64, x1: f64, y1: f64) -> NormBox {
    NormBox::from_corners(x0, y0, x1, y1)
}

fn required(bounds: NormBox) -> TruthObject {
    TruthObject {
        bounds,
        ignored: false,
    }
}

fn ignored(bounds: NormBox) -> TruthObject {
    TruthObject {
        ignored: true,
        ..required(bounds)
    }
}

/// found, missed, wrong
fn counts(matches: Matches) -> (u64, u64, u64) {
    let tally = matches.tally();
    (tally.found, tally.missed, tally.wrong)
}

#[test]
fn overlaps_by_hand() {
    // 0.4 x 0.4 moved by 0.1 to the right: 0.12 shared, 0.20 together, IoU 0.6. The second thing is missed, the
    // third box is on nothing.
    let truth = [
        required(bounds(0.0, 0.0, 0.4, 0.4)),
        required(bounds(0.6, 0.6, 0.8, 0.8)),
    ];
    let boxes = [bounds(0.1, 0.0, 0.5, 0.4), bounds(0.0, 0.8, 0.1, 0.9)];
    let tally = match_boxes(&boxes, &truth).tally();
    assert_eq!((tally.found, tally.missed, tally.wrong), (1, 1, 1));
    assert_eq!(
        [tally.precision(), tally.recall(), tally.f1()],
        [Some(0.5); 3]
    );
    assert!((tally.mean_iou().unwrap() - 0.6).abs() < 1e-12);
}

#[test]
fn overlap_of_half_is_correct_and_less_is_not() {
    let truth = [required(bounds(0.0, 0.0, 0.5, 0.5))];
    for (x1, expected) in [(0.25, (1, 0, 0)), (0.24, (0, 1, 1))] {
        let matches = match_boxes(&[bounds(0.0, 0.0, x1, 0.5)], &truth);
        assert_eq!(counts(matches), expected, "{x1}");
    }
}

#[test]
fn best_overlap_is_matched_first_and_duplicates_are_wrong() {
    let truth = [
        required(bounds(0.0, 0.0, 0.4, 0.4)),
        required(bounds(0.1, 0.0, 0.5, 0.4)),
    ];
    // The first box fits both things (0.78 and 0.78), the second fits the first exactly: in the order of the
    // answers the first box would take what the second needs.
    let boxes = [bounds(0.05, 0.0, 0.45, 0.4), truth[0].bounds];
    assert_eq!(counts(match_boxes(&boxes, &truth)), (2, 0, 0));
    let once = match_boxes(&[truth[0].bounds; 3], &truth[..1]);
    assert_eq!(counts(once), (1, 0, 2));
}

#[test]
fn ignored_things_are_neither_required_nor_false() {
    let hidden = ignored(bounds(0.5, 0.0, 0.9, 0.4));
    let quarter = bounds(0.5, 0.0, 0.6, 0.4);
    for (boxes, truth, expected) in [
        (&[][..], &[hidden][..], (0, 0, 0)),
        // Its visible quarter alone, IoU 0.25, is excused; a box beside it is not.
        (&[quarter], &[hidden], (0, 0, 0)),
        (&[bounds(0.2, 0.0, 0.6, 0.4)], &[hidden], (0, 0, 1)),
        // A required thing is matched before anything is excused.
        (&[quarter], &[hidden, required(quarter)], (1, 0, 0)),
    ] {
        assert_eq!(counts(match_boxes(boxes, truth)), expected, "{boxes:?}");
    }
}

#[test]
fn each_point_is_inside_of_one_thing() {
    let truth = [
        required(bounds(0.0, 0.0, 0.4, 0.4)),
        required(bounds(0.6, 0.0, 0.8, 0.4)),
        ignored(bounds(0.0, 0.6, 0.2, 0.8)),
    ];
    let points = [(0.2, 0.2), (0.1, 0.1), (0.5, 0.2), (0.1, 0.7)].map(|(x, y)| NormPoint { x, y });
    assert_eq!(counts(match_points(&points, &truth)), (1, 1, 2));
    let corner = NormPoint { x: 0.8, y: 0.4 };
    assert_eq!(counts(match_points(&[corner], &truth)), (1, 1, 0));
}

#[test]
fn empty_truth_has_no_score() {
    let tally = match_boxes(&[], &[]).tally();
    let scores = [tally.precision(), tally.recall(), tally.f1()];
    assert_eq!((scores, tally.mean_iou()), ([None; 3], None));
    assert_eq!(HitShare::default().value(), None);
}

#[test]
fn answers_are_compared_whole() {
    assert!(same_answer("Yes", " yes."));
    assert!(!same_answer("Yes", "Yes, there is no dog"));
    assert!(!same_answer("3", "13"));
}
