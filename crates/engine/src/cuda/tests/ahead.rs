//! Steps in flight that pass tokens on the device decide bit for bit what steps one by one decide with masks of the host.

use super::whole::{cuda_micro, settings};
use crate::{
    cuda::{CudaBackend, CudaCapacity, CudaSettings},
    testing::ahead::{Masks, run_ahead},
};

fn micro() -> CudaBackend {
    let capacity = CudaCapacity {
        slots: 3,
        images: 1,
        kept_crops: 0,
        adapters: 0,
        ..settings().capacity
    };
    cuda_micro(CudaSettings {
        capacity,
        ..settings()
    })
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
