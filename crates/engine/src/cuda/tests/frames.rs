//! Patches from frames are those of the CPU, to the bit.

use half::bf16;

use super::{Random, Rig, f32s, rig};
use crate::{
    cuda::{
        frames::{FramePreprocessor, WantedCrops},
        kernels::PlanarFrame,
        memory::Buffer,
        stage::FrameStage,
        tensor::StridedRows,
    },
    model::{VisionConfig, crops, normalise_table, tiling},
};
use spotter_core::{Picture, PixelFormat, testing::planar_picture};

/// Smooth enough that scaling matters, with edges.
pub(super) fn picture(random: &mut Random, format: PixelFormat, size: (usize, usize)) -> Picture {
    let byte = |i: usize| (i / 3 % 251 + i / 97 % 2 * 90 + i % 7) as u8;
    let offsets = [(); 3].map(|()| random.below(1000));
    planar_picture(format, size, 5, |plane, i| byte(i + offsets[plane]))
}

/// Values of a row of patches, with padding.
fn row_values(config: &VisionConfig) -> usize {
    config.patch_values().next_multiple_of(8)
}

/// Patches of all crops of a picture, queued.
pub(super) fn patches(
    rig: &Rig,
    frames: &mut FramePreprocessor,
    staged: &PlanarFrame,
    picture: &Picture,
) -> Buffer<bf16> {
    let config = VisionConfig::default();
    let tiling = tiling(picture.width(), picture.height(), &config);
    let (count, row) = (tiling.crops(), row_values(&config));
    let out = rig.room(count * config.grid() * config.grid() * row);
    let wanted = vec![true; count];
    let rows = StridedRows::packed(out.start(), row);
    let crops = WantedCrops {
        tiling,
        wanted: &wanted,
    };
    frames.patches(&rig.kernels, staged, crops, rows).unwrap();
    out
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn frames_become_the_patches_of_the_cpu() {
    let rig = rig();
    let mut random = Random::new(10);
    let config = VisionConfig::default();
    let mut frames = FramePreprocessor::new(&rig.stream, &config, 1280 * 720).unwrap();
    let bytes = 2 * FrameStage::bytes_for(1280 * 720);
    let mut stage = FrameStage::new(&rig.stream, bytes).unwrap();
    for (format, size) in [
        (PixelFormat::Nv12, (1280, 720)),
        (PixelFormat::I420, (641, 363)),
        (PixelFormat::Rgb, (378, 378)),
        (PixelFormat::Nv12, (300, 1501)),
        (PixelFormat::Rgb, (50, 40)),
    ] {
        let (a, b) = (
            picture(&mut random, format, size),
            picture(&mut random, format, size),
        );
        let staged = stage.put(&rig.stream, &[&a, &b]).unwrap();
        for (picture, staged) in [&a, &b].into_iter().zip(&staged) {
            let (out, row) = (
                patches(&rig, &mut frames, staged, picture),
                row_values(&config),
            );
            let wanted = crops(picture, &config);
            let table = normalise_table().map(bf16::from_f32);
            let (size, patch, grid) = (config.crop_size, config.enc_patch_size, config.grid());
            let got = rig.down(&out);
            for (at, got) in got.chunks_exact(row).enumerate() {
                let (crop, cell) = (wanted.crop(at / (grid * grid)), at % (grid * grid));
                let (top, left) = (cell / grid * patch, cell % grid * patch);
                let value = |i: usize| match i < 3 * patch * patch {
                    true => {
                        table[usize::from(
                            crop[((top + i / patch % patch) * size + left + i % patch) * 3
                                + i / (patch * patch)],
                        )]
                    }
                    false => bf16::ZERO,
                };
                let want: Vec<bf16> = (0..row).map(value).collect();
                assert_eq!(got, f32s(&want), "{format:?} {size:?} patch {at}");
            }
        }
    }
}
