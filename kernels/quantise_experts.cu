// Weights of experts to int4, and from e4m3: for loading.
//
// e4m3_to_bf16: x [count] e4m3, out [count] bf16, exact; count a multiple of 16. Grid (ceil(count / 4096)), 256 threads: 16 values each.
//
// quantise_groups: rows of weights to int4, each 128 inputs with a scale.
//   x           [rows, width] bf16, width a multiple of 128
//   row_scale   [rows] f32: a weight is the value times it; or null
//   out         [rows, width / 8] s4x8; scales [rows, width / 128] bf16: a weight becomes about the number, -8 to 7, times the scale
// Grid (rows), 256 threads: a half warp has a group, a lane 8 values. A scale is that of the smallest squared error among some with which the largest
// magnitude becomes 7 to 10.5 or -7 to -10.5, so that it is 8 exactly, or is cut. The scales can be negative. A group of zeros has scale 0.
// Reference: cuda/tests/experts.rs. Launched by cuda/kernels/quantise_experts.rs.
#include "common.cuh"

constexpr int GROUP = 128, STEPS = 8;

extern "C" __global__ void __launch_bounds__(256) e4m3_to_bf16(const e4m3* x, bf16* out, int count) {
    const int first = (blockIdx.x * 256 + threadIdx.x) * 16;
    if (first >= count) return;
    LaneValues<e4m3> values;
    values.stream(x + first);
    for (int half = 0; half < 2; half++) *reinterpret_cast<uint4*>(out + first + half * 8) = values.eight(half);
}

DEVICE float number_of(float x, float inverse) { return fminf(fmaxf(rintf(x * inverse), -8.0f), 7.0f); }

extern "C" __global__ void __launch_bounds__(256) quantise_groups(const bf16* x, const float* row_scale, s4x8* out, bf16* scales, int width) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = width / GROUP;
    const size_t row = blockIdx.x;
    const float of_row = row_scale ? row_scale[row] : 1.0f;
    // With an odd number of groups both halves of a warp have the last one.
    for (int pair = warp; pair * 2 < groups; pair += 8) {
        const int group = min(pair * 2 + lane / 16, groups - 1);
        const size_t first = row * width + group * GROUP + lane % 16 * 8;
        F32x8 e = f32x8_from(*reinterpret_cast<const uint4*>(x + first));
        for (int i = 0; i < 8; i++) e.x[i] *= of_row;
        const float most = warp_max<16>(largest(e, 0.0f));
        float least_error = 0.0f, scale = 0.0f;
        for (int step = 0; step < 2 * STEPS; step++) {
            const float tried = f32_from_bf16(bf16_from_f32((step % 2 ? -most : most) / (7.0f + step / 2 * 0.5f)));
            const float inverse = tried != 0.0f ? 1.0f / tried : 0.0f;
            float error = 0.0f;
            for (int i = 0; i < 8; i++) {
                const float off = e.x[i] - number_of(e.x[i], inverse) * tried;
                error += off * off;
            }
            error = warp_sum<16>(error);
            if (step == 0 || error < least_error) least_error = error, scale = tried;
        }
        const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
        u32 packed = 0;
        for (int i = 0; i < 8; i++) packed |= u32(int(number_of(e.x[i], inverse)) + 8) << (i / 2 * 4 + i % 2 * 16);
        out[first / 8].raw = packed;
        if (lane % 16 == 0) scales[row * groups + group] = bf16_from_f32(scale);
    }
}
