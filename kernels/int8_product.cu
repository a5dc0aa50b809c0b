// Products of many rows in int8: out = epilogue(x w^T * x_scale * w_scale + bias).
//
//   x        [rows, inner] int8, rows x_stride bytes apart; x_scale [rows] f32: a value is the number times its row's scale
//   w        [outputs, inner] int8, rows w_stride bytes apart; w_scale [outputs] f32
//   bias     [outputs] bf16
//   out      [rows, outputs] bf16, rows out_stride values apart
//   inner and the strides of x and w are multiples of 16 and begin at multiples of 16 bytes; outputs and out_stride are multiples of 8.
//
// Grid (ceil(outputs / 128) * ceil(rows / 128)), 128 threads: a block computes 128 rows by 128 outputs, each of its four warps 64 by 64. Sixteen
// neighbouring blocks share rows of w and x in the L2. Shared memory: three stages of 128 rows of x and 128 rows of w, 64
// bytes each, 48 KiB, so that two blocks fit where a multiprocessor has 100 KiB. A row's four units of 16 bytes are permuted so that
// the eight rows of a matrix load are in different banks.
// int32 sums in the tensor core, exact; then f32.
// Reference: cuda/tests/int8.rs. Launched by cuda/kernels/int8.rs.
#include "int8.cuh"

constexpr int TILE_ROWS = 128, TILE_OUTPUTS = 128, DEPTH = 64, STAGES = 3;
constexpr int STAGE_BYTES = (TILE_ROWS + TILE_OUTPUTS) * DEPTH;

// c += a b with a 16x32, b 32x8, c 16x8, all int8 to int32. With g = lane / 4 and t = lane % 4:
//   a[0], a[2]: row g, columns 4t.. and 4t+16..; a[1], a[3]: row g+8    b0, b1: rows 4t.. and 4t+16.., column g
//   c[0], c[1]: row g, columns 2t, 2t+1;         c[2], c[3]: row g+8
DEVICE void mma_16_8_32(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where a unit of 16 bytes of a row is in a stage.
DEVICE int unit_at(int row, int unit) { return row * DEPTH + (unit ^ row / 2 % 4) * 16; }

template <Epilogue EPILOGUE>
DEVICE void int8_product(const s8* x, const s8* w, const Int8Output& to, int inner, int x_stride, int w_stride) {
    const int rows = to.rows, outputs = to.outputs;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ TileColumns<TILE_OUTPUTS> columns;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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

    int c[4][8][4] = {};
    columns.load<128>(to, first_output, threadIdx.x);
#pragma unroll
    for (int depth = 0; depth < STAGES - 1; depth++) {
        if (depth < depths) copy_stage(depth);
        copy_async_commit();
    }
    const int warp_row = warp / 2 * 64, warp_output = warp % 2 * 64;
    for (int depth = 0; depth < depths; depth++) {
        copy_async_wait<STAGES - 2>();
        // All have copied their part of this stage, and all have read the one that is copied into next.
        __syncthreads();
        if (depth + STAGES - 1 < depths) copy_stage(depth + STAGES - 1);
        copy_async_commit();
        const unsigned char* xs = shared + depth % STAGES * STAGE_BYTES;
        const unsigned char* ws = xs + TILE_ROWS * DEPTH;
#pragma unroll
        for (int step = 0; step < DEPTH / 32; step++) {
            u32 a[4][4];
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const int row = warp_row + m * 16 + lane % 16;
                load_matrix_x4(a[m], reinterpret_cast<const bf16*>(xs + unit_at(row, step * 2 + lane / 16)));
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                u32 b[4];
                const int row = warp_output + n * 16 + lane % 8 + lane / 16 * 8;
                load_matrix_x4(b, reinterpret_cast<const bf16*>(ws + unit_at(row, step * 2 + lane / 8 % 2)));
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    mma_16_8_32(c[m][n * 2], a[m], b[0], b[1]);
                    mma_16_8_32(c[m][n * 2 + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

#pragma unroll
    for (int m = 0; m < 4; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + warp_row + m * 16 + half * 8 + lane / 4;
            if (row < rows) write_row<EPILOGUE, 8>(to, columns, row, first_output + warp_output, warp_output, &c[m][0][0], half);
        }
    }
}

#define ARGUMENTS const s8 *x, const float *x_scale, const s8 *w, const float *w_scale, const bf16 *bias, bf16 *out, int rows, int outputs, int inner, int x_stride, int w_stride, int out_stride
#define PASS x, w, Int8Output{x_scale, w_scale, bias, out, rows, outputs, out_stride}, inner, x_stride, w_stride
#define KERNEL extern "C" __global__ void __launch_bounds__(128, 2)
KERNEL int8_product_bias(ARGUMENTS) { int8_product<BIAS>(PASS); }
KERNEL int8_product_gelu(ARGUMENTS) { int8_product<BIAS_GELU>(PASS); }
KERNEL int8_product_add(ARGUMENTS) { int8_product<BIAS_ADD>(PASS); }
