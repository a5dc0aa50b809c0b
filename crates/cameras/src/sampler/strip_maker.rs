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
pub struct StripMaker(Mutex<KeptFrames>);

/// Copies to be made of a frame.
pub struct DueCopies {
    sources: Vec<StripSource>,
    picture: Picture,
    at: Mono,
    mask: Arc<Mask>,
}

impl StripMaker {
    pub fn change(&self, camera: &CameraConfig) {
        lock(&self.0).change(camera);
    }

    /// What of a frame may not be copied.
    pub fn mask(&self) -> Arc<Mask> {
        Arc::clone(&lock(&self.0).mask)
    }

    /// A frame came from ingest: what is to be copied of it.
    pub fn due_copies(&self, frame: &Frame) -> Option<DueCopies> {
        let mut kept = lock(&self.0);
        let at = frame.times.received;
        let sources = kept.take_due(&frame.picture, at);
        (!sources.is_empty()).then(|| DueCopies {
            sources,
            picture: frame.picture.clone(),
            at,
            mask: Arc::clone(&kept.mask),
        })
    }

    /// Makes the copies and keeps them. A frame that cannot be read is left out.
    pub fn keep(&self, due: DueCopies) {
        if !due.mask.is_empty() && !due.picture.fetch() {
            return;
        }
        let painted = due.mask.paint(&due.picture);
        for source in due.sources {
            let copy = source.copy(&painted).draw();
            let mut kept = lock(&self.0);
            if let (Some(copy), true) = (copy, Arc::ptr_eq(&due.mask, &kept.mask)) {
                kept.keep(source, &due.picture, copy, due.at);
            }
        }
    }

    /// As [`KeptFrames::shortages`].
    pub fn shortages(&self) -> Vec<StripShortage> {
        lock(&self.0).shortages().collect()
    }

    /// As [`KeptFrames::is_ready`].
    pub fn is_ready(&self, view: &PromptView, frame: &Frame) -> bool {
        lock(&self.0).is_ready(view, &frame.picture, frame.times.received)
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
            let kept = lock(&self.0);
            let drawing = kept.strip(view, &frame.picture, frame.times.received)?;
            drop(kept);
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
