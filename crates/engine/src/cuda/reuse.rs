//! Unchanged crops of a camera are not encoded again. The host decides which before a step is queued, by the bytes that the decoder
//! returned. Pure; the features are on the GPU, in entries that are numbered here.
//!
//! ```text
//!   crop 3 of camera gate ─▶ its source pixels as when it was encoded? ─yes─▶ the features in its entry
//!                                        └─no──▶ joins the step's batch ──▶ features, copied to its entry behind the step
//! ```
//!
//! A crop depends on the source pixels below it and below the reach of the scaling filter at its edges, and on nothing else.
//! So each crop keeps a copy of these, at most 2.5 times the picture for all crops of a camera, and comparing costs no more
//! than reading them. The copy is made after the step is queued; until then the picture itself is kept, because the GPU waits for the
//! step. Nothing is read from the GPU, so nothing waits for it. As on the CPU, a crop that is only similar keeps the bytes it was
//! encoded from, so that small changes add up until they count; but here they are compared before colour and scaling, and by
//! the largest difference of a byte.
//!
//! Pictures that are only on the GPU are not compared: the engine's thread would wait for their copies, or the step for the result of a
//! comparison on the GPU. All their crops are encoded. That is why the default of `model.frames` is the host: decoders repeat unchanged
//! blocks bit for bit, so unchanged crops are found. A picture that a motion gate has read is on the host too, and is compared.
//!
//! Kept features can differ by rounding from those of a new encoding, because the batch has another size.

use std::{collections::HashMap, ops::Range};

use crate::model::{Tiling, VisionConfig, taps};
use spotter_core::{CameraId, ColourMatrix, ColourRange, Picture, PixelFormat};

/// Where a crop's features come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crop {
    /// It is encoded in this step.
    pub is_fresh: bool,
    /// For the kernel: a place in the step's batch, or -1 - entry.
    pub source: i32,
}

/// A copy of features behind the step, from a place in the batch to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureCopy {
    /// Place in the batch.
    pub place: usize,
    /// Entry on the GPU.
    pub entry: usize,
}

/// Which features of which cameras are kept.
pub struct Reuse {
    vision: VisionConfig,
    /// Largest difference of two bytes that counts as none.
    max_difference: u8,
    /// Each has the entries of as many crops.
    cameras: Vec<Option<CameraCrops>>,
    images: u64,
    step: StepCrops,
}

#[derive(Default)]
struct StepCrops {
    batch: usize,
    /// By entry: its place in this step's batch, from which later images of the step read it.
    pending: HashMap<usize, usize>,
    keeps: Vec<FeatureCopy>,
}

struct CameraCrops {
    id: CameraId,
    shape: PixelEncoding,
    /// [`Reuse::images`] at its last picture.
    seen: u64,
    /// Of each crop, the whole picture first.
    crops: Vec<ReferencePixels>,
}

/// What a crop was encoded from.
struct ReferencePixels {
    region: Region,
    /// Until its bytes are copied.
    picture: Option<Picture>,
    bytes: Option<Vec<u8>>,
}

impl ReferencePixels {
    fn new(region: Region) -> Self {
        Self {
            region,
            picture: None,
            bytes: None,
        }
    }

    fn is_like(&self, picture: &Picture, max_difference: u8) -> bool {
        let region = &self.region;
        match (&self.picture, &self.bytes) {
            (Some(before), _) => {
                let mut pairs = rows(picture, region).zip(rows(before, region));
                pairs.all(|(row, before)| is_near(row, before, max_difference))
            }
            (None, Some(bytes)) => {
                let mut rest = &bytes[..];
                rows(picture, region).all(|row| {
                    let Some((before, behind)) = rest.split_at_checked(row.len()) else {
                        return false;
                    };
                    rest = behind;
                    is_near(row, before, max_difference)
                })
            }
            (None, None) => false,
        }
    }

    fn keep_bytes(&mut self) {
        if let Some(picture) = self.picture.take() {
            let bytes = self.bytes.get_or_insert_default();
            bytes.clear();
            rows(&picture, &self.region).for_each(|row| bytes.extend_from_slice(row));
        }
    }
}

/// What must be equal for the bytes of two pictures' crops to be comparable.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PixelEncoding {
    format: PixelFormat,
    size: (usize, usize),
    colour: (ColourMatrix, ColourRange),
    /// Which pixels are in which crop.
    tiling: Tiling,
}

/// Source pixels that a crop is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Region {
    across: Range<usize>,
    down: Range<usize>,
}

impl Reuse {
    /// With entries for `cameras` cameras; with 0, every crop is encoded.
    pub fn new(vision: &VisionConfig, cameras: usize, max_difference: u8) -> Self {
        Self {
            vision: vision.clone(),
            max_difference,
            cameras: (0..cameras).map(|_| None).collect(),
            images: 0,
            step: StepCrops::default(),
        }
    }

    /// Crops that a camera has entries for.
    pub fn crops_each(vision: &VisionConfig) -> usize {
        vision.max_crops + 1
    }

    /// A step begins; the one before is queued.
    pub fn begin_step(&mut self) {
        self.step = StepCrops::default();
    }

    /// Which crops of a step's next picture are encoded, the whole picture first. Without a camera all are.
    pub fn plan(
        &mut self,
        camera: Option<&CameraId>,
        picture: &Picture,
        tiling: Tiling,
    ) -> Vec<Crop> {
        let each = Self::crops_each(&self.vision);
        let slot = camera.filter(|_| tiling.crops() <= each);
        let slot = slot.and_then(|camera| self.slot(camera, picture, tiling));
        let Some((slot, camera)) = slot.and_then(|slot| Some((slot, self.cameras[slot].as_mut()?)))
        else {
            return (0..tiling.crops()).map(|_| self.step.fresh()).collect();
        };
        let crops = camera.crops.iter_mut().enumerate();
        crops
            .map(|(index, known)| {
                let entry = slot * each + index;
                if known.is_like(picture, self.max_difference) {
                    return self.step.kept(entry);
                }
                known.picture = Some(picture.clone());
                self.step.fresh_for(entry)
            })
            .collect()
    }

    /// Releases the step's pictures: copies the bytes that later ones are compared with. This is the slowest call of this file, so the
    /// step should be queued before.
    pub fn keep_bytes(&mut self) {
        let each = Self::crops_each(&self.vision);
        for keep in &self.step.keeps {
            // Another camera may have replaced this one within the step; its crops are later in the list.
            if let Some(camera) = &mut self.cameras[keep.entry / each]
                && let Some(crop) = camera.crops.get_mut(keep.entry % each)
            {
                crop.keep_bytes();
            }
        }
    }

    /// Crops that the step encodes.
    pub fn batch(&self) -> usize {
        self.step.batch
    }

    /// Copies to be queued behind the step, in order.
    pub fn keeps(&self) -> &[FeatureCopy] {
        &self.step.keeps
    }

    /// The place of a camera; a new camera replaces the one that was not used for the longest time.
    fn slot(&mut self, id: &CameraId, picture: &Picture, tiling: Tiling) -> Option<usize> {
        self.images += 1;
        let shape = PixelEncoding {
            format: picture.format(),
            size: (picture.width(), picture.height()),
            colour: (picture.matrix(), picture.range()),
            tiling,
        };
        let is = |camera: &Option<CameraCrops>| camera.as_ref().is_some_and(|c| c.id == *id);
        let seen = |camera: &Option<CameraCrops>| camera.as_ref().map_or(0, |c| c.seen);
        let slot = self.cameras.iter().position(is).or_else(|| {
            let slots = self.cameras.iter().enumerate();
            slots
                .min_by_key(|(_, camera)| seen(camera))
                .map(|(slot, _)| slot)
        })?;
        match &mut self.cameras[slot] {
            Some(camera) if camera.id == *id && camera.shape == shape => camera.seen = self.images,
            place => {
                let regions = regions_of(shape.size, tiling, &self.vision).into_iter();
                *place = Some(CameraCrops {
                    id: id.clone(),
                    shape,
                    seen: self.images,
                    crops: regions.map(ReferencePixels::new).collect(),
                });
            }
        }
        Some(slot)
    }
}

impl StepCrops {
    fn fresh(&mut self) -> Crop {
        self.batch += 1;
        Crop {
            is_fresh: true,
            source: self.batch as i32 - 1,
        }
    }

    fn fresh_for(&mut self, entry: usize) -> Crop {
        let place = self.batch;
        self.pending.insert(entry, place);
        self.keeps.push(FeatureCopy { place, entry });
        self.fresh()
    }

    /// An entry that an image before in this step fills is not filled yet when it is read.
    fn kept(&self, entry: usize) -> Crop {
        let pending = self.pending.get(&entry);
        Crop {
            is_fresh: false,
            source: pending.map_or(-1 - entry as i32, |place| *place as i32),
        }
    }
}

/// The pixels of each crop, the whole picture first.
fn regions_of(size: (usize, usize), tiling: Tiling, vision: &VisionConfig) -> Vec<Region> {
    let mut regions = vec![Region {
        across: 0..size.0,
        down: 0..size.1,
    }];
    if tiling.is_single() {
        return regions;
    }
    let tiled = tiling.resized(vision);
    let (across, down) = (taps(size.0, tiled.0), taps(size.1, tiled.1));
    let reach = |taps: &[crate::model::ResizeTaps], tile: usize| {
        let first = tile * vision.window_pixels();
        let of_tile = &taps[first..(first + vision.crop_size).min(taps.len())];
        let begin = of_tile.iter().map(|tap| tap.first).min();
        let end = of_tile
            .iter()
            .map(|tap| tap.first + tap.weights.len())
            .max();
        begin.unwrap_or(0)..end.unwrap_or(0)
    };
    for tile in 0..tiling.rows * tiling.cols {
        regions.push(Region {
            across: reach(&across, tile % tiling.cols),
            down: reach(&down, tile / tiling.cols),
        });
    }
    regions
}

/// The region's bytes, row by row and plane by plane, with all chroma that its pixels touch.
fn rows<'a>(picture: &'a Picture, region: &'a Region) -> impl Iterator<Item = &'a [u8]> {
    let (across, down) = (&region.across, &region.down);
    let half = |range: &Range<usize>| range.start / 2..range.end.div_ceil(2);
    let scaled = |range: Range<usize>, bytes: usize| range.start * bytes..range.end * bytes;
    let whole = |bytes| (scaled(across.clone(), bytes), down.clone());
    let chroma = |bytes| (scaled(half(across), bytes), half(down));
    let planes = match picture.format() {
        PixelFormat::Rgb => vec![whole(3)],
        PixelFormat::Nv12 => vec![whole(1), chroma(2)],
        PixelFormat::I420 => vec![whole(1), chroma(1), chroma(1)],
    };
    let planes = planes.into_iter().enumerate();
    planes.flat_map(move |(plane, (bytes, rows))| {
        rows.map(move |y| &picture.row(plane, y)[bytes.clone()])
    })
}

fn is_near(row: &[u8], before: &[u8], max_difference: u8) -> bool {
    let differences = || row.iter().zip(before).map(|(a, b)| a.abs_diff(*b));
    row == before || (max_difference > 0 && differences().all(|d| d <= max_difference))
}

#[cfg(test)]
mod tests;
