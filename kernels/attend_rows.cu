// Attention of new positions to what is in the cache: prompts, drafts and decode rows. Two kernels.
//
//   attend_prefix   rows of one image read its prefix once: up to 16 of them are a tile, a tile is one tensor-core operand
//   attend_own      each position, its own pages up to itself; merges what the prefix gave and writes the result
//
//   qkv        [positions, 3 * heads * 64] bf16, turned (rope_scatter.cu)
//   keys, values   the cache of this layer (common.cuh)
//   pages      all page tables of the step, one after the other
//   tile_row   [tiles][16] positions of a tile, -1 where it has fewer
//   tile_table, tile_length   [tiles] its prefix's first entry in pages, and its positions
//   part, part_mass   [tiles][heads][splits][16][64] and [..][16][2] f32: what a split gives, not divided by its mass, and
//              its maximum (times scale, base 2) and mass
// Up to 32 splits. Both softmaxes are f32; the parts are merged by their maxima. scale = 1/8.
// CPU twin: cpu::attention::attend_past.
#include "attend_page.cuh"

// grid (tiles, heads, splits), 128 threads. Warps take the pages of their split in turn.
extern "C" __global__ void __launch_bounds__(128) attend_prefix(const bf16* qkv, const bf16* keys, const bf16* values, const int* pages, const int* tile_row, const int* tile_table, const int* tile_length, float* part, float* part_mass, int heads) {
    __shared__ FourSeen<ROWS_OF_TILE> all;
    const int tile = blockIdx.x, head = blockIdx.y, split = blockIdx.z, splits = gridDim.z;
    const int length = tile_length[tile];
    if (length == 0) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int width = heads * TEXT_HEAD;
    Seen seen;
    see_nothing(seen);
    for (int half = 0; half < 2; half++) {
        int row = tile_row[tile * 16 + g + half * 8];
        const uint4* from = reinterpret_cast<const uint4*>(qkv + size_t(row < 0 ? 0 : row) * 3 * width + head * TEXT_HEAD);
        for (int c = 0; c < 2; c++) seen.q[half][c] = row < 0 ? make_uint4(0, 0, 0, 0) : from[c * 4 + t];
    }
    const int count = (length + PAGE - 1) / PAGE;
    const int from_page = count * split / splits, to_page = count * (split + 1) / splits;
    for (int index = from_page + warp; index < to_page; index += 4) {
        size_t at = (size_t(pages[tile_table[tile] + index]) * heads + head) * PAGE * TEXT_HEAD;
        see_page(seen, keys + at, values + at, length - index * PAGE, -1);
    }
    put_seen(all, warp, seen);
    __syncthreads();
    size_t at = (size_t(tile) * heads + head) * splits + split;
    for (int i = threadIdx.x; i < 16 * TEXT_HEAD; i += 128) {
        Merged m = merge_seen(all, i / TEXT_HEAD, i % TEXT_HEAD);
        part[at * 16 * TEXT_HEAD + i] = m.value;
        if (i % TEXT_HEAD == 0) {
            part_mass[(at * 16 + i / TEXT_HEAD) * 2] = m.top;
            part_mass[(at * 16 + i / TEXT_HEAD) * 2 + 1] = m.mass;
        }
    }
}

//   own_table, own_length   [positions] a position's own first entry in pages, and how many own positions it sees
//   place      [positions] its tile * 16 + row, or -1 without a prefix
//   out        [positions, out_stride] bf16, heads * 64 values; of attend_own_e4m3 e4m3, each value times out_scale
// grid (positions, heads / 4 rounded up), 128 threads, one warp a position and head. For a page of scores lane i takes
// position i % 16 and half i / 16 of the dimensions; for the values it takes dimensions 2i and 2i + 1.
template <typename OUT>
DEVICE void attend_to_own(const bf16* qkv, const bf16* keys, const bf16* values, const int* pages, const int* own_table, const int* own_length, const int* place, const float* part, const float* part_mass, OUT* out, int heads, int splits, int out_stride, float out_scale) {
    const int row = blockIdx.x, head = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (head >= heads) return;
    const int width = heads * TEXT_HEAD, length = own_length[row], table = own_table[row];
    const uint4* q4 = reinterpret_cast<const uint4*>(qkv + size_t(row) * 3 * width + head * TEXT_HEAD + lane / 16 * 32);
    Eight q[4];
    for (int i = 0; i < 4; i++) q[i] = eight_from(q4[i]);
    float top = NEG_INF, mass = 0.0f, low = 0.0f, high = 0.0f;
    for (int first = 0; first < length; first += PAGE) {
        size_t page = size_t(pages[table + first / PAGE]) * heads + head;
        const uint4* k4 = reinterpret_cast<const uint4*>(keys + (page * PAGE + lane % 16) * TEXT_HEAD + lane / 16 * 32);
        float dot = 0.0f;
        for (int i = 0; i < 4; i++) {
            Eight k = eight_from(k4[i]);
            for (int j = 0; j < 8; j++) dot += q[i].x[j] * k.x[j];
        }
        dot += __shfl_xor_sync(WARP_ALL, dot, 16);
        dot = first + lane % 16 < length ? dot * SCALE2 : NEG_INF;
        float best = fmaxf(top, warp_max(dot)), fade = exp2_fast(top - best), p = exp2_fast(dot - best);
        // Both halves hold every score.
        mass = mass * fade + 0.5f * warp_sum(p);
        low *= fade;
        high *= fade;
        top = best;
        const uint4* v4 = reinterpret_cast<const uint4*>(values + (page * TEXT_HEAD + lane * 2) * PAGE);
        for (int i = 0; i < 2; i++) {
            Eight a = eight_from(v4[i]), b = eight_from(v4[i + 2]);
            for (int j = 0; j < 8; j++) {
                float share = __shfl_sync(WARP_ALL, p, i * 8 + j);
                // What was never written may be no number, and 0 times that is none.
                if (first + i * 8 + j < length) {
                    low += share * a.x[j];
                    high += share * b.x[j];
                }
            }
        }
    }
    if (place[row] >= 0) {
        // Every split has written its part; one without pages has no maximum and no mass. Lane i knows split i.
        const size_t first = ((size_t(place[row] / 16) * heads + head) * splits) * 16 + place[row] % 16;
        const bool knows = lane < splits;
        float part_top = knows ? part_mass[(first + lane * 16) * 2] : NEG_INF;
        float part_sum = knows ? part_mass[(first + lane * 16) * 2 + 1] : 0.0f;
        float best = fmaxf(top, warp_max(part_top)), fade = exp2_fast(top - best);
        float share = part_top == NEG_INF ? 0.0f : exp2_fast(part_top - best);
        mass = mass * fade + warp_sum(part_sum * share);
        low *= fade;
        high *= fade;
#pragma unroll 4
        for (int split = 0; split < splits; split++) {
            float2 o = *reinterpret_cast<const float2*>(part + (first + split * 16) * TEXT_HEAD + lane * 2);
            float s = __shfl_sync(WARP_ALL, share, split);
            low += o.x * s;
            high += o.y * s;
        }
    }
    store_two(out + size_t(row) * out_stride + head * TEXT_HEAD + lane * 2, low / mass, high / mass, out_scale);
}

#define ARGUMENTS const bf16 *qkv, const bf16 *keys, const bf16 *values, const int *pages, const int *own_table, const int *own_length, const int *place, const float *part, const float *part_mass
#define PASS qkv, keys, values, pages, own_table, own_length, place, part, part_mass
extern "C" __global__ void __launch_bounds__(128) attend_own(ARGUMENTS, bf16* out, int heads, int splits, int out_stride) {
    attend_to_own(PASS, out, heads, splits, out_stride, 1.0f);
}
extern "C" __global__ void __launch_bounds__(128) attend_own_e4m3(ARGUMENTS, e4m3* out, int heads, int splits, int out_stride, float out_scale) {
    attend_to_own(PASS, out, heads, splits, out_stride, out_scale);
}
