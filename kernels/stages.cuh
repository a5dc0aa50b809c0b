// Products of warpgroups whose operands, 8 bits a value, pass through a ring of stages in shared memory.
//
// A block has two consumer warpgroups with 64 rows of a tile each, and a producer, which copies DEPTH bytes of the tile's rows and of the rows of
// its weights into one stage after the other, without a break between tiles. Used by experts_wide.cu and int8_wide.cu.
#pragma once
#include "barrier.cuh"
#include "warpgroup.cuh"

#ifdef HAS_WARPGROUPS
constexpr int TILE_ROWS = 128, DEPTH = 128;
// Of a thread; 232 * 256 + 40 * 128 are no more than a multiprocessor has.
constexpr int CONSUMER_REGISTERS = 232, PRODUCER_REGISTERS = 40;
constexpr int stage_bytes(int outputs) { return (TILE_ROWS + outputs) * DEPTH; }

// `full`: the copies into a stage have ended. `empty`: all consumer warps have read it.
template <int STAGES> struct Ring {
    u64 full[STAGES], empty[STAGES];
    // Called by one thread, before a barrier of the block. `copiers`: threads that signal a stage.
    DEVICE void init(int copiers = 1) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i, copiers);
            barrier_init(empty + i, 8);
        }
    }
    // A warp has read a stage.
    DEVICE void release(int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + stage);
    }
};
// Where a thread is in the ring.
template <int STAGES> struct RingPlace {
    int stage = 0, parity = 0;
    DEVICE void next() {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};
// A barrier of the consumers.
DEVICE void consumers_meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// The sums of a warpgroup's 64 rows over `depths` stages. `rows` and `w_rows` are their addresses in the first stage; multiply(c, a, b) adds
// products over 32 bytes of both.
template <int STAGES, typename T, int COUNT, typename Multiply>
DEVICE void multiply_stages(T (&c)[COUNT], Ring<STAGES>& ring, RingPlace<STAGES>& place, int depths, u32 rows, u32 w_rows, Multiply multiply) {
    constexpr int BYTES = stage_bytes(COUNT * 2);
    int before = -1;
    for (int i = 0; i < depths; i++) {
        barrier_wait(ring.full + place.stage, place.parity);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < DEPTH / 32; step++) {
            const u32 at = place.stage * BYTES + step * 32;
            multiply(c, swizzled_descriptor(rows + at), swizzled_descriptor(w_rows + at));
        }
        wgmma_commit();
        if (before >= 0) {
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            ring.release(before);
        }
        before = place.stage;
        place.next();
    }
    wgmma_wait<0>(c);
    ring.release(before);
}
#endif
