// A page of the cache, seen by a tile of up to 16 rows: the body of attention to what is in the cache, for one warp.
//
// No shared memory on the way in: which dimension stands in which column of a fragment does not matter as long as q and k
// agree, and which key in which column as long as p and v do, so every lane loads 16 (keys) or 8 (values) neighbouring
// bytes. Lane (g, t) takes dimensions 8t.. and 32+8t.. of the keys, and column c of key block b stands for key 4 (c/2) + 2b + c % 2.
// Softmax in f32, base 2, with a running maximum.
#pragma once
#include "common.cuh"

#define SCALE2 (0.125f * LOG2_E)
#define ROWS_OF_TILE 16

// What a warp has seen so far, of rows g and g + 8. A row that saw nothing has no maximum (NEG_INF) and no mass.
struct Seen {
    uint4 q[2][2];
    float o[TEXT_HEAD / 8][4], top[2], mass[2];
};

DEVICE void see_nothing(Seen& seen) {
#pragma unroll
    for (int n = 0; n < TEXT_HEAD / 8; n++) {
#pragma unroll
        for (int c = 0; c < 4; c++) seen.o[n][c] = 0.0f;
    }
    seen.top[0] = seen.top[1] = NEG_INF;
    seen.mass[0] = seen.mass[1] = 0.0f;
}

// Positions below `limit` of the page, by all rows or by `only` one of them (-1: all). Others are not read as numbers: what
// was never written may be none, and 0 times that is none.
DEVICE void see_page(Seen& seen, const bf16* k, const bf16* v, int limit, int only) {
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
            u32 low[4] = {seen.q[0][c].x, seen.q[1][c].x, seen.q[0][c].y, seen.q[1][c].y};
            u32 high[4] = {seen.q[0][c].z, seen.q[1][c].z, seen.q[0][c].w, seen.q[1][c].w};
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
    // Of lane t, s[b][0] and s[b][1] are keys 4t+2b and 4t+2b+1.
#pragma unroll
    for (int b = 0; b < 2; b++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            bool sees = b * 2 + c % 2 < left && (only < 0 || only == g + c / 2 * 8);
            s[b][c] = sees ? s[b][c] * SCALE2 : NEG_INF;
        }
    }
    u32 p[4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float high = fmaxf(fmaxf(s[0][half * 2], s[0][half * 2 + 1]), fmaxf(s[1][half * 2], s[1][half * 2 + 1]));
        high = fmaxf(high, __shfl_xor_sync(WARP_ALL, high, 1));
        high = fmaxf(high, __shfl_xor_sync(WARP_ALL, high, 2));
        high = fmaxf(high, seen.top[half]);
        // Without a maximum every difference to it would be none.
        const float base = high == NEG_INF ? 0.0f : high, fade = exp2_fast(seen.top[half] - base);
        seen.top[half] = high;
        float e0 = exp2_fast(s[0][half * 2] - base), e1 = exp2_fast(s[0][half * 2 + 1] - base);
        float e2 = exp2_fast(s[1][half * 2] - base), e3 = exp2_fast(s[1][half * 2 + 1] - base);
        seen.mass[half] = seen.mass[half] * fade + e0 + e1 + e2 + e3;
        p[half] = bf16_pair(e0, e1);
        p[half + 2] = bf16_pair(e2, e3);
#pragma unroll
        for (int n = 0; n < TEXT_HEAD / 8; n++) {
            seen.o[n][half * 2] *= fade;
            seen.o[n][half * 2 + 1] *= fade;
        }
    }
#pragma unroll
    for (int n = 0; n < TEXT_HEAD / 8; n++) mma_16_8_16(seen.o[n], p, vf[n].x, vf[n].y);
}

// What four warps have seen of the first ROWS rows, in shared memory. They are padded, so that lanes that write together write to
// different banks.
template <int ROWS> struct FourSeen {
    float values[4][ROWS][TEXT_HEAD + 8];
    float tops[4][ROWS], masses[4][ROWS];
};

template <int ROWS> DEVICE void put_seen(FourSeen<ROWS>& all, int warp, Seen& seen) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float mass = seen.mass[half];
        mass += __shfl_xor_sync(WARP_ALL, mass, 1);
        mass += __shfl_xor_sync(WARP_ALL, mass, 2);
        const int row = g + half * 8;
        if (row >= ROWS) continue;
        if (t == 0) {
            all.tops[warp][row] = seen.top[half];
            all.masses[warp][row] = mass;
        }
#pragma unroll
        for (int n = 0; n < TEXT_HEAD / 8; n++) {
            *reinterpret_cast<float2*>(&all.values[warp][row][n * 8 + t * 2]) = make_float2(seen.o[n][half * 2], seen.o[n][half * 2 + 1]);
        }
    }
}

// Dimension d of a row over all four, not divided by its mass.
struct Merged {
    float value, top, mass;
};
template <int ROWS> DEVICE Merged merge_seen(const FourSeen<ROWS>& all, int row, int d) {
    Merged m = {0.0f, fmaxf(fmaxf(all.tops[0][row], all.tops[1][row]), fmaxf(all.tops[2][row], all.tops[3][row])), 0.0f};
#pragma unroll
    for (int w = 0; w < 4; w++) {
        float share = all.tops[w][row] == NEG_INF ? 0.0f : exp2_fast(all.tops[w][row] - m.top);
        m.value += all.values[w][row][d] * share;
        m.mass += all.masses[w][row] * share;
    }
    return m;
}
