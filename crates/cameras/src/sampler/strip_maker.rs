//! One camera's strips: takes copies of arriving frames, and makes the strips of a look.

use std::sync::{Arc, Mutex};

use super::{
    kept_frames::{KeptFrames, StripShortage, StripSource},
    mask::Mask,
};
use crate::lock;
use spotter_config::CameraConfig;
use spotter_core::{Frame, Mono, Picture, Prompt, PromptView, Strip};

/// Ingest's thread and an engine's task use it. Neither holds its lock while it reads or draws a picture.
#[derive(Default)]
pub struct StripMaker(Mutex<StripState>);

#[derive(Default)]
struct StripState {
    kept: KeptFrames,
    mask: Arc<Mask>,
    /// Rises when all copies are forgotten: one that is being made then is not kept.
    forgotten: u64,
}

/// Copies to be made of a frame.
pub struct DueCopies {
    sources: Vec<StripSource>,
    picture: Picture,
    at: Mono,
    mask: Arc<Mask>,
    forgotten: u64,
}

impl StripMaker {
    pub fn new(camera: &CameraConfig) -> Self {
        Self(Mutex::new(StripState {
            kept: KeptFrames::new(camera),
            mask: Arc::new(Mask::new(&camera.mask)),
            ..StripState::default()
        }))
    }

    /// Copies show what the old mask left: with another mask there are none.
    pub fn change(&self, camera: &CameraConfig) {
        let mut state = lock(&self.0);
        state.kept.change(camera);
        let mask = Mask::new(&camera.mask);
        if mask != *state.mask {
            state.mask = Arc::new(mask);
            state.forget();
        }
    }

    /// A frame came from ingest: what is to be copied of it.
    pub fn due_copies(&self, frame: &Frame) -> Option<DueCopies> {
        let mut state = lock(&self.0);
        let at = frame.times.received;
        let sources = state.kept.take_due(&frame.picture, at);
        (!sources.is_empty()).then(|| DueCopies {
            sources,
            picture: frame.picture.clone(),
            at,
            mask: Arc::clone(&state.mask),
            forgotten: state.forgotten,
        })
    }

    /// Makes the copies and keeps them. A frame that cannot be read is left out.
    pub fn keep(&self, due: DueCopies) {
        let DueCopies {
            sources,
            picture,
            at,
            mask,
            forgotten,
        } = due;
        if !mask.is_empty() && !picture.fetch() {
            return;
        }
        let painted = mask.paint(&picture);
        for source in sources {
            let copy = source.copy(&painted).draw();
            let mut state = lock(&self.0);
            if let (Some(copy), true) = (copy, forgotten == state.forgotten) {
                state.kept.keep(source, &picture, copy, at);
            }
        }
    }

    /// As [`KeptFrames::shortages`].
    pub fn shortages(&self) -> Vec<StripShortage> {
        lock(&self.0).kept.shortages().collect()
    }

    /// As [`KeptFrames::is_ready`].
    pub fn is_ready(&self, view: &PromptView, frame: &Frame) -> bool {
        let received = frame.times.received;
        view.strip.is_none() || lock(&self.0).kept.is_ready(view, &frame.picture, received)
    }

    /// The strips that these prompts see; `None` when one cannot be made. Masks are painted into the frame.
    pub fn strips(&self, prompts: &[Arc<Prompt>], frame: &Frame) -> Option<Vec<Strip>> {
        let mut strips: Vec<Strip> = Vec::new();
        for Prompt { view, .. } in prompts.iter().map(AsRef::as_ref) {
            let Some(shape) = view.strip else {
                continue;
            };
            let region = view.region;
            let is_it = |strip: &Strip| (strip.shape, strip.region) == (shape, region);
            if strips.iter().any(is_it) {
                continue;
            }
            let state = lock(&self.0);
            let drawing = state
                .kept
                .strip(view, &frame.picture, frame.times.received)?;
            drop(state);
            let picture = drawing.draw()?;
            strips.push(Strip {
                shape,
                region,
                picture,
            });
        }
        Some(strips)
    }
}

impl StripState {
    fn forget(&mut self) {
        self.kept.forget();
        self.forgotten += 1;
    }
}
