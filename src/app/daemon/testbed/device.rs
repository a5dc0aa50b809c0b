//! A device without a model behind the real scheduler: each camera shows what the test sets.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use spotter_core::CameraId;
use spotter_engine::{
    scheduler::{
        backend::{
            Backend, BackendError, BackendLimits, DecoderInput, Feed, MaskSource, PageId, Pick,
            PickResult, Row, RowMask, SlotId, Step, StepResult, TokenMask,
        },
        decision::Decision,
    },
    service::EngineModel,
    testing::micro_model,
};

/// Which cameras show an object; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    here: Arc<Mutex<BTreeSet<String>>>,
    hangs: Arc<AtomicBool>,
    /// An engine waits for the device that hangs.
    is_awaited: Arc<AtomicBool>,
    /// A query on a camera with an object is answered with the last allowed token instead of the first.
    last_words: Arc<AtomicBool>,
}

impl Scene {
    fn here(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.here.lock().unwrap()
    }

    /// Shows or hides one object from the next look on.
    pub(super) fn show(&self, camera: &str, is_there: bool) {
        match is_there {
            true => self.here().insert(camera.to_owned()),
            false => self.here().remove(camera),
        };
    }

    /// While true, `commit` blocks.
    pub(super) fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }

    /// True while an engine waits for the device that hangs, so that no look ends.
    pub(super) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// From the next query on, a camera with an object answers "yes"; before, "no".
    pub(super) fn say_yes(&self) {
        self.last_words.store(true, Ordering::Relaxed);
    }

    pub(super) fn shows(&self, camera: &str) -> bool {
        self.here().contains(camera)
    }
}

pub(super) struct SceneDevice {
    scene: Scene,
    limits: BackendLimits,
    vocab: u32,
    /// The camera of an image prefix, by the first page of the prefix.
    cameras: HashMap<PageId, CameraId>,
    slots: Vec<Option<StepInSlot>>,
}

struct StepInSlot {
    step: Step,
    /// Inputs of each row, read at the launch: the slot that it carries from may be reused before its masks arrive. `None` for
    /// a zombie.
    inputs: Vec<Option<Vec<DecoderInput>>>,
    picked: Vec<Vec<PickResult>>,
    finalized: bool,
}

impl SceneDevice {
    pub(super) fn new(scene: Scene) -> Self {
        Self::of_model(scene, &micro_model())
    }

    pub(super) fn of_model(scene: Scene, model: &EngineModel) -> Self {
        let config = &model.config;
        Self {
            scene,
            limits: BackendLimits {
                slots: 2,
                rows: 8,
                pages: 128,
                page_tokens: 16,
                context: 400,
                prefix_positions: config.prefix_positions(),
                images: 2,
                positions: 800,
                tokens: 800,
                picks: usize::MAX,
                picture_pixels: usize::MAX,
                kept_crops: 0,
                adapters: 0,
            },
            vocab: config.text.vocab_size as u32,
            cameras: HashMap::new(),
            slots: vec![None, None],
        }
    }

    fn sample(&self, flight: &mut StepInSlot, masks: &[RowMask]) {
        let rows = flight.step.rows.iter().zip(&flight.inputs).enumerate();
        let decided = rows.map(|(at, (row, inputs))| {
            let mask = masks.iter().find(|mask| mask.row == at);
            self.decide(row, inputs.as_deref(), mask.map(|mask| &mask.mask))
        });
        flight.picked = decided.collect();
    }

    fn decide(
        &self,
        row: &Row,
        inputs: Option<&[DecoderInput]>,
        mask: Option<&TokenMask>,
    ) -> Vec<PickResult> {
        let Some(inputs) = inputs else {
            return vec![PickResult::Nothing; row.picks.len()];
        };
        let page = row.kv.prefix.first();
        let camera = page.and_then(|page| self.cameras.get(page));
        let seen = camera.is_some_and(|camera| self.scene.shows(camera.as_str()));
        let last = &inputs[inputs.len() - row.picks.len()..];
        let picks = row.picks.iter().zip(last);
        picks
            .map(|(pick, input)| self.pick(pick, input, mask, seen))
            .collect()
    }

    /// At most one object, in the middle; the first allowed token, or the last.
    fn pick(
        &self,
        pick: &Pick,
        input: &DecoderInput,
        mask: Option<&TokenMask>,
        seen: bool,
    ) -> PickResult {
        let coord = |probability| PickResult::Coord {
            bin: 512,
            probability,
            sharpness: 0.9,
        };
        match pick {
            // After the prompt: is there an object? After an object: is there another one?
            Pick::CoordOrEnd => match input {
                DecoderInput::Token(_) if seen => coord(0.9),
                _ => PickResult::End { probability: 0.9 },
            },
            Pick::Coord => coord(1.0),
            Pick::Size => PickResult::Size {
                width_bin: 820,
                height_bin: 820,
                probability: 1.0,
                sharpness: 0.9,
            },
            Pick::Token { values, .. } if values.size.is_some() => next_of_outline(input),
            Pick::Token { mask: source, .. } => {
                let allowed = |id: &u32| match (source, mask) {
                    (MaskSource::Banned(banned), _) => !banned.contains(id),
                    (MaskSource::Host, mask) => mask.is_some_and(|mask| mask.allows(*id)),
                };
                let mut ids = 0..self.vocab;
                let first = seen && !self.scene.last_words.load(Ordering::Relaxed);
                let id = match first {
                    true => ids.find(allowed),
                    false => ids.rev().find(allowed),
                };
                id.map_or(PickResult::Nothing, |id| PickResult::Token {
                    id,
                    probability: 0.9,
                })
            }
        }
    }

    /// `None` for a zombie.
    fn inputs(&self, row: &Row) -> Result<Option<Vec<DecoderInput>>, BackendError> {
        let from = match &row.inputs {
            Feed::Host(inputs) => return Ok(Some(inputs.clone())),
            Feed::Carry(from) => from,
        };
        let flight = self.slots[from.slot.0].as_ref();
        let picked = flight.and_then(|flight| flight.picked.get(from.row));
        match picked.map(Vec::as_slice) {
            Some([one]) => Ok(Decision::of(*one).map(|one| vec![one.input()])),
            _ => Err(BackendError::Step(format!("{from:?} is not in flight"))),
        }
    }
}

/// A triangle that points down, in a box in the middle: what follows a token or value of its outline. No number is in the path twice.
fn next_of_outline(input: &DecoderInput) -> PickResult {
    // M 20 24 L 960 36 480 900 Z, and the end.
    const PATH: [u32; 10] = [65, 278, 280, 64, 330, 318, 326, 332, 78, 0];
    let coord = |bin| PickResult::Coord {
        bin,
        probability: 1.0,
        sharpness: 0.9,
    };
    let token = |id| PickResult::Token {
        id,
        probability: 0.9,
    };
    match *input {
        DecoderInput::Coord(x) if x <= 0.5 => coord(513),
        DecoderInput::Coord(_) => PickResult::Size {
            width_bin: 820,
            height_bin: 820,
            probability: 1.0,
            sharpness: 0.9,
        },
        DecoderInput::Size(..) => token(PATH[0]),
        DecoderInput::Token(id) => {
            let mut rest = PATH.iter().skip_while(|&&known| known != id).skip(1);
            rest.next().map_or_else(|| coord(512), |&next| token(next))
        }
    }
}

impl Backend for SceneDevice {
    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        for image in &step.images {
            if let Some(page) = image.pages.first() {
                let camera = image.camera.clone().unwrap_or_else(CameraId::of_still);
                self.cameras.insert(*page, camera);
            }
        }
        let inputs: Result<_, _> = step.rows.iter().map(|row| self.inputs(row)).collect();
        let mut flight = StepInSlot {
            inputs: inputs?,
            finalized: !step.rows.iter().any(Row::wants_mask),
            step,
            picked: Vec::new(),
        };
        if flight.finalized {
            self.sample(&mut flight, &[]);
        }
        self.slots[slot.0] = Some(flight);
        Ok(())
    }

    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        let Some(mut flight) = self.slots[slot.0].take() else {
            return Err(BackendError::Step(format!("{slot:?} is empty")));
        };
        flight.finalized = true;
        self.sample(&mut flight, &masks);
        self.slots[slot.0] = Some(flight);
        Ok(())
    }

    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        while self.scene.hangs.load(Ordering::Relaxed) {
            self.scene.is_awaited.store(true, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
        }
        self.scene.is_awaited.store(false, Ordering::Relaxed);
        let flight = self.slots[slot.0].take().filter(|flight| flight.finalized);
        let flight =
            flight.ok_or_else(|| BackendError::Step(format!("{slot:?} has no results")))?;
        Ok(StepResult {
            picked: flight.picked,
            model_sizes: vec![(84, 84); flight.step.images.len()],
            crops_encoded: flight.step.images.len(),
            ..StepResult::default()
        })
    }
}
