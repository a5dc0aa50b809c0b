use super::*;
use crate::bench::tests::micro_engine;

#[test]
fn rows_have_their_prompts_boxes_and_work() {
    let (mut engine, clock) = micro_engine();
    let options = LooksOptions {
        looks: 2,
        model: "md2-micro".into(),
        ceiling_gflop_per_s: Some(100.0),
    };
    let report = looks(
        &mut engine,
        &options,
        clock.as_ref(),
        &mut ProgressLine::silent(),
    )
    .expect("a report");
    let prompts: Vec<usize> = report.rows.iter().map(|row| row.prompts).collect();
    assert_eq!(prompts, PROMPTS);
    assert_eq!(report.rows[0].boxes, report.cars_found);
    let work = report.rows.iter().map(|row| row.work);
    let work: Vec<_> = work.collect();
    assert!(work.windows(2).all(|pair| pair[0].vision == pair[1].vision));
    assert!(
        work.windows(2)
            .all(|pair| pair[0].prompts < pair[1].prompts)
    );
}

#[test]
fn scenes_with_three_cars_are_found_among_those_looked_through() {
    let some = SCENES.filter(|&seed| has_three_cars(seed));
    assert_eq!(some.take(3).count(), 3);
}

#[test]
fn the_first_prompt_is_for_cars_and_none_is_asked_twice() {
    let words: Vec<String> = tasks(8).map(|task| task.text().to_owned()).collect();
    assert_eq!(words[0], "car");
    let unique: std::collections::HashSet<_> = words.iter().collect();
    assert_eq!(unique.len(), 8);
}
