use super::*;

fn tally(found: u64, missed: u64, wrong: u64, quality_sum: f64) -> MatchTally {
    MatchTally {
        found,
        missed,
        wrong,
        quality_sum,
    }
}

fn report() -> EvalReport {
    let mut scores = Scores {
        detect: tally(100, 6, 4, 90.0),
        ..Scores::default()
    };
    for (aspect, name, tally) in [
        ("class", "car", tally(96, 6, 4, 86.4)),
        ("class", "dog", tally(4, 0, 0, 3.6)),
        ("size", "small", tally(100, 6, 4, 90.0)),
    ] {
        scores.detect_by.insert((aspect, name), tally);
    }
    for right in [true, true, true, false] {
        scores.yes_no.count(right);
    }
    scores.absent_class.count(false);
    scores.absent_colour.count(false);
    for (score, right) in [(0.97, 1.0), (0.99, 1.0), (1.0, 1.0), (0.6, 0.0)] {
        scores.sure_of_boxes.add(score, right);
    }
    EvalReport {
        options: EvalOptions {
            model: "embedded@9f3c".into(),
            scenes: 2,
            first_seed: 1 << 41,
            kbit_per_s: Some(1000),
        },
        figures: figures(&scores),
        detect_by: parts(&scores),
        scores: score_figures(&scores),
    }
}

#[test]
fn a_missed_figure_has_its_distance() {
    let report = report();
    // 100 found, 6 missed, 4 wrong: F1 = 200/210, which is enough.
    let f1 = &report.figures[0];
    assert!((f1.value.unwrap() - 200.0 / 210.0).abs() < 1e-12);
    assert_eq!((f1.of, f1.missed_by), (106, None));
    let missed = report.figures.iter().filter(|f| f.missed_by.is_some());
    let missed: Vec<_> = missed.map(|f| (f.name, f.missed_by)).collect();
    assert_eq!(missed.len(), 1);
    assert_eq!(missed[0].0, "yes/no right");
    assert!((missed[0].1.unwrap() - 0.23).abs() < 1e-12);
}

#[test]
fn a_limit_from_above_is_missed_from_above() {
    let mut scores = Scores::default();
    (0..100).for_each(|i| scores.absent_class.count(i < 2));
    let figures = figures(&scores);
    let absent = figures
        .iter()
        .find(|f| f.target == Some(Target::AtMost(0.01)));
    assert!((absent.unwrap().missed_by.unwrap() - 0.01).abs() < 1e-12);
}

#[test]
fn eval_report_shows_figures_parts_and_scores() {
    let text = report().to_string();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: Vec<String> = text.lines().map(words).collect();
    for expected in [
        "embedded@9f3c: 2 scenes from seed 2199023255552, through H.264 at 1000 kbit/s",
        "value of required",
        "detect F1 at IoU 0.5 0.9524 106 >= 0.95 held",
        "detect precision 0.9615 104",
        "point inside - 0 >= 0.96",
        "yes/no right 0.7500 4 >= 0.98 missed by 0.2300",
        "detect by class",
        "car 102 0.9505 0.9600 0.9412 0.9000",
        "dog 4 1.0000 1.0000 1.0000 0.9000",
        "detect by size",
        // 2.96 of 3 that are right and 0.6 of one that is not, over four.
        "score of boxes, off by 0.1600",
        "0.5 1 0.6000 0.0000",
        "0.99 2 0.9950 1.0000",
    ] {
        assert!(shown.contains(&expected.into()), "{expected}\n{text}");
    }
}

#[test]
fn json_has_null_for_what_was_not_measured() {
    let json = serde_json::to_value(report()).unwrap();
    assert_eq!(json["figures"][4]["value"], serde_json::Value::Null);
    assert_eq!(json["figures"][6]["target"]["at_most"], 0.01);
    assert_eq!(json["figures"][7]["name"], "boxes for an absent class");
    assert!(json["figures"][10]["missed_by"].as_f64().unwrap() > 0.22);
    assert_eq!(json["detect_by"][1]["name"], "dog");
    assert_eq!(json["detect_by"][2]["by"], "size");
    assert_eq!(json["scenes"], 2);
    assert_eq!(json["scores"][0]["bins"][2]["answers"], 2);
    assert_eq!(json["scores"][1]["error"], serde_json::Value::Null);
}
