// bf16 to e4m3 or int8, and the largest magnitude of values. For weights, and for results whose product cannot write 8 bits itself.
//
//   x     [rows, width] bf16, rows x_stride values apart, 16-byte aligned; width and strides multiples of 8
//   out   [rows, width] e4m3 or int8, rows out_stride values apart, 8-byte aligned
//
// Grid (rows), 256 threads: a block per row, a thread 8 values at a time. abs_max and quantise_rows* have 32 floats of shared memory.
// Reference: cuda/tests/fp8.rs and int8.rs, rounded. Launched by cuda/kernels/layers.rs.
#include "common.cuh"

// out = x * scale, rounded to nearest, ties to even; sizes above 448 become 448.
extern "C" __global__ void __launch_bounds__(256) quantise(const bf16* x, e4m3* out, int width, int x_stride, int out_stride, float scale) {
    const uint4* from = reinterpret_cast<const uint4*>(x + size_t(blockIdx.x) * x_stride);
    e4m3* to = out + size_t(blockIdx.x) * out_stride;
    for (int i = threadIdx.x; i < width / 8; i += 256) store_eight(to + i * 8, f32x8_from(from[i]), scale);
}

// The row's largest magnitude, in all threads.
DEVICE float row_max(const uint4* from, int width, float* scratch) {
    float most = 0.0f;
    for (int i = threadIdx.x; i < width / 8; i += 256) most = largest(f32x8_from(from[i]), most);
    return block_max(most, scratch);
}

// scales[row] = the row's largest magnitude / 127, and out = x / scale, rounded to nearest, ties to even. A row of zeros has scale 0, and one
// with a NaN scale infinity, so that products of it are NaN.
extern "C" __global__ void __launch_bounds__(256) quantise_rows(const bf16* x, s8* out, float* scales, int width, int x_stride, int out_stride) {
    __shared__ float scratch[32];
    const uint4* from = reinterpret_cast<const uint4*>(x + size_t(blockIdx.x) * x_stride);
    s8* to = out + size_t(blockIdx.x) * out_stride;
    const float most = row_max(from, width, scratch), factor = s8_factor(most);
    if (threadIdx.x == 0) scales[blockIdx.x] = most / 127.0f;
    for (int i = threadIdx.x; i < width / 8; i += 256) store_eight(to + i * 8, f32x8_from(from[i]), factor);
}

// The same in e4m3, by a warp: scales[row] = the row's largest magnitude / 448; 1 of a row of zeros, or of values whose scale has no finite
// inverse.
DEVICE void quantise_row_e4m3(const bf16* x, e4m3* to, float* to_scale, int width) {
    const uint4* from = reinterpret_cast<const uint4*>(x);
    const int lane = threadIdx.x % 32;
    float most = 0.0f;
    for (int i = lane; i < width / 8; i += 32) most = largest(f32x8_from(from[i]), most);
    most = warp_max(most);
    const float scale = most > 1e-30f ? most / 448.0f : 1.0f;
    if (lane == 0) *to_scale = scale;
    for (int i = lane; i < width / 8; i += 32) store_eight(to + i * 8, f32x8_from(from[i]), 1.0f / scale);
}
// Grid (ceil(rows / 8)).
extern "C" __global__ void __launch_bounds__(256) quantise_rows_e4m3(const bf16* x, e4m3* out, float* scales, int rows, int width, int x_stride, int out_stride) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row < rows) quantise_row_e4m3(x + size_t(row) * x_stride, out + size_t(row) * out_stride, scales + row, width);
}
// into = max(into, |x|) over all values, so that calls can follow each other; at least 0. NaN counts as infinity.
extern "C" __global__ void __launch_bounds__(256) abs_max(const bf16* x, float* into, int width, int x_stride) {
    __shared__ float scratch[32];
    const uint4* from = reinterpret_cast<const uint4*>(x + size_t(blockIdx.x) * x_stride);
    const float most = row_max(from, width, scratch);
    // For floats that are not negative, the order of their bits is their order.
    if (threadIdx.x == 0) atomicMax(reinterpret_cast<int*>(into), __float_as_int(most));
}
