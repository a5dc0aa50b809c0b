//! What each prompt asks of the device: crops, arithmetic, share of what the device can do. Pure.
//!
//! The arithmetic is that of [`ModelWork`]: the image of a view once for all prompts that share it, and each prompt with one object
//! in its answer. Prompts of a view share the cost of its images in proportion to their rates.

use std::{collections::BTreeMap, time::Duration};

use spotter_cameras::sampler::MOTION_SIDE_MIN_PX;
use spotter_config::{CameraConfig, PromptConfig, SharedCamera};
use spotter_core::{CameraId, NormBox, PromptRegion, PromptView, RegionBox};
use spotter_engine::{
    model::{ModelConfig, Tiling, tiling},
    network::cost::{DetectWork, ModelWork},
    open::MEASURED_SIZE,
    service::{SeenSizes, views},
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
        }
    }

    /// The cost of each enabled prompt of a camera whose frames have `size`, in the order of the configuration. A prompt that
    /// follows motion is taken for one that always has the smallest region.
    pub fn prompts(&self, camera: &CameraConfig, size: (usize, usize)) -> Vec<PromptCost> {
        let enabled = |prompt: &&PromptConfig| prompt.is_asked();
        let prompts: Vec<&PromptConfig> = camera.prompts.iter().filter(enabled).collect();
        let seen = prompts.iter().map(|prompt| (camera.view_of(prompt), None));
        let sizes = SeenSizes {
            frame: size,
            moved: Some(smallest_moved(size)),
            pixels_max: usize::MAX,
            strip: |view: &PromptView, seen| Some(view.strip?.size(seen)),
        };
        let views = views(seen, &sizes, &self.model.vision);
        let mut costs = vec![PromptCost::default(); prompts.len()];
        for view in views {
            let image = look_tflop(&self.work, view.tiling, 0);
            let alone = look_tflop(&self.work, view.tiling, 1);
            let rates = || view.prompts.iter().map(|&index| prompts[index].rate.hz());
            // A look takes all prompts that are due, so the fastest one decides how many images there are.
            let images_hz = rates().fold(0.0, f64::max);
            let part = images_hz * image / rates().sum::<f64>();
            let pixels = view.part.map_or(size, |part| (part.width, part.height));
            let strip = view.view.strip;
            let pixels = strip.map_or(pixels, |strip| strip.size(pixels));
            for &index in &view.prompts {
                let rate_hz = prompts[index].rate.hz();
                let tflop_per_s = rate_hz * (part + alone - image);
                costs[index] = PromptCost {
                    pixels: (pixels.0 as u32, pixels.1 as u32),
                    crops: view.tiling.crops(),
                    follows_motion: prompts[index].region == PromptRegion::Motion,
                    shared_by: view.prompts.len(),
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
    use spotter_config::testing::{camera, prompt};
    use spotter_core::{StripShape, Task, testing::rate};

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
        // Ten looks a second on each device, of one prompt.
        close(basis.capacity_hz(2).unwrap(), 20.0);
        let one = camera("yard", vec![of("person", PromptRegion::Whole, 2.0)]);
        close(basis.work_hz(&one), 2.0);
    }
}
