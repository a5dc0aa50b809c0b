// Products of experts for many rows: up with gelu(h) * (g + 1), and down. One launch for all experts.
//
//   x         [rows, depth] bf16, rows x_stride values apart, by slot_row; without it [slots, depth]
//   w, scales, offset, slot_row   as in experts.cuh; slot_row 0: none
//   out       [slots, outputs] bf16
//   Kernels named _in_e4m3 (sm_89 and newer) have x and w in e4m3: a value of x is the number times x_scale, [rows] or [slots]. sm_89 and
//   sm_120 multiply e4m3 twice as fast as bf16; for sm_90 the compiler converts it to f16, which gains nothing. Those named _in_int8 have both
//   in int8, with x_scale too.
//
// Grid (at most as many tiles of rows as slots allow * tiles of outputs), 128 threads. A tile is up to 128 slots of one expert by 128 rows of w:
// of up 64 of h and the same 64 of g. Every warp finds its block's tile from `offset`, blocks behind the last tile end at once. The tiles
// of rows of an expert are neighbours, so they share its weights in the L2. A warp computes all rows by 32 outputs, so each weight is
// converted to bf16 once in a block, and sixteen rows at a time are left out where the expert has no more.
// Dynamic shared memory: three stages of 64 values of 128 rows of x and 128 rows of w, 96 KiB, 72 with w in e4m3, 60 in int4, 48 with both in 8
// bits, so that two blocks fit where a multiprocessor has 227 KiB. In rows of 128 bytes, units of 16 bytes are exchanged with their neighbours in odd rows, so that the
// eight lanes of a load are in different banks. Values of a lane as in experts.cuh; x is the 16-row operand.
// f32 sums in the tensor core, in e4m3 with as many bits as it has; of int8 exact in int32. Weights in int4 are rounded to bf16 with their scales. A result depends on its row and its expert alone, not on the other rows.
// Reference: cuda/tests/experts.rs. Launched by cuda/kernels/experts.rs.
#include "experts.cuh"

constexpr int TILE_ROWS = 128, TILE_OUTPUTS = 128, DEPTH = 64, STAGES = 3;

// Rows of 64 values in shared memory.
template <typename T> struct StageRows {
    static constexpr int ROW = DEPTH * sizeof(T) / VALUES<T>, UNITS = ROW / 16, BYTES = 128 * ROW, UNIT_VALUES = DEPTH / UNITS;
    static DEVICE int at(int row, int unit) { return row * ROW + (UNITS == 8 ? unit ^ row % 2 : unit) * 16; }
    // The values of lane t of a row.
    static DEVICE LaneValues<T> values(const unsigned char* rows, int row, int t) {
        LaneValues<T> values;
        auto unit = [&](int i) { return *reinterpret_cast<const uint4*>(rows + at(row, i)); };
        if constexpr (UNITS == 8) {
            values.raw[0] = unit(t * 2), values.raw[1] = unit(t * 2 + 1);
        } else if constexpr (UNITS == 4) {
            values.raw = unit(t);
        } else {
            values.raw = *reinterpret_cast<const uint2*>(rows + row * ROW + t * 8);
        }
        return values;
    }
};

// What a lane has of a step of the tensor core: of 64 values, bf16 has two halves of two steps each, 8 bits have two steps.
template <typename X> constexpr int HALVES = sizeof(X);
template <typename T> DEVICE uint4 operand(const LaneValues<T>& values, int half, bf16) { return values.eight(half); }
template <typename T> DEVICE uint4 operand(const LaneValues<T>& values, int, T) { return values.raw; }
DEVICE uint4 operand(const LaneValues<bf16>& values, int half, bf16) { return values.eight(half); }
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) { mma_16_8_16(c, a, b0, b1); }
DEVICE void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, e4m3) { mma_16_8_32_e4m3(c, a, b0, b1); }
DEVICE void multiply(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, s8) { mma_16_8_32_s8(c, a, b0, b1); }
template <typename X> DEVICE float row_scale(const float* scales, int row, X) { return scales[row]; }
DEVICE float row_scale(const float*, int, bf16) { return 1.0f; }
// What is summed up in.
template <typename X> struct SumOf {
    typedef float Type;
};
template <> struct SumOf<s8> {
    typedef int Type;
};

// The scales of a lane's four rows of w, by group.
struct LaneScales {
    const float* scales;
    int depth;
    size_t row[4];
    bf16 now[4], next[4];

    // Requests those of the group of this input.
    DEVICE void request(int input) {
        for (int n = 0; n < 4; n++) next[n] = group_scale(scales, row[n], depth, min(input, depth - 1));
    }
    // At the beginning of a group: takes what was requested, and requests what comes next.
    DEVICE void advance(int input) {
        for (int n = 0; n < 4; n++) now[n] = next[n];
        request(input + GROUP);
    }
    DEVICE uint4 scaled(uint4 eight, int n) const {
        const u32 pair = now[n] * 0x10001u, none = 0x80008000;
        return make_uint4(fma_pair(eight.x, pair, none), fma_pair(eight.y, pair, none), fma_pair(eight.z, pair, none), fma_pair(eight.w, pair, none));
    }
};

struct ExpertTile {
    int expert, first_slot, rows, outputs;  // `outputs`: number of the tile of outputs; `rows` 0: there is no tile
};
// Each lane has two experts.
DEVICE ExpertTile tile_of_block(const int* offset, int experts, int output_tiles) {
    const int lane = threadIdx.x % 32, even = lane * 2, wanted = blockIdx.x / output_tiles;
    const int from[3] = {offset[min(even, experts)], offset[min(even + 1, experts)], offset[min(even + 2, experts)]};
    const int tiles[2] = {(from[1] - from[0] + TILE_ROWS - 1) / TILE_ROWS, (from[2] - from[1] + TILE_ROWS - 1) / TILE_ROWS};
    int behind = tiles[0] + tiles[1];
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(WARP_ALL, behind, step);
        if (lane >= step) behind += other;
    }
    const int odd_from = behind - tiles[1], even_from = odd_from - tiles[0];
    const bool is_odd = wanted >= odd_from;
    const u32 hits = __ballot_sync(WARP_ALL, wanted >= even_from && wanted < behind);
    if (hits == 0) return {0, 0, 0, 0};
    const int source = __ffs(hits) - 1;
    auto of_source = [&](int value) { return __shfl_sync(WARP_ALL, value, source); };
    const int expert = of_source(even + is_odd), before = of_source(is_odd ? odd_from : even_from);
    const int row_tiles = of_source(is_odd ? tiles[1] : tiles[0]), first = of_source(is_odd ? from[1] : from[0]), end = of_source(is_odd ? from[2] : from[1]);
    const int within = blockIdx.x - before * output_tiles, first_slot = first + within % row_tiles * TILE_ROWS;
    return {expert, first_slot, min(TILE_ROWS, end - first_slot), within / row_tiles};
}

template <bool UP, typename X, typename W>
DEVICE void experts_product(const X* x, const W* w, const float* scales, const int* offset, const int* slot_row, bf16* out, int outputs, int depth, int x_stride, int experts, const float* x_scale) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ int source[TILE_ROWS];
    constexpr int STAGE_BYTES = StageRows<X>::BYTES + StageRows<W>::BYTES, TILE_RESULTS = UP ? TILE_OUTPUTS / 2 : TILE_OUTPUTS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const ExpertTile tile = tile_of_block(offset, experts, (outputs + TILE_RESULTS - 1) / TILE_RESULTS);
    if (tile.rows == 0) return;
    const int first = tile.outputs * TILE_RESULTS, blocks = (tile.rows + 15) / 16, depths = (depth + DEPTH - 1) / DEPTH;
    const size_t w_first = size_t(tile.expert) * (UP ? 2 * outputs : outputs);
    // The output of a row of w in a stage. Of up, a warp has 16 of h, then the same 16 of g.
    auto result_of = [&](int row) { return first + (UP ? row / 32 * 16 + row % 16 : row); };
    auto w_row_of = [&](int row) { return w_first + result_of(row) + (UP && row % 32 >= 16 ? outputs : 0); };

    source[threadIdx.x] = int(threadIdx.x) < tile.rows ? (slot_row ? slot_row[tile.first_slot + threadIdx.x] : tile.first_slot + int(threadIdx.x)) : 0;
    __syncthreads();
    // A thread copies a unit of every 16th row, in 8 bits of every 32nd, in int4 of every 64th.
    auto copy_stage = [&](int stage_depth) {
        unsigned char* into = shared + stage_depth % STAGES * STAGE_BYTES;
        {
            constexpr int UNITS = StageRows<X>::UNITS;
            const int unit = threadIdx.x % UNITS, column = stage_depth * DEPTH + unit * StageRows<X>::UNIT_VALUES;
            for (int row = threadIdx.x / UNITS; row < blocks * 16; row += 128 / UNITS) {
                const bool there = column < depth && row < tile.rows;
                copy_async_16(into + StageRows<X>::at(row, unit), x + size_t(source[row]) * x_stride + (there ? column : 0), there);
            }
        }
        into += StageRows<X>::BYTES;
        constexpr int UNITS = StageRows<W>::UNITS;
        const int unit = threadIdx.x % UNITS, column = stage_depth * DEPTH + unit * StageRows<W>::UNIT_VALUES;
#pragma unroll
        for (int i = 0; i < UNITS; i++) {
            const int row = threadIdx.x / UNITS + i * (128 / UNITS);
            const bool there = column < depth && result_of(row) < outputs;
            copy_async_16(into + StageRows<W>::at(row, unit), w + (there ? (w_row_of(row) * depth + column) / VALUES<W> : 0), there);
        }
    };

    typename SumOf<X>::Type c[TILE_ROWS / 16][4][4] = {};
    LaneScales lane_scales{scales, depth};
    if constexpr (IS_GROUPED<W>) {
        for (int n = 0; n < 4; n++) {
            const int row = warp * 32 + n * 8 + g;
            lane_scales.row[n] = result_of(row) < outputs ? w_row_of(row) : w_first;
        }
        lane_scales.request(0);
    }
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < depths) copy_stage(i);
        copy_async_commit();
    }
    for (int i = 0; i < depths; i++) {
        // Stage i has been copied, and all have multiplied the one before, which is filled again.
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        if (i + STAGES - 1 < depths) copy_stage(i + STAGES - 1);
        copy_async_commit();
        const unsigned char *xs = shared + i % STAGES * STAGE_BYTES, *ws = xs + StageRows<X>::BYTES;
        uint4 b[4][HALVES<X>];
        if constexpr (IS_GROUPED<W>) {
            if (i * DEPTH % GROUP == 0) lane_scales.advance(i * DEPTH);
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const LaneValues<W> values = StageRows<W>::values(ws, warp * 32 + n * 8 + g, t);
#pragma unroll
            for (int half = 0; half < HALVES<X>; half++) {
                b[n][half] = operand(values, half, X());
                if constexpr (IS_GROUPED<W>) b[n][half] = lane_scales.scaled(b[n][half], n);
            }
        }
#pragma unroll
        for (int m = 0; m < TILE_ROWS / 16; m++) {
            if (m >= blocks) continue;
            const LaneValues<X> upper = StageRows<X>::values(xs, m * 16 + g, t), lower = StageRows<X>::values(xs, m * 16 + g + 8, t);
#pragma unroll
            for (int half = 0; half < HALVES<X>; half++) {
                const uint4 xa = operand(upper, half, X()), xb = operand(lower, half, X());
                const u32 low[4] = {xa.x, xb.x, xa.y, xb.y}, high[4] = {xa.z, xb.z, xa.w, xb.w};
#pragma unroll
                for (int n = 0; n < 4; n++) multiply(c[m][n], low, b[n][half].x, b[n][half].y, X());
#pragma unroll
                for (int n = 0; n < 4; n++) multiply(c[m][n], high, b[n][half].z, b[n][half].w, X());
            }
        }
    }

#pragma unroll
    for (int n = 0; n < (UP ? 2 : 4); n++) {
        const int row_of_w = warp * 32 + n * 8 + t * 2, result = result_of(row_of_w);
        if (result >= outputs) continue;
        const float scale[2] = {output_scale(scales, w, w_row_of(row_of_w)), output_scale(scales, w, w_row_of(row_of_w + 1))};
        float gate_scale[2] = {};
        for (int i = 0; i < 2 && UP; i++) gate_scale[i] = output_scale(scales, w, w_row_of(row_of_w + 16 + i));
#pragma unroll
        for (int m = 0; m < TILE_ROWS / 16; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = m * 16 + g + half * 8;
                if (row >= tile.rows) continue;
                const float of_row = row_scale(x_scale, source[row], X());
                float low = float(c[m][n][half * 2]) * (of_row * scale[0]), high = float(c[m][n][half * 2 + 1]) * (of_row * scale[1]);
                if constexpr (UP) {
                    low = gated(low, float(c[m][n + 2][half * 2]) * (of_row * gate_scale[0]));
                    high = gated(high, float(c[m][n + 2][half * 2 + 1]) * (of_row * gate_scale[1]));
                }
                store_two(out + size_t(tile.first_slot + row) * outputs + result, low, high, 1.0f);
            }
        }
    }
}

#define ARGUMENTS const float *scales, const int *offset, const int *slot_row, bf16 *out, int outputs, int depth, int x_stride, int experts, const float *x_scale
#define PASS x, w, scales, offset, slot_row, out, outputs, depth, x_stride, experts, x_scale
#define KERNEL extern "C" __global__ void __launch_bounds__(128, 2)
// `outputs` are those of out: inner of up, width of down; `depth` is the summed dimension. With x in bf16, x_scale is not read.
KERNEL experts_up(const bf16* x, const bf16* w, ARGUMENTS) { experts_product<true>(PASS); }
KERNEL experts_up_e4m3(const bf16* x, const e4m3* w, ARGUMENTS) { experts_product<true>(PASS); }
KERNEL experts_up_in_e4m3(const e4m3* x, const e4m3* w, ARGUMENTS) { experts_product<true>(PASS); }
KERNEL experts_up_in_int8(const s8* x, const s8* w, ARGUMENTS) { experts_product<true>(PASS); }
KERNEL experts_up_int4(const bf16* x, const s4x8* w, ARGUMENTS) { experts_product<true>(PASS); }
KERNEL experts_down(const bf16* x, const bf16* w, ARGUMENTS) { experts_product<false>(PASS); }
KERNEL experts_down_e4m3(const bf16* x, const e4m3* w, ARGUMENTS) { experts_product<false>(PASS); }
KERNEL experts_down_in_e4m3(const e4m3* x, const e4m3* w, ARGUMENTS) { experts_product<false>(PASS); }
KERNEL experts_down_in_int8(const s8* x, const s8* w, ARGUMENTS) { experts_product<false>(PASS); }
KERNEL experts_down_int4(const bf16* x, const s4x8* w, ARGUMENTS) { experts_product<false>(PASS); }
