//! Features of crops: those of a step are encoded as one batch, others are read from their entries.
//!
//! An entry has 1 MB or less in the embedded model and 4 MB in Moondream 2, which is taken when it is first filled.

use std::sync::Arc;

use super::vision::VisionModel;
use crate::{
    model::Crops,
    scheduler::backend::{BackendError, CropSource, FeatureEntry},
};

/// The features that are kept.
#[derive(Debug)]
pub(super) struct FeatureStore {
    entries: Vec<Option<Arc<[f32]>>>,
}

/// A picture whose features are wanted.
pub(super) struct CropsToEncode<'a> {
    /// One for each crop.
    pub sources: Vec<CropSource>,
    /// `None` when no crop is encoded.
    pub crops: Option<&'a Crops>,
}

/// What the encoder made of a step's pictures.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// For each picture `[crops, tokens, width]`.
    pub features: Vec<Vec<f32>>,
    /// Crops that ran through the encoder.
    pub fresh: usize,
    /// Crops whose features were kept.
    pub reused: usize,
}

impl FeatureStore {
    /// With empty entries; the pictures of a step name them by their numbers.
    pub fn new(entries: usize) -> Self {
        Self {
            entries: vec![None; entries],
        }
    }

    /// Features of all `pictures`. The crops of all of them that are encoded make one batch.
    pub fn encode(
        &mut self,
        vision: &VisionModel,
        pictures: &[CropsToEncode<'_>],
    ) -> Result<Encoded, BackendError> {
        let mut batch = Vec::new();
        for picture in pictures {
            for (index, source) in picture.sources.iter().enumerate() {
                if let (CropSource::Encoded(_), Some(crops)) = (source, picture.crops) {
                    batch.push(crops.crop(index));
                }
            }
        }
        let computed = vision.encode(&batch);
        let mut computed = computed.chunks_exact(vision.crop_values());
        let mut encoded = Encoded {
            fresh: batch.len(),
            ..Encoded::default()
        };
        for picture in pictures {
            let mut features = Vec::with_capacity(picture.sources.len() * vision.crop_values());
            for source in &picture.sources {
                match *source {
                    CropSource::Encoded(keep) => {
                        let of_crop = computed.next().unwrap_or_default();
                        features.extend_from_slice(of_crop);
                        if let Some(entry) = keep {
                            self.entries[entry.0 as usize] = Some(of_crop.into());
                        }
                    }
                    CropSource::Kept(entry) => {
                        features.extend_from_slice(self.kept(entry)?);
                        encoded.reused += 1;
                    }
                }
            }
            encoded.features.push(features);
        }
        Ok(encoded)
    }

    /// True when the entry was filled.
    #[cfg(test)]
    pub fn has(&self, entry: FeatureEntry) -> bool {
        self.entries
            .get(entry.0 as usize)
            .is_some_and(Option::is_some)
    }

    fn kept(&self, entry: FeatureEntry) -> Result<&[f32], BackendError> {
        let kept = self
            .entries
            .get(entry.0 as usize)
            .and_then(Option::as_deref);
        kept.ok_or_else(|| BackendError::Step(format!("{entry:?} is read and was never filled")))
    }
}
