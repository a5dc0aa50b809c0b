//! Which crops of a camera's picture are encoded again. The host decides before a step is planned, in the same way for every device.
//! Pure; the features are on the device, in entries that are numbered here.
//!
//! ```text
//!   picture ─▶ PictureMeasure ─▶ judge: compared with the picture whose features are kept
//!     some crops changed  ─▶ these are encoded, the others' features are read from their entries
//!     none changed        ─▶ the image's prefix in the KV cache is used again, if it is still there
//!     …and the answer to a prompt on the kept picture is known ─▶ it is the answer, without a step
//! ```
//!
//! A crop that did not change keeps the measure of the picture that it was encoded from, so small changes add up until they count.
//! All crops are encoded again, without a comparison, when the last time is [`ReuseRule::max_age`] ago.
//!
//! Kept features can differ by rounding from those of a new encoding, because the batch has another size.

mod cells;
mod floor;

use std::{collections::HashMap, time::Duration};

use super::{
    backend::{CropSource, DecoderInput, FeatureEntry},
    draft::DraftKey,
};
use crate::model::{SequenceOutput, Tiling};
use cells::{CropMeasure, PixelEncoding};
use floor::NoiseFloor;
use spotter_core::{CameraId, Mono, PixelRect, StripShape};

pub use cells::{CropRegion, PictureDetail, PictureMeasure, crop_regions};

/// Answers that are kept of a picture; more than a camera has prompts.
const ANSWERS_MAX: usize = 256;

/// When features, prefixes and answers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseRule {
    pub detail: PictureDetail,
    /// All crops are encoded again after this time.
    pub max_age: Duration,
}

/// What prompts see, in each look that asks them: places in their answers are relative to the part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ViewKey {
    pub camera: CameraId,
    /// Of the camera's picture; `None`: all of it.
    pub part: Option<PixelRect>,
    pub tiling: Tiling,
    /// `None`: a frame.
    pub strip: Option<StripShape>,
}

/// Number of an encoded image; rises with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageNumber(pub u64);

/// What a comparison found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The picture was compared with this one; `None`: with none, so everything is new.
    against: Option<ImageNumber>,
    /// Of each crop, the whole picture first.
    changed: Vec<bool>,
}

impl Verdict {
    /// The kept picture, if no crop differs from it.
    pub fn same_as(&self) -> Option<ImageNumber> {
        self.against.filter(|_| !self.changed.contains(&true))
    }

    /// Crops that are to be encoded.
    pub fn crops_changed(&self) -> usize {
        self.changed.iter().filter(|changed| **changed).count()
    }
}

/// The pictures whose features are kept, one for each view.
#[derive(Debug)]
pub struct KeptPictures {
    max_age: Duration,
    free: Vec<FeatureEntry>,
    views: HashMap<ViewKey, KeptPicture>,
    uses: u64,
}

/// A picture that is encoded in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedCrops {
    /// Where the features of each crop come from.
    pub sources: Vec<CropSource>,
    /// Images that are kept no more.
    pub dropped: Vec<ImageNumber>,
}

#[derive(Debug)]
struct KeptPicture {
    image: ImageNumber,
    /// When all crops were encoded at once.
    encoded_at: Mono,
    /// [`KeptPictures::uses`] at its last one.
    used: u64,
    encoding: PixelEncoding,
    crops: Vec<KeptCrop>,
    answers: HashMap<DraftKey, KnownAnswer>,
}

/// An answer to a prompt on a kept picture.
#[derive(Clone, Debug)]
pub struct KnownAnswer {
    /// What the prompt feeds.
    pub prompt: Vec<DecoderInput>,
    pub found: SequenceOutput,
}

#[derive(Debug)]
struct KeptCrop {
    entry: FeatureEntry,
    /// What it was encoded from.
    measure: CropMeasure,
    floor: NoiseFloor,
}

impl KeptCrop {
    fn new(entry: FeatureEntry, measure: &CropMeasure) -> Self {
        let cells = match measure {
            CropMeasure::Cells(cells) => cells.means.len(),
            CropMeasure::Digest(_) => 0,
        };
        Self {
            entry,
            measure: measure.clone(),
            floor: NoiseFloor::new(cells),
        }
    }

    fn has_changed(&mut self, now: &CropMeasure) -> bool {
        match (&self.measure, now) {
            (CropMeasure::Cells(before), CropMeasure::Cells(now)) => {
                self.floor.has_changed(before, now)
            }
            (before, now) => before != now,
        }
    }
}

impl KeptPicture {
    fn is_comparable(&self, measure: &PictureMeasure) -> bool {
        self.encoding == measure.encoding && self.crops.len() == measure.crops.len()
    }
}

impl KeptPictures {
    /// With a backend that keeps features in `entries` entries; with 0, every crop is encoded.
    pub fn new(entries: usize, max_age: Duration) -> Self {
        Self {
            max_age,
            free: (0..entries as u32).rev().map(FeatureEntry).collect(),
            views: HashMap::new(),
            uses: 0,
        }
    }

    /// Compares a picture with the kept one and learns from the difference.
    pub fn judge(&mut self, view: &ViewKey, measure: &PictureMeasure, now: Mono) -> Verdict {
        let kept = self.views.get_mut(view);
        let Some(kept) = kept.filter(|kept| kept.is_comparable(measure)) else {
            return Verdict {
                against: None,
                changed: vec![true; measure.crops()],
            };
        };
        self.uses += 1;
        kept.used = self.uses;
        let is_old = now.since(kept.encoded_at) >= self.max_age;
        let crops = kept.crops.iter_mut().zip(&measure.crops);
        let changed = crops.map(|(kept, now)| kept.has_changed(now) || is_old);
        Verdict {
            against: Some(kept.image),
            changed: changed.collect(),
        }
    }

    /// True when the verdict is about the picture that is kept now.
    pub fn is_current(&self, view: &ViewKey, verdict: &Verdict) -> bool {
        self.views.get(view).map(|kept| kept.image) == verdict.against
    }

    /// The picture becomes image number `image`: its changed crops are encoded in the step that is planned, and kept. The verdict must
    /// be current.
    pub fn encode(
        &mut self,
        view: &ViewKey,
        measure: &PictureMeasure,
        verdict: &Verdict,
        image: ImageNumber,
        now: Mono,
    ) -> EncodedCrops {
        self.uses += 1;
        let kept = self.views.get_mut(view);
        let Some(kept) = kept.filter(|kept| Some(kept.image) == verdict.against) else {
            return self.replace(view, measure, image, now);
        };
        let before = std::mem::replace(&mut kept.image, image);
        // No crop has changed when the number is the same: a prefix with another adapter is made.
        let dropped: Vec<_> = (before != image).then_some(before).into_iter().collect();
        if !dropped.is_empty() {
            kept.answers.clear();
        }
        kept.used = self.uses;
        if !verdict.changed.contains(&false) {
            kept.encoded_at = now;
        }
        let crops = kept.crops.iter_mut().zip(&measure.crops);
        let crops = crops.zip(&verdict.changed);
        let source = |((kept, now), changed): ((&mut KeptCrop, &CropMeasure), &bool)| match changed
        {
            false => CropSource::Kept(kept.entry),
            true => {
                kept.measure = now.clone();
                CropSource::Encoded(Some(kept.entry))
            }
        };
        EncodedCrops {
            sources: crops.map(source).collect(),
            dropped,
        }
    }

    /// Keeps a picture with which the kept one of its view, if any, cannot be compared. Views that were not used for the longest
    /// time make room.
    fn replace(
        &mut self,
        view: &ViewKey,
        measure: &PictureMeasure,
        image: ImageNumber,
        now: Mono,
    ) -> EncodedCrops {
        let mut dropped = Vec::from_iter(self.forget(view));
        while self.free.len() < measure.crops() {
            let oldest = self.views.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(view, _)| view.clone()) else {
                let sources = vec![CropSource::Encoded(None); measure.crops()];
                return EncodedCrops { sources, dropped };
            };
            dropped.extend(self.forget(&oldest));
        }
        let entries = self.free.split_off(self.free.len() - measure.crops());
        let crops = entries.iter().zip(&measure.crops);
        let kept = KeptPicture {
            image,
            encoded_at: now,
            used: self.uses,
            encoding: measure.encoding,
            crops: (crops.map(|(entry, now)| KeptCrop::new(*entry, now))).collect(),
            answers: HashMap::new(),
        };
        self.views.insert(view.clone(), kept);
        EncodedCrops {
            sources: entries
                .into_iter()
                .map(|e| CropSource::Encoded(Some(e)))
                .collect(),
            dropped,
        }
    }

    /// Forgets all pictures.
    pub fn forget_all(&mut self) {
        let kept = std::mem::take(&mut self.views).into_values();
        let entries = kept.flat_map(|kept| kept.crops.into_iter().map(|crop| crop.entry));
        self.free.extend(entries);
        // A map has no order, and runs should be alike.
        self.free.sort_by(|a, b| b.cmp(a));
    }

    fn forget(&mut self, view: &ViewKey) -> Option<ImageNumber> {
        let kept = self.views.remove(view)?;
        self.free.extend(kept.crops.iter().map(|crop| crop.entry));
        Some(kept.image)
    }

    /// Remembers an answer on image `image`, if that is still the kept one.
    pub fn remember_answer(
        &mut self,
        view: &ViewKey,
        image: ImageNumber,
        key: DraftKey,
        answer: KnownAnswer,
    ) {
        let kept = self.views.get_mut(view);
        if let Some(kept) = kept.filter(|kept| kept.image == image)
            && kept.answers.len() < ANSWERS_MAX
        {
            kept.answers.insert(key, answer);
        }
    }

    /// The answer to a prompt on image `image`, if it is known.
    pub fn answer(
        &self,
        view: &ViewKey,
        image: ImageNumber,
        key: &DraftKey,
        prompt: &[DecoderInput],
    ) -> Option<&SequenceOutput> {
        let kept = self.views.get(view).filter(|kept| kept.image == image)?;
        let known = kept.answers.get(key).filter(|known| known.prompt == prompt);
        known.map(|known| &known.found)
    }
}

#[cfg(test)]
mod tests;
