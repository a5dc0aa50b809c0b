// Products of the decode step: a block's inputs, their norm, and sums over a unit of weights.
#pragma once
#include "decode_ring.cuh"

// This warp's slice of the inputs: of row n * 8 + g, i.e. of column g of operand n, values i * 32 + t * 8 and the 7 behind.
template <int BLOCKS> struct Inputs {
    uint4 x[BLOCKS][4];
};

template <int BLOCKS> DEVICE void load_inputs(Inputs<BLOCKS>& in, const bf16* from, int stride, int rows) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        const bf16* row = from + size_t(n * 8 + g) * stride + warp * SLICE + t * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) in.x[n][i] = n * 8 + g < rows ? fresh_eight(row + i * 32) : make_uint4(0, 0, 0, 0);
    }
}

// For each row the sum over the block of what its threads have of it: x[n] of row n * 8 + g.
template <int BLOCKS> DEVICE void sum_rows(float (&x)[BLOCKS], Shared& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        x[n] += __shfl_xor_sync(WARP_ALL, x[n], 1);
        x[n] += __shfl_xor_sync(WARP_ALL, x[n], 2);
        if (t == 0) shared.partial[warp][n * 8 + g] = x[n];
    }
    __syncthreads();
    if (threadIdx.x < WARPS * BLOCKS * 8) {
        float sum = shared.partial[threadIdx.x % WARPS][threadIdx.x / WARPS];
        for (int step = WARPS / 2; step > 0; step /= 2) sum += __shfl_xor_sync(WARP_ALL, sum, step);
        if (threadIdx.x % WARPS == 0) shared.total[threadIdx.x / WARPS] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) x[n] = shared.total[n * 8 + g];
}

// The same as eight_from by other instructions: else the compiler holds all inputs as twice as many f32 from their first use to
// their second, and registers do not suffice.
DEVICE Eight eight_again(uint4 raw) {
    const u32 pairs[4] = {raw.x, raw.y, raw.z, raw.w};
    Eight e;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 low, high;
        asm volatile("prmt.b32 %0, %1, 0, 0x1044;" : "=r"(low) : "r"(pairs[j]));
        asm volatile("prmt.b32 %0, %1, 0, 0x3244;" : "=r"(high) : "r"(pairs[j]));
        e.x[j * 2] = __uint_as_float(low);
        e.x[j * 2 + 1] = __uint_as_float(high);
    }
    return e;
}

// Layer norm of the inputs. A thread has 32 values of a row: their mean and their squares around it, then what that lacks to
// squares around the mean of the row, so that the values are gone through once.
template <int BLOCKS> DEVICE void norm_inputs(Inputs<BLOCKS>& in, const bf16* weight, const bf16* bias, Shared& shared) {
    const int at = threadIdx.x / 32 * SLICE + threadIdx.x % 4 * 8;
    float own[BLOCKS], mean[BLOCKS], squares[BLOCKS];
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Eight e = eight_from(in.x[n][i]);
            for (int j = 0; j < 8; j++) sum += e.x[j];
        }
        own[n] = mean[n] = sum / 32;
        squares[n] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Eight e = eight_from(in.x[n][i]);
            for (int j = 0; j < 8; j++) squares[n] += (e.x[j] - own[n]) * (e.x[j] - own[n]);
        }
    }
    sum_rows(mean, shared);
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        mean[n] /= WIDTH / 32;
        squares[n] += 32 * (own[n] - mean[n]) * (own[n] - mean[n]);
    }
    sum_rows(squares, shared);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 w = *reinterpret_cast<const uint4*>(weight + at + i * 32), b = *reinterpret_cast<const uint4*>(bias + at + i * 32);
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            const float scale = rsqrtf(squares[n] / WIDTH + 1e-5f);
            Eight e = eight_again(in.x[n][i]), by = eight_from(w), plus = eight_from(b);
            for (int j = 0; j < 8; j++) e.x[j] = (e.x[j] - mean[n]) * scale * by.x[j] + plus.x[j];
            in.x[n][i] = raw_from(e);
        }
    }
}

// The block's next unit. Thread i < 16 * BLOCKS * 8 gets the sum of output i % 16 for row i / 16.
template <int BLOCKS> DEVICE float product(const Step& s, Shared& shared, Ring& ring, const Inputs<BLOCKS>& in) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    constexpr int ROWS = BLOCKS * 8;
    barrier_wait(shared.fetched + ring.turn % STAGES, ring.turn / STAGES % 2);
    // Two sums for each, so that a product does not wait for the one before.
    float c[BLOCKS][4] = {}, d[BLOCKS][4] = {};
    const bf16* upper = Ring::stage(ring.turn) + g * ROW_PITCH + warp * SLICE + t * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint4 a = *reinterpret_cast<const uint4*>(upper + i * 32), b = *reinterpret_cast<const uint4*>(upper + 8 * ROW_PITCH + i * 32);
        u32 low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            mma_16_8_16(c[n], low, in.x[n][i].x, in.x[n][i].y);
            mma_16_8_16(BLOCKS < 4 ? d[n] : c[n], high, in.x[n][i].z, in.x[n][i].w);
        }
    }
    float* sums = static_cast<float*>(work_area()) + ring.turn % 2 * WARPS * ROWS * SUM_PITCH;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[(warp * ROWS + n * 8 + t * 2 + i % 2) * SUM_PITCH + g + i / 2 * 8] = c[n][i] + d[n][i];
    }
    // The other half of `sums` is written next, so one barrier for each unit is enough; behind it nobody reads the weights.
    __syncthreads();
    ring.fetch(s, shared, ring.turn);
    ring.turn++;
    float sum = 0.0f;
    if (threadIdx.x < UNIT * ROWS) {
        const float* from = sums + threadIdx.x / UNIT * SUM_PITCH + threadIdx.x % UNIT;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += from[w * ROWS * SUM_PITCH];
    }
    return sum;
}
