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
// Slower on an H100: tiles of 256 outputs, one block on a multiprocessor (4 to 17 %).
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

template <Epilogue EPILOGUE>
DEVICE void int8_product(const s8* x, const s8* w, const Int8Output& to, int inner, int x_stride, int w_stride) {
    const int rows = to.rows, outputs = to.outputs;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ TileColumns<TILE_OUTPUTS> columns;
    const int warp = threadIdx.x / 32;
    const int row_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, output_tiles = (outputs + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
    const int2 tile = tile_of_block(blockIdx.x, row_tiles, output_tiles);
    const int first_row = tile.x * TILE_ROWS, first_output = tile.y * TILE_OUTPUTS;
    const int depths = (inner + DEPTH - 1) / DEPTH;

    // A thread copies one unit of every 32nd row of x and of w.
    const int unit = threadIdx.x % 4, own_row = threadIdx.x / 4;
    auto copy_stage = [&](int depth) {
        unsigned char* into = shared + depth % STAGES * STAGE_BYTES;
        const int column = depth * DEPTH + unit * 16;
        const bool inside = column < inner;
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 32; i++) {
            const int row = own_row + i * 32;
            const bool there = inside && first_row + row < rows;
            copy_async_16(into + unit_at(row, unit), x + size_t(there ? first_row + row : 0) * x_stride + (there ? column : 0), there);
        }
        into += TILE_ROWS * DEPTH;
#pragma unroll
        for (int i = 0; i < TILE_OUTPUTS / 32; i++) {
            const int row = own_row + i * 32;
            const bool there = inside && first_output + row < outputs;
            copy_async_16(into + unit_at(row, unit), w + size_t(there ? first_output + row : 0) * w_stride + (there ? column : 0), there);
        }
    };
    const int warp_row = warp / 2 * 64, warp_output = warp % 2 * 64;
    Fragments fragments[2];
    auto load = [&](Fragments& into, int depth, int step) {
        const unsigned char* xs = shared + depth % STAGES * STAGE_BYTES;
        into.load(xs + warp_row * DEPTH, xs + (TILE_ROWS + warp_output) * DEPTH, step);
    };
    // This stage has been copied, and all have loaded the last part of the one before.
    auto next_stage = [&] {
        copy_async_wait<STAGES - 2>();
        __syncthreads();
    };

    int c[4][8][4] = {};
    columns.load<128>(to, first_output, threadIdx.x);
#pragma unroll
    for (int depth = 0; depth < STAGES - 1; depth++) {
        if (depth < depths) copy_stage(depth);
        copy_async_commit();
    }
    next_stage();
    load(fragments[0], 0, 0);
    for (int depth = 0; depth < depths; depth++) {
        load(fragments[1], depth, 1);
        if (depth + STAGES - 1 < depths) copy_stage(depth + STAGES - 1);
        copy_async_commit();
        fragments[0].multiply(c);
        next_stage();
        load(fragments[0], depth + 1, 0);
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
