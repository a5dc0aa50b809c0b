// Attention of new positions to the KV cache: prompts, drafts and decode rows. out = softmax(q k^T / 8) v over the prefix of the row's
// image, if it has one, and the row's own positions up to itself. Two kernels:
//
//   attend_prefix   rows of one image read its prefix once: up to 16 of them are a tile, one operand of the tensor core
//   attend_own      each position reads its own pages up to itself, merges the results of the prefix and writes the output
//
//   qkv             [positions, 3 * heads * 64] bf16, rotated (rope_scatter.cu)
//   keys, values    the cache of this layer (common.cuh)
//   pages           all page tables of the step, one after the other
//   tile_row        [tiles][16] positions of a tile, -1 where it has fewer
//   tile_table, tile_length   [tiles] first entry of the prefix in pages, and its positions; 0 of a tile of padding, which writes nothing
//   partial         [tiles][heads][splits][16][64] f32: output of a split, not divided by its sum of weights
//   partial_max_sum [tiles][heads][splits][16][2] f32: maximum of the scores (times 1/8, base 2) and sum of the weights of a split
//
// Up to 32 splits. Softmax in f32, base 2; partial results are merged by their maxima in the order of splits. Static shared memory of
// attend_prefix: what its four warps have (WarpPartials).
// CPU reference: cpu/attention.rs, attend_past. Launched by cuda/kernels/attention.rs.
#include "attend_page.cuh"

// Grid (tiles, heads, splits), 128 threads: a block computes a split of a tile and head; each of its warps takes every fourth page.
extern "C" __global__ void __launch_bounds__(128) attend_prefix(const bf16* qkv, const bf16* keys, const bf16* values, const int* pages, const int* tile_row, const int* tile_table, const int* tile_length, float* partial, float* partial_max_sum, int heads) {
    __shared__ WarpPartials<TILE_ROWS> all;
    const int tile = blockIdx.x, head = blockIdx.y, split = blockIdx.z, splits = gridDim.z;
    const int length = tile_length[tile];
    if (length == 0) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int width = heads * TEXT_HEAD;
    SoftmaxState state;
    clear_softmax(state);
    for (int half = 0; half < 2; half++) {
        int row = tile_row[tile * 16 + g + half * 8];
        const uint4* from = reinterpret_cast<const uint4*>(qkv + size_t(row < 0 ? 0 : row) * 3 * width + head * TEXT_HEAD);
        for (int c = 0; c < 2; c++) state.q[half][c] = row < 0 ? make_uint4(0, 0, 0, 0) : from[c * 4 + t];
    }
    const int count = (length + PAGE - 1) / PAGE;
    const int from_page = count * split / splits, to_page = count * (split + 1) / splits;
    for (int index = from_page + warp; index < to_page; index += 4) {
        size_t at = (size_t(pages[tile_table[tile] + index]) * heads + head) * PAGE * TEXT_HEAD;
        attend_page(state, keys + at, values + at, length - index * PAGE, -1);
    }
    store_partial(all, warp, state);
    __syncthreads();
    size_t at = (size_t(tile) * heads + head) * splits + split;
    for (int i = threadIdx.x; i < 16 * TEXT_HEAD; i += 128) {
        Merged m = merge_partials(all, i / TEXT_HEAD, i % TEXT_HEAD);
        partial[at * 16 * TEXT_HEAD + i] = m.value;
        if (i % TEXT_HEAD == 0) {
            partial_max_sum[(at * 16 + i / TEXT_HEAD) * 2] = m.row_max;
            partial_max_sum[(at * 16 + i / TEXT_HEAD) * 2 + 1] = m.row_sum;
        }
    }
}

//   own_table, own_length   [positions] first entry of the position's own pages in `pages`, and how many own positions it attends to; 0 of a
//              position of padding, whose output is zeros
//   place      [positions] tile * 16 + row in the tile, or -1 without a prefix
//   out        [positions, out_stride] bf16, heads * 64 values; attend_own_e4m3 writes e4m3, each value times out_scale
// Grid (positions, ceil(heads / 4)), 128 threads: a warp computes a head of a position. Lane i computes half i / 16 of the score of
// position i % 16 of a page, and of the output dimensions 2i and 2i + 1. Products and sums in f32.
template <typename OUT>
DEVICE void attend_to_own(const bf16* qkv, const bf16* keys, const bf16* values, const int* pages, const int* own_table, const int* own_length, const int* place, const float* partial, const float* partial_max_sum, OUT* out, int heads, int splits, int out_stride, float out_scale) {
    const int row = blockIdx.x, head = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (head >= heads) return;
    const int width = heads * TEXT_HEAD, length = own_length[row], table = own_table[row];
    OUT* to = out + size_t(row) * out_stride + head * TEXT_HEAD + lane * 2;
    if (length == 0) return store_two(to, 0.0f, 0.0f, out_scale);
    const uint4* q4 = reinterpret_cast<const uint4*>(qkv + size_t(row) * 3 * width + head * TEXT_HEAD + lane / 16 * 32);
    F32x8 q[4];
    for (int i = 0; i < 4; i++) q[i] = f32x8_from(q4[i]);
    float row_max = NEG_INF, row_sum = 0.0f, out0 = 0.0f, out1 = 0.0f;
    for (int first = 0; first < length; first += PAGE) {
        size_t page = size_t(pages[table + first / PAGE]) * heads + head;
        const uint4* k4 = reinterpret_cast<const uint4*>(keys + (page * PAGE + lane % 16) * TEXT_HEAD + lane / 16 * 32);
        float dot = 0.0f;
        for (int i = 0; i < 4; i++) {
            F32x8 k = f32x8_from(k4[i]);
            for (int j = 0; j < 8; j++) dot += q[i].x[j] * k.x[j];
        }
        dot += __shfl_xor_sync(WARP_ALL, dot, 16);
        dot = first + lane % 16 < length ? dot * SCALE_LOG2 : NEG_INF;
        float new_max = fmaxf(row_max, warp_max(dot)), rescale = exp2_fast(row_max - new_max), p = exp2_fast(dot - new_max);
        // Both halves of the warp have every score.
        row_sum = row_sum * rescale + 0.5f * warp_sum(p);
        out0 *= rescale;
        out1 *= rescale;
        row_max = new_max;
        const uint4* v4 = reinterpret_cast<const uint4*>(values + (page * TEXT_HEAD + lane * 2) * PAGE);
        for (int i = 0; i < 2; i++) {
            F32x8 a = f32x8_from(v4[i]), b = f32x8_from(v4[i + 2]);
            for (int j = 0; j < 8; j++) {
                float weight = __shfl_sync(WARP_ALL, p, i * 8 + j);
                // Memory that was never written may be NaN, and 0 * NaN is NaN.
                if (first + i * 8 + j < length) {
                    out0 += weight * a.x[j];
                    out1 += weight * b.x[j];
                }
            }
        }
    }
    if (place[row] >= 0) {
        // Every split has written its result; one without pages has maximum -infinity and sum 0. Lane i has split i.
        const size_t first = ((size_t(place[row] / 16) * heads + head) * splits) * 16 + place[row] % 16;
        const bool has_split = lane < splits;
        float partial_max = has_split ? partial_max_sum[(first + lane * 16) * 2] : NEG_INF;
        float partial_sum = has_split ? partial_max_sum[(first + lane * 16) * 2 + 1] : 0.0f;
        float new_max = fmaxf(row_max, warp_max(partial_max)), rescale = exp2_fast(row_max - new_max);
        float weight = partial_max == NEG_INF ? 0.0f : exp2_fast(partial_max - new_max);
        row_sum = row_sum * rescale + warp_sum(partial_sum * weight);
        out0 *= rescale;
        out1 *= rescale;
#pragma unroll 4
        for (int split = 0; split < splits; split++) {
            float2 o = *reinterpret_cast<const float2*>(partial + (first + split * 16) * TEXT_HEAD + lane * 2);
            float s = __shfl_sync(WARP_ALL, weight, split);
            out0 += o.x * s;
            out1 += o.y * s;
        }
    }
    store_two(to, out0 / row_sum, out1 / row_sum, out_scale);
}

#define ARGUMENTS const bf16 *qkv, const bf16 *keys, const bf16 *values, const int *pages, const int *own_table, const int *own_length, const int *place, const float *partial, const float *partial_max_sum
#define PASS qkv, keys, values, pages, own_table, own_length, place, partial, partial_max_sum
extern "C" __global__ void __launch_bounds__(128) attend_own(ARGUMENTS, bf16* out, int heads, int splits, int out_stride) {
    attend_to_own(PASS, out, heads, splits, out_stride, 1.0f);
}
extern "C" __global__ void __launch_bounds__(128) attend_own_e4m3(ARGUMENTS, e4m3* out, int heads, int splits, int out_stride, float out_scale) {
    attend_to_own(PASS, out, heads, splits, out_stride, out_scale);
}
