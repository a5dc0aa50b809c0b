// Products of many rows in int8 as in int8_product.cu, with wgmma (sm_90a): out = epilogue(x w^T * x_scale * w_scale + bias).
//
//   x, w      tensor maps of [rows, inner] and [outputs, inner] int8: boxes of 128 rows, or OUTPUTS rows of w, by 128 bytes with the 128-byte swizzle
//   The others are those of int8_product.cu.
//
// Grid: as many blocks as there are multiprocessors, or fewer; 384 threads. A tile is 128 rows by OUTPUTS outputs; a block takes every gridDim.x-th.
// Two warpgroups are consumers with 64 rows each. One thread of the third is the producer: it copies 128 inputs of the tile's rows and outputs at
// a time into a ring of stages, without a break between tiles. Rows beyond the ends are zeros and are not written.
// Dynamic shared memory: the stages, 192 KiB.
// Slower: clusters of two blocks that share copies of w (qkv of nine crops 70 instead of 52 us), two blocks of three stages on a multiprocessor.
// int32 sums in the tensor core, exact; then f32.
// Reference: cuda/tests/int8.rs. Launched by cuda/kernels/int8.rs.
#include "int8.cuh"
#include "stages.cuh"

#ifdef HAS_WARPGROUPS
// d += a b: 64 rows by twice the values of d, over a sum of 32; both in shared memory.
#define I4(i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3])
#define I16(i) I4(i), I4(i + 4), I4(i + 8), I4(i + 12)
#define I64(i) I16(i), I16(i + 16), I16(i + 32), I16(i + 48)
#define WGMMA_INT8(COLUMNS) "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k32.s32.s8.s8 "
DEVICE void wgmma_int8(int (&d)[64], u64 a, u64 b) {
    asm volatile(WGMMA_INT8("128") "{" NAMES_64 "}, %64, %65, 1;" : I64(0) : "l"(a), "l"(b));
}
DEVICE void wgmma_int8(int (&d)[128], u64 a, u64 b) {
    asm volatile(WGMMA_INT8("256") "{" NAMES_128 "}, %128, %129, 1;" : I64(0), I64(64) : "l"(a), "l"(b));
}

template <int OUTPUTS, int STAGES, Epilogue EPILOGUE>
DEVICE void int8_wide(const TensorMap& x, const TensorMap& w, const Int8Output& to, int inner) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ Ring<STAGES> ring;
    // Of a tile and of the next one: a warpgroup may be one tile ahead.
    __shared__ TileColumns<OUTPUTS> columns[2];
    const u32 stages = shared_address(shared);
    const int row_tiles = (to.rows + TILE_ROWS - 1) / TILE_ROWS, output_tiles = (to.outputs + OUTPUTS - 1) / OUTPUTS;
    const int tiles = row_tiles * output_tiles, depths = (inner + DEPTH - 1) / DEPTH;
    if (threadIdx.x == 0) ring.init();
    __syncthreads();
    RingPlace<STAGES> place;
    if (threadIdx.x >= 256) {
        release_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x != 256) return;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            const int2 tile = tile_of_block(index, row_tiles, output_tiles);
            for (int depth = 0; depth < depths; depth++) {
                u64* full = ring.full + place.stage;
                barrier_wait(ring.empty + place.stage, place.parity ^ 1);
                barrier_expect_bytes(full, stage_bytes(OUTPUTS));
                const u32 at = stages + place.stage * stage_bytes(OUTPUTS);
                copy_box(at, x, depth * DEPTH, tile.x * TILE_ROWS, 0, full);
                copy_box(at + TILE_ROWS * DEPTH, w, depth * DEPTH, tile.y * OUTPUTS, 0, full);
                place.next();
            }
        }
        return;
    }
    claim_registers<CONSUMER_REGISTERS>();
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32;
    int buffer = 0;
    for (int index = blockIdx.x; index < tiles; index += gridDim.x, buffer ^= 1) {
        const int2 tile = tile_of_block(index, row_tiles, output_tiles);
        const int first_row = tile.x * TILE_ROWS + warp * 16, first_output = tile.y * OUTPUTS;
        columns[buffer].template load<256>(to, first_output, threadIdx.x);
        WarpRows<EPILOGUE, OUTPUTS / 8> results;
        results.load(to, first_row, first_output);
        consumers_meet();
        int c[OUTPUTS / 2] = {};
        const u32 rows = stages + group * 64 * DEPTH, w_rows = stages + TILE_ROWS * DEPTH;
        multiply_stages(c, ring, place, depths, rows, w_rows, [](auto& c, u64 a, u64 b) { wgmma_int8(c, a, b); });
        results.write(to, columns[buffer], first_row, first_output, 0, c);
    }
}

#define ARGUMENTS const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, const float *x_scale, const float *w_scale, const bf16 *bias, bf16 *out, int rows, int outputs, int inner, int out_stride
#define PASS x, w, Int8Output{x_scale, w_scale, bias, out, rows, outputs, out_stride}, inner
#define KERNEL extern "C" __global__ void __launch_bounds__(384, 1)
KERNEL int8_wide_128_bias(ARGUMENTS) { int8_wide<128, 6, BIAS>(PASS); }
KERNEL int8_wide_128_gelu(ARGUMENTS) { int8_wide<128, 6, BIAS_GELU>(PASS); }
KERNEL int8_wide_128_add(ARGUMENTS) { int8_wide<128, 6, BIAS_ADD>(PASS); }
KERNEL int8_wide_256_bias(ARGUMENTS) { int8_wide<256, 4, BIAS>(PASS); }
KERNEL int8_wide_256_gelu(ARGUMENTS) { int8_wide<256, 4, BIAS_GELU>(PASS); }
KERNEL int8_wide_256_add(ARGUMENTS) { int8_wide<256, 4, BIAS_ADD>(PASS); }
#endif
