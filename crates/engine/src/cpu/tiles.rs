//! Crops that a camera showed before are not encoded again.
//!
//! ```text
//!   crop 3 of camera gate ──▶ the bytes of crop 3 of its last picture? ──yes──▶ the features it had
//!                                        └─no──▶ joins the step's batch ──▶ features, kept with the bytes
//! ```
//!
//! Features depend on the bytes of their crop alone, so the same bytes have the same features to the bit. A camera's
//! crops are kept until [`KEPT_IMAGES`] pictures of other cameras came after them, which bounds the memory: a
//! crop takes its bytes and its features (1 MB and less in the embedded model, 4 MB in Moondream 2).

use std::{collections::HashMap, sync::Arc};

use super::vision::VisionModel;
use crate::model::Crops;
use spotter_core::CameraId;

/// A camera is forgotten after this many pictures of others.
pub(super) const KEPT_IMAGES: u64 = 16;

/// The last crops of every camera.
#[derive(Debug)]
pub(super) struct TileCache {
    /// Largest mean absolute difference of two crops' bytes that counts as the same crop.
    max_difference: f32,
    images: u64,
    cameras: HashMap<CameraId, CameraTiles>,
}

#[derive(Debug)]
struct CameraTiles {
    /// [`TileCache::images`] at its last picture.
    seen: u64,
    tiles: Vec<Arc<CachedTile>>,
}

/// A crop as it was encoded. A crop that is only similar keeps these bytes, so that small changes add up until they
/// count.
#[derive(Debug)]
struct CachedTile {
    bytes: Box<[u8]>,
    features: Box<[f32]>,
}

/// What the encoder made of a step's pictures.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// For each picture `[crops, tokens, width]`.
    pub features: Vec<Vec<f32>>,
    /// Crops that ran through the encoder.
    pub fresh: usize,
    /// Crops that did not have to.
    pub reused: usize,
}

/// Where a crop's features come from.
enum FeatureSource {
    Kept(Arc<CachedTile>),
    /// Place in the batch.
    Batch(usize),
}

impl TileCache {
    /// Nothing is known yet.
    pub fn new(max_difference: f32) -> Self {
        Self {
            max_difference,
            images: 0,
            cameras: HashMap::new(),
        }
    }

    /// Features of all `pictures`. The crops of all of them that are not known make one batch. A picture without a
    /// camera is neither looked up nor kept.
    pub fn encode(
        &mut self,
        vision: &VisionModel,
        pictures: &[(Option<&CameraId>, &Crops)],
    ) -> Encoded {
        let mut batch = Vec::new();
        let mut sources = Vec::with_capacity(pictures.len());
        for &(camera, crops) in pictures {
            let source = |index| {
                let bytes = crops.crop(index);
                let kept = camera.and_then(|camera| self.find(camera, index, bytes));
                kept.map(FeatureSource::Kept).unwrap_or_else(|| {
                    batch.push(bytes);
                    FeatureSource::Batch(batch.len() - 1)
                })
            };
            sources.push((0..crops.encoded).map(source).collect::<Vec<_>>());
        }
        let computed = vision.encode(&batch);
        let computed: Vec<&[f32]> = computed.chunks_exact(vision.crop_values()).collect();

        let features = |source: &FeatureSource| match source {
            FeatureSource::Kept(tile) => tile.features.to_vec(),
            FeatureSource::Batch(place) => computed[*place].to_vec(),
        };
        let encoded = Encoded {
            features: sources
                .iter()
                .map(|sources| sources.iter().flat_map(features).collect())
                .collect(),
            fresh: batch.len(),
            reused: sources.iter().map(Vec::len).sum::<usize>() - batch.len(),
        };
        for (&(camera, _), sources) in pictures.iter().zip(sources) {
            let tile = |source| match source {
                FeatureSource::Kept(tile) => tile,
                FeatureSource::Batch(place) => Arc::new(CachedTile {
                    bytes: batch[place].into(),
                    features: computed[place].into(),
                }),
            };
            self.keep(camera, sources.into_iter().map(tile));
        }
        encoded
    }

    /// Cameras whose crops are kept.
    #[cfg(test)]
    pub fn cameras(&self) -> usize {
        self.cameras.len()
    }

    fn find(&self, camera: &CameraId, index: usize, bytes: &[u8]) -> Option<Arc<CachedTile>> {
        let tile = self.cameras.get(camera)?.tiles.get(index)?;
        alike(&tile.bytes, bytes, self.max_difference).then(|| Arc::clone(tile))
    }

    fn keep(&mut self, camera: Option<&CameraId>, tiles: impl Iterator<Item = Arc<CachedTile>>) {
        self.images += 1;
        let images = self.images;
        self.cameras
            .retain(|_, camera| images - camera.seen < KEPT_IMAGES);
        if let Some(camera) = camera {
            let seen = CameraTiles {
                seen: images,
                tiles: tiles.collect(),
            };
            self.cameras.insert(camera.clone(), seen);
        }
    }
}

/// True when the mean absolute difference is at most `max_difference`; with 0, when all bytes are the same.
fn alike(a: &[u8], b: &[u8], max_difference: f32) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if a == b {
        return true;
    }
    let difference: u64 = a
        .iter()
        .zip(b)
        .map(|(a, b)| u64::from(a.abs_diff(*b)))
        .sum();
    difference as f32 <= max_difference * a.len() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_zero_means_the_same_bytes() {
        assert!(alike(&[1, 2, 3, 4], &[1, 2, 3, 4], 0.0));
        assert!(!alike(&[1, 2, 3, 4], &[1, 2, 3, 5], 0.0));
        // One step in one byte of four.
        assert!(alike(&[1, 2, 3, 4], &[1, 2, 3, 5], 0.25));
        assert!(!alike(&[1, 2, 3, 4], &[1, 2, 3, 6], 0.25));
        assert!(!alike(&[1, 2], &[1, 2, 3], 255.0), "another crop size");
    }
}
