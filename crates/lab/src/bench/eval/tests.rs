use std::{path::Path, sync::Arc};

use super::*;
use crate::bench::tests::micro_engine;
use spotter_core::{Clock, SystemClock};

/// The smallest golden model is not trained on streets: the test covers only the path of the questions through the engine.
#[test]
fn the_same_seeds_give_the_same_report() {
    let options = EvalOptions {
        model: "md2-micro".into(),
        scenes: 2,
        first_seed: 1 << 41,
        kbit_per_s: Some(1000),
    };
    let run = || {
        let mut engine = micro_engine(&(Arc::new(SystemClock::new()) as Arc<dyn Clock>));
        eval(&mut engine, &options, &mut ProgressLine::default()).expect("a report")
    };
    let report = run();
    assert_eq!(report, run());
    let questions = |name| {
        let figure = report.figures.iter().find(|f| f.name == name);
        figure.expect("a figure").of
    };
    let unknown = questions("boxes for unknown words");
    assert_eq!(unknown, 2 * UNKNOWN_PER_SCENE as u64);
    for name in ["boxes for an absent class", "yes/no right", "count exact"] {
        assert!(questions(name) > 0, "{name}");
    }
}

#[test]
fn unknown_words_are_not_trained_on() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/embedded/words_unknown.py");
    let lists = std::fs::read_to_string(path).expect("the trainer's lists");
    let (trained, held_out) = lists.split_once("HELD_OUT").expect("two lists");
    for word in UNKNOWN {
        assert!(held_out.contains(word), "{word} is not held out");
        assert!(!trained.contains(word), "{word} is trained");
    }
}

#[test]
fn both_kinds_of_scenes_see_every_unknown_word() {
    for parity in 0..2 {
        let mut seen: Vec<&str> = (0..24)
            .map(|i| 2 * i + parity)
            .flat_map(unknown_words)
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), UNKNOWN.len());
    }
}
