// Layer norm, row by row: out = (x - mean(x)) / sqrt(var(x) + 1e-5) * weight + bias.
//
//   x, out        [rows, width] bf16 without gaps; width a multiple of 8, 16-byte aligned
//   weight, bias  [width] bf16
//   Kernels named _e4m3 write e4m3, each value times `scale`; rows 8-byte aligned. layer_norm_int8 writes int8, rows
//   `out_stride` values apart, and `scales`, as quantise_rows does.
//
// layer_norm: grid (ceil(rows / 8)), 256 threads; a warp computes a row, a lane every 32nd group of 8 values.
// layer_norm_few, for few rows: grid (rows), 256 threads; a block computes a row and reads each value once; width up to 4096; shared
// memory: 32 floats for sums over the block.
// layer_norm_few_experts: x += the sum of ExpertResults (experts.cuh) before, in the same launch.
// f32 sums: each lane over its values, then shuffles. The variance is that of the centred values.
// CPU reference: cpu/ops.rs, Norm::forward. Launched by cuda/kernels/layers.rs.
#include "experts.cuh"

// Mean and 1 / deviation of a row that a warp reads.
DEVICE float2 warp_moments(const uint4* in, int width) {
    const int lane = threadIdx.x % 32, groups = width / 8;
    float sum = 0.0f;
    for (int i = lane; i < groups; i += 32) {
        F32x8 e = f32x8_from(in[i]);
        for (int j = 0; j < 8; j++) sum += e.x[j];
    }
    float mean = warp_sum(sum) / width;
    float squares = 0.0f;
    for (int i = lane; i < groups; i += 32) {
        F32x8 e = f32x8_from(in[i]);
        for (int j = 0; j < 8; j++) squares += (e.x[j] - mean) * (e.x[j] - mean);
    }
    return make_float2(mean, rsqrtf(warp_sum(squares) / width + 1e-5f));
}
// The norm of a row's i-th group of 8 values.
DEVICE F32x8 normed(uint4 eight, const bf16* weight, const bf16* bias, int i, float2 moments) {
    F32x8 e = f32x8_from(eight);
    F32x8 w = f32x8_from(reinterpret_cast<const uint4*>(weight)[i]);
    F32x8 b = f32x8_from(reinterpret_cast<const uint4*>(bias)[i]);
    for (int j = 0; j < 8; j++) e.x[j] = (e.x[j] - moments.x) * moments.y * w.x[j] + b.x[j];
    return e;
}

// Rows of up to LANE_GROUPS * 256 values stay in registers, so that a warp has a whole row in flight and reads it once.
constexpr int LANE_GROUPS = 5;
template <typename OUT>
DEVICE void norm_in_registers(const uint4* in, const bf16* weight, const bf16* bias, OUT* to, int width, float out_scale) {
    const int lane = threadIdx.x % 32, groups = width / 8;
    uint4 raw[LANE_GROUPS];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < LANE_GROUPS; k++) raw[k] = keep_if(in[min(lane + k * 32, groups - 1)], lane + k * 32 < groups);
#pragma unroll
    for (int k = 0; k < LANE_GROUPS; k++) {
        const F32x8 e = f32x8_from(raw[k]);
        for (int j = 0; j < 8; j++) sum += e.x[j];
    }
    const float mean = warp_sum(sum) / width;
#pragma unroll
    for (int k = 0; k < LANE_GROUPS; k++) {
        const F32x8 e = f32x8_from(raw[k]);
        const bool is_there = lane + k * 32 < groups;
        for (int j = 0; j < 8; j++) {
            const float off = is_there ? e.x[j] - mean : 0.0f;
            squares += off * off;
        }
    }
    const float2 moments = make_float2(mean, rsqrtf(warp_sum(squares) / width + 1e-5f));
#pragma unroll
    for (int k = 0; k < LANE_GROUPS; k++) {
        const int i = lane + k * 32;
        if (i < groups) store_eight(to + i * 8, normed(raw[k], weight, bias, i, moments), out_scale);
    }
}

template <typename OUT>
DEVICE void norm_by_warps(const bf16* x, const bf16* weight, const bf16* bias, OUT* out, int rows, int width, float out_scale) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const uint4* in = reinterpret_cast<const uint4*>(x + size_t(row) * width);
    OUT* to = out + size_t(row) * width;
    if (width <= LANE_GROUPS * 256) return norm_in_registers(in, weight, bias, to, width, out_scale);
    const float2 moments = warp_moments(in, width);
    for (int i = threadIdx.x % 32; i < width / 8; i += 32) store_eight(to + i * 8, normed(in[i], weight, bias, i, moments), out_scale);
}

DEVICE auto row_of_block(const bf16* x, int width) {
    const uint4* in = reinterpret_cast<const uint4*>(x + size_t(blockIdx.x) * width);
    return [=](int i) { return in[i]; };
}
// load(i): the i-th group of 8 values of the block's row.
template <typename OUT, typename Load>
DEVICE void norm_by_blocks(Load load, const bf16* weight, const bf16* bias, OUT* out, int width, float out_scale) {
    __shared__ float scratch[32];
    OUT* to = out + size_t(blockIdx.x) * width;
    const int groups = width / 8;
    F32x8 e[2];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int i = threadIdx.x + k * 256;
        e[k] = f32x8_from(i < groups ? load(i) : make_uint4(0, 0, 0, 0));
        for (int j = 0; j < 8; j++) sum += e[k].x[j];
    }
    float mean = block_sum(sum, scratch) / width, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        for (int j = 0; j < 8 && int(threadIdx.x) + k * 256 < groups; j++) squares += (e[k].x[j] - mean) * (e[k].x[j] - mean);
    }
    float scale = rsqrtf(block_sum(squares, scratch) / width + 1e-5f);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int i = threadIdx.x + k * 256;
        if (i >= groups) continue;
        F32x8 w = f32x8_from(reinterpret_cast<const uint4*>(weight)[i]);
        F32x8 b = f32x8_from(reinterpret_cast<const uint4*>(bias)[i]);
        for (int j = 0; j < 8; j++) e[k].x[j] = (e[k].x[j] - mean) * scale * w.x[j] + b.x[j];
        store_eight(to + i * 8, e[k], out_scale);
    }
}

extern "C" __global__ void __launch_bounds__(256) layer_norm(const bf16* x, const bf16* weight, const bf16* bias, bf16* out, int rows, int width) {
    norm_by_warps(x, weight, bias, out, rows, width, 1.0f);
}
extern "C" __global__ void __launch_bounds__(256) layer_norm_e4m3(const bf16* x, const bf16* weight, const bf16* bias, e4m3* out, int rows, int width, float scale) {
    norm_by_warps(x, weight, bias, out, rows, width, scale);
}
extern "C" __global__ void __launch_bounds__(256) layer_norm_few(const bf16* x, const bf16* weight, const bf16* bias, bf16* out, int rows, int width) {
    norm_by_blocks(row_of_block(x, width), weight, bias, out, width, 1.0f);
}
extern "C" __global__ void __launch_bounds__(256) layer_norm_few_experts(bf16* x, const bf16* weight, const bf16* bias, bf16* out, int width, const bf16* results, const int* expert, const float* share, const int* slot_of, int active) {
    const ExpertResults experts = {results, expert, share, slot_of, active};
    const int row = blockIdx.x;
    uint4* in = reinterpret_cast<uint4*>(x + size_t(row) * width);
    const bool has_experts = experts.has(row);
    const auto add = [=](int i) {
        uint4 eight = in[i];
        if (has_experts) in[i] = eight = experts.added(eight, row, i, width);
        return eight;
    };
    norm_by_blocks(add, weight, bias, out, width, 1.0f);
}
extern "C" __global__ void __launch_bounds__(256) layer_norm_few_e4m3(const bf16* x, const bf16* weight, const bf16* bias, e4m3* out, int rows, int width, float scale) {
    norm_by_blocks(row_of_block(x, width), weight, bias, out, width, scale);
}
extern "C" __global__ void __launch_bounds__(256) layer_norm_int8(const bf16* x, const bf16* weight, const bf16* bias, s8* out, float* scales, int rows, int width, int out_stride) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const uint4* in = reinterpret_cast<const uint4*>(x + size_t(row) * width);
    const float2 moments = warp_moments(in, width);
    float most = 0.0f;
    for (int i = threadIdx.x % 32; i < width / 8; i += 32) most = largest(normed(in[i], weight, bias, i, moments), most);
    most = warp_max(most);
    if (threadIdx.x % 32 == 0) scales[row] = most / 127.0f;
    s8* to = out + size_t(row) * out_stride;
    for (int i = threadIdx.x % 32; i < width / 8; i += 32) store_eight(to + i * 8, normed(in[i], weight, bias, i, moments), s8_factor(most));
}
