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

// This warp's slice of the inputs: of row n * 8 + g, i.e. of column g of operand n, values i * 32 + t * 8 and the 7 behind.
template <int BLOCKS> struct Inputs {
    uint4 x[BLOCKS][4];
};

template <int BLOCKS> DEVICE void load_inputs(Inputs<BLOCKS>& in, const bf16* from, int stride, int rows) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        const bf16* row = from + size_t(n * 8 + g) * stride + warp * SLICE + t * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) in.x[n][i] = n * 8 + g < rows ? fresh_eight(row + i * 32) : make_uint4(0, 0, 0, 0);
    }
}

// For each row the sum over the block of what its threads have of it: x[n] of row n * 8 + g.
template <int BLOCKS> DEVICE void sum_rows(float (&x)[BLOCKS], Shared& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        x[n] += __shfl_xor_sync(WARP_ALL, x[n], 1);
        x[n] += __shfl_xor_sync(WARP_ALL, x[n], 2);
        if (t == 0) shared.partial[warp][n * 8 + g] = x[n];
    }
    __syncthreads();
    if (threadIdx.x < WARPS * BLOCKS * 8) {
        float sum = shared.partial[threadIdx.x % WARPS][threadIdx.x / WARPS];
        for (int step = WARPS / 2; step > 0; step /= 2) sum += __shfl_xor_sync(WARP_ALL, sum, step);
        if (threadIdx.x % WARPS == 0) shared.total[threadIdx.x / WARPS] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) x[n] = shared.total[n * 8 + g];
}

// The same as eight_from by other instructions: else the compiler holds all inputs as twice as many f32 from their first use to
// their second, and registers do not suffice.
DEVICE Eight eight_again(uint4 raw) {
    const u32 pairs[4] = {raw.x, raw.y, raw.z, raw.w};
    Eight e;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 low, high;
        asm volatile("prmt.b32 %0, %1, 0, 0x1044;" : "=r"(low) : "r"(pairs[j]));
        asm volatile("prmt.b32 %0, %1, 0, 0x3244;" : "=r"(high) : "r"(pairs[j]));
        e.x[j * 2] = __uint_as_float(low);
        e.x[j * 2 + 1] = __uint_as_float(high);
    }
    return e;
}

// Layer norm of the inputs. A thread has 32 values of a row: their mean and their squares around it, then what that lacks to
// squares around the mean of the row, so that the values are gone through once.
template <int BLOCKS> DEVICE void norm_inputs(Inputs<BLOCKS>& in, const bf16* weight, const bf16* bias, Shared& shared) {
    const int at = threadIdx.x / 32 * SLICE + threadIdx.x % 4 * 8;
    float own[BLOCKS], mean[BLOCKS], squares[BLOCKS];
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Eight e = eight_from(in.x[n][i]);
            for (int j = 0; j < 8; j++) sum += e.x[j];
        }
        own[n] = mean[n] = sum / 32;
        squares[n] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Eight e = eight_from(in.x[n][i]);
            for (int j = 0; j < 8; j++) squares[n] += (e.x[j] - own[n]) * (e.x[j] - own[n]);
        }
    }
    sum_rows(mean, shared);
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        mean[n] /= WIDTH / 32;
        squares[n] += 32 * (own[n] - mean[n]) * (own[n] - mean[n]);
    }
    sum_rows(squares, shared);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 w = *reinterpret_cast<const uint4*>(weight + at + i * 32), b = *reinterpret_cast<const uint4*>(bias + at + i * 32);
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            const float scale = rsqrtf(squares[n] / WIDTH + 1e-5f);
            Eight e = eight_again(in.x[n][i]), by = eight_from(w), plus = eight_from(b);
            for (int j = 0; j < 8; j++) e.x[j] = (e.x[j] - mean[n]) * scale * by.x[j] + plus.x[j];
            in.x[n][i] = raw_from(e);
        }
    }
}

// The block's next unit. Thread i < 16 * BLOCKS * 8 gets the sum of output i % 16 for row i / 16.
template <int BLOCKS> DEVICE float product(const Step& s, Shared& shared, Ring& ring, const Inputs<BLOCKS>& in) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    constexpr int ROWS = BLOCKS * 8;
    barrier_wait(shared.fetched + ring.turn % STAGES, ring.turn / STAGES % 2);
    // Two sums for each, so that a product does not wait for the one before.
    float c[BLOCKS][4] = {}, d[BLOCKS][4] = {};
    const bf16* upper = Ring::stage(ring.turn) + g * ROW_PITCH + warp * SLICE + t * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 a = *reinterpret_cast<const uint4*>(upper + i * 32), b = *reinterpret_cast<const uint4*>(upper + 8 * ROW_PITCH + i * 32);
        u32 low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            mma_16_8_16(c[n], low, in.x[n][i].x, in.x[n][i].y);
            mma_16_8_16(BLOCKS < 4 ? d[n] : c[n], high, in.x[n][i].z, in.x[n][i].w);
        }
    }
    float* sums = static_cast<float*>(work_area()) + ring.turn % 2 * WARPS * ROWS * SUM_PITCH;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[(warp * ROWS + n * 8 + t * 2 + i % 2) * SUM_PITCH + g + i / 2 * 8] = c[n][i] + d[n][i];
    }
    // The other half of `sums` is written next, so one barrier for each unit is enough; behind it nobody reads the weights.
    __syncthreads();
    ring.fetch(s, shared, ring.turn);
    ring.turn++;
    float sum = 0.0f;
    if (threadIdx.x < UNIT * ROWS) {
        const float* from = sums + threadIdx.x / UNIT * SUM_PITCH + threadIdx.x % UNIT;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += from[w * ROWS * SUM_PITCH];
    }
    return sum;
}
