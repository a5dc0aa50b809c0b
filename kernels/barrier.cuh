// Barriers in shared memory (mbarrier), and the copies that signal them (TMA).
//
// A phase of a barrier ends when the expected number of threads has arrived and all expected bytes have been copied; then the parity of
// the barrier flips. A wait names the parity of the phase that it waits for.
// These instructions need sm_90. For earlier architectures the functions are empty, and kernels that use them are not launched.
// Used by attend_wide.cu and stages.cuh.
#pragma once
#include "common.cuh"

DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// Called by one thread, before a barrier of the block.
DEVICE void barrier_init(u64* barrier, int arrivals) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
DEVICE void barrier_arrive(u64* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}
// Arrives, and makes the phase wait for `bytes` more copied bytes.
DEVICE void barrier_expect_bytes(u64* barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
#endif
}
// Waits until the phase of this parity has ended.
DEVICE void barrier_wait(u64* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred over;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra again;\n}"
                 ::"r"(shared_address(barrier)), "r"(parity) : "memory");
#endif
}

// The layout of a tensor in global memory and of the boxes that are copied; made by the host (cuTensorMapEncodeTiled).
struct __align__(64) TensorMap {
    u64 opaque[16];
};
// Copies a box of a tensor of three dimensions and counts its bytes at `barrier`; beyond the tensor, zeros are copied.
DEVICE void copy_box(u32 to_shared, const TensorMap& map, int x, int y, int z, u64* barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(to_shared), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)) : "memory");
#endif
}
