// What adapters add to the products of a layer: out += B (A x), row by row. Rows have different adapters, or none.
//
//   x       [rows, inner] bf16, rows x_stride values apart; inner and x_stride multiples of 8
//   x_rows  [rows] i32: the row of x that a row reads; 0: its own
//   parts   [rows] i32: which A and B it has (an adapter's, or those of one expert of it); -1: none, and out stays
//   a       [parts, RANK, inner] bf16, b [parts, outputs, RANK] bf16; an adapter of lower rank has zeros behind its own
//   narrow  [rows, RANK] f32, between the two kernels
//   out     [rows, outputs] bf16, rows out_stride values apart
//
// low_rank_narrow: grid (rows / 8, RANK / 8), 256 threads: a warp computes one value of A x for eight rows; it reads a row of A once as long as
// neighbours have the same part, as the positions of a prefill do. low_rank_add: grid (outputs / 256, rows / 16), 256 threads: a thread keeps
// its output's row of B in registers for sixteen rows. All sums are in f32; a row's sums do not depend on the rows beside it.
// CPU reference: cpu/adapter.rs, LowRank::add. Launched by cuda/kernels/low_rank.rs.
//
// The other kernels are what rows with adapters need between products that are one for rows without.
#include "experts.cuh"

#define NARROW_ROWS 8
#define ADD_ROWS 16
#define WARPS 8

template <int RANK> DEVICE void narrow_rows(const bf16* x, const int* x_rows, const int* parts, const bf16* a, float* narrow, int rows, int inner, int x_stride) {
    const int lane = threadIdx.x % 32, rank = blockIdx.y * WARPS + threadIdx.x / 32, first = blockIdx.x * NARROW_ROWS;
    if (rank >= RANK) return;
    int part[NARROW_ROWS];
    const bf16* from[NARROW_ROWS];
    float sums[NARROW_ROWS] = {};
#pragma unroll
    for (int i = 0; i < NARROW_ROWS; i++) {
        const int row = min(first + i, rows - 1);
        part[i] = first + i < rows ? parts[row] : -1;
        from[i] = x + size_t(x_rows ? x_rows[row] : row) * x_stride;
    }
    for (int at = lane * 8; at < inner; at += 256) {
        F32x8 weights;
        int loaded = -1;
#pragma unroll
        for (int i = 0; i < NARROW_ROWS; i++) {
            if (part[i] < 0) continue;
            if (part[i] != loaded) {
                loaded = part[i];
                weights = f32x8_from(*reinterpret_cast<const uint4*>(a + (size_t(loaded) * RANK + rank) * inner + at));
            }
            const F32x8 values = f32x8_from(*reinterpret_cast<const uint4*>(from[i] + at));
            for (int j = 0; j < 8; j++) sums[i] += weights.x[j] * values.x[j];
        }
    }
#pragma unroll
    for (int i = 0; i < NARROW_ROWS; i++) {
        const float sum = warp_sum(sums[i]);
        if (lane == 0 && part[i] >= 0) narrow[size_t(first + i) * RANK + rank] = sum;
    }
}

template <int RANK> DEVICE void add_rows(const float* narrow, const int* parts, const bf16* b, bf16* out, int rows, int outputs, int out_stride) {
    __shared__ float values[ADD_ROWS][RANK];
    __shared__ int part[ADD_ROWS];
    const int output = blockIdx.x * 256 + threadIdx.x, first = blockIdx.y * ADD_ROWS;
    if (threadIdx.x < ADD_ROWS) part[threadIdx.x] = first + threadIdx.x < rows ? parts[first + threadIdx.x] : -1;
    __syncthreads();
    for (int i = threadIdx.x; i < ADD_ROWS * RANK; i += 256) {
        // What was not computed is not read: it may be any bits.
        values[i / RANK][i % RANK] = part[i / RANK] < 0 ? 0.0f : narrow[size_t(first) * RANK + i];
    }
    __syncthreads();
    if (output >= outputs) return;
    float weights[RANK];
    int loaded = -1;
    for (int i = 0; i < ADD_ROWS; i++) {
        if (part[i] < 0) continue;
        if (part[i] != loaded) {
            loaded = part[i];
            const bf16* row = b + (size_t(loaded) * outputs + output) * RANK;
#pragma unroll
            for (int r = 0; r < RANK; r += 4) {
                const uint2 four = *reinterpret_cast<const uint2*>(row + r);
                weights[r] = f32_from_low(four.x), weights[r + 1] = f32_from_high(four.x);
                weights[r + 2] = f32_from_low(four.y), weights[r + 3] = f32_from_high(four.y);
            }
        }
        float sum = 0.0f;
#pragma unroll
        for (int r = 0; r < RANK; r++) sum += weights[r] * values[i][r];
        bf16* to = out + size_t(first + i) * out_stride + output;
        *to = bf16_from_f32(f32_from_bf16(*to) + sum);
    }
}

// RANK 32 for a layer, 4 for each of the experts of which eight are active.
extern "C" __global__ void __launch_bounds__(256) low_rank_narrow_32(const bf16* x, const int* x_rows, const int* parts, const bf16* a, float* narrow, int rows, int inner, int x_stride) { narrow_rows<32>(x, x_rows, parts, a, narrow, rows, inner, x_stride); }
extern "C" __global__ void __launch_bounds__(256) low_rank_narrow_4(const bf16* x, const int* x_rows, const int* parts, const bf16* a, float* narrow, int rows, int inner, int x_stride) { narrow_rows<4>(x, x_rows, parts, a, narrow, rows, inner, x_stride); }
extern "C" __global__ void __launch_bounds__(256) low_rank_add_32(const float* narrow, const int* parts, const bf16* b, bf16* out, int rows, int outputs, int out_stride) { add_rows<32>(narrow, parts, b, out, rows, outputs, out_stride); }
extern "C" __global__ void __launch_bounds__(256) low_rank_add_4(const float* narrow, const int* parts, const bf16* b, bf16* out, int rows, int outputs, int out_stride) { add_rows<4>(narrow, parts, b, out, rows, outputs, out_stride); }

// parts[slot] of the slots of experts (experts.cuh): adapter[row], a number of an adapter or -1, becomes adapter * experts + expert. Behind the
// last slot that experts have, -1. Grid (ceil(slots / 256)).
extern "C" __global__ void __launch_bounds__(256) expert_parts(const int* adapter, const int* offset, const int* slot_row, int* parts, int slots, int experts) {
    const int slot = blockIdx.x * 256 + threadIdx.x;
    if (slot >= slots) return;
    int part = -1;
    if (slot < offset[experts]) {
        const int of_row = adapter[slot_row[slot]];
        int expert = 0;
        while (offset[expert + 1] <= slot) expert++;
        if (of_row >= 0) part = of_row * experts + expert;
    }
    parts[slot] = part;
}

// inner[slot] = gelu(h) * (g + 1) of sums[slot] = [h | g], [slots, 2 * inner], up to the last slot that experts have. inner is a multiple of 8.
// Grid (slots).
extern "C" __global__ void __launch_bounds__(256) gate_experts(const bf16* sums, const int* offset, bf16* out, int inner, int experts) {
    if (int(blockIdx.x) >= offset[experts]) return;
    const uint4 *h = reinterpret_cast<const uint4*>(sums + size_t(blockIdx.x) * 2 * inner), *g = h + inner / 8;
    uint4* to = reinterpret_cast<uint4*>(out + size_t(blockIdx.x) * inner);
    for (int i = threadIdx.x; i < inner / 8; i += 256) {
        F32x8 values = f32x8_from(h[i]);
        const F32x8 gates = f32x8_from(g[i]);
        for (int j = 0; j < 8; j++) values.x[j] = gated(values.x[j], gates.x[j]);
        to[i] = bf16x8_from(values);
    }
}

// x = gelu(x) (tanh), [rows, width] bf16, rows x_stride values apart; both multiples of 8. Grid (rows).
extern "C" __global__ void __launch_bounds__(256) gelu_rows(bf16* x, int width, int x_stride) {
    uint4* row = reinterpret_cast<uint4*>(x + size_t(blockIdx.x) * x_stride);
    for (int i = threadIdx.x; i < width / 8; i += 256) {
        F32x8 values = f32x8_from(row[i]);
        for (int j = 0; j < 8; j++) values.x[j] = gelu_tanh(values.x[j]);
        row[i] = bf16x8_from(values);
    }
}
