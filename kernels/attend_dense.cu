// Attention within whole sequences, in both directions: out = softmax(q k^T * scale) v for each sequence and head. Crops in the
// vision encoder, image prefixes in the decoder.
//
//   qkv   [sequences * length, stride] bf16: in a row q of all heads, then k, then v, HEAD values a head; stride a multiple of 8,
//         16-byte aligned
//   out   [sequences * length, out_stride] bf16, HEAD values a head; kernels named _e4m3 write e4m3, each value times out_scale
//
// Grid (ceil(length / 128), heads, sequences), 128 threads. A block computes 128 queries of one head of one sequence, a warp 32 of
// them as two operands of 16 rows, so that each key and value fragment is used twice. Lane (g, t) = (lane / 4, lane % 4) has rows g
// and g + 8 of each operand.
// Dynamic shared memory: 128 queries, then two stages of 64 keys and 64 values, 72 values a row. The next stage is copied while this
// one is used. A row of 72 values is 9 units of 16 bytes, an odd number, so 8 rows are in different banks; heads of 64 are padded.
// Order: 64 keys at a time, ascending. Products in bf16 with f32 sums; softmax in f32, base 2, with a running maximum; weights are
// rounded to bf16 before they are multiplied with v; the division by the sum of weights comes last.
// CPU reference: cpu/attention.rs, attend_within. Launched by cuda/kernels/dense.rs (DenseKernel::Tiles, DenseKernel::Any).
#include "common.cuh"

#define QUERIES 128
#define KEYS 64
#define ROW 72

template <int HEAD, typename OUT>
DEVICE void attend_dense(const bf16* qkv, OUT* out, int length, int stride, int out_stride, int heads, float scale, float out_scale) {
    extern __shared__ __align__(16) bf16 shared[];
    bf16* q_tile = shared;                      // [QUERIES][ROW]
    bf16* kv_tiles = shared + QUERIES * ROW;    // [2 stages][keys, values][KEYS][ROW]
    const int first = blockIdx.x * QUERIES, head = blockIdx.y, width = heads * HEAD;
    const size_t sequence = size_t(blockIdx.z) * length;
    const bf16* q = qkv + sequence * stride + head * HEAD;
    const bf16* k = q + width;
    const bf16* v = k + width;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    constexpr int UNITS = HEAD / 8, STEPS = HEAD / 16;
    constexpr bool TAIL = HEAD % 16 != 0;

    for (int i = threadIdx.x; i < QUERIES * UNITS; i += 128) {
        int row = i / UNITS, unit = i % UNITS;
        bool there = first + row < length;
        copy_async_16(q_tile + row * ROW + unit * 8, q + size_t(there ? first + row : 0) * stride + unit * 8, there);
    }
    auto copy_keys = [&](int tile) {
        bf16* to = kv_tiles + (tile % 2) * 2 * KEYS * ROW;
        for (int i = threadIdx.x; i < KEYS * UNITS; i += 128) {
            int row = i / UNITS, unit = i % UNITS, key = tile * KEYS + row;
            bool there = key < length;
            size_t at = size_t(there ? key : 0) * stride + unit * 8;
            copy_async_16(to + row * ROW + unit * 8, k + at, there);
            copy_async_16(to + (KEYS + row) * ROW + unit * 8, v + at, there);
        }
        copy_async_commit();
    };
    copy_keys(0);

    float o[2][UNITS][4] = {}, row_max[2][2], row_sum[2][2] = {};
    for (int m = 0; m < 2; m++) row_max[m][0] = row_max[m][1] = NEG_INF;
    u32 qf[2][STEPS][4], qt[2][2];
    const float scale_log2 = scale * LOG2_E;
    const int tiles = (length + KEYS - 1) / KEYS;
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            copy_keys(tile + 1);
            copy_async_wait<1>();
        } else {
            copy_async_wait<0>();
        }
        __syncthreads();
        if (tile == 0) {
            for (int m = 0; m < 2; m++) {
                const bf16* rows = q_tile + (warp * 32 + m * 16) * ROW;
                for (int s = 0; s < STEPS; s++) load_matrix_x4(qf[m][s], rows + (lane % 16) * ROW + s * 16 + lane / 16 * 8);
                if (TAIL) load_matrix_x2(qt[m], rows + (lane % 16) * ROW + STEPS * 16);
            }
        }
        const bf16* keys = kv_tiles + (tile % 2) * 2 * KEYS * ROW;
        const bf16* values = keys + KEYS * ROW;

        float s[2][KEYS / 8][4] = {};
#pragma unroll
        for (int pair = 0; pair < KEYS / 16; pair++) {
            const bf16* rows = keys + (pair * 16 + lane % 8 + lane / 16 * 8) * ROW + lane / 8 % 2 * 8;
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                u32 b[4];
                load_matrix_x4(b, rows + step * 16);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma_16_8_16(s[m][pair * 2], qf[m][step], b[0], b[1]);
                    mma_16_8_16(s[m][pair * 2 + 1], qf[m][step], b[2], b[3]);
                }
            }
            if (TAIL) {
                u32 b[2];
                load_matrix_x2(b, keys + (pair * 16 + lane % 16) * ROW + STEPS * 16);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma_16_8_8(s[m][pair * 2], qt[m], b[0]);
                    mma_16_8_8(s[m][pair * 2 + 1], qt[m], b[1]);
                }
            }
        }
        if (tile * KEYS + KEYS > length) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    if (tile * KEYS + n * 8 + t * 2 + c % 2 >= length) s[0][n][c] = s[1][n][c] = NEG_INF;
                }
            }
        }
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float new_max = row_max[m][half];
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) new_max = fmaxf(new_max, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
                new_max = fmaxf(new_max, __shfl_xor_sync(WARP_ALL, new_max, 1));
                new_max = fmaxf(new_max, __shfl_xor_sync(WARP_ALL, new_max, 2));
                float rescale = exp2_fast((row_max[m][half] - new_max) * scale_log2), base = new_max * scale_log2, sum = 0.0f;
#pragma unroll
                for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
                    for (int c = half * 2; c < half * 2 + 2; c++) {
                        s[m][n][c] = exp2_fast(s[m][n][c] * scale_log2 - base);
                        sum += s[m][n][c];
                    }
                }
                row_sum[m][half] = row_sum[m][half] * rescale + sum;
                row_max[m][half] = new_max;
#pragma unroll
                for (int n = 0; n < UNITS; n++) {
                    o[m][n][half * 2] *= rescale;
                    o[m][n][half * 2 + 1] *= rescale;
                }
            }
        }
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++) {
            u32 p[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++) {
                p[m][0] = bf16_pair(s[m][step * 2][0], s[m][step * 2][1]);
                p[m][1] = bf16_pair(s[m][step * 2][2], s[m][step * 2][3]);
                p[m][2] = bf16_pair(s[m][step * 2 + 1][0], s[m][step * 2 + 1][1]);
                p[m][3] = bf16_pair(s[m][step * 2 + 1][2], s[m][step * 2 + 1][3]);
            }
            const bf16* rows = values + (step * 16 + lane % 16) * ROW;
#pragma unroll
            for (int n = 0; n + 1 < UNITS; n += 2) {
                u32 b[4];
                load_matrix_x4_transposed(b, rows + n * 8 + lane / 16 * 8);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma_16_8_16(o[m][n], p[m], b[0], b[1]);
                    mma_16_8_16(o[m][n + 1], p[m], b[2], b[3]);
                }
            }
            if (UNITS % 2 != 0) {
                u32 b[2];
                load_matrix_x2_transposed(b, rows + (UNITS - 1) * 8);
#pragma unroll
                for (int m = 0; m < 2; m++) mma_16_8_16(o[m][UNITS - 1], p[m], b[0], b[1]);
            }
        }
        // The next iteration copies into the tile that this one read.
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = row_sum[m][half];
            sum += __shfl_xor_sync(WARP_ALL, sum, 1);
            sum += __shfl_xor_sync(WARP_ALL, sum, 2);
            int query = first + warp * 32 + m * 16 + half * 8 + g;
            if (query >= length) continue;
            OUT* to = out + (sequence + query) * out_stride + head * HEAD + t * 2;
            float inverse_sum = 1.0f / sum;
#pragma unroll
            for (int n = 0; n < UNITS; n++) {
                store_two(to + n * 8, o[m][n][half * 2] * inverse_sum, o[m][n][half * 2 + 1] * inverse_sum, out_scale);
            }
        }
    }
}

#define ARGUMENTS int length, int stride, int out_stride, int heads, float scale, float out_scale
#define PASS qkv, out, length, stride, out_stride, heads, scale
#define KERNEL extern "C" __global__ void __launch_bounds__(128)
KERNEL attend_dense_64(const bf16* qkv, bf16* out, ARGUMENTS) { attend_dense<64>(PASS, out_scale); }
KERNEL attend_dense_72(const bf16* qkv, bf16* out, ARGUMENTS) { attend_dense<72>(PASS, out_scale); }
KERNEL attend_dense_64_e4m3(const bf16* qkv, e4m3* out, ARGUMENTS) { attend_dense<64>(PASS, out_scale); }
KERNEL attend_dense_72_e4m3(const bf16* qkv, e4m3* out, ARGUMENTS) { attend_dense<72>(PASS, out_scale); }

// The same for heads of any size, for small models whose heads do not fit the tensor cores. Grid (ceil(length / 4), heads, sequences),
// 128 threads: a warp computes a query. Static shared memory: f32 scores of 4 queries by up to 1024 keys. All sums in f32.
template <typename OUT>
DEVICE void attend_any(const bf16* qkv, OUT* out, int length, int stride, int out_stride, int heads, float scale, int head_dim, float out_scale) {
    __shared__ float scores[4][1024];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, query = blockIdx.x * 4 + warp, head = blockIdx.y;
    if (query >= length) return;
    const size_t sequence = size_t(blockIdx.z) * length;
    const bf16* base = qkv + sequence * stride + head * head_dim;
    const bf16* q = base + size_t(query) * stride;
    const bf16* k = base + heads * head_dim;
    const bf16* v = k + heads * head_dim;
    float max_score = NEG_INF;
    for (int key = lane; key < length; key += 32) {
        float dot = 0.0f;
        for (int d = 0; d < head_dim; d++) dot += f32_from_bf16(q[d]) * f32_from_bf16(k[size_t(key) * stride + d]);
        scores[warp][key] = dot * scale;
        max_score = fmaxf(max_score, dot * scale);
    }
    max_score = warp_max(max_score);
    float sum = 0.0f;
    for (int key = lane; key < length; key += 32) {
        float p = expf(scores[warp][key] - max_score);
        scores[warp][key] = p;
        sum += p;
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (int d = lane; d < head_dim; d += 32) {
        float value = 0.0f;
        for (int key = 0; key < length; key++) value += scores[warp][key] * f32_from_bf16(v[size_t(key) * stride + d]);
        store_one(out + (sequence + query) * out_stride + head * head_dim + d, value / sum, out_scale);
    }
}

KERNEL attend_dense_any(const bf16* qkv, bf16* out, ARGUMENTS, int head_dim) { attend_any(PASS, head_dim, out_scale); }
KERNEL attend_dense_any_e4m3(const bf16* qkv, e4m3* out, ARGUMENTS, int head_dim) { attend_any(PASS, head_dim, out_scale); }
