// Turns queries and keys by their positions and puts keys and values into the cache.
//
//   qkv        [positions, 3 * heads * 64] bf16, q, k, v by heads; q and k are turned in place
//   position   [positions] where each stands in its sequence
//   slot       [positions] where each lies in the cache (common.cuh); -1 writes nothing there
//   turns      [context][16] (cos, sin) of position * 10000^(-j/16)
//   keys, values   the cache of this layer (common.cuh)
// Dimension j < 16 of a head pairs with j + 16: (a, b) -> (a cos - b sin, a sin + b cos); 32..63 stay. f32 arithmetic.
// A block takes 16 consecutive positions of one head: grid (ceil(positions / 16), heads), 128 threads, a warp turns four of
// them. Values go through shared memory, because the cache has them transposed; 16 positions that fill a page are
// written 16 bytes at a time.
// CPU twins: cpu::rope::Rope::turn, cpu::kv::KvCache::write.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(128) rope_scatter(bf16* qkv, const int* position, const int* slot, const float2* turns, bf16* keys, bf16* values, int positions, int heads) {
    __shared__ bf16 transposed[TEXT_HEAD][PAGE];
    __shared__ int slots[PAGE];
    const int first = blockIdx.x * PAGE, head = blockIdx.y, width = heads * TEXT_HEAD;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < PAGE) slots[threadIdx.x] = first + threadIdx.x < positions ? slot[first + threadIdx.x] : -1;
    __syncthreads();
    for (int i = warp * 4; i < warp * 4 + 4; i++) {
        if (first + i >= positions) break;
        bf16* q = qkv + size_t(first + i) * 3 * width + head * TEXT_HEAD;
        bf16* k = q + width;
        const bf16* v = k + width;
        float2 turn = turns[position[first + i] * 16 + lane % 16];
        auto turned = [&](const bf16* row) {
            float x = f32_from_bf16(row[lane]), pair = __shfl_xor_sync(WARP_ALL, x, 16);
            return bf16_from_f32(lane < 16 ? x * turn.x - pair * turn.y : pair * turn.y + x * turn.x);
        };
        bf16 low_q = turned(q), low_k = turned(k), high_k = k[lane + 32];
        q[lane] = low_q;
        k[lane] = low_k;
        transposed[lane][i] = v[lane];
        transposed[lane + 32][i] = v[lane + 32];
        int at = slots[i];
        if (at >= 0) {
            bf16* to = keys + ((size_t(at / PAGE) * heads + head) * PAGE + at % PAGE) * TEXT_HEAD;
            to[lane] = low_k;
            to[lane + 32] = high_k;
        }
    }
    __syncthreads();
    bool whole = slots[0] >= 0 && slots[0] % PAGE == 0;
    for (int i = 1; i < PAGE; i++) whole = whole && slots[i] == slots[0] + i;
    if (whole) {
        int d = threadIdx.x / 2, half = threadIdx.x % 2 * 8;
        bf16* to = values + ((size_t(slots[0] / PAGE) * heads + head) * TEXT_HEAD + d) * PAGE + half;
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&transposed[d][half]);
        return;
    }
    for (int j = threadIdx.x; j < TEXT_HEAD * PAGE; j += 128) {
        int d = j / PAGE, at = slots[j % PAGE];
        if (at >= 0) values[((size_t(at / PAGE) * heads + head) * TEXT_HEAD + d) * PAGE + at % PAGE] = transposed[d][j % PAGE];
    }
}
