// Parts of the sums behind the scales of queries and values (tau): w . gelu(row of qkv), GELU in the erf form, rounded to bf16.
//
//   qkv      [rows, features] bf16, before it is rotated; features is a multiple of 64
//   w        [outputs, features] bf16: a query and a value output of each head; up to 64 outputs
//   parts    [splits][rows][outputs] f32: split s has every `splits`-th 64 features from 64 s on
// Grid (ceil(rows / 16), splits), 128 threads: a block has 16 rows and a split, of which each warp takes every fourth 64 features for all
// outputs. The rows are the 16-row operand of the tensor core, w the 8-column one, both straight from memory to registers (LaneValues).
// f32 sums: in the tensor core over a warp's features, then the warps in their order, in shared memory ([4][16][64] f32). Few rows want
// many splits, because a block reads w at the speed of one multiprocessor; rope_scatter adds them up, in their order.
// Reference: cuda/tests/layers.rs. Launched by cuda/kernels/attention.rs.
#include "common.cuh"

#define OUTPUTS_MAX 64

DEVICE uint4 activated(uint4 raw) {
    F32x8 x = f32x8_from(raw);
#pragma unroll
    for (int j = 0; j < 8; j++) x.x[j] = gelu_erf(x.x[j]);
    return bf16x8_from(x);
}

extern "C" __global__ void __launch_bounds__(128) tau_parts(const bf16* qkv, const bf16* w, float* parts, int rows, int outputs, int features) {
    __shared__ float sums[4][16][OUTPUTS_MAX];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = blockIdx.x * 16, split = blockIdx.y, splits = gridDim.y;
    const bool has_upper = first + g < rows, has_lower = first + g + 8 < rows;
    const bf16* upper = qkv + size_t(has_upper ? first + g : 0) * features;
    const bf16* lower = qkv + size_t(has_lower ? first + g + 8 : 0) * features;
    float c[OUTPUTS_MAX / 8][4] = {};
    for (int from = (split + splits * warp) * 64; from < features; from += splits * 256) {
        const int column = from + t * 16;
        LaneValues<bf16> a, b;
        a.load(upper + column), b.load(lower + column);
        for (int i = 0; i < 2; i++) {
            a.raw[i] = activated(keep_if(a.raw[i], has_upper));
            b.raw[i] = activated(keep_if(b.raw[i], has_lower));
        }
#pragma unroll
        for (int n = 0; n < OUTPUTS_MAX / 8; n++) {
            const int output = n * 8 + g;
            LaneValues<bf16> v;
            v.load(w + size_t(output < outputs ? output : 0) * features + column);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint4 up = a.eight(i), low = b.eight(i), x8 = v.eight(i);
                const u32 left[4] = {up.x, low.x, up.y, low.y}, right[4] = {up.z, low.z, up.w, low.w};
                mma_16_8_16(c[n], left, x8.x, x8.y);
                mma_16_8_16(c[n], right, x8.z, x8.w);
            }
        }
    }
    for (int n = 0; n < OUTPUTS_MAX / 8; n++) {
        for (int i = 0; i < 4; i++) sums[warp][g + i / 2 * 8][n * 8 + t * 2 + i % 2] = c[n][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * outputs; i += 128) {
        const int row = i / outputs, output = i % outputs;
        if (first + row >= rows) break;
        float sum = 0.0f;
        for (int j = 0; j < 4; j++) sum += sums[j][row][output];
        parts[(size_t(split) * rows + first + row) * outputs + output] = sum;
    }
}
