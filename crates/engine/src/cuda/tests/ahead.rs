//! Steps in flight that pass tokens on the device decide bit for bit what steps one by one decide with masks of the host.

use super::whole::{TestSettings, cuda_with};
use crate::{
    cuda::{CudaBackend, CudaCapacity, Precision},
    testing::{
        ahead::{Masks, micro_config, run_ahead},
        golden_model::weights,
        golden_set,
    },
};

fn micro() -> CudaBackend {
    let config = micro_config();
    let weights = weights(&golden_set("md2-micro"), &config);
    let capacity = CudaCapacity {
        slots: 3,
        rows: 32,
        images: 1,
        pages: 1024,
        cameras: 0,
        tile_difference: 0,
    };
    let settings = TestSettings {
        gpu: 0,
        capacity,
        precision: Precision::Bf16,
    };
    cuda_with(settings, &config, weights)
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn device_fed_rows_equal_host_fed_rows() {
    let (fed, _) = run_ahead(&mut micro(), 1, Masks::Host);
    println!("{fed:?}");
    assert!(!fed[0].objects.is_empty() && !fed[1].objects.is_empty());
    assert!(!fed[2].tokens.is_empty());
    for depth in [1, 2, 3] {
        for masks in [Masks::Launch, Masks::Host] {
            let (ahead, zombies) = run_ahead(&mut micro(), depth, masks);
            assert_eq!(ahead, fed, "depth {depth}, masks by {masks:?}");
            assert!(zombies >= depth - 1, "depth {depth}: {zombies} zombies");
        }
    }
}
