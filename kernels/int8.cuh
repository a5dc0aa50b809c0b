// What the products in int8 share: the order of tiles, and what is done with sums. Used by int8_product.cu and int8_wide.cu.
#pragma once
#include "common.cuh"

enum Epilogue { BIAS, BIAS_GELU, BIAS_ADD };

// Tiles in groups of 8 rows of tiles: blocks that run at the same time read few rows of x and of w.
DEVICE int2 tile_of_block(int block, int row_tiles, int output_tiles) {
    const int group = block / (8 * output_tiles), first = group * 8, high = min(8, row_tiles - first);
    const int within = block - group * 8 * output_tiles;
    return make_int2(first + within % high, within / high);
}

// Where results go, with their scales: those of x by row, those of w by output.
struct Int8Output {
    const float *x_scale, *w_scale;
    const bf16* bias;
    bf16* out;
    int rows, outputs, out_stride;
};

// Scales and biases of a tile's outputs, in shared memory: from global memory, each read would wait behind the stores before it.
template <int OUTPUTS> struct TileColumns {
    float2 scale[OUTPUTS / 2], bias[OUTPUTS / 2];
    // Called by THREADS threads, before a barrier.
    template <int THREADS> DEVICE void load(const Int8Output& to, int first_output, int thread) {
        for (int i = thread; i < OUTPUTS / 2; i += THREADS) {
            const int output = min(first_output + i * 2, to.outputs - 2);
            const u32 biases = *reinterpret_cast<const u32*>(to.bias + output);
            scale[i] = *reinterpret_cast<const float2*>(to.w_scale + output);
            bias[i] = make_float2(f32_from_low(biases), f32_from_high(biases));
        }
    }
};

// GELU (tanh) by the hardware's tanh, whose error is below that of bf16.
DEVICE float gelu_fast(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(0.7978845608028654f * (x + 0.044715f * x * x * x)));
    return 0.5f * x + 0.5f * x * y;
}

// A warp's results of 16 rows by BLOCKS times 8 outputs, and what they are added to. Sums are those of a product of 16 rows, with g = lane / 4
// and t = lane % 4: c[n * 4 + half * 2] and the next one are row g + 8 * half, outputs n * 8 + 2t, 2t + 1. Memory is read and written 16 bytes at
// a time: of four blocks of outputs, each lane of a row has one.
template <Epilogue EPILOGUE, int BLOCKS> struct WarpRows {
    static_assert(BLOCKS % 4 == 0, "four lanes share four blocks");
    static constexpr int GROUPS = BLOCKS / 4;
    float x_scale[2];
    uint4 before[2][EPILOGUE == BIAS_ADD ? GROUPS : 1];

    // The address of this lane's block of a group; false: beyond the ends.
    static DEVICE bool at(const Int8Output& to, int row, int output, int group, uint4*& address) {
        const int first = output + group * 32 + threadIdx.x % 4 * 8;
        address = reinterpret_cast<uint4*>(to.out + size_t(row) * to.out_stride + first);
        return row < to.rows && first < to.outputs;
    }

    // Reads the rows' scales and what results are added to, before the first `write` of the thread: a read waits behind stores before it.
    DEVICE void load(const Int8Output& to, int first_row, int output) {
        const int row = first_row + threadIdx.x % 32 / 4;
        x_scale[0] = to.x_scale[min(row, to.rows - 1)], x_scale[1] = to.x_scale[min(row + 8, to.rows - 1)];
        if constexpr (EPILOGUE == BIAS_ADD) {
#pragma unroll
            for (int i = 0; i < 2 * GROUPS; i++) {
                const int half = i / GROUPS, group = i % GROUPS;
                uint4* address;
                const bool inside = at(to, row + half * 8, output, group, address);
                before[half][group] = inside ? *address : make_uint4(0, 0, 0, 0);
            }
        }
    }

    // Outputs from `output` on, which are the tile's from `column` on.
    template <int OUTPUTS> DEVICE void write(const Int8Output& to, const TileColumns<OUTPUTS>& columns, int first_row, int output, int column, const int* c) {
        const int t = threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + half * 8 + threadIdx.x % 32 / 4;
#pragma unroll
            for (int group = 0; group < GROUPS; group++) {
                u32 added[4], result[4];
                if (EPILOGUE == BIAS_ADD) {
                    const uint4 x = before[half][group];
                    added[0] = x.x, added[1] = x.y, added[2] = x.z, added[3] = x.w;
                    transpose_quad(added);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int n = group * 4 + i;
                    const float2 scale = columns.scale[column / 2 + n * 4 + t], bias = columns.bias[column / 2 + n * 4 + t];
                    float low = float(c[n * 4 + half * 2]) * (x_scale[half] * scale.x) + bias.x;
                    float high = float(c[n * 4 + half * 2 + 1]) * (x_scale[half] * scale.y) + bias.y;
                    if (EPILOGUE == BIAS_GELU) low = gelu_fast(low), high = gelu_fast(high);
                    if (EPILOGUE == BIAS_ADD) low += f32_from_low(added[i]), high += f32_from_high(added[i]);
                    result[i] = bf16_pair(low, high);
                }
                transpose_quad(result);
                uint4* address;
                if (at(to, row, output, group, address)) *address = make_uint4(result[0], result[1], result[2], result[3]);
            }
        }
    }
};
