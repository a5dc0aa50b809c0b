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

// Writes a row of a warp's results: BLOCKS times 8 outputs from `output` on, which are the tile's from `column` on. Sums are those of a
// product of 16 rows: c[n * 4 + half * 2] and the next one are row g + 8 * half, columns n * 8 + 2t, 2t + 1.
template <Epilogue EPILOGUE, int BLOCKS, int OUTPUTS>
DEVICE void write_row(const Int8Output& to, const TileColumns<OUTPUTS>& columns, int row, int output, int column, const int* c, int half) {
    const int t = threadIdx.x % 4;
    const float x_scale = to.x_scale[row];
    u32* out = reinterpret_cast<u32*>(to.out + size_t(row) * to.out_stride + output) + t;
    u32 before[BLOCKS];
    if (EPILOGUE == BIAS_ADD) {
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) before[n] = output + n * 8 < to.outputs ? out[n * 4] : 0;
    }
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        const float2 scale = columns.scale[column / 2 + n * 4 + t], bias = columns.bias[column / 2 + n * 4 + t];
        float low = float(c[n * 4 + half * 2]) * (x_scale * scale.x) + bias.x;
        float high = float(c[n * 4 + half * 2 + 1]) * (x_scale * scale.y) + bias.y;
        if (EPILOGUE == BIAS_GELU) low = gelu_fast(low), high = gelu_fast(high);
        if (EPILOGUE == BIAS_ADD) low += f32_from_low(before[n]), high += f32_from_high(before[n]);
        if (output + n * 8 < to.outputs) out[n * 4] = bf16_pair(low, high);
    }
}
