//! A device that sees what a test says, camera by camera, with the true scheduler before it and nothing computed.

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
            Backend, BackendError, BackendLimits, Committed, DecoderInput, Feed, MaskSource,
            PageId, Pick, Picked, Row, RowMask, SlotId, Step, TokenMask,
        },
        decision::Decision,
    },
    testing::micro_model,
};

/// Where something is to be seen; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stage {
    here: Arc<Mutex<BTreeSet<String>>>,
    hangs: Arc<AtomicBool>,
    /// Of the words that it may say, a camera with a thing takes the last too.
    last_words: Arc<AtomicBool>,
}

impl Stage {
    fn here(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.here.lock().unwrap()
    }

    /// One thing is, or is not, before the camera from the next look on.
    pub(super) fn show(&self, camera: &str, is_there: bool) {
        match is_there {
            true => self.here().insert(camera.to_owned()),
            false => self.here().remove(camera),
        };
    }

    /// The device answers no more, until it does again.
    pub(super) fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }

    /// Where a thing is, "yes" is answered from the next question on, and "no" before.
    pub(super) fn say_yes(&self) {
        self.last_words.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub(super) fn shows(&self, camera: &str) -> bool {
        self.here().contains(camera)
    }
}

/// See the module.
pub(super) struct Seeing {
    stage: Stage,
    limits: BackendLimits,
    vocab: u32,
    /// Whose picture a prefix is of, by its first page.
    cameras: HashMap<PageId, CameraId>,
    slots: Vec<Option<Flight>>,
}

/// A step in a slot.
struct Flight {
    step: Step,
    /// Of each row, known at the launch: what it carries from may be gone when its masks come. `None` for a zombie.
    inputs: Vec<Option<Vec<DecoderInput>>>,
    picked: Vec<Vec<Picked>>,
    finalized: bool,
}

impl Seeing {
    pub(super) fn new(stage: Stage) -> Self {
        let config = micro_model().config;
        Self {
            stage,
            limits: BackendLimits {
                slots: 2,
                rows: 8,
                pages: 128,
                page_tokens: 16,
                context: 200,
                prefix_positions: config.prefix_positions(),
                images: 2,
                positions: 800,
                tokens: 800,
            },
            vocab: config.text.vocab_size as u32,
            cameras: HashMap::new(),
            slots: vec![None, None],
        }
    }

    fn sample(&self, flight: &mut Flight, masks: &[RowMask]) {
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
    ) -> Vec<Picked> {
        let Some(inputs) = inputs else {
            return vec![Picked::Nothing; row.picks.len()];
        };
        let page = row.kv.prefix.first();
        let camera = page.and_then(|page| self.cameras.get(page));
        let seen = camera.is_some_and(|camera| self.stage.shows(camera.as_str()));
        let last = &inputs[inputs.len() - row.picks.len()..];
        let picks = row.picks.iter().zip(last);
        picks
            .map(|(pick, input)| self.pick(pick, input, mask, seen))
            .collect()
    }

    /// One thing at most, in the middle; the first word that is allowed, or the last.
    fn pick(
        &self,
        pick: &Pick,
        input: &DecoderInput,
        mask: Option<&TokenMask>,
        seen: bool,
    ) -> Picked {
        let coord = |probability| Picked::Coord {
            bin: 512,
            probability,
            sharpness: 0.9,
        };
        match pick {
            // After the words of the prompt: anything at all? After a thing: more of them?
            Pick::CoordOrEnd => match input {
                DecoderInput::Token(_) if seen => coord(0.9),
                _ => Picked::End { probability: 0.9 },
            },
            Pick::Coord => coord(1.0),
            Pick::Size => Picked::Size {
                width_bin: 820,
                height_bin: 820,
                sharpness: 0.9,
            },
            Pick::Token { mask: source, .. } => {
                let allowed = |id: &u32| match (source, mask) {
                    (MaskSource::Banned(banned), _) => !banned.contains(id),
                    (MaskSource::Host, mask) => mask.is_some_and(|mask| mask.allows(*id)),
                };
                let mut ids = 0..self.vocab;
                let first = seen && !self.stage.last_words.load(Ordering::Relaxed);
                let id = match first {
                    true => ids.find(allowed),
                    false => ids.rev().find(allowed),
                };
                id.map_or(Picked::Nothing, |id| Picked::Token {
                    id,
                    probability: 0.9,
                    coord_bin: 512,
                })
            }
        }
    }

    /// What a row feeds; `None` for a zombie.
    fn inputs(&self, row: &Row) -> Result<Option<Vec<DecoderInput>>, BackendError> {
        let from = match &row.inputs {
            Feed::Host(inputs) => return Ok(Some(inputs.clone())),
            Feed::Carry(from) => from,
        };
        let flight = self.slots[from.slot.0].as_ref();
        let picked = flight.and_then(|flight| flight.picked.get(from.row));
        match picked.map(Vec::as_slice) {
            Some([one]) => Ok(Decision::of(*one).map(|one| vec![one.input()])),
            _ => Err(BackendError(format!("{from:?} is not in flight"))),
        }
    }
}

impl Backend for Seeing {
    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        for image in &step.images {
            if let (Some(page), Some(camera)) = (image.pages.first(), &image.camera) {
                self.cameras.insert(*page, camera.clone());
            }
        }
        let inputs: Result<_, _> = step.rows.iter().map(|row| self.inputs(row)).collect();
        let mut flight = Flight {
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
            return Err(BackendError(format!("{slot:?} is empty")));
        };
        flight.finalized = true;
        self.sample(&mut flight, &masks);
        self.slots[slot.0] = Some(flight);
        Ok(())
    }

    fn commit(&mut self, slot: SlotId) -> Result<Committed, BackendError> {
        while self.stage.hangs.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let flight = self.slots[slot.0].take().filter(|flight| flight.finalized);
        let flight = flight.ok_or_else(|| BackendError(format!("{slot:?} has no results")))?;
        Ok(Committed {
            picked: flight.picked,
            model_sizes: vec![(84, 84); flight.step.images.len()],
            crops_encoded: flight.step.images.len(),
            ..Committed::default()
        })
    }
}
