//! Small things on a large picture: what the model finds in the whole picture, and in a region cut from it.

use std::{fmt, sync::Arc, time::Duration};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use serde::Serialize;
use spotter_street::{
    draw_i420, i420_picture,
    score::{MatchTally, TruthObject, match_boxes},
    truth,
    truth::{SeenObject, Truth, VISIBLE_MIN},
};

use super::{
    ask::answers_of,
    clip::Clip,
    progress::ProgressLine,
    table::{TextTable, known},
};
use spotter_core::{
    Answer, AnswerBody, Clock, Look, NormBox, Picture, PixelRect, Prompt, PromptRegion, PromptView,
    RegionBox, Task,
};
use spotter_engine::service::Engine;

/// Shares of the picture's height that divide the things by their size.
const HEIGHTS: [f64; 6] = [0.005, 0.01, 0.02, 0.03, 0.05, 0.08];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionOptions {
    /// Name of the model, for the report.
    pub model: String,
    pub scenes: u64,
    /// Seed of the first; the others follow, as in [`EvalOptions`](super::EvalOptions).
    pub first_seed: u64,
    /// The camera is so many times as high above the scene, so that things are that much smaller.
    pub far: f32,
    /// Pixels across and down.
    pub picture: (u32, u32),
    /// Sides of the region, pixels.
    pub region_px: u32,
}

/// The accuracy by size of the things, and the speed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegionReport {
    pub options: RegionOptions,
    /// Smallest things first.
    pub sizes: Vec<SizeFigures>,
    /// Looks a second with one prompt, one after the other.
    pub whole_looks_per_s: Option<f64>,
    pub region_looks_per_s: Option<f64>,
}

/// Things of a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SizeFigures {
    /// From and to, shares of the picture's height.
    pub height: (f64, f64),
    pub things: u64,
    pub whole_f1: Option<f64>,
    pub whole_recall: Option<f64>,
    pub region_f1: Option<f64>,
    pub region_recall: Option<f64>,
}

/// Both ways to look, at things of a size.
#[derive(Clone, Copy, Debug, Default)]
struct BothTallies {
    whole: MatchTally,
    region: MatchTally,
}

/// Asks for one thing of each size in each scene, once in the whole picture and once in a region around it, in which it is at a
/// random place. Answers outside of the region do not count. Blocks for all of it.
pub fn regions(
    engine: &mut Engine,
    options: &RegionOptions,
    clock: &dyn Clock,
    progress: &mut ProgressLine,
) -> anyhow::Result<RegionReport> {
    let sizes: Vec<(f64, f64)> = HEIGHTS.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut tallies = vec![BothTallies::default(); sizes.len()];
    let (mut looks, mut times) = (0, [Duration::ZERO; 2]);
    for index in 0..options.scenes {
        let seed = options.first_seed.wrapping_add(index);
        let (truth, picture) = scene(seed, options)?;
        let mut chance = Pcg32::seed_from_u64(seed);
        for (size, tallies) in sizes.iter().zip(&mut tallies) {
            let small = truth.seen.iter().filter(|seen| is_within(seen, *size));
            let small: Vec<&SeenObject> = small.collect();
            if small.is_empty() {
                continue;
            }
            let thing = small[chance.random_range(0..small.len())];
            let region = around(thing.box_in_frame, options, &mut chance);
            let things = things_in(&truth, thing, region.norm_box(), *size);
            let views = [PromptRegion::Whole, PromptRegion::Fixed(region)];
            let mut answered = Vec::with_capacity(views.len());
            for (view, time) in views.into_iter().zip(&mut times) {
                let look = look(picture.clone(), thing.class.name(), view)?;
                let began = clock.now();
                let answers = answers_of(engine.look(look)?)?;
                *time += clock.now().since(began);
                answered.push(matches(&answers, region.norm_box(), &things));
            }
            looks += 1;
            tallies.whole.add(answered[0]);
            tallies.region.add(answered[1]);
        }
        progress.step();
    }
    let rate = |time: Duration| (looks > 0).then(|| f64::from(looks) / time.as_secs_f64());
    Ok(RegionReport {
        options: options.clone(),
        sizes: sizes
            .into_iter()
            .zip(tallies)
            .map(|(height, BothTallies { whole, region })| SizeFigures {
                height,
                things: whole.found + whole.missed,
                whole_f1: whole.f1(),
                whole_recall: whole.recall(),
                region_f1: region.f1(),
                region_recall: region.recall(),
            })
            .collect(),
        whole_looks_per_s: rate(times[0]),
        region_looks_per_s: rate(times[1]),
    })
}

fn scene(seed: u64, options: &RegionOptions) -> anyhow::Result<(Truth, Picture)> {
    let mut scene = Clip::new(seed).last().clone();
    scene.view.camera_m *= options.far;
    let (width, height) = options.picture;
    let pixels = draw_i420(&scene, width, height);
    let picture = i420_picture(&pixels, width as usize, height as usize)?;
    Ok((truth(&scene), picture))
}

/// True for a thing of this size that is visible enough to be found.
fn is_within(seen: &SeenObject, size: (f64, f64)) -> bool {
    let (from, to) = size;
    let height = seen.box_in_frame.y1 - seen.box_in_frame.y0;
    seen.visible >= VISIBLE_MIN && (from..to).contains(&height)
}

/// A square region with the thing anywhere inside.
fn around(thing: NormBox, options: &RegionOptions, chance: &mut Pcg32) -> RegionBox {
    let (width, height) = options.picture;
    let mut span = |from: f64, to: f64, pixels: u32| {
        let length = (f64::from(options.region_px) / f64::from(pixels)).min(1.0);
        let first = (to - length).max(0.0);
        let last = from.min(1.0 - length).max(first);
        let begin = first + (last - first) * chance.random_range(0.0..1.0);
        (begin, begin + length)
    };
    let (x0, x1) = span(thing.x0, thing.x1, width);
    let (y0, y1) = span(thing.y0, thing.y1, height);
    let region = RegionBox::new(NormBox::from_corners(x0, y0, x1, y1));
    let size = (width as usize, height as usize);
    // As it is cut, so that the truth is about the same pixels.
    let cut: PixelRect = region.pixels(size);
    RegionBox::new(cut.norm_box(size))
}

/// The things of the class in the region. Only those of the size have to be found: others, and those that the region's edge
/// cuts, are neither right nor wrong.
fn things_in(
    truth: &Truth,
    thing: &SeenObject,
    region: NormBox,
    size: (f64, f64),
) -> Vec<TruthObject> {
    let of_class = truth.seen.iter().filter(|seen| seen.class == thing.class);
    let object = |seen: &SeenObject| TruthObject {
        bounds: seen.box_in_frame,
        ignored: !(is_within(seen, size) && region.covers(&seen.box_in_frame)),
    };
    of_class.map(object).collect()
}

fn look(picture: Picture, object: &str, region: PromptRegion) -> anyhow::Result<Look> {
    let task = Task::Detect {
        object: object.to_owned(),
    };
    let mut look = Look::still(picture, [task]);
    let view = PromptView {
        region,
        ..PromptView::default()
    };
    look.prompts = look
        .prompts
        .iter()
        .map(|prompt| {
            Arc::new(Prompt {
                view,
                ..(**prompt).clone()
            })
        })
        .collect();
    Ok(look)
}

/// The boxes whose middle is in the region, compared with the truth.
fn matches(answers: &[Answer], region: NormBox, things: &[TruthObject]) -> MatchTally {
    let boxes = answers.iter().flat_map(|answer| match &answer.body {
        AnswerBody::Boxes(found) => found.as_slice(),
        _ => &[],
    });
    let inside = boxes.map(|found| found.place);
    let inside: Vec<NormBox> = inside.filter(|b| region.contains(b.centre())).collect();
    match_boxes(&inside, things).tally()
}

impl fmt::Display for RegionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        let (width, height) = options.picture;
        writeln!(
            f,
            "{}, {} scenes of {width}x{height}, {} times as far as usual, region of {px}x{px}",
            options.model,
            options.scenes,
            options.far,
            px = options.region_px,
        )?;
        let percent = |share: f64| share * 100.0;
        let rows = self.sizes.iter().map(|size| {
            let (from, to) = size.height;
            vec![
                ("height", format!("{} to {} %", percent(from), percent(to))),
                ("things", size.things.to_string()),
                ("F1 whole", known(size.whole_f1, 3)),
                ("recall whole", known(size.whole_recall, 3)),
                ("F1 region", known(size.region_f1, 3)),
                ("recall region", known(size.region_recall, 3)),
            ]
        });
        write!(f, "{}", TextTable::new(rows))?;
        write!(
            f,
            "looks/s, one after the other: whole {}, region {}",
            known(self.whole_looks_per_s, 2),
            known(self.region_looks_per_s, 2)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_contains_its_thing_at_any_place() {
        let options = RegionOptions {
            model: String::new(),
            scenes: 1,
            first_seed: 0,
            far: 1.0,
            picture: (1920, 1080),
            region_px: 378,
        };
        let mut chance = Pcg32::seed_from_u64(1);
        for thing in [
            NormBox::from_corners(0.5, 0.5, 0.51, 0.52),
            NormBox::from_corners(0.0, 0.0, 0.01, 0.02),
            NormBox::from_corners(0.985, 0.97, 1.0, 1.0),
        ] {
            for _ in 0..50 {
                let region = around(thing, &options, &mut chance);
                assert!(region.norm_box().covers(&thing), "{region:?} {thing:?}");
                let cut = region.pixels((1920, 1080));
                assert!(cut.width <= 380 && cut.height <= 380, "{cut:?}");
            }
        }
    }
}
