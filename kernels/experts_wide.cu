// Products of experts for many rows in e4m3 as in experts_product.cu, with wgmma (sm_90a).
//
//   x         up and sums: [rows, depth] e4m3, rows x_stride values apart, by slot_row; down: [slots, depth]
//   x_map     down: tensor map of x, boxes of 128 slots by 128 bytes with the 128-byte swizzle
//   w         tensor map of [experts][rows of w][depth] e4m3: boxes of 128 rows of w by 128 bytes with the same swizzle
//   x_scale   of each row of x, f32
//   scales, offset, slot_row, out   as in experts_product.cu
//
// Grid: as many blocks as there are multiprocessors, or fewer; 384 threads. A tile is up to 128 slots of one expert by 256 rows of w: of up 128
// of h and the same 128 of g. With 128 rows of w, copies to shared memory limit the speed. Tiles are counted from `offset`, the tiles of rows of an expert first; a block takes every gridDim.x-th.
// Two warpgroups are consumers with 64 slots each; one leaves out products of slots that are not the expert's. The third is the producer: it
// copies 128 values of the tile's slots and rows of w at a time into a ring of four stages, without a break between tiles. Its first thread copies
// boxes; rows of up and sums, which are anywhere in x, are copied by all its threads, and a stage is signalled when the next one is on its way.
// Dynamic shared memory: the stages, 192 KiB. f32 sums with as many bits as the tensor core has.
// Reference: cuda/tests/experts.rs. Launched by cuda/kernels/experts.rs.
#include "experts.cuh"
#include "stages.cuh"

#ifdef HAS_WARPGROUPS
constexpr int TILE_OUTPUTS = 256, STAGES = 4, STAGE_BYTES = stage_bytes(TILE_OUTPUTS);
constexpr int EXPERTS_MAX = 64;

// d += a b: 64 rows by 256 columns, over a sum of 32; both in shared memory.
DEVICE void wgmma_e4m3(float (&d)[128], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" NAMES_128 "}, %128, %129, 1, 1, 1;"
                 : D48, D16(48), D16(64), D16(80), D16(96), D16(112) : "l"(a), "l"(b));
}

struct WideTile {
    int expert, first_slot, rows, outputs;  // `outputs`: number of the tile of outputs
};
// Where the slots of each expert, and its tiles of rows, begin.
struct TileCounts {
    int slots[EXPERTS_MAX + 1], tiles[EXPERTS_MAX + 1];

    // Called by all threads; ends with a barrier.
    DEVICE void load(const int* offset, int experts) {
        if (int(threadIdx.x) <= experts) slots[threadIdx.x] = offset[threadIdx.x];
        __syncthreads();
        if (int(threadIdx.x) <= experts) {
            int before = 0;
            for (int i = 0; i < int(threadIdx.x); i++) before += (slots[i + 1] - slots[i] + TILE_ROWS - 1) / TILE_ROWS;
            tiles[threadIdx.x] = before;
        }
        __syncthreads();
    }
    DEVICE WideTile tile(int index, int experts, int output_tiles) const {
        const int wanted = index / output_tiles;
        // The last expert whose tiles begin there or before has tiles.
        int expert = 0;
        for (int step = EXPERTS_MAX / 2; step > 0; step /= 2) {
            if (expert + step < experts && tiles[expert + step] <= wanted) expert += step;
        }
        const int row_tiles = tiles[expert + 1] - tiles[expert], within = index - tiles[expert] * output_tiles;
        const int first_slot = slots[expert] + within % row_tiles * TILE_ROWS;
        return {expert, first_slot, min(TILE_ROWS, slots[expert + 1] - first_slot), within / row_tiles};
    }
};

// Scales of a tile, in shared memory: from global memory, each read would wait behind the stores before it.
template <bool UP, bool GATHERS> struct TileScales {
    float w[TILE_OUTPUTS], x[TILE_ROWS];
    // Called by 256 threads, before a barrier. Beyond the ends are scales of others, which no result reads.
    DEVICE void load(const float* x_scale, const int* slot_row, const float* scales, const WideTile& tile, int outputs) {
        constexpr int RESULTS = UP ? TILE_OUTPUTS / 2 : TILE_OUTPUTS;
        const int i = threadIdx.x, first = tile.outputs * RESULTS, w_rows = UP ? 2 * outputs : outputs;
        const int row = UP && i >= RESULTS ? outputs + first + i - RESULTS : first + i;
        w[i] = scales[size_t(tile.expert) * w_rows + min(row, w_rows - 1)];
        if (i >= TILE_ROWS) return;
        const int slot = tile.first_slot + min(i, tile.rows - 1);
        x[i] = x_scale[GATHERS ? slot_row[slot] : slot];
    }
};

// Writes a warp's results of 16 slots, 16 bytes at a time: of four blocks of 8 results, each lane of a row has one.
template <bool UP, bool GATHERS> DEVICE void write_results(const float (&c)[128], const TileScales<UP, GATHERS>& of, const WideTile& tile, bf16* out, int outputs) {
    constexpr int RESULTS = UP ? TILE_OUTPUTS / 2 : TILE_OUTPUTS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = warp * 16 + g + half * 8;
        const float of_row = of.x[row];
        bf16* to = out + size_t(tile.first_slot + row) * outputs;
#pragma unroll
        for (int quad = 0; quad < RESULTS / 32; quad++) {
            u32 pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int n = quad * 4 + i, column = n * 8 + t * 2;
                const float2 scale = *reinterpret_cast<const float2*>(of.w + column);
                float low = c[n * 4 + half * 2] * (of_row * scale.x), high = c[n * 4 + half * 2 + 1] * (of_row * scale.y);
                if constexpr (UP) {
                    // Columns from RESULTS on are g.
                    const float2 gate = *reinterpret_cast<const float2*>(of.w + RESULTS + column);
                    low = gated(low, c[n * 4 + 64 + half * 2] * (of_row * gate.x));
                    high = gated(high, c[n * 4 + 64 + half * 2 + 1] * (of_row * gate.y));
                }
                pairs[i] = bf16_pair(low, high);
            }
            transpose_quad(pairs);
            const int first = tile.outputs * RESULTS + quad * 32 + t * 8;
            if (row < tile.rows && first < outputs) *reinterpret_cast<uint4*>(to + first) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        }
    }
}

// Copies a stage's rows of w.
template <bool UP> DEVICE void copy_weights(u32 stage_at, const TensorMap& w, const WideTile& tile, int outputs, int depth_at, u64* full) {
    constexpr int RESULTS = UP ? TILE_OUTPUTS / 2 : TILE_OUTPUTS;
    const int first = tile.outputs * RESULTS, second = UP ? outputs + first : first + TILE_OUTPUTS / 2;
    const u32 at = stage_at + TILE_ROWS * DEPTH;
    copy_box(at, w, depth_at, first, tile.expert, full);
    copy_box(at + TILE_OUTPUTS / 2 * DEPTH, w, depth_at, second, tile.expert, full);
}
// Rows of x of a tile's slots. A thread of the producer has 16 neighbouring bytes of every 16th slot.
struct GatheredRows {
    static constexpr int COUNT = TILE_ROWS / 16;
    static constexpr u32 NONE = ~0u;
    // Where they begin in x.
    u32 row[COUNT];
    DEVICE GatheredRows(const int* slot_row, int x_stride, const WideTile& tile) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int slot = threadIdx.x % 128 / 8 + i * 16;
            row[i] = slot < tile.rows ? u32(slot_row[tile.first_slot + slot]) * x_stride : NONE;
        }
    }
    // Where copy_box puts them; zeros beyond `depth`. Slots that are not the expert's keep what they are.
    DEVICE void copy(u32 stage_at, const e4m3* x, int depth_at, int depth) const {
        const int slot = threadIdx.x % 128 / 8, piece = threadIdx.x % 8, column = depth_at + piece * 16;
        const u32 at = stage_at + slot * DEPTH + (piece ^ slot % 8) * 16;
        const bool there = column < depth;
        const e4m3* from = x + (there ? column : 0);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (row[i] != NONE) copy_async_16(at + i * 16 * DEPTH, from + row[i], there);
        }
    }
};

// GATHERS: x is read by slot_row.
template <bool UP, bool GATHERS>
DEVICE void experts_wide(const TensorMap& x_map, const TensorMap& w, const e4m3* x, const float* x_scale, const float* scales, const int* offset, const int* slot_row, bf16* out, int outputs, int depth, int x_stride, int experts) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ Ring<STAGES> ring;
    __shared__ TileCounts counts;
    // Of a tile and of the next one: a warpgroup may be one tile ahead.
    __shared__ TileScales<UP, GATHERS> tile_scales[2];
    constexpr int RESULTS = UP ? TILE_OUTPUTS / 2 : TILE_OUTPUTS;
    const u32 stages = shared_address(shared);
    // The first thread of the producer signals twice where rows are gathered: its boxes, and its part of the rows.
    if (threadIdx.x == 0) ring.init(GATHERS ? 129 : 1);
    counts.load(offset, experts);
    const int output_tiles = (outputs + RESULTS - 1) / RESULTS, tiles = counts.tiles[experts] * output_tiles, depths = (depth + DEPTH - 1) / DEPTH;
    RingPlace<STAGES> place;
    if (threadIdx.x >= 256) {
        release_registers<PRODUCER_REGISTERS>();
        if (!GATHERS && threadIdx.x != 256) return;
        // The stage whose rows are on their way.
        int before = -1;
        auto signal = [&] {
            // Products read through another proxy than these copies write.
            fence_async_proxy();
            barrier_arrive(ring.full + before);
        };
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            const WideTile tile = counts.tile(index, experts, output_tiles);
            const GatheredRows rows(slot_row, x_stride, GATHERS ? tile : WideTile{});
            // Unrolled, the producer's registers do not suffice.
#pragma unroll 1
            for (int i = 0; i < depths; i++) {
                u64* full = ring.full + place.stage;
                const u32 at = stages + place.stage * STAGE_BYTES;
                barrier_wait(ring.empty + place.stage, place.parity ^ 1);
                if (threadIdx.x == 256) {
                    barrier_expect_bytes(full, GATHERS ? TILE_OUTPUTS * DEPTH : STAGE_BYTES);
                    if (!GATHERS) copy_box(at, x_map, i * DEPTH, tile.first_slot, 0, full);
                    copy_weights<UP>(at, w, tile, outputs, i * DEPTH, full);
                }
                if constexpr (GATHERS) {
                    rows.copy(at, x, i * DEPTH, depth);
                    copy_async_commit();
                    copy_async_wait<1>();
                    if (before >= 0) signal();
                    before = place.stage;
                }
                place.next();
            }
        }
        if (GATHERS && before >= 0) {
            copy_async_wait<0>();
            signal();
        }
        return;
    }
    claim_registers<CONSUMER_REGISTERS>();
    const int group = threadIdx.x / 128;
    int buffer = 0;
    for (int index = blockIdx.x; index < tiles; index += gridDim.x, buffer ^= 1) {
        const WideTile tile = counts.tile(index, experts, output_tiles);
        tile_scales[buffer].load(x_scale, slot_row, scales, tile, outputs);
        consumers_meet();
        if (group * 64 >= tile.rows) {
            for (int i = 0; i < depths; i++) {
                barrier_wait(ring.full + place.stage, place.parity);
                ring.release(place.stage);
                place.next();
            }
            continue;
        }
        float c[128] = {};
        const u32 rows = stages + group * 64 * DEPTH, w_rows = stages + TILE_ROWS * DEPTH;
        multiply_stages(c, ring, place, depths, rows, w_rows, [](auto& c, u64 a, u64 b) { wgmma_e4m3(c, a, b); });
        write_results(c, tile_scales[buffer], tile, out, outputs);
    }
}

#define ARGUMENTS const __grid_constant__ TensorMap x_map, const __grid_constant__ TensorMap w, const e4m3 *x, const float *x_scale, const float *scales, const int *offset, const int *slot_row, bf16 *out, int outputs, int depth, int x_stride, int experts
#define PASS x_map, w, x, x_scale, scales, offset, slot_row, out, outputs, depth, x_stride, experts
#define KERNEL extern "C" __global__ void __launch_bounds__(384, 1)
// sums: [h | g] of up, which adapters add to.
KERNEL experts_wide_up(ARGUMENTS) { experts_wide<true, true>(PASS); }
KERNEL experts_wide_sums(ARGUMENTS) { experts_wide<false, true>(PASS); }
KERNEL experts_wide_down(ARGUMENTS) { experts_wide<false, false>(PASS); }
#endif
