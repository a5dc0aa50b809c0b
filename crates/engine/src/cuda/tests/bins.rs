//! Shares of equal bins and signs in sets where each decision counts by itself, against the figures of the golden data's README, of which two
//! points are left to chance.

use std::path::Path;

use super::whole::{cuda, settings_for_one};
use crate::{
    cuda::CudaSettings,
    model::{Formats, ModelConfig, Weights},
    testing::{
        golden_bins::{BinShares, network_of},
        golden_model::config,
        rule::Rule,
        whole_golden_set,
    },
};
use spotter_core::GpuPrecision;

/// What the README says of an arithmetic.
struct Bar {
    precision: GpuPrecision,
    /// Equal bins, percent.
    bins: f64,
    /// Of all signs of coordinate against end.
    signs: usize,
    /// Different bins in the band of the largest margins.
    different: usize,
}

const CHANCE_POINTS: f64 = 2.0;

fn weights(set: &Path) -> (ModelConfig, Weights) {
    let network = network_of(set);
    let config = config(&network);
    let weights = Weights::load(&config, &mut Rule::read(&network)).unwrap();
    (config, weights)
}

/// The rest of the network is in bf16.
#[test]
#[ignore = "needs a GPU with fp8 and the whole golden data; run make test-gpu"]
fn whole_golden_data_has_its_share_of_bins_with_experts() {
    let set = whole_golden_set("md3-bins");
    let (config, weights) = weights(&set);
    let bar = |precision, bins, signs, different| Bar {
        precision,
        bins,
        signs,
        different,
    };
    for bar in [
        bar(GpuPrecision::Bf16, 93.0, 669, 2),
        bar(GpuPrecision::Fp8, 86.3, 659, 9),
        bar(GpuPrecision::Int4, 77.8, 644, 46),
    ] {
        let formats = Formats {
            experts: Formats::on_gpu(bar.precision, None, weights.number_of_experts()).experts,
            ..Formats::BF16
        };
        let settings = CudaSettings {
            formats,
            ..settings_for_one()
        };
        let mut backend = cuda(settings, &config, weights.clone());
        let shares = BinShares::of(&mut backend, &set);
        println!("md3-bins, experts in {:?}: {shares}", bar.precision);
        let what = format!("{:?}: {shares}", bar.precision);
        assert!(
            shares.bins().percent() >= bar.bins - CHANCE_POINTS,
            "{what}"
        );
        let signs = 100.0 * bar.signs as f64 / shares.signs.all as f64;
        assert!(shares.signs.percent() >= signs - CHANCE_POINTS, "{what}");
        // Rounding chooses other experts, and then single bins of large margins change.
        assert!(
            shares.different_in_last_band() <= 2 * bar.different,
            "{what}"
        );
    }
    // With all layers in these there is no figure.
    for precision in [GpuPrecision::Int8, GpuPrecision::Int4] {
        let settings = CudaSettings {
            formats: Formats::on_gpu(precision, None, weights.number_of_experts()),
            ..settings_for_one()
        };
        let mut backend = cuda(settings, &config, weights.clone());
        let shares = BinShares::of(&mut backend, &set);
        println!("md3-bins, all in {precision:?}: {shares}");
    }
}

#[test]
#[ignore = "needs a GPU and the whole golden data; run make test-gpu"]
fn whole_golden_data_has_its_share_of_bins() {
    let set = whole_golden_set("md2-bins");
    let (config, weights) = weights(&set);
    for (precision, bins) in [(GpuPrecision::Bf16, 96.3), (GpuPrecision::Int8, 0.0)] {
        let settings = CudaSettings {
            formats: Formats::on_gpu(precision, None, None),
            ..settings_for_one()
        };
        let mut backend = cuda(settings, &config, weights.clone());
        let shares = BinShares::of(&mut backend, &set);
        println!("md2-bins, {precision:?}: {shares}");
        assert!(shares.bins().percent() >= bins - CHANCE_POINTS, "{shares}");
        assert_eq!(
            shares.different_in_last_band(),
            0,
            "{precision:?}: {shares}"
        );
    }
}
