//! Prompts that see several frames.

use super::*;
use spotter_core::{PromptView, RegionBox, Strip, StripShape};

const NINE: StripShape = StripShape {
    frames: 9,
    over: Duration::from_secs(4),
};

fn asking(id: &str, region: PromptRegion) -> PromptConfig {
    PromptConfig {
        task: what_happens(),
        region,
        strip: Some(NINE),
        ..spotter_config::testing::prompt(id)
    }
}

/// A camera that looks for persons and asks about the last four seconds.
fn watching() -> CameraConfig {
    let mut camera = person("gate");
    camera.prompts.push(asking("scene", PromptRegion::Whole));
    camera
}

/// Puts frames of 60 x 40 pixels, ten a second, each a step brighter than the one before, and answers the looks at once. Returns, of
/// each look, its prompts and strips.
fn watch(bench: &mut Bench, frames: u64) -> Vec<(u64, Vec<String>, Vec<Strip>)> {
    let mut looks = Vec::new();
    for _ in 0..frames {
        bench.clock.advance(ms(100));
        let mut frame = bench.frame(0, ms(0), 0);
        let grey = (frame.number % 200) as u8 + 1;
        frame.picture = Picture::from_rgb(60, 40, vec![grey; 60 * 40 * 3]).unwrap();
        bench.put_frame(frame);
        if let Some(mut look) = bench.try_look() {
            let ids = look.prompts.iter().map(|prompt| prompt.id.to_string());
            looks.push((look.frame.number, ids.collect(), look.strips.clone()));
            for prompt in look.prompts.clone() {
                answer(&mut look, prompt.id.as_str());
            }
            bench.answer(look);
        }
    }
    assert!(bench.counters(0).balanced());
    looks
}

/// The grey in the middle of each panel of 60 x 40 pixels.
fn greys(strip: &Picture, at: (usize, usize)) -> Vec<u8> {
    let grey = |index: usize| {
        let (x, y) = (index % 3 * 64 + at.0, index / 3 * 44 + at.1);
        strip.row(0, y)[x * 3]
    };
    (0..9).map(grey).collect()
}

#[test]
fn strip_prompt_waits_for_its_frames_and_sees_their_order() {
    let mut bench = Bench::new(&[watching()]);
    let looks = watch(&mut bench, 80);
    let has_scene = |ids: &[String]| ids.iter().any(|id| id == "scene");
    let (first, _, strips) = looks.iter().find(|(_, ids, _)| has_scene(ids)).unwrap();
    assert!((36..=48).contains(first), "{first}");
    assert!(looks.iter().filter(|(number, ..)| number < first).count() >= 3);
    for (number, ids, strips) in &looks {
        assert_eq!(has_scene(ids), !strips.is_empty(), "{number}");
        assert!(ids.contains(&"person".to_owned()) || has_scene(ids));
    }
    assert_eq!((strips.len(), strips[0].shape), (1, NINE));
    let (number, _, strips) = looks.last().unwrap();
    let greys = greys(&strips[0].picture, (30, 20));
    assert!(greys.is_sorted(), "{greys:?}");
    assert_eq!(
        u64::from(greys[8]),
        number + 1,
        "the look's own frame is the last"
    );
}

#[test]
fn masks_are_black_in_every_panel() {
    let mut camera = masked(watching());
    let right = NormBox::from_corners(0.5, 0.0, 1.0, 1.0);
    let right = PromptRegion::Fixed(RegionBox::new(right));
    camera.prompts.push(asking("right", right));
    let mut bench = Bench::new(&[camera.clone()]);
    let looks = watch(&mut bench, 80);
    let (_, _, strips) = looks.last().unwrap();
    let pictures: Vec<&Picture> = strips.iter().map(|strip| &strip.picture).collect();
    assert_eq!(pictures[0].size(), (188, 128));
    assert_eq!(pictures[1].size(), (98, 128), "the right half");
    assert_eq!(greys(pictures[0], (30, 19)), [0; 9]);
    assert!(greys(pictures[0], (30, 20)).iter().all(|grey| *grey > 0));
    // With another mask, the old copies are not shown.
    camera.mask = vec![vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]];
    bench.change(&[camera]);
    let looks = watch(&mut bench, 80);
    let mut strips = looks.iter().flat_map(|(_, _, strips)| strips).peekable();
    assert!(strips.peek().is_some());
    for strip in strips {
        let (_, height) = strip.picture.size();
        assert!((0..height).all(|y| strip.picture.row(0, y).iter().all(|byte| *byte == 0)));
    }
}

/// The question that `describe` asks once about an object in the upper left quarter.
fn describing() -> Arc<Prompt> {
    let view = PromptView {
        region: PromptRegion::Fixed(RegionBox::new(NormBox::from_corners(0.0, 0.0, 0.5, 0.5))),
        strip: Some(NINE),
        ..PromptView::default()
    };
    Arc::new(Prompt {
        view,
        ..Prompt::clone(&question("describe-1"))
    })
}

/// A camera whose persons are described.
fn described(mut camera: CameraConfig) -> Bench {
    camera.prompts[0].describe = Some("What happens?".into());
    camera.prompts[0].strip = Some(NINE);
    Bench::new(&[camera])
}

#[test]
fn question_about_an_object_sees_the_seconds_before_it() {
    let mut bench = described(person("gate"));
    watch(&mut bench, 60);
    bench
        .sampler
        .ask_once(&bench.cameras[0].clone(), describing());
    let looks = watch(&mut bench, 1);
    let (number, ids, strips) = &looks[0];
    assert!(
        (*number, ids.last().unwrap().as_str()) == (61, "describe-1"),
        "{looks:?}"
    );
    let strip = &strips[0].picture;
    let grey = |index: usize| strip.row(0, index / 3 * 24)[index % 3 * 34 * 3];
    let greys: Vec<u8> = (0..9).map(grey).collect();
    // Each frame is as grey as its number, and one.
    assert_eq!(greys, [22, 27, 32, 37, 42, 47, 52, 57, 62]);
}

#[test]
fn question_about_an_object_waits_without_opening_the_gate() {
    let mut bench = described(gated(person("gate")));
    bench
        .sampler
        .ask_once(&bench.cameras[0].clone(), describing());
    let mut asked = Vec::new();
    for tenth in 1..=60 {
        bench.clock.advance(ms(100));
        bench.put(0);
        if let Some(look) = bench.try_look() {
            asked.extend(
                look.prompts
                    .iter()
                    .map(|prompt| (tenth, prompt.id.to_string())),
            );
            bench.answer(look);
        }
    }
    // What is due rides along with the question.
    let asked_at = |tenth, id: &str| (tenth, id.to_owned());
    let expected = [(1, "person"), (36, "person"), (36, "describe-1")];
    assert_eq!(asked, expected.map(|(tenth, id)| asked_at(tenth, id)));
}

#[test]
fn unreadable_frame_does_not_become_a_black_panel() {
    let mut camera = person("gate");
    camera.prompts = vec![asking("scene", PromptRegion::Whole)];
    let mut bench = Bench::new(&[camera]);
    let picture = |lost: bool| {
        let planes = vec![vec![200; 4], vec![128; 2]];
        Arc::new(match lost {
            true => FakeDevicePlanes::lost(planes),
            false => FakeDevicePlanes::new(planes),
        })
    };
    for tenth in 1..=40 {
        bench.clock.advance(ms(100));
        bench.put_picture(0, picture(tenth > 35));
        assert!(bench.try_look().is_none(), "{tenth}");
    }
    let counters = bench.counters(0);
    assert!(counters.failed > 0 && counters.balanced(), "{counters:?}");
    bench.clock.advance(ms(1000));
    bench.put_picture(0, picture(false));
    let look = bench.look();
    assert_eq!(look.strips[0].picture.row(0, 0)[..2], [200; 2]);
}

#[test]
fn questions_for_which_no_strip_comes_are_dropped() {
    let mut camera = person("gate");
    camera.prompts[0].enabled = false;
    camera.prompts.push(asking("scene", PromptRegion::Whole));
    let mut bench = Bench::new(&[camera.clone()]);
    let shortages = |bench: &Bench| bench.sampler.strip_shortages();
    bench
        .sampler
        .ask_once(&bench.cameras[0].clone(), describing());
    // A frame every four seconds.
    for second in (4..=160).step_by(4) {
        bench.clock.advance(ms(4000));
        bench.put(0);
        assert!(bench.try_look().is_none(), "{second}");
        assert_eq!(
            shortages(&bench).len(),
            usize::from(second > 20),
            "{second}"
        );
    }
    let (gate, shortage) = shortages(&bench).remove(0);
    assert_eq!(
        (gate, shortage.frame_every),
        (bench.cameras[0].clone(), ms(4000))
    );
    // The camera becomes fast, and only its prompt is asked.
    let looks = watch(&mut bench, 60);
    assert!(
        looks.iter().all(|(_, ids, _)| *ids == ["scene"]),
        "{looks:?}"
    );
    assert!(!looks.is_empty() && shortages(&bench).is_empty());
}
