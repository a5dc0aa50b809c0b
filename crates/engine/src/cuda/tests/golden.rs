//! The golden sets in figures: errors of the network's tensors in bf16 beside those of the reference in bf16, both against the
//! reference in f32, and its decisions on the reference's way.
//!
//! An error is a tensor's largest difference, or the root mean square of its differences, in parts of the root mean square of
//! the wanted tensor; the worst tensor of a kind counts. Our error may be twice the reference's.
//!
//! Of the small sets' keys and values the decoder's own errors, from what f32 makes of the same image tokens, are no larger than
//! the reference's, in which the encoder's part is too. One largest difference may be more than twice the reference's from the
//! picture on ([`is_by_chance`]).

use std::path::Path;

use super::{
    inside::crops,
    whole::{cuda_for_one, on_cpu},
};
use crate::{
    cuda::CudaBackend,
    model::{Formats, ModelConfig, Weights},
    network::format::Number,
    testing::{
        figures::{Beyond, Figures, Measure},
        golden_figures::{GoldenResults, SmallSet},
        golden_full::FullSet,
        golden_model::{config, picture, weights},
        golden_report::Report,
        golden_run::{Depth, Inside as _, prefill},
        golden_set,
        rule::Rule,
        tally::Share,
        whole_golden_set, whole_golden_sets,
    },
};
use spotter_core::{GpuPrecision, Picture};

/// Of our error to the reference's.
const FACTOR: f64 = 2.0;

/// The largest difference of md2-tiny's values. These networks are noise, and some positions attend to two keys nearly alike: at
/// 288 of tall_300x900 two logits are 0.0125 apart; the encoder's rounding moves them by 0.13, and the values behind them along.
/// Of 1000 emulated runs in bf16 96 % have more than the reference's largest difference, 2 % more than twice that, none three
/// times.
fn is_by_chance(set: &Path, beyond: &Beyond) -> bool {
    set.ends_with("md2-tiny")
        && (beyond.kind.as_str(), beyond.measure) == ("text.v", Measure::Max)
        && beyond.ours <= 3.0 * beyond.reference
}

/// A model with one more block in the decoder, so that the states of images behind its own last block are made.
fn deeper(formats: Formats<'_>, config: &ModelConfig, mut weights: Weights) -> CudaBackend {
    let mut config = config.clone();
    config.text.n_layers += 1;
    let last = weights.text.blocks.last().unwrap().clone();
    weights.text.blocks.push(last);
    cuda_for_one(formats, &config, weights)
}

/// Shows `see` the states of each picture behind every block of the model that `backend` is one block deeper than.
fn behind_blocks(
    mut backend: CudaBackend,
    pictures: &[(String, Picture)],
    mut see: impl FnMut(Depth, &str, &[f32]),
) {
    let config = backend.config().clone();
    let (patch, position) = (config.vision.enc_dim, config.text.dim);
    // The deepest first, because removed blocks cannot be restored.
    let decoder = (0..config.text.n_layers - 1).rev().map(Depth::Decoder);
    let encoder = (0..=config.vision.enc_n_layers).rev().map(Depth::Encoder);
    for depth in decoder.chain(encoder) {
        backend = match depth {
            // Images stop in front of the last block of those that are left.
            Depth::Decoder(block) => backend.with_blocks(usize::MAX, block + 2),
            Depth::Encoder(blocks) => backend.with_blocks(blocks, usize::MAX),
        };
        for (image, picture) in pictures {
            prefill(&mut backend, picture);
            let patches = crops(&backend, picture) * config.image_tokens();
            let states = match depth {
                Depth::Decoder(_) => backend.read(
                    &backend.network.text.hidden,
                    0..config.prefix_positions() * position,
                ),
                Depth::Encoder(_) => {
                    backend.read(&backend.network.vision.hidden, 0..patches * patch)
                }
            };
            see(depth, image, &states.unwrap());
        }
    }
}

fn pictures<'a>(set: &Path, images: impl Iterator<Item = &'a str>) -> Vec<(String, Picture)> {
    let one = |image: &str| (image.to_owned(), picture(set, image));
    images.map(one).collect()
}

/// The decoder's own errors: of keys and values of each picture's prefix, beside what f32 makes of the same image tokens.
fn of_decoder(
    set: &Path,
    results: GoldenResults,
    golden: &SmallSet,
    backend: &mut CudaBackend,
) -> Figures {
    let config = backend.config().clone();
    let mut cpu = on_cpu(&config, weights(set, &config));
    let mut figures = results.reference_figures(set);
    for image in golden.images() {
        let picture = picture(set, image);
        prefill(backend, &picture);
        let [_, tokens] = backend.image(&picture);
        cpu.prefill_tokens(tokens);
        for layer in [0, config.text.n_layers - 1] {
            let ([keys, values], [want_keys, want_values]) =
                (backend.prefix(layer), cpu.prefix(layer));
            figures.add("text.k", &keys, &want_keys);
            figures.add("text.v", &values, &want_values);
        }
    }
    figures
}

#[track_caller]
fn assert_near(report: &Report, excused: impl Fn(&Beyond) -> bool) {
    let mut beyond = report.figures.beyond(FACTOR);
    beyond.retain(|beyond| !excused(beyond));
    assert!(beyond.is_empty(), "{beyond:#?}");
    report.assert_decided_right();
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn small_sets_are_as_near_as_the_reference_in_bf16() {
    for set in ["md2-micro", "md3-ln-tiny"].map(golden_set) {
        assert_as_near_as_reference(&set, GoldenResults::ONLY, Formats::BF16);
    }
}

#[test]
#[ignore = "needs a GPU and the whole golden data; run make test-gpu"]
fn whole_golden_data_differs_no_more_than_the_bf16_reference() {
    for set in whole_golden_sets() {
        assert_as_near_as_reference(&set, GoldenResults::ONLY, Formats::BF16);
    }
}

#[test]
#[ignore = "needs a GPU and the whole golden data; run make test-gpu"]
fn whole_golden_data_of_more_experts_is_as_near() {
    let set = whole_golden_set("md3-lora-tiny");
    assert_as_near_as_reference(&set, GoldenResults::NO_ADAPTER, Formats::BF16);
    let set = whole_golden_set("md3-fp8-tiny");
    let formats = Formats {
        experts: Formats::on_gpu(GpuPrecision::Bf16, None, Some(Number::E4m3)).experts,
        ..Formats::BF16
    };
    assert_as_near_as_reference(&set, GoldenResults::E4M3, formats);
}

fn assert_as_near_as_reference(set: &Path, results: GoldenResults, formats: Formats<'_>) {
    let config = config(set);
    let golden = SmallSet::read(set, results);
    let mut backend = cuda_for_one(formats, &config, weights(set, &config));
    let mut report = golden.report(&mut backend, &config);
    let own = of_decoder(set, results, &golden, &mut backend);
    drop(backend);
    let pictures = pictures(set, golden.images());
    let backend = deeper(formats, &config, weights(set, &config));
    behind_blocks(backend, &pictures, |depth, image, states| {
        golden.add_depth(&mut report.figures, image, depth, states, &config);
    });
    report.print(&format!("{} on the GPU", set.display()));
    for kind in [
        "vision.tokens_in",
        "vision.block",
        "vision.enc_out",
        "vision.img_emb",
        "text.k",
        "text.v",
        "text.block",
        "cases.prompt_hidden",
        "cases.first_logits",
    ] {
        assert!(report.figures.kinds().any(|k| k == kind), "no {kind}");
    }
    own.print("its decoder alone");
    assert_eq!(own.beyond(1.0), []);
    assert_near(&report, |beyond| is_by_chance(set, beyond));
    // These networks are noise, with margins that no bf16 decides: the reference itself loses bins of some 5 %, and so
    // may we, within the same factor as of errors. A set with few bins may have lost fewer by chance.
    let wrong = |bins: &[bool]| Share::of(bins.iter().copied()).wrong();
    let (ours, bins) = (wrong(&report.beside_reference), report.reference.len());
    let most = (FACTOR * wrong(&report.reference) as f64).max(0.06 * bins as f64);
    assert!(
        ours as f64 <= most,
        "{ours} bins are others, at most {most}"
    );
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn whole_golden_data_at_true_widths_is_near_in_bf16() {
    let set = whole_golden_set("md2-full");
    let config = config(&set);
    let golden = FullSet::read(&set);
    let weights = Weights::load(&config, &mut Rule::read(&set)).unwrap();
    let mut backend = cuda_for_one(Formats::BF16, &config, weights.clone());
    if backend.has_one_launch() {
        let report = golden.report(&mut backend, &set, &config);
        report.print("md2-full on the GPU, decoder in one launch");
        assert_near(&report, |_| false);
        backend = backend.without_one_launch();
    }
    let mut report = golden.report(&mut backend, &set, &config);
    drop(backend);
    let pictures = pictures(&set, golden.images());
    let backend = deeper(Formats::BF16, &config, weights);
    behind_blocks(backend, &pictures, |depth, image, states| {
        golden.add_depth(&mut report.figures, image, depth, states, &config);
    });
    report.print("md2-full on the GPU, kernel by kernel");
    let missing: Vec<&str> = report.figures.missing().collect();
    assert!(missing.is_empty(), "not compared: {missing:?}");
    assert_near(&report, |_| false);
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn whole_golden_data_in_full_width_int8_decides_as_f32() {
    let set = whole_golden_set("md2-full");
    let config = config(&set);
    let golden = FullSet::read(&set);
    let weights = Weights::load(&config, &mut Rule::read(&set)).unwrap();
    let mut backend = cuda_for_one(
        Formats::on_gpu(GpuPrecision::Int8, None, None),
        &config,
        weights,
    );
    let report = golden.report(&mut backend, &set, &config);
    report.print("md2-full on the GPU, int8");
    report.assert_decided_right();
}
