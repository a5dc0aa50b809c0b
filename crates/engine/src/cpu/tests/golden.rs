//! The golden figures (`testing::golden_figures`) of this backend, which proves what they are made with: in f32 hardly an
//! error, and every decision as in the reference.

use std::path::Path;

use super::{HEAD_DIM, TOLERANCE, all, backend, config, pages, picture, stored};
use crate::{
    cpu::{
        CpuBackend,
        device::CpuDevice,
        span::{PositionSpan, Sees},
        tiles::CropsToEncode,
    },
    model::crops,
    network::{
        forward::{text_block, vision_block},
        ops::DecoderRun,
    },
    scheduler::backend::{Backend, CropSource, FeatureEntry, KvTable},
    testing::{
        golden_figures::{GoldenResults, SmallSet},
        golden_report::Report,
        golden_run::{Depth, Head, Inside},
        golden_tests, whole_golden_set,
    },
};
use spotter_core::Picture;

/// Where the prefix is that golden runs read.
fn prefix_table(backend: &CpuBackend) -> KvTable {
    KvTable {
        prefix: pages(backend, 0).0,
        prefix_positions: backend.limits().prefix_positions,
        own: Vec::new(),
    }
}

impl Inside for CpuBackend {
    /// Encoded once more, unless the last picture's features are in the first entries.
    fn image(&mut self, picture: &Picture) -> [Vec<f32>; 2] {
        let picture = picture.clone();
        let encode = move |device: &mut CpuDevice| {
            let crops = crops(&picture, &device.config.vision);
            let entries = (0..crops.encoded as u32).map(FeatureEntry);
            let source = |entry| match device.tiles.has(entry) {
                true => CropSource::Kept(entry),
                false => CropSource::Encoded(None),
            };
            let wanted = CropsToEncode {
                sources: entries.map(source).collect(),
                crops: Some(&crops),
            };
            let encoded = device.tiles.encode(&device.vision, &[wanted]);
            let features = encoded.unwrap().features.concat();
            let tokens = device.vision.image_tokens(&features, crops.tiling);
            [features, tokens]
        };
        self.inspect(encode).unwrap()
    }

    fn prefix(&mut self, layer: usize) -> [Vec<f32>; 2] {
        let kv = prefix_table(self);
        let read = move |device: &mut CpuDevice| {
            let heads = 0..device.text.width() / HEAD_DIM;
            stored(&device.cache, &kv, layer, heads)
        };
        self.inspect(read).unwrap().into()
    }

    fn hidden(&mut self, positions: usize) -> Vec<f32> {
        let hidden = self.inspect(|device| device.hidden.clone()).unwrap();
        assert_eq!(
            hidden.len() % positions,
            0,
            "values of {positions} positions"
        );
        hidden
    }

    fn logits(&mut self, head: Head) -> Vec<f32> {
        let decode = move |device: &mut CpuDevice| {
            let (text, hidden) = (&device.text, &device.hidden);
            let last = &hidden[hidden.len() - text.width()..];
            match head {
                Head::Coord => device.region.decode_coords(last),
                Head::Size => device.region.decode_sizes(last),
                Head::Vocabulary => text.logits(&text.head_inputs(last)),
            }
        };
        self.inspect(decode).unwrap()
    }
}

/// Runs the decoder over the prefix of an image with these tokens, whose keys and values are in the cache afterwards; shows `see`
/// its states behind every block.
fn behind_decoder(
    device: &mut CpuDevice,
    kv: &KvTable,
    tokens: &[f32],
    mut see: impl FnMut(usize, &[f32]),
) {
    let bos = device.config.tokenizer.bos_id;
    let mut hidden = [&device.text.embedding(bos), tokens].concat();
    let span = PositionSpan {
        positions: 0..kv.prefix_positions,
        kv,
        sees: Sees::EachOther,
        adapter: None,
    };
    for layer in 0..device.text.blocks() {
        let (spans, cache) = (std::slice::from_ref(&span), &mut device.cache);
        let run = DecoderRun {
            layer,
            outputs: kv.prefix_positions,
        };
        let mut ops = device.text.ops(spans, cache);
        let block = &device.text.layers.blocks[layer];
        text_block(&mut ops, block, &mut hidden, run).unwrap();
        see(layer, &hidden);
    }
}

impl CpuBackend {
    /// Makes the prefix that [`Inside::prefix`] shows of an image's tokens, `[image tokens, width]`, wherever they are from.
    pub(crate) fn prefill_tokens(&mut self, tokens: Vec<f32>) {
        let kv = prefix_table(self);
        let run = move |device: &mut CpuDevice| behind_decoder(device, &kv, &tokens, |_, _| ());
        self.inspect(run).unwrap();
    }
}

/// States of a picture behind every block, which the backend runs through without keeping them.
fn behind_blocks(backend: &mut CpuBackend, picture: &Picture, see: &mut dyn FnMut(Depth, &[f32])) {
    let (picture, kv) = (picture.clone(), prefix_table(backend));
    let run = move |device: &mut CpuDevice| {
        let mut states = Vec::new();
        let crops = crops(&picture, &device.config.vision);
        let mut hidden = device.vision.tokens(&all(&crops));
        states.push((Depth::Encoder(0), hidden.clone()));
        for layer in 0..device.vision.blocks() {
            let (vision, rows) = (&device.vision, hidden.len() / device.config.vision.enc_dim);
            let block = &vision.layers.blocks[layer];
            let Ok(()) = vision_block(&mut vision.ops(), block, &mut hidden, rows);
            states.push((Depth::Encoder(layer + 1), hidden.clone()));
        }
        let features = device.vision.features(&hidden);
        let tokens = device.vision.image_tokens(&features, crops.tiling);
        behind_decoder(device, &kv, &tokens, |layer, hidden| {
            states.push((Depth::Decoder(layer), hidden.to_vec()));
        });
        states
    };
    for (depth, states) in backend.inspect(run).unwrap() {
        see(depth, &states);
    }
}

/// Errors far below bf16's and all decisions; of the kinds of tensors only those that lie `within` a step may be missing.
#[track_caller]
pub(super) fn assert_exact(report: &Report, within: fn(&str) -> bool) {
    let above = report.figures.above(TOLERANCE.into());
    assert!(above.is_empty(), "{above:#?}");
    let missing: Vec<_> = report
        .figures
        .missing()
        .filter(|kind| !within(kind))
        .collect();
    assert!(missing.is_empty(), "not compared: {missing:?}");
    for decided in [&report.bins, &report.choices] {
        assert!(!decided.is_empty() && decided.iter().all(|d| d.right));
    }
}

golden_tests!(small_sets_in_f32_are_the_reference);

fn small_sets_in_f32_are_the_reference(set: &Path) {
    assert_is_reference(set, GoldenResults::ONLY);
}

#[test]
#[ignore = "needs the whole golden data; run make test-full"]
fn whole_golden_data_of_more_experts_is_the_reference() {
    assert_is_reference(&whole_golden_set("md3-fp8-tiny"), GoldenResults::E4M3);
    assert_is_reference(
        &whole_golden_set("md3-lora-tiny"),
        GoldenResults::NO_ADAPTER,
    );
}

fn assert_is_reference(set: &Path, results: GoldenResults) {
    let (golden, config) = (SmallSet::read(set, results), config(set));
    let mut backend = backend(set);
    let mut report = golden.report(&mut backend, &config);
    for image in golden.images() {
        let picture = picture(set, image);
        behind_blocks(&mut backend, &picture, &mut |depth, states| {
            golden.add_depth(&mut report.figures, image, depth, states, &config);
        });
    }
    report.print(&format!("{} on the CPU", set.display()));
    let within = |kind: &str| {
        let pooled = ["vision.pooled", "vision.reconstructed"].contains(&kind);
        let parts = ["text.attn", "text.ln", "text.mlp", "text.router.logits"];
        pooled || parts.contains(&kind) || kind == "cases.prompt_embeds"
    };
    assert_exact(&report, within);
}
