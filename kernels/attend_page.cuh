// One page of the KV cache (16 positions of one head) for one warp with up to 16 query rows: a step of the online softmax.
//
//   state   queries, row_max, row_sum and unnormalised outputs of rows g and g + 8 of lane (g, t) = (lane / 4, lane % 4). row_sum
//           counts the lane's own keys; store_partial adds up the four lanes of a row
//   k, v    [16][64] and, transposed, [64][16] bf16, as in common.cuh
//
// Operands go from global memory to registers without shared memory. The column of a fragment that a dimension is in does not matter
// as long as q and k agree, nor the column of a key as long as p and v do, so every lane loads 16 (keys) or 8 (values) neighbouring
// bytes: dimensions 8t.. and 32 + 8t.. of the keys. Column c of key block b is key 4 (c / 2) + 2b + c % 2.
// Products in bf16 with f32 sums; softmax in f32, base 2, with a running maximum; weights are rounded to bf16.
// CPU reference: cpu/attention.rs, attend_past. Used by attend_rows.cu and decode_attend.cuh.
#pragma once
#include "common.cuh"

#define SCALE_LOG2 (0.125f * LOG2_E)
#define TILE_ROWS 16

// Online softmax of rows g and g + 8 of a warp. A row without positions has row_max NEG_INF and row_sum 0.
struct SoftmaxState {
    uint4 q[2][2];
    float o[TEXT_HEAD / 8][4], row_max[2], row_sum[2];
};

DEVICE void clear_softmax(SoftmaxState& state) {
#pragma unroll
    for (int n = 0; n < TEXT_HEAD / 8; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) state.o[n][c] = 0.0f;
    }
    state.row_max[0] = state.row_max[1] = NEG_INF;
    state.row_sum[0] = state.row_sum[1] = 0.0f;
}

// Adds the positions below `limit` of the page, for all rows or for `only_row` (-1: all). Other positions are masked as bits, because
// memory that was never written may be NaN, and 0 * NaN is NaN.
DEVICE void attend_page(SoftmaxState& state, const bf16* k, const bf16* v, int limit, int only_row) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, left = limit - t * 4;
    uint2 vf[TEXT_HEAD / 8];
#pragma unroll
    for (int n = 0; n < TEXT_HEAD / 8; n++) vf[n] = *reinterpret_cast<const uint2*>(v + (n * 8 + g) * PAGE + t * 4);
    float s[2][4] = {};
#pragma unroll
    for (int b = 0; b < 2; b++) {
        const uint4* row = reinterpret_cast<const uint4*>(k + (g / 2 * 4 + b * 2 + g % 2) * TEXT_HEAD);
#pragma unroll
        for (int c = 0; c < 2; c++) {
            uint4 kf = row[c * 4 + t];
            u32 low[4] = {state.q[0][c].x, state.q[1][c].x, state.q[0][c].y, state.q[1][c].y};
            u32 high[4] = {state.q[0][c].z, state.q[1][c].z, state.q[0][c].w, state.q[1][c].w};
            mma_16_8_16(s[b], low, kf.x, kf.y);
            mma_16_8_16(s[b], high, kf.z, kf.w);
        }
    }
    if (left < 4) {
#pragma unroll
        for (int n = 0; n < TEXT_HEAD / 8; n++) {
            vf[n].x = left >= 2 ? vf[n].x : left == 1 ? vf[n].x & 0xffffu : 0;
            vf[n].y = left == 3 ? vf[n].y & 0xffffu : 0;
        }
    }
    // In lane t, s[b][0] and s[b][1] are keys 4t + 2b and 4t + 2b + 1.
#pragma unroll
    for (int b = 0; b < 2; b++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            bool is_visible = b * 2 + c % 2 < left && (only_row < 0 || only_row == g + c / 2 * 8);
            s[b][c] = is_visible ? s[b][c] * SCALE_LOG2 : NEG_INF;
        }
    }
    u32 p[4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float new_max = fmaxf(fmaxf(s[0][half * 2], s[0][half * 2 + 1]), fmaxf(s[1][half * 2], s[1][half * 2 + 1]));
        new_max = fmaxf(new_max, __shfl_xor_sync(WARP_ALL, new_max, 1));
        new_max = fmaxf(new_max, __shfl_xor_sync(WARP_ALL, new_max, 2));
        new_max = fmaxf(new_max, state.row_max[half]);
        // -infinity minus -infinity would be NaN.
        const float base = new_max == NEG_INF ? 0.0f : new_max, rescale = exp2_fast(state.row_max[half] - base);
        state.row_max[half] = new_max;
        float e0 = exp2_fast(s[0][half * 2] - base), e1 = exp2_fast(s[0][half * 2 + 1] - base);
        float e2 = exp2_fast(s[1][half * 2] - base), e3 = exp2_fast(s[1][half * 2 + 1] - base);
        state.row_sum[half] = state.row_sum[half] * rescale + e0 + e1 + e2 + e3;
        p[half] = bf16_pair(e0, e1);
        p[half + 2] = bf16_pair(e2, e3);
#pragma unroll
        for (int n = 0; n < TEXT_HEAD / 8; n++) {
            state.o[n][half * 2] *= rescale;
            state.o[n][half * 2 + 1] *= rescale;
        }
    }
#pragma unroll
    for (int n = 0; n < TEXT_HEAD / 8; n++) mma_16_8_16(state.o[n], p, vf[n].x, vf[n].y);
}

// Results of four warps for the first ROWS rows, in shared memory; padded, so that lanes that write together write to different banks.
template <int ROWS> struct WarpPartials {
    float values[4][ROWS][TEXT_HEAD + 8];
    float row_maxes[4][ROWS], row_sums[4][ROWS];
};

template <int ROWS> DEVICE void store_partial(WarpPartials<ROWS>& all, int warp, SoftmaxState& state) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float row_sum = state.row_sum[half];
        row_sum += __shfl_xor_sync(WARP_ALL, row_sum, 1);
        row_sum += __shfl_xor_sync(WARP_ALL, row_sum, 2);
        const int row = g + half * 8;
        if (row >= ROWS) continue;
        if (t == 0) {
            all.row_maxes[warp][row] = state.row_max[half];
            all.row_sums[warp][row] = row_sum;
        }
#pragma unroll
        for (int n = 0; n < TEXT_HEAD / 8; n++) {
            *reinterpret_cast<float2*>(&all.values[warp][row][n * 8 + t * 2]) = make_float2(state.o[n][half * 2], state.o[n][half * 2 + 1]);
        }
    }
}

// Dimension d of a row over all four warps, not divided by row_sum.
struct Merged {
    float value, row_max, row_sum;
};
template <int ROWS> DEVICE Merged merge_partials(const WarpPartials<ROWS>& all, int row, int d) {
    Merged m = {0.0f, fmaxf(fmaxf(all.row_maxes[0][row], all.row_maxes[1][row]), fmaxf(all.row_maxes[2][row], all.row_maxes[3][row])), 0.0f};
#pragma unroll
    for (int w = 0; w < 4; w++) {
        float weight = all.row_maxes[w][row] == NEG_INF ? 0.0f : exp2_fast(all.row_maxes[w][row] - m.row_max);
        m.value += all.values[w][row][d] * weight;
        m.row_sum += all.row_sums[w][row] * weight;
    }
    return m;
}
