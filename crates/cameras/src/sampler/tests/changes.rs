//! Cameras and prompts that are added, changed and removed while frames arrive and looks are in flight.
//!
//! Faults: K19.

use super::*;

fn site() -> [CameraConfig; 3] {
    ["a", "b", "c"].map(|id| camera(id, 2.0, &[("person", 2.0), ("dog", 2.0)]))
}

fn asked(look: &Look) -> Vec<(&str, u32)> {
    let prompts = look.prompts.iter();
    prompts.map(|p| (p.id.as_str(), p.revision)).collect()
}

#[test]
fn new_prompts_are_due_at_once_others_keep_their_rate() {
    let mut cameras = site();
    cameras[0].rate = rate(30.0);
    let mut bench = Bench::new(&cameras);
    bench.put(0);
    bench.answer(bench.look());
    bench.clock.advance(ms(200));
    bench.put(0);
    assert!(bench.try_look().is_none(), "not due for 300 ms");
    cameras[0].prompts[1].revision = 2;
    bench.change(&cameras);
    bench.put(0);
    assert_eq!(asked(&bench.look()), [("dog", 2)]);
    bench.clock.advance(ms(60));
    bench.put(0);
    assert_eq!(asked(&bench.look()), [("person", 1)]);
}

#[test]
fn disabled_prompts_and_cameras_without_prompts_start_no_look() {
    let mut cameras = site();
    cameras[0].prompts[0].enabled = false;
    let mut bench = Bench::new(&cameras);
    bench.put(0);
    assert_eq!(asked(&bench.look()), [("dog", 1)]);
    bench.clock.advance(ms(1000));
    bench.put(0);
    cameras[0].prompts[1].enabled = false;
    bench.change(&cameras);
    assert_eq!(bench.counters(0).waiting, 0, "no prompt is left for it");
    bench.put(0);
    assert!(bench.try_look().is_none());
    assert!(bench.counters(0).balanced());
}

#[test]
fn removed_camera_keeps_counters_balanced_and_can_return() {
    let cameras = site();
    let mut bench = Bench::new(&cameras);
    let sink = bench.sampler.camera_sink(&cameras[0].id).unwrap();
    bench.put(0);
    let look = bench.look();
    bench.change(&cameras[1..]);
    assert!(bench.sampler.camera_sink(&cameras[0].id).is_none());
    assert_eq!(bench.sampler.removed_counters().in_flight, 1);
    // The camera is configured again, for one frame, before its look has ended.
    bench.change(&cameras);
    sink(bench.frame(0, ms(20), 100));
    bench.answer(look);
    let counters = bench.counters(0);
    assert_eq!((counters.looked, counters.in_flight), (1, 0));
    bench.change(&cameras[1..]);
    let gone = bench.sampler.removed_counters();
    assert_eq!((gone.arrived, gone.looked, gone.in_flight), (2, 1, 0));
    assert!(gone.balanced());
    // The sink of a removed camera discards its frames.
    sink(bench.frame(0, ms(20), 100));
    assert!(bench.try_look().is_none());
}

#[test]
fn one_time_question_uses_the_next_frame_without_rate_change() {
    let mut cameras = site();
    cameras[0].motion.on = true;
    let mut bench = Bench::new(&cameras);
    bench.put(0);
    bench.answer(bench.look());
    bench.clock.advance(ms(10));
    assert!(bench.sampler.ask_once(&cameras[0].id, question("ask")));
    bench.put(0);
    let look = bench.look();
    // The scene is still and nothing is due.
    assert_eq!(asked(&look), [("ask", Prompt::ONCE)]);
    bench.answer(look);
    bench.put(0);
    assert!(bench.try_look().is_none(), "once");
    let roof = CameraId::new("roof").unwrap();
    assert!(!bench.sampler.ask_once(&roof, question("ask")));

    cameras[0].motion.on = false;
    bench.change(&cameras);
    bench.sampler.make_due(&cameras[0].id);
    bench.put(0);
    let look = bench.look();
    assert_eq!(asked(&look), [("person", 1), ("dog", 1)]);
    bench.answer(look);
    assert!(bench.counters(0).balanced());
}

#[test]
fn camera_that_changes_engine_keeps_frame_rate_and_counters() {
    let cameras = site();
    let mut bench = Bench::new(&cameras);
    let sink = bench.sampler.camera_sink(&cameras[0].id).unwrap();
    bench.put(0);
    bench.answer(bench.look());
    // The camera has no engine; frames still arrive, and the newest one is kept.
    bench.sampler.assign(&bench.share, &[]);
    bench.clock.advance(ms(1000));
    for _ in 0..2 {
        sink(bench.frame(0, ms(20), 100));
    }
    assert!(bench.try_look().is_none());
    let other = bench.sampler.share(limits());
    let mut context = Context::from_waker(Waker::noop());
    let mut next = pin!(other.due());
    assert!(next.as_mut().poll(&mut context).is_pending());
    bench.sampler.assign(&other, &ids(&cameras));
    let Poll::Ready(due) = next.poll(&mut context) else {
        panic!("a frame that waits wakes who has its camera now");
    };
    let look = due.take().unwrap();
    assert_eq!(look.frame.number, 3);
    bench.answer(look);
    sink(bench.frame(0, ms(20), 100));
    assert!(try_look(&other).is_none(), "nothing is due for 500 ms");
    let expected = FrameCounters {
        arrived: 4,
        looked: 2,
        replaced: 1,
        skipped: 1,
        ..FrameCounters::default()
    };
    assert_eq!(bench.counters(0), expected);
}

#[test]
fn looks_that_went_with_their_engine_have_failed() {
    let cameras = site();
    let mut bench = Bench::new(&cameras);
    let mut inside = Vec::new();
    for camera in [0, 1] {
        bench.put(camera);
        inside.push(bench.look());
    }
    bench.change(&cameras[1..]);
    drop(inside);
    let gone = bench.sampler.removed_counters();
    assert_eq!((gone.failed, gone.in_flight), (1, 0));
    let (_, counters) = bench.sampler.counters()[0];
    assert_eq!((counters.failed, counters.in_flight), (1, 0));
}

proptest! {
    // Faults: D12.
    #[test]
    fn counters_balance_while_everything_changes(
        steps in prop::collection::vec((0u8..8, 0usize..3, 0u64..400), 1..200),
    ) {
        let mut configs = site();
        configs[1].motion.on = true;
        let mut here = configs.to_vec();
        let mut bench = Bench::new(&configs);
        let mut engine = Vec::new();
        let mut put = 0;
        for (what, index, number) in steps {
            match what {
                0 | 1 => if here.iter().any(|camera| camera.id == configs[index].id) {
                    bench.put_grey(index, ms(number), (number % 3 * 100) as u8);
                    put += 1;
                },
                2 => bench.clock.advance(ms(number)),
                3 => engine.extend(bench.try_look()),
                4 => if let Some(look) = engine.pop() {
                    match number % 4 {
                        0 => bench.end(look, FrameEnd::Late),
                        1 => bench.end(look, FrameEnd::Failed),
                        2 => bench.answer(look),
                        // A copy that is still somewhere counts nothing.
                        _ => drop((look.clone(), look)),
                    }
                },
                // The engine loses its cameras, and another engine gets them later.
                5 => {
                    engine.clear();
                    bench.share = bench.sampler.share(limits());
                }
                6 => bench.sampler.assign(&bench.share, &ids(&here)),
                _ => {
                    match here.iter().position(|camera| camera.id == configs[index].id) {
                        Some(at) if number % 2 == 0 => drop(here.remove(at)),
                        Some(at) => {
                            let camera = &mut here[at];
                            camera.rate = rate(1.0 + number as f64 / 50.0);
                            camera.prompts[0].enabled = number % 3 == 0;
                            camera.prompts[1].revision += 1;
                        }
                        None => here.push(configs[index].clone()),
                    }
                    bench.configure(&here);
                }
            }
            let mut all = bench.sampler.removed_counters();
            for (_, counters) in bench.sampler.counters() {
                prop_assert!(counters.balanced() && counters.waiting <= 1);
                all += counters;
            }
            prop_assert!(all.balanced());
            prop_assert_eq!((all.arrived, all.in_flight), (put, engine.len() as u64));
            prop_assert!(engine.iter().all(|look: &Look| !look.prompts.is_empty()));
        }
    }
}
