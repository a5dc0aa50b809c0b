//! A camera with triggers is looked at while one of them is active.

use super::*;
use spotter_config::{TriggerConfig, TriggerSource};
use spotter_core::{TriggerId, TriggeredLooks};

/// With a trigger.
fn triggered(camera: CameraConfig) -> CameraConfig {
    CameraConfig {
        triggers: vec![TriggerConfig {
            id: TriggerId::new("bell").unwrap(),
            source: TriggerSource::Http,
            hold: Duration::from_secs(20),
            at_most: Duration::from_secs(600),
        }],
        ..camera
    }
}

#[test]
fn first_frame_of_a_trigger_has_all_prompts() {
    let both = camera("gate", 1.0, &[("person", 1.0), ("parcel", 0.01)]);
    let mut bench = Bench::new(&[triggered(gated(both))]);
    let gate = bench.cameras[0].clone();
    for _ in 0..2 {
        bench.put(0);
        assert!(bench.try_look().is_none(), "no trigger is active");
        bench.sampler.trigger(&gate, TriggeredLooks::All);
        assert!(bench.try_look().is_none(), "no frame is kept for it");
        bench.clock.advance(ms(40));
        bench.put(0);
        let look = bench.look();
        assert_eq!(look.prompts.len(), 2, "no rate and no gate keeps one back");
        bench.answer(look);
        // Active already.
        bench.sampler.trigger(&gate, TriggeredLooks::All);
        bench.put(0);
        assert!(bench.try_look().is_none(), "not due");
        bench.sampler.trigger(&gate, TriggeredLooks::None);
        bench.clock.advance(ms(1000));
    }
    let counters = bench.counters(0);
    assert_eq!((counters.skipped, counters.looked), (4, 2));
    assert!(counters.balanced());
}

#[test]
fn prompt_that_is_asked_once_needs_no_trigger() {
    let mut bench = Bench::new(&[triggered(person("gate"))]);
    let gate = bench.cameras[0].clone();
    bench.sampler.ask_once(&gate, question("question"));
    bench.put(0);
    let look = bench.look();
    let ids: Vec<&str> = look
        .prompts
        .iter()
        .map(|prompt| prompt.id.as_str())
        .collect();
    assert_eq!(ids, ["question"]);
}

#[test]
fn one_requested_look_has_all_prompts_and_no_successor() {
    let both = camera("gate", 20.0, &[("person", 20.0), ("parcel", 0.01)]);
    let mut bench = Bench::new(&[triggered(gated(both))]);
    let gate = bench.cameras[0].clone();
    for _ in 0..2 {
        bench.sampler.trigger(&gate, TriggeredLooks::One);
        bench.put(0);
        let look = bench.look();
        assert_eq!(look.prompts.len(), 2, "no rate and no gate keeps one back");
        for _ in 0..5 {
            bench.clock.advance(ms(100));
            bench.put(0);
            assert!(bench.try_look().is_none(), "one look");
        }
        bench.answer(look);
    }
    // A trigger begins before its frame arrives, and goes on.
    bench.change(&[triggered(camera("gate", 20.0, &[("person", 20.0)]))]);
    bench.sampler.trigger(&gate, TriggeredLooks::One);
    bench.sampler.trigger(&gate, TriggeredLooks::All);
    for _ in 0..2 {
        bench.put(0);
        bench.answer(bench.look());
        bench.clock.advance(ms(100));
    }
    assert!(bench.counters(0).balanced());
}

#[test]
fn first_trigger_of_a_reload_ends_the_looks() {
    let mut bench = Bench::new(&[person("gate")]);
    let gate = bench.cameras[0].clone();
    bench.put(0);
    bench.change(&[triggered(person("gate"))]);
    assert_eq!(bench.counters(0).waiting, 0);
    bench.sampler.trigger(&gate, TriggeredLooks::All);
    // Another reload does not end it.
    bench.change(&[triggered(camera("gate", 2.0, &[("dog", 2.0)]))]);
    bench.put(0);
    bench.answer(bench.look());
    bench.sampler.trigger(&gate, TriggeredLooks::None);
    // Without triggers it is looked at always.
    bench.change(&[person("gate")]);
    bench.sampler.trigger(&gate, TriggeredLooks::None);
    bench.clock.advance(ms(1000));
    bench.put(0);
    bench.answer(bench.look());
    assert!(bench.counters(0).balanced());
}

proptest! {
    #[test]
    fn looks_begin_only_while_a_trigger_is_active(
        steps in prop::collection::vec((0u8..5, 1u64..400), 1..200),
    ) {
        let mut bench = Bench::new(&[triggered(camera("gate", 5.0, &[("person", 5.0)]))]);
        let gate = bench.cameras[0].clone();
        let (mut looks, mut in_flight) = (TriggeredLooks::None, Vec::new());
        // The frame that a look of this moment would have.
        let mut put_at = None;
        for (step, pause_ms) in steps {
            match step {
                0 => looks = TriggeredLooks::All,
                1 => looks = TriggeredLooks::None,
                2 => looks = TriggeredLooks::One,
                _ => {
                    bench.put(0);
                    put_at = Some(bench.clock.now());
                }
            }
            bench.sampler.trigger(&gate, looks);
            if let Some(look) = bench.try_look() {
                prop_assert_ne!(looks, TriggeredLooks::None);
                if looks == TriggeredLooks::One {
                    looks = TriggeredLooks::None;
                }
                prop_assert_eq!(Some(look.frame.times.received.after(ms(20))), put_at);
                in_flight.push(look);
            }
            if in_flight.len() > 2 {
                in_flight.drain(..).for_each(|look| bench.answer(look));
            }
            bench.clock.advance(ms(pause_ms));
            prop_assert!(bench.counters(0).balanced());
        }
    }
}
