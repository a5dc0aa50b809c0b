//! Steps in flight that feed each other on the device find to the bit what the host finds, one by one, with its masks.

use super::whole::cuda_with;
use crate::{
    cuda::{Capacity, CudaBackend, Precision},
    testing::{
        ahead::{Masks, micro_config, run_ahead},
        golden_model::weights,
        golden_set,
    },
};

fn micro() -> CudaBackend {
    let config = micro_config();
    let weights = weights(&golden_set("md2-micro"), &config);
    let capacity = Capacity {
        slots: 3,
        rows: 32,
        images: 1,
        pages: 1024,
        cameras: 0,
        tile_difference: 0,
    };
    cuda_with((capacity, Precision::Bf16), 0, &config, weights)
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn rows_that_the_device_feeds_find_what_rows_that_the_host_feeds_and_masks_find() {
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
