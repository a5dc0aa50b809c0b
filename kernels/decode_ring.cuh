// What all of decode_step.cu stands on: its arguments, gates between blocks, shared memory, and weights that are always on their way.
#pragma once
#include "attend_page.cuh"
#include "barrier.cuh"

#define WIDTH 2048
#define HEADS (WIDTH / TEXT_HEAD)
#define WARPS 16
#define SLICE (WIDTH / WARPS)
#define LAYERS_MAX 32
#define CHUNKS_MAX 8
#define UNIT 16
#define STAGES_MAX 4
#define FEW_ROWS 2
// Warps that share (tile, head, split).
#define GROUP 4
#define GROUPS (WARPS / GROUP)
#define QKV_TILES (3 * WIDTH / UNIT)
#define PROJ_FC2_TILES (WIDTH / UNIT)
// Floats between rows of outputs: lanes that write together write to different banks.
#define SUM_PITCH 20

// The products of a layer. QKV_FC1: q, k and v and what goes into the MLP, with the outputs of a head in the order of rope_scatter.cu.
// PROJ_FC2: attention's projection beside the MLP's second layer.
enum Phase { QKV_FC1, PROJ_FC2, PHASES };

// Weights [outputs, inner] bf16 or e4m3, biases [outputs] bf16.
struct Linear {
    const void* weight;
    const bf16* bias;
};
// With e4m3, powers of two: inputs are multiplied with `in` so that f16 holds them, and sums with `out`.
struct Scales {
    float in, out;
};
struct Layer {
    const bf16 *ln_weight, *ln_bias;
    Linear linear[PHASES];
    Scales scales[PHASES];
};

// The same fields in the same order are in cuda::kernels::decode.
struct StepArgument {
    const Layer* layers;
    bf16* hidden;               // [rows, WIDTH]
    bf16* queries;              // [rows, WIDTH], between enter and attend
    bf16* proj_fc2_in;                  // [rows, WIDTH + inner], attended beside inner values
    bf16* keys;                 // the cache of all layers (common.cuh)
    bf16* values;
    u64 layer_values;           // values of the cache of one layer
    const int* position;        // tables of the step, as in rope_scatter.cu and attend_rows.cu
    const int* slot;
    const float2* rope_cos_sin;
    const int* pages;
    const int* tile_row;
    const int* tile_table;
    const int* tile_length;
    const int* own_table;
    const int* own_length;
    float* partial;                // [tiles][heads][splits][16][64], splits up to a kernel's SPLITS_MAX
    float2* partial_max_sum;          // [tiles][heads][splits][16], maximum and mass
    float* sums;                // [chunks][rows][WIDTH]
    u32* counters;              // of gates, of 16 outputs each, of tiles and heads; zeros at first
    int layer_count, rows, inner, tiles, splits, pad;
};

DEVICE uint4 load_l2_bf16x8(const bf16* from) {
    uint4 r;
    // What another block wrote in this launch is in the L2, and this multiprocessor's L1 is not asked.
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from) : "memory");
    return r;
}
DEVICE float load_l2(const float* from) {
    float r;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(r) : "l"(from) : "memory");
    return r;
}
DEVICE bf16 load_l2(const bf16* from) {
    bf16 r;
    asm volatile("ld.global.cg.u16 %0, [%1];" : "=h"(r) : "l"(from) : "memory");
    return r;
}
DEVICE float2 load_l2(const float2* from) {
    float2 r;
    asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(from) : "memory");
    return r;
}
DEVICE float4 load_l2(const float4* from) {
    float4 r;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(r.x), "=f"(r.y), "=f"(r.z), "=f"(r.w) : "l"(from) : "memory");
    return r;
}
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
DEVICE u32 gate_parity(const u32* counters) {
    u32 parity;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(parity) : "l"(counters + HIDDEN) : "memory");
    return parity & 0x80000000u;
}
// Behind a barrier of the block. By another warp than the one that waits, because both take their time.
DEVICE void signal_gate(u32* counters, Gate gate) {
    const u32 share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    if (threadIdx.x == (WARPS - 1) * 32) asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counters + gate), "r"(share) : "memory");
}
// All blocks have said it, and what they wrote before is seen. A barrier of the block.
DEVICE void wait_gate(const u32* counters, Gate gate, u32 parity) {
    if (threadIdx.x == 0) {
        u32 now;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counters + gate) : "memory");
        } while (((parity ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// The block's share of a phase: every `step`th 16 outputs from `first` on, of one chunk of inputs; rows of the weight have `stride`
// values.
struct PhaseShare {
    int first, step, count, chunk, stride;
};
DEVICE PhaseShare share_of(const StepArgument& s, Phase phase) {
    const int chunks = phase == QKV_FC1 ? 1 : 1 + s.inner / WIDTH, tiles = phase == QKV_FC1 ? QKV_TILES + s.inner / UNIT : PROJ_FC2_TILES;
    const int chunk = blockIdx.x % chunks, first = blockIdx.x / chunks, step = (gridDim.x - chunk + chunks - 1) / chunks;
    return {first, step, (tiles - first + step - 1) / step, chunk, chunks * WIDTH};
}

DEVICE unsigned char* dynamic_memory() {
    extern __shared__ __align__(128) unsigned char dynamic[];
    return dynamic;
}

// Static shared memory. What is the same in all layers is kept here, because a gate empties the L1.
struct SharedState {
    Layer layers[LAYERS_MAX];
    PhaseShare shares[PHASES];
    u64 fetched[STAGES_MAX];                    // units of weights
    float partial[WARPS][32], total[32];        // of norms, by row
    float few[2][FEW_ROWS][WARPS];              // the same for few rows: two sums, by row
    bool is_last[PROJ_FC2_TILES];
    u32 before[WARPS / 4];
};

// A kernel's kind: what its weights are, and how many rows it takes. Then what follows from that.
template <typename WEIGHT, int ROWS_MAX> struct KernelTraits {
    typedef WEIGHT Weight;
    static constexpr int ROWS = ROWS_MAX;
    // Columns of the tensor core are eight rows.
    static constexpr int BLOCKS = (ROWS + 7) / 8;
    // Each block adds up a layer itself (decode_few.cuh).
    static constexpr bool IS_FEW = ROWS <= FEW_ROWS;
    // Splits of a tile and head that are merged at once.
    static constexpr int SPLITS_MAX = IS_FEW ? 8 : 16;
    // Units of weights on their way: as many bytes of either weight.
    static constexpr int STAGES = STAGES_MAX / sizeof(WEIGHT);
    // Values between rows of a unit in shared memory: lanes that read together read from different banks.
    static constexpr int ROW_PITCH = WIDTH + 64 / sizeof(WEIGHT);

    // Dynamic shared memory: weights, sums of products, [2][WARPS][ROWS][SUM_PITCH], and what groups have seen, which lies where the
    // sums are when nothing is multiplied, or, with few rows, behind them.
    typedef WarpPartials<IS_FEW ? ROWS : TILE_ROWS> Partials;
    DEVICE static float* sums() { return reinterpret_cast<float*>(dynamic_memory() + STAGES_MAX * UNIT * (WIDTH + 64)); }
    DEVICE static Partials* partials() { return reinterpret_cast<Partials*>(sums() + (IS_FEW ? 2 * WARPS * ROWS * SUM_PITCH : 0)); }
};

// The weights of STAGES units, on their way or there. It runs on from phase to phase: when one begins, its first STAGES units are
// on their way already (the host sees to it that each phase has as many), so nothing of a ring is kept from phase to phase.
template <typename TRAITS> struct Ring {
    typedef typename TRAITS::Weight Weight;
    int layer;
    Phase phase;
    int consumed;                   // units of all phases that were worked on

    DEVICE Ring(const SharedState& shared, int layer, Phase phase) : layer(layer), phase(phase) {
        const int qkv_fc1_units = shared.shares[QKV_FC1].count, proj_fc2_units = shared.shares[PROJ_FC2].count;
        consumed = layer * (qkv_fc1_units + proj_fc2_units) + (phase == PROJ_FC2 ? qkv_fc1_units : 0);
    }

    // This warp's row of the phase's unit `nth`; where that is beyond the phase, of the next one's; none behind the last layer.
    DEVICE const Weight* row(const StepArgument& s, const SharedState& shared, int nth) const {
        const int count = shared.shares[phase].count, beyond = nth >= count;
        const int of = phase ^ beyond, at_layer = layer + (phase & beyond);
        if (at_layer >= s.layer_count) return nullptr;
        const PhaseShare& share = shared.shares[of];
        const int output = (share.first + (nth - beyond * count) * share.step) * UNIT + threadIdx.x / 32;
        return static_cast<const Weight*>(shared.layers[at_layer].linear[of].weight) + output * share.stride + share.chunk * WIDTH;
    }

    DEVICE static Weight* stage(int unit) { return reinterpret_cast<Weight*>(dynamic_memory()) + unit % TRAITS::STAGES * UNIT * TRAITS::ROW_PITCH; }

    // Fetches a unit into the place of unit `parity`, whose readers are done: a row by each warp, because one that has more copied
    // begins them one after the other.
    DEVICE static void fetch(SharedState& shared, int unit, const Weight* row) {
        const int warp = threadIdx.x / 32, bytes = WIDTH * sizeof(Weight);
        u64* barrier = shared.fetched + unit % TRAITS::STAGES;
        if (row == nullptr || threadIdx.x % 32 != 0) return;
        if (warp == 0) barrier_expect_bytes(barrier, UNIT * bytes);
        copy_bulk(stage(unit) + warp * TRAITS::ROW_PITCH, row, bytes, barrier);
    }
};
