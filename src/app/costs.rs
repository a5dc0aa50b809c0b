//! What each prompt asks of the device: crops, arithmetic, share of what the device can do. Pure.
//!
//! The arithmetic is that of [`ModelWork`]: the image of a view once for all prompts that share it, and each prompt with one object
//! in its answer. Prompts of a view share the cost of its images in proportion to their rates. Views that differ in their adapter alone share
//! the encoding, because the crops of the second are unchanged; each has its own prefix.

use std::{collections::BTreeMap, time::Duration};

use spotter_cameras::sampler::MOTION_SIDE_MIN_PX;
use spotter_config::{
    CameraConfig, FramePlace, ModelSettings, PromptConfig, ReuseMode, SharedCamera,
};
use spotter_core::{CameraId, NormBox, PromptRegion, PromptView, RegionBox};
use spotter_engine::{
    model::{ModelConfig, Tiling, tiling},
    network::cost::{DetectWork, ModelWork},
    open::MEASURED_SIZE,
    service::{LookView, SeenSizes, views},
};
use spotter_fleet::assignment::CameraNeed;
use spotter_page::PromptCost;

const GFLOP_PER_TFLOP: f64 = 1e3;
/// A prompt of a few words, and one object.
const USUAL_PROMPT: DetectWork = DetectWork {
    tokens: 10,
    boxes: 1,
};

/// Pixels across and down that a camera is taken to send before it has sent any.
pub const ASSUMED_SIZE: (usize, usize) = (1920, 1080);

/// The model, and how fast the device was measured.
#[derive(Clone, Debug)]
pub struct CostBasis {
    pub model: ModelConfig,
    work: ModelWork,
    /// Of all devices together; `None` when it was not measured.
    pub tflop_per_s: Option<f64>,
    engines: usize,
    /// Crops that have not changed are not encoded again.
    reuses_crops: bool,
}

impl CostBasis {
    /// `look` is the measured time of a look with `prompts` prompts, the slowest of `engines` devices.
    pub fn new(model: ModelConfig, look: Option<Duration>, prompts: usize, engines: usize) -> Self {
        let (width, height) = MEASURED_SIZE;
        let measured = tiling(width, height, &model.vision);
        let work = ModelWork::of(model.network());
        let tflop = look_tflop(&work, measured, prompts);
        let seconds = look.map(|look| look.as_secs_f64()).filter(|s| *s > 0.0);
        Self {
            tflop_per_s: seconds.map(|seconds| tflop / seconds * engines as f64),
            model,
            work,
            engines,
            reuses_crops: true,
        }
    }

    /// The same with what is configured of crops that have not changed.
    pub fn with_reuse_of(self, settings: &ModelSettings) -> Self {
        let is_on = settings.reuse != ReuseMode::Off;
        Self {
            reuses_crops: is_on && settings.frames == FramePlace::Host,
            ..self
        }
    }

    /// The cost of each enabled prompt of a camera whose frames have `size`, in the order of the configuration. A prompt that
    /// follows motion is taken for one that always has the smallest region.
    pub fn prompts(&self, camera: &CameraConfig, size: (usize, usize)) -> Vec<PromptCost> {
        let enabled = |prompt: &&PromptConfig| prompt.is_asked();
        let prompts: Vec<&PromptConfig> = camera.prompts.iter().filter(enabled).collect();
        let seen = prompts
            .iter()
            .map(|prompt| (camera.view_of(prompt), prompt.adapter.clone()));
        let sizes = SeenSizes {
            frame: size,
            moved: Some(smallest_moved(size)),
            pixels_max: usize::MAX,
            strip: |view: &PromptView, seen| Some(view.strip?.size(seen)),
        };
        let views = views(seen, &sizes, &self.model.vision);
        let mut costs = vec![PromptCost::default(); prompts.len()];
        for (place, view) in views.iter().enumerate() {
            let image = self.work.look(view.tiling.crops(), &[]);
            let [encoding, prefix] =
                [image.vision, image.prefix].map(|gflop| gflop / GFLOP_PER_TFLOP);
            let alone = look_tflop(&self.work, view.tiling, 1);
            let others = views.iter().filter(|other| sees_the_same(other, view));
            let encoded = others.filter(|other| self.reuses_crops || other.adapter == view.adapter);
            let of_encoding = images_per_answer(&prompts, encoded.flat_map(|view| &view.prompts));
            let part = encoding * of_encoding + prefix * images_per_answer(&prompts, &view.prompts);
            let is_second = views[..place]
                .iter()
                .any(|other| sees_the_same(other, view));
            let own = if self.reuses_crops {
                prefix
            } else {
                encoding + prefix
            };
            let pixels = view.part.map_or(size, |part| (part.width, part.height));
            let strip = view.view.strip;
            let pixels = strip.map_or(pixels, |strip| strip.size(pixels));
            for &index in &view.prompts {
                let rate_hz = prompts[index].rate.hz();
                let tflop_per_s = rate_hz * (part + alone - encoding - prefix);
                costs[index] = PromptCost {
                    pixels: (pixels.0 as u32, pixels.1 as u32),
                    crops: view.tiling.crops(),
                    follows_motion: prompts[index].region == PromptRegion::Motion,
                    shared_by: view.prompts.len(),
                    unshared_tflop: is_second.then_some(own),
                    tflop: alone,
                    tflop_per_s,
                    share: self.tflop_per_s.map(|all| tflop_per_s / all),
                };
            }
        }
        costs
    }

    /// What the camera asks for with all its prompts, in looks of cost 1 a second: looks with one prompt at a picture of [`MEASURED_SIZE`].
    /// Only its configuration counts, so that all nodes of a fleet find the same.
    pub fn work_hz(&self, camera: &CameraConfig) -> f64 {
        let prompts = self.prompts(camera, frame_size(camera, ASSUMED_SIZE));
        let tflop_per_s: f64 = prompts.iter().map(|cost| cost.tflop_per_s).sum();
        tflop_per_s / self.unit_tflop()
    }

    /// What cameras of a fleet's list ask of their nodes.
    pub fn listed_cameras<'a>(
        &self,
        cameras: impl IntoIterator<Item = &'a SharedCamera>,
    ) -> BTreeMap<CameraId, CameraNeed> {
        let listed = |shared: &SharedCamera| {
            let need = CameraNeed {
                work_hz: self.work_hz(&shared.camera),
                label: shared.label.clone(),
                priority: shared.priority,
            };
            (shared.camera.id.clone(), need)
        };
        cameras.into_iter().map(listed).collect()
    }

    /// Looks of cost 1 a second that so many of the devices can do; `None` when they were not measured.
    pub fn capacity_hz(&self, engines: usize) -> Option<f64> {
        let of_one = self.tflop_per_s? / self.engines.max(1) as f64;
        Some(of_one * engines as f64 / self.unit_tflop())
    }

    /// Of a look of cost 1.
    fn unit_tflop(&self) -> f64 {
        let (width, height) = MEASURED_SIZE;
        look_tflop(&self.work, tiling(width, height, &self.model.vision), 1)
    }
}

/// Two views that differ in their adapter at most.
fn sees_the_same(a: &LookView, b: &LookView) -> bool {
    (a.part, a.tiling, a.view.strip) == (b.part, b.tiling, b.view.strip)
}

/// Images for each answer to one of these prompts, which are given by their indices. A look takes all prompts that are due, so the fastest
/// one decides how many images there are.
fn images_per_answer<'a>(
    prompts: &[&PromptConfig],
    indices: impl IntoIterator<Item = &'a usize>,
) -> f64 {
    let rates: Vec<f64> = indices.into_iter().map(|&i| prompts[i].rate.hz()).collect();
    rates.iter().copied().fold(0.0, f64::max) / rates.iter().sum::<f64>()
}

fn look_tflop(model: &ModelWork, tiling: Tiling, prompts: usize) -> f64 {
    let looked = model.look(tiling.crops(), &vec![USUAL_PROMPT; prompts]);
    looked.total() / GFLOP_PER_TFLOP
}

fn smallest_moved(size: (usize, usize)) -> RegionBox {
    let share = |pixels: usize| (MOTION_SIDE_MIN_PX as f64 / pixels as f64).min(1.0);
    RegionBox::new(NormBox::from_corners(
        0.0,
        0.0,
        share(size.0),
        share(size.1),
    ))
}

/// The size of frames of a camera that sends `size`, after the decoder's scaling.
pub fn frame_size(camera: &CameraConfig, size: (usize, usize)) -> (usize, usize) {
    match camera.frame_width() {
        Some(width) if (width as usize) < size.0 => {
            let width = width as usize;
            (width, size.1 * width / size.0)
        }
        _ => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::ModelSource;
    use spotter_config::testing::{camera, prompt};
    use spotter_core::{AdapterId, StripShape, Task, testing::rate};

    fn close(found: f64, expected: f64) {
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{found} is not {expected}"
        );
    }

    #[test]
    fn prompts_share_the_image_of_their_view() {
        let region =
            PromptRegion::Fixed(RegionBox::new(NormBox::from_corners(0.4, 0.4, 0.55, 0.6)));
        let of = |id, region, rate_hz| PromptConfig {
            region,
            rate: rate(rate_hz),
            ..prompt(id)
        };
        let gate = camera(
            "gate",
            vec![
                of("person", PromptRegion::Whole, 2.0),
                of("car", PromptRegion::Whole, 1.0),
                of("plate", region, 1.0),
                of("dog", PromptRegion::Motion, 1.0),
            ],
        );
        let look = Some(Duration::from_millis(100));
        let basis = CostBasis::new(ModelConfig::default(), look, 1, 2);
        let [person, car, plate, dog] = &basis.prompts(&gate, (1920, 1080))[..] else {
            panic!("four prompts")
        };
        assert_eq!(
            (person.crops, car.crops, plate.crops, dog.crops),
            (9, 9, 1, 1)
        );
        assert_eq!((person.shared_by, plate.shared_by), (2, 1));
        assert!(dog.follows_motion && !plate.follows_motion);
        assert_eq!(plate.pixels, (288, 216));
        // Nine crops of 0.67 TFLOP and the prefix, and one.
        close(person.tflop, 7.89);
        close(plate.tflop, 2.56);
        // Two images a second, of which a third is for the slower prompt.
        close(person.tflop_per_s / car.tflop_per_s, 2.0);
        close(person.tflop_per_s + car.tflop_per_s, 2.0 * 7.89);
        // Two devices, each with a look of 7.89 TFLOP in a tenth of a second.
        close(plate.share.unwrap(), 2.56 / 157.8);
        // A strip is an image of its own, of as many crops.
        let scene = PromptConfig {
            task: Task::question("What happens?"),
            strip: Some(StripShape {
                frames: 9,
                over: Duration::from_secs(4),
            }),
            ..of("scene", PromptRegion::Whole, 0.1)
        };
        let both = camera("yard", vec![of("person", PromptRegion::Whole, 2.0), scene]);
        let [person, scene] = &basis.prompts(&both, (1920, 1080))[..] else {
            panic!("two prompts")
        };
        assert_eq!((person.shared_by, scene.shared_by, scene.crops), (1, 1, 9));
        assert_eq!(scene.pixels, (1130, 638));
        close(scene.tflop_per_s, 0.1 * 7.89);
        // A second adapter on the same picture has a prefix of its own, and the encoding is shared.
        let with = |id, adapter| PromptConfig {
            adapter: AdapterId::new(adapter).ok(),
            ..of(id, PromptRegion::Whole, 1.0)
        };
        let cost_of_two = |basis: &CostBasis, adapter| {
            let camera = camera("gate", vec![with("car", ""), with("plate", adapter)]);
            let costs = basis.prompts(&camera, (1920, 1080));
            let sum = costs.iter().map(|cost| cost.tflop_per_s).sum::<f64>();
            (sum, costs[1].unshared_tflop)
        };
        let (shared, none) = cost_of_two(&basis, "");
        let (adapted, prefix) = cost_of_two(&basis, "plates");
        assert_eq!(none, None);
        close(adapted - shared, prefix.unwrap());
        let settings = ModelSettings {
            reuse: ReuseMode::Off,
            ..ModelSettings::of(ModelSource::Embedded)
        };
        let (again, image) = cost_of_two(&basis.clone().with_reuse_of(&settings), "plates");
        close(again - shared, image.unwrap());
        close(image.unwrap() - prefix.unwrap(), 9.0 * 0.67);
        // Ten looks a second on each device, of one prompt.
        close(basis.capacity_hz(2).unwrap(), 20.0);
        let one = camera("yard", vec![of("person", PromptRegion::Whole, 2.0)]);
        close(basis.work_hz(&one), 2.0);
    }
}
