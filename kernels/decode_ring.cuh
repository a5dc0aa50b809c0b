// What decode_step.cu is made of: its arguments, the barrier of the grid, and products whose weights are always on their way.
#pragma once
#include "barrier.cuh"

#define WIDTH 2048
#define HEADS (WIDTH / TEXT_HEAD)
#define WARPS 16
#define SLICE (WIDTH / WARPS)
#define STAGES 2
#define LAYERS_MAX 32
#define CHUNKS_MAX 8
#define UNIT 16
// Values between rows of a unit in shared memory: lanes that read together read from different banks.
#define ROW_PITCH (WIDTH + 32)
#define TILES_OF_QKV (3 * WIDTH / UNIT)
#define TILES_LEAVING (WIDTH / UNIT)
// Floats between rows of outputs: lanes that write together write to different banks.
#define SUM_PITCH 20

// One layer. Weights are [outputs, inner] bf16, biases [outputs] bf16. `enter` are q, k and v and what goes into the MLP,
// with the outputs of a head in the order of rope_scatter.cu; `leave` are attention's projection beside the MLP's second layer.
struct Layer {
    const bf16 *ln_weight, *ln_bias, *enter_weight, *enter_bias, *leave_weight, *leave_bias;
};

// The same fields in the same order are in cuda::kernels::decode.
struct Step {
    const Layer* layers;
    bf16* hidden;               // [rows, WIDTH]
    bf16* queries;              // [rows, WIDTH], between enter and attend
    bf16* mix;                  // [rows, WIDTH + inner], attended beside inner values
    bf16* keys;                 // the cache of all layers (common.cuh)
    bf16* values;
    u64 layer_values;           // values of the cache of one layer
    const int* position;        // tables of the step, as in rope_scatter.cu and attend_rows.cu
    const int* slot;
    const float2* turns;
    const int* pages;
    const int* tile_row;
    const int* tile_table;
    const int* tile_length;
    const int* own_table;
    const int* own_length;
    float* part;                // [tiles][heads][splits][16][64]
    float2* part_mass;          // [tiles][heads][splits][16], maximum and mass
    float* sums;                // [chunks][rows][WIDTH]
    u32* counters;              // of gates, of 16 outputs each, of tiles and heads; zeros at first
    int layer_count, rows, inner, tiles, splits, pad;
};

DEVICE uint4 fresh_eight(const bf16* from) {
    uint4 r;
    // What another block wrote in this launch is in the L2, and this multiprocessor's L1 is not asked.
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from) : "memory");
    return r;
}
DEVICE float fresh(const float* from) {
    float r;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
    return r;
}
DEVICE bf16 fresh(const bf16* from) {
    bf16 r;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(r) : "l"(from) : "memory");
    return r;
}
DEVICE float2 fresh(const float2* from) {
    float2 r;
    asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(from) : "memory");
    return r;
}
// Soon to be read by anybody.
DEVICE void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
DEVICE u32 arrive(u32* counter, u32 count) {
    u32 before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(count) : "memory");
    return before;
}

// Where blocks say that something of a layer is there, go on with what does not hang on the others', and wait later. To a gate's
// counter each block adds its share; the first block's lets the highest bit turn over when all have added, so that no counter has to be
// set back.
enum Gate {
    QUERIES,        // queries, keys and values
    INNER,          // what goes into the MLP's second layer
    ATTENDED,       // what goes into attention's projection
    HIDDEN,         // hidden states behind the layer
    GATES
};
// The highest bit of all counters before a layer; it cannot turn over before this block has added.
DEVICE u32 turn_of(const u32* counters) {
    u32 turn;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(turn) : "l"(counters + HIDDEN) : "memory");
    return turn & 0x80000000u;
}
// Behind a barrier of the block.
DEVICE void say(u32* counters, Gate gate) {
    const u32 share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counters + gate), "r"(share) : "memory");
}
// All blocks have said it, and what they wrote before is seen. A barrier of the block.
DEVICE void wait_for(const u32* counters, Gate gate, u32 turn) {
    if (threadIdx.x == 0) {
        u32 now;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counters + gate) : "memory");
        } while (((turn ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// The block's share of a phase: every `step`th 16 outputs from `first` on, of one chunk of inputs.
struct Share {
    int first, step, count, chunk;
};
DEVICE Share share_entering(const Step& s) {
    const int first = blockIdx.x, step = gridDim.x, tiles = TILES_OF_QKV + s.inner / UNIT;
    return {first, step, (tiles - first + step - 1) / step, 0};
}
DEVICE Share share_leaving(const Step& s) {
    const int chunks = 1 + s.inner / WIDTH, chunk = blockIdx.x % chunks, first = blockIdx.x / chunks;
    const int step = (gridDim.x - chunk + chunks - 1) / chunks;
    return {first, step, (TILES_LEAVING - first + step - 1) / step, chunk};
}

// Static shared memory. What is the same in all layers is kept here, because a gate empties the L1.
struct Shared {
    Layer layers[LAYERS_MAX];
    Share entering, leaving;
    u64 fetched[STAGES];
    float partial[WARPS][32], total[32];        // of norms, by row
    bool is_last[TILES_LEAVING];
    u32 before[WARPS / 4];
};

// The weights of STAGES units, on their way or there. It runs on from phase to phase: when one begins, its first STAGES units are
// on their way already, so that nothing of a ring has to be kept while there are no products.
struct Ring {
    const bf16* next;           // of each warp: its row of the unit that is fetched next
    int left;                   // units of its phase
    int step;                   // values from unit to unit
    int layer;                  // its layer
    bool leaving;               // its phase
    int turn;                   // units that were worked on

    // As it is when a phase begins and `fetched` units of it are on their way.
    DEVICE Ring(const Step& s, const Shared& shared, int layer, bool leaving, int fetched) : layer(layer), leaving(leaving) {
        turn = layer * (shared.entering.count + shared.leaving.count) + (leaving ? shared.entering.count : 0);
        begin(s, shared, fetched);
    }
    DEVICE void begin(const Step& s, const Shared& shared, int fetched) {
        const Share& share = leaving ? shared.leaving : shared.entering;
        const Layer& of = shared.layers[layer];
        const int stride = leaving ? WIDTH + s.inner : WIDTH;
        step = share.step * UNIT * stride;
        left = share.count - fetched;
        const int row = (share.first + fetched * share.step) * UNIT + threadIdx.x / 32;
        next = (leaving ? of.leave_weight : of.enter_weight) + size_t(row) * stride + share.chunk * WIDTH;
    }

    DEVICE static bf16* stage(int turn) {
        extern __shared__ __align__(128) unsigned char dynamic[];
        return reinterpret_cast<bf16*>(dynamic) + turn % STAGES * UNIT * ROW_PITCH;
    }

    // Fetches the next unit into the place of unit `at`, whose readers are done: a row by each warp, because one that has more
    // copied begins them one after the other.
    DEVICE void fetch(const Step& s, Shared& shared, int at) {
        if (layer == s.layer_count) return;
        const int warp = threadIdx.x / 32, bytes = WIDTH * sizeof(bf16);
        u64* barrier = shared.fetched + at % STAGES;
        if (threadIdx.x % 32 == 0) {
            if (warp == 0) barrier_expect_bytes(barrier, UNIT * bytes);
            copy_bulk(stage(at) + warp * ROW_PITCH, next, bytes, barrier);
        }
        next += step;
        if (--left > 0) return;
        layer += leaving;
        leaving = !leaving;
        if (layer < s.layer_count) begin(s, shared, 0);
    }
};

// Behind the weights: sums of products, [2][WARPS][rows][SUM_PITCH] floats, and at other times what was attended.
DEVICE void* work_area() { return Ring::stage(0) + STAGES * UNIT * ROW_PITCH; }

