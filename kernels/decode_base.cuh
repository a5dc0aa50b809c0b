// The base of decode_step.cu: its argument, the gates between blocks, shared memory, and the stream of weights.
//
//   weights  in units of 16 by 2048. While sums of one are added up, the next one is on its way to registers, and between two phases
//            the next phase's first one is on its way to the L2: which weights are next does not depend on any result
//   gates    counters in global memory on which all blocks of the cooperative launch wait for each other
//
// Dynamic shared memory: buffers of sums and of softmax results (KernelTraits). The size is computed by cuda/kernels/decode_step.rs, shared_bytes.
#pragma once
#include "attend_page.cuh"
#include "words.cuh"

// GPUs that compute the decoder together, each with its share of the heads and of the MLP.
#ifndef RANKS
#define RANKS 1
#endif
#define WIDTH 2048
// Of queries and of attended values of this rank.
#define HEADS_WIDTH (WIDTH / RANKS)
#define HEADS (HEADS_WIDTH / TEXT_HEAD)
#define WARPS 16
#define SLICE (WIDTH / WARPS)
#define LAYERS_MAX 32
#define CHUNKS_MAX 8
#define UNIT 16
#define FEW_ROWS 2
// Warps that compute one (tile, head, split).
#define GROUP 4
#define GROUPS (WARPS / GROUP)
#define QKV_TILES (3 * HEADS_WIDTH / UNIT)
#define PROJ_FC2_TILES (WIDTH / UNIT)
// Words that a rank receives in a layer at most.
#define RANK_WORDS (32 * WIDTH)
// Floats from row to row of sums: lanes that write together write to different banks.
#define SUM_PITCH 20

// The products of a layer. QKV_FC1: q, k and v, then the MLP's first layer, with the outputs of a head in the order of rope_scatter.cu.
// PROJ_FC2: attention's projection beside the MLP's second layer.
enum Phase { QKV_FC1, PROJ_FC2, PHASES };

// Weights [outputs, inner] bf16, int8 or e4m3, biases [outputs] bf16, and what sums are multiplied with: in int8 `by_output` [outputs]; in e4m3
// powers of two, `out` for sums, and `in` for inputs, so that f16 represents them.
struct Linear {
    const void* weight;
    const bf16* bias;
    const float* by_output;
    float in, out;
};
struct Layer {
    const bf16 *ln_weight, *ln_bias;
    Linear linear[PHASES];
};
DEVICE float sum_scale(const Linear&, bf16, int) { return 1.0f; }
DEVICE float sum_scale(const Linear& linear, s8, int output) { return linear.by_output[output]; }
DEVICE float sum_scale(const Linear& linear, e4m3, int) { return linear.out; }

// The same fields in the same order are in cuda/kernels/decode_step.rs.
struct StepArgument {
    const Layer* layers;
    bf16* hidden;               // [rows, WIDTH]
    bf16* queries;              // [rows, HEADS_WIDTH], from qkv_fc1 to attend
    bf16* proj_fc2_in;          // [rows, HEADS_WIDTH + inner], attended values, then inner values of the MLP
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
    float* partial;             // [tiles][heads][splits][16][64], splits up to a kernel's SPLITS_MAX
    float2* partial_max_sum;    // [tiles][heads][splits][16], maximum and sum of weights
    float* sums;                // [chunks][rows][WIDTH]
    u32* counters;              // of gates, of 16 outputs each, of (tile, head)s; zeros before the first launch
    u64* sent;                  // [2][RANK_WORDS], partial sums for the other rank, in its memory (decode_step_ranks.cu)
    const u64* received;        // the other one's
    int layer_count, rows, inner, tiles, splits, rank;
    u32 number;                 // of the first layer's exchange between ranks
    int pad;
};

DEVICE uint4 load_l2_bf16x8(const bf16* from) {
    uint4 r;
    // Past the L1, which may hold what another block has overwritten in this launch.
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

// A barrier between blocks in two parts: a block signals that its results are written, does independent work, and waits later. Each
// block adds its share to a gate's counter; the first block's share makes the highest bit flip when all have added, so no counter has
// to be reset.
enum Gate {
    QUERIES,        // queries, keys and values
    INNER,          // inputs of the MLP's second layer
    ATTENDED,       // inputs of attention's projection
    HIDDEN,         // hidden states after the layer
    GATES
};
// The highest bit of all counters before the first layer; it cannot flip before this block has added its share.
DEVICE u32 gate_parity(const u32* counters) {
    u32 parity;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(parity) : "l"(counters + HIDDEN) : "memory");
    return parity & 0x80000000u;
}
// Call it behind a barrier of the block. The last warp signals and the first one waits, because both take long.
DEVICE void signal_gate(u32* counters, Gate gate) {
    const u32 share = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    if (threadIdx.x == (WARPS - 1) * 32) asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counters + gate), "r"(share) : "memory");
}
// Waits until all blocks have signalled; what they wrote before is visible. A barrier of the block.
DEVICE void wait_gate(const u32* counters, Gate gate, u32 parity) {
    if (threadIdx.x == 0) {
        u32 now;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counters + gate) : "memory");
        } while (((parity ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// The block's share of a phase: every `step`-th 16 outputs from `first` on, `count` in all, of one chunk of inputs; rows of the weight are
// `stride` values apart. The inputs of PROJ_FC2 are HEADS_WIDTH attended values, which are the first chunk, then chunks of the MLP.
struct PhaseShare {
    int first, step, count, chunk, stride;
};
DEVICE int proj_fc2_chunks(const StepArgument& s) { return 1 + s.inner / WIDTH; }
DEVICE int first_input(int chunk) { return chunk * WIDTH - (chunk > 0 ? WIDTH - HEADS_WIDTH : 0); }
// True for warps whose slice is not in the chunk, because a rank has fewer attended values than a chunk has inputs. They read weights that
// another warp reads, and multiply them with zeros.
DEVICE bool is_idle_warp(Phase phase, int chunk) { return RANKS > 1 && phase == PROJ_FC2 && chunk == 0 && int(threadIdx.x) / 32 >= HEADS_WIDTH / SLICE; }
DEVICE PhaseShare share_of(const StepArgument& s, Phase phase) {
    const int chunks = phase == QKV_FC1 ? 1 : proj_fc2_chunks(s), tiles = phase == QKV_FC1 ? QKV_TILES + s.inner / UNIT : PROJ_FC2_TILES;
    const int chunk = blockIdx.x % chunks, first = blockIdx.x / chunks, step = (gridDim.x - chunk + chunks - 1) / chunks;
    return {first, step, (tiles - first + step - 1) / step, chunk, chunks * WIDTH - (phase == QKV_FC1 ? 0 : WIDTH - HEADS_WIDTH)};
}

DEVICE unsigned char* dynamic_memory() {
    extern __shared__ __align__(128) unsigned char dynamic[];
    return dynamic;
}

// Static shared memory. Values that are the same in all layers are here, because a gate invalidates the L1.
struct SharedState {
    Layer layers[LAYERS_MAX];
    PhaseShare shares[PHASES];
    float partial[WARPS][32], total[32];        // of norms, by row
    float few[2][FEW_ROWS][WARPS];              // the same for few rows: two sums, by row
    bool is_last[PROJ_FC2_TILES];
    u32 before[WARPS / 4];
};

// The properties of a kernel that follow from the type of its weights and its number of rows.
template <typename WEIGHT, int ROWS_MAX> struct KernelTraits {
    typedef WEIGHT Weight;
    static constexpr int ROWS = ROWS_MAX;
    // Operands of 8 rows.
    static constexpr int BLOCKS = (ROWS + 7) / 8;
    // Each block adds up a layer itself (decode_few.cuh).
    static constexpr bool IS_FEW = ROWS <= FEW_ROWS;
    // The most splits of a tile and head.
    static constexpr int SPLITS_MAX = IS_FEW ? 8 : 16;

    // Dynamic shared memory: sums of products [2][WARPS][ROWS][SUM_PITCH], and partial results of attention, which share memory with the
    // sums, because products and attention alternate; with few rows they are behind the sums.
    typedef WarpPartials<IS_FEW ? ROWS : TILE_ROWS> Partials;
    DEVICE static float* sums() { return reinterpret_cast<float*>(dynamic_memory()); }
    DEVICE static Partials* partials() { return reinterpret_cast<Partials*>(sums() + (IS_FEW ? 2 * WARPS * ROWS * SUM_PITCH : 0)); }
};

// A lane's weights of a unit: of outputs g and g + 8, 16 bytes from each `column` on, where the unit's row begins at 0.
template <typename WEIGHT> struct UnitWeights {
    static constexpr int PARTS = SLICE * sizeof(WEIGHT) / 64;
    uint4 upper[PARTS], lower[PARTS];
    DEVICE static int column(int part) { return threadIdx.x / 32 * SLICE + (part * 4 + threadIdx.x % 4) * int(16 / sizeof(WEIGHT)); }
};

// The weights of the block's units in a phase, in their order: `next` are those of the next unit, loaded or being loaded. Each warp reads
// its slice of 128 inputs.
template <typename TRAITS> struct WeightStream {
    typedef typename TRAITS::Weight Weight;
    int layer;
    Phase phase;
    UnitWeights<Weight> next;

    // Starts to load the phase's first unit.
    DEVICE WeightStream(const SharedState& shared, int layer, Phase phase) : layer(layer), phase(phase) { load(shared, 0); }

    // Behind the product of unit `nth`: starts to load the next unit, or, behind the last one, to copy the first of the next phase to the L2.
    DEVICE void advance(const StepArgument& s, const SharedState& shared, int nth) {
        if (nth + 1 < shared.shares[phase].count) return load(shared, nth + 1);
        const int next_layer = layer + (phase == PROJ_FC2);
        if (next_layer < s.layer_count) prefetch(shared, next_layer, phase == QKV_FC1 ? PROJ_FC2 : QKV_FC1);
    }

    // Starts to copy the first unit of a phase to the L2: each lane a line of 128 bytes.
    DEVICE static void prefetch(const SharedState& shared, int layer, Phase phase) {
        constexpr int LINES = SLICE * sizeof(Weight) / 128;
        const int lane = threadIdx.x % 32;
        if (lane >= UNIT * LINES) return;
        prefetch_line(row_of(shared, layer, phase, 0, lane / LINES) + threadIdx.x / 32 * SLICE + lane % LINES * int(128 / sizeof(Weight)));
    }

    // Row `row` of 16 of unit `nth` of a phase.
    DEVICE static const Weight* row_of(const SharedState& shared, int layer, Phase phase, int nth, int row) {
        const PhaseShare& share = shared.shares[phase];
        const int output = (share.first + nth * share.step) * UNIT + row;
        return static_cast<const Weight*>(shared.layers[layer].linear[phase].weight) + size_t(output) * share.stride + first_input(share.chunk) - (is_idle_warp(phase, share.chunk) ? HEADS_WIDTH : 0);
    }

    DEVICE void load(const SharedState& shared, int nth) {
        const Weight* upper = row_of(shared, layer, phase, nth, threadIdx.x % 32 / 4);
        const Weight* lower = upper + size_t(8) * shared.shares[phase].stride;
#pragma unroll
        for (int i = 0; i < UnitWeights<Weight>::PARTS; i++) {
            next.upper[i] = stream_16(upper + UnitWeights<Weight>::column(i));
            next.lower[i] = stream_16(lower + UnitWeights<Weight>::column(i));
        }
    }
};
