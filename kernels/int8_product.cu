// Products of many rows in int8: out = epilogue(x w^T * x_scale * w_scale + bias).
//
//   x        [rows, inner] int8, rows x_stride bytes apart; x_scale [rows] f32: a value is the number times its row's scale
//   w        [outputs, inner] int8, rows w_stride bytes apart; w_scale [outputs] f32
//   bias     [outputs] bf16
//   out      [rows, outputs] bf16, rows out_stride values apart
//   inner and the strides of x and w are multiples of 16 and begin at multiples of 16 bytes; outputs and out_stride are multiples of 8.
//
// Grid (ceil(outputs / 128) * ceil(rows / 128)), 128 threads: a block computes 128 rows by 128 outputs, each of its four warps 64 by 64.
// Neighbouring blocks share rows of w and x in the L2. Dynamic shared memory: three stages of 128 rows of x and 128 rows of w, 64 bytes each,
// 48 KiB, so that two blocks fit where a multiprocessor has 100 KiB. A row's four units of 16 bytes are permuted so that the eight rows
// of a matrix load are in different banks. While a warp multiplies, it loads what it multiplies next.
// On an H200, tiles of 256 rows or outputs, or blocks that compute several tiles, take 15 % less to 20 % more time; with products a third as fast,
// as on older GPUs, 3 % less to 33 % more (BENCHMARKS.md).
// int32 sums in the tensor core, exact; then f32.
// Reference: cuda/tests/int8.rs. Launched by cuda/kernels/int8.rs.
#include "int8.cuh"

constexpr int TILE_ROWS = 128, TILE_OUTPUTS = 128, DEPTH = 64, STAGES = 3;
constexpr int STAGE_BYTES = (TILE_ROWS + TILE_OUTPUTS) * DEPTH;

// Where a unit of 16 bytes of a row is in a stage.
DEVICE int unit_at(int row, int unit) { return row * DEPTH + (unit ^ row / 2 % 4) * 16; }

// What a warp multiplies in a step: 64 rows and 64 outputs by 32 inputs.
struct Fragments {
    u32 a[4][4], b[4][4];

    DEVICE void load(const unsigned char* xs, const unsigned char* ws, int step) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < 4; m++) load_matrix_x4(a[m], reinterpret_cast<const bf16*>(xs + unit_at(m * 16 + lane % 16, step * 2 + lane / 16)));
#pragma unroll
        for (int n = 0; n < 4; n++) load_matrix_x4(b[n], reinterpret_cast<const bf16*>(ws + unit_at(n * 16 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2)));
    }
    DEVICE void multiply(int (&c)[4][8][4]) const {
#pragma unroll
        for (int n = 0; n < 4; n++) {
#pragma unroll
            for (int m = 0; m < 4; m++) {
                mma_16_8_32_s8(c[m][n * 2], a[m], b[n][0], b[n][1]);
                mma_16_8_32_s8(c[m][n * 2 + 1], a[m], b[n][2], b[n][3]);
            }
        }
    }
};

// What a thread copies of each stage: one unit of every 32nd row of x and of w. Rows beyond the ends are copies of the last ones: their results are
// not written. Inputs beyond the end are zeros. Addresses advance from stage to stage: to compute them for each takes more instructions than the
// products.
struct StageCopier {
    const s8 *x, *w;
    u32 x_offset[TILE_ROWS / 32], w_offset[TILE_OUTPUTS / 32];
    int inputs_left;

    DEVICE void start(const s8* x_tile, const s8* w_tile, int rows, int outputs, int inner, int x_stride, int w_stride) {
        const int own_row = threadIdx.x / 4, column = threadIdx.x % 4 * 16;
        x = x_tile + column, w = w_tile + column, inputs_left = inner - column;
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 32; i++) x_offset[i] = min(own_row + i * 32, rows - 1) * x_stride;
#pragma unroll
        for (int i = 0; i < TILE_OUTPUTS / 32; i++) w_offset[i] = min(own_row + i * 32, outputs - 1) * w_stride;
    }
    DEVICE void copy_next(unsigned char* stage) {
        unsigned char* into = stage + unit_at(threadIdx.x / 4, threadIdx.x % 4);
        const bool there = inputs_left > 0;
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 32; i++) copy_async_16(into + i * 32 * DEPTH, x + x_offset[i], there);
#pragma unroll
        for (int i = 0; i < TILE_OUTPUTS / 32; i++) copy_async_16(into + (TILE_ROWS + i * 32) * DEPTH, w + w_offset[i], there);
        x += DEPTH, w += DEPTH, inputs_left -= DEPTH;
    }
};

DEVICE int stage_after(int stage) { return stage == STAGES - 1 ? 0 : stage + 1; }

template <Epilogue EPILOGUE>
DEVICE void int8_product(const s8* x, const s8* w, const Int8Output& to, int inner, int x_stride, int w_stride) {
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ TileColumns<TILE_OUTPUTS> columns;
    const int row_tiles = (to.rows + TILE_ROWS - 1) / TILE_ROWS, output_tiles = (to.outputs + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
    const int2 tile = tile_of_block(blockIdx.x, row_tiles, output_tiles);
    const int first_row = tile.x * TILE_ROWS, first_output = tile.y * TILE_OUTPUTS;
    const int depths = (inner + DEPTH - 1) / DEPTH;
    const int warp = threadIdx.x / 32, warp_row = warp / 2 * 64, warp_output = warp % 2 * 64;

    StageCopier copier;
    copier.start(x + size_t(first_row) * x_stride, w + size_t(first_output) * w_stride, to.rows - first_row, to.outputs - first_output, inner, x_stride, w_stride);
    Fragments fragments[2];
    auto load = [&](Fragments& into, int stage, int step) {
        const unsigned char* xs = shared + stage * STAGE_BYTES;
        into.load(xs + warp_row * DEPTH, xs + (TILE_ROWS + warp_output) * DEPTH, step);
    };
    columns.load<128>(to, first_output, threadIdx.x);
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (stage < depths) copier.copy_next(shared + stage * STAGE_BYTES);
        copy_async_commit();
    }
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    int c[4][8][4] = {};
    int stage = 0, copied_stage = STAGES - 1;
    load(fragments[0], 0, 0);
    for (int depth = 0; depth < depths; depth++) {
        load(fragments[1], stage, 1);
        stage = stage_after(stage);
        if (depth + STAGES - 1 < depths) copier.copy_next(shared + copied_stage * STAGE_BYTES);
        copied_stage = stage_after(copied_stage);
        copy_async_commit();
        // The next stage has been copied, and all warps have loaded this one. Copies, barrier and loads come before products that do not need them,
        // so that the compiler can put products between them: loads whose results are needed at once wait for the memory.
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        fragments[0].multiply(c);
        load(fragments[0], stage, 0);
        fragments[1].multiply(c);
    }

    WarpRows<EPILOGUE, 8> results[4];
#pragma unroll
    for (int m = 0; m < 4; m++) results[m].load(to, first_row + warp_row + m * 16, first_output + warp_output);
#pragma unroll
    for (int m = 0; m < 4; m++) results[m].write(to, columns, first_row + warp_row + m * 16, first_output + warp_output, warp_output, &c[m][0][0]);
}

#define ARGUMENTS const s8 *x, const float *x_scale, const s8 *w, const float *w_scale, const bf16 *bias, bf16 *out, int rows, int outputs, int inner, int x_stride, int w_stride, int out_stride
#define PASS x, w, Int8Output{x_scale, w_scale, bias, out, rows, outputs, out_stride}, inner, x_stride, w_stride
#define KERNEL extern "C" __global__ void __launch_bounds__(128, 2)
KERNEL int8_product_bias(ARGUMENTS) { int8_product<BIAS>(PASS); }
KERNEL int8_product_gelu(ARGUMENTS) { int8_product<BIAS_GELU>(PASS); }
KERNEL int8_product_add(ARGUMENTS) { int8_product<BIAS_ADD>(PASS); }
