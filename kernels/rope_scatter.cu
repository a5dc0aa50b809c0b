// Rotates queries and keys by their positions (RoPE) and writes keys and values to the cache. rope_scatter_tau scales queries and values
// before, in place too (tau.cu).
//
//   qkv        [positions, 3 * heads * 64] bf16: q, k, v by heads; q and k are rotated in place
//   position   [positions] position in the sequence
//   slot       [positions] place in the cache (common.cuh); -1 writes nothing there
//   rope_cos_sin   [context][16] (cos, sin) of position * theta^(-j/16)
//   keys, values   the cache of this layer (common.cuh)
//   tau        [splits][positions][2 * all_heads] f32: parts of the sums for queries, then for values, of each head; of these, `heads` from
//              first_head on are in qkv (the rest is at other ranks)
//   alpha      [heads] bf16; the scale is tanh(sum) + 0.5 + sigmoid(alpha ln(position + 1)), in f32
//
// Angle j maps (a, b) to (a cos - b sin, a sin + b cos), in f32. In the model a and b are dimensions j and j + 16 of a head; here they
// are 8 apart (cuda/weights/load.rs permutes the outputs of q and k): 0..7 with 8..15, angles 0..7; 16..23 with 24..31, angles 8..15;
// 32..63 are not rotated. Attention does not depend on the order of dimensions.
// Grid (heads, ceil(positions / 16)), 128 threads: a block takes 16 consecutive positions of one head, so that blocks that run together
// read whole rows and write a page of all heads. A thread has unit u of 8 (8 neighbouring dimensions) of one position, of q, k and v;
// the pairs are in unit u ^ 1, the next lane's. Values are transposed in shared memory (64 x 18 bf16); 16 positions that fill a page
// are written 16 bytes at a time.
// CPU reference: cpu/rope.rs, Rope::turn; cpu/kv.rs, KvCache::write. Launched by cuda/kernels/attention.rs.
#include "common.cuh"

#define UNITS (TEXT_HEAD / 8)
#define ROTATED_UNITS 4

// Two values more than a page, so that neighbouring dimensions are in different banks.
#define PITCH (PAGE + 2)

DEVICE uint4 scaled(uint4 raw, float scale) {
    F32x8 x = f32x8_from(raw);
#pragma unroll
    for (int j = 0; j < 8; j++) x.x[j] *= scale;
    return bf16x8_from(x);
}

// Scales, then rotates unit u < 4 of a head by angles 8 (u / 2) and the 7 behind; all lanes of the warp must call it.
template <bool SCALES>
DEVICE uint4 rotated(uint4 raw, const float4* rope_cos_sin, int unit, float scale) {
    uint4 pair = make_uint4(__shfl_xor_sync(WARP_ALL, raw.x, 1), __shfl_xor_sync(WARP_ALL, raw.y, 1),
                            __shfl_xor_sync(WARP_ALL, raw.z, 1), __shfl_xor_sync(WARP_ALL, raw.w, 1));
    if (unit >= ROTATED_UNITS) return SCALES ? scaled(raw, scale) : raw;
    F32x8 x = f32x8_from(raw), other = f32x8_from(pair);
    if (SCALES) {
#pragma unroll
        for (int j = 0; j < 8; j++) x.x[j] *= scale, other.x[j] *= scale;
    }
    const float sign = unit % 2 == 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float4 cos_sin = rope_cos_sin[j];
        x.x[j * 2] = x.x[j * 2] * cos_sin.x + sign * other.x[j * 2] * cos_sin.y;
        x.x[j * 2 + 1] = x.x[j * 2 + 1] * cos_sin.z + sign * other.x[j * 2 + 1] * cos_sin.w;
    }
    return bf16x8_from(x);
}

struct Tau {
    const float* parts;
    const bf16* alpha;
    int splits, all_heads, first_head;
    // Of the query (0) or the value (1) of a head.
    DEVICE float scale(int row, int part, int head, int positions, float by_position) const {
        const int output = part * all_heads + first_head + head;
        float sum = 0.0f;
        for (int i = 0; i < splits; i++) sum += parts[(size_t(i) * positions + row) * 2 * all_heads + output];
        return tanhf(sum) + by_position;
    }
};

template <bool SCALES>
DEVICE void turn_and_scatter(bf16* qkv, const int* position, const int* slot, const float4* rope_cos_sin, bf16* keys, bf16* values, int positions, int heads, Tau tau) {
    __shared__ bf16 transposed[TEXT_HEAD * PITCH];
    __shared__ int slots[PAGE];
    const int first = blockIdx.y * PAGE, head = blockIdx.x, width = heads * TEXT_HEAD;
    const int i = threadIdx.x / UNITS, unit = threadIdx.x % UNITS, row = first + i;
    const bool there = row < positions;
    const int at = there ? slot[row] : -1;
    uint4* q = reinterpret_cast<uint4*>(qkv + size_t(row) * 3 * width + head * TEXT_HEAD) + unit;
    uint4* k = q + width / 8;
    const uint4 zeros = make_uint4(0, 0, 0, 0);
    const int place = there ? position[row] : 0;
    const float4* angles = rope_cos_sin + place * 8 + unit / 2 % 2 * 4;
    float of_query = 1.0f, of_value = 1.0f;
    if (SCALES && there) {
        const float by_position = 0.5f + 1.0f / (1.0f + expf(-f32_from_bf16(tau.alpha[head]) * logf(place + 1.0f)));
        of_query = tau.scale(row, 0, head, positions, by_position);
        of_value = tau.scale(row, 1, head, positions, by_position);
    }
    uint4 value = there ? k[width / 8] : zeros;
    if (SCALES) value = scaled(value, of_value);
    const uint4 query = rotated<SCALES>(there ? *q : zeros, angles, unit, of_query);
    const uint4 key = rotated<false>(there ? *k : zeros, angles, unit, 1.0f);
    if (there && (SCALES || unit < ROTATED_UNITS)) *q = query;
    if (there && unit < ROTATED_UNITS) *k = key;
    if (SCALES && there) k[width / 8] = value;
    if (at >= 0) {
        bf16* to = keys + ((size_t(at / PAGE) * heads + head) * PAGE + at % PAGE) * TEXT_HEAD;
        reinterpret_cast<uint4*>(to)[unit] = key;
    }
    if (unit == 0) slots[i] = at;
    const u32 raw[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int j = 0; j < 8; j++) transposed[(unit * 8 + j) * PITCH + i] = bf16(raw[j / 2] >> (j % 2 * 16));
    __syncthreads();
    bool whole = slots[0] >= 0 && slots[0] % PAGE == 0;
    for (int j = 1; j < PAGE; j++) whole = whole && slots[j] == slots[0] + j;
    if (whole) {
        const int d = threadIdx.x / 2, half = threadIdx.x % 2 * 8;
        const u32* words = reinterpret_cast<const u32*>(transposed + d * PITCH + half);
        bf16* to = values + ((size_t(slots[0] / PAGE) * heads + head) * TEXT_HEAD + d) * PAGE + half;
        *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
        return;
    }
    for (int j = threadIdx.x; j < TEXT_HEAD * PAGE; j += 128) {
        const int d = j / PAGE, to = slots[j % PAGE];
        if (to >= 0) values[((size_t(to / PAGE) * heads + head) * TEXT_HEAD + d) * PAGE + to % PAGE] = transposed[d * PITCH + j % PAGE];
    }
}

extern "C" __global__ void __launch_bounds__(128) rope_scatter(bf16* qkv, const int* position, const int* slot, const float4* rope_cos_sin, bf16* keys, bf16* values, int positions, int heads) {
    turn_and_scatter<false>(qkv, position, slot, rope_cos_sin, keys, values, positions, heads, {});
}
extern "C" __global__ void __launch_bounds__(128) rope_scatter_tau(bf16* qkv, const int* position, const int* slot, const float4* rope_cos_sin, bf16* keys, bf16* values, int positions, int heads, const float* tau, const bf16* alpha, int splits, int all_heads, int first_head) {
    turn_and_scatter<true>(qkv, position, slot, rope_cos_sin, keys, values, positions, heads, {tau, alpha, splits, all_heads, first_head});
}
