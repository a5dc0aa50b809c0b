// Attention within whole sequences as in attend_dense.cu, with wgmma (sm_90a): out = softmax(q k^T * scale) v.
//
//   wide, narrow   tensor maps of [sequences][length][3 * heads * HEAD] bf16: boxes of BOX rows by 64 values with the 128-byte swizzle,
//                  and by 8 values without a swizzle
//   out            [sequences * length, out_stride] bf16, or e4m3, each value times out_scale
//
// Grid: one block on each multiprocessor, or fewer; 512 threads. A job is 192 queries of one head of one sequence; jobs count queries
// first, then heads, then sequences; a block takes every gridDim.x-th. Three warpgroups are consumers with 64 queries each. One thread
// of the fourth is the producer: it copies keys and values, 96 at a time, into a ring of six stages, and a job's queries with its first
// keys, without a break between jobs. Rows beyond a sequence are zeros: such queries are not written, such keys get no weight.
// Dynamic shared memory: queries of two jobs, then the stages. Of a head of 72 values the last 8 are stored apart, because a swizzled
// row has 64. wgmma sums 16 of them: 8 zeros follow the queries, and a stride of 0 reads the keys twice.
// Products in bf16 with f32 sums, keys ascending; softmax in f32, base 2. The row's base follows its maximum only when that has grown
// by more than RESCALE_LOG2 powers of two: the result is the same (weights stay below 2^RESCALE_LOG2) and most rescaling is saved.
// CPU reference: cpu/attention.rs, attend_within. Launched by cuda/kernels/dense.rs (DenseKernel::Wide).
#include "barrier.cuh"
#include "warpgroup.cuh"

#ifdef HAS_WARPGROUPS
#define GROUPS 3
#define KEYS 96
#define STAGES 6
#define QUERIES (GROUPS * 64)
#define THREADS (GROUPS * 128 + 128)
#define BOX 32
#define RESCALE_LOG2 8.0f
// Registers of a thread; 128 on average over the four warpgroups.
#define CONSUMER_REGISTERS 160
#define PRODUCER_REGISTERS 32

// Bytes of the first 64 values of a row, and of the last 8 of a head of 72.
#define WIDE_ROW 128
#define NARROW_ROW 16
// A stage: keys, values, then the last 8 of keys and of values. Swizzled parts begin at multiples of 1024 bytes.
#define VALUES (KEYS * WIDE_ROW)
#define NARROW_KEYS (2 * KEYS * WIDE_ROW)
#define NARROW_VALUES (NARROW_KEYS + KEYS * NARROW_ROW)
DEVICE constexpr int stage_bytes(int head) { return 2 * KEYS * head * 2; }
// A warpgroup's queries: the first 64 values of each, then the last 8, then 8 zeros.
#define NARROW_QUERIES (64 * WIDE_ROW)
DEVICE constexpr int queries_bytes(int head) { return 64 * (WIDE_ROW + (head == 72 ? 2 * NARROW_ROW : 0)); }

struct JobGrid {
    int length, heads, blocks, count;
};
struct Job {
    int sequence, head, first;      // `first` query of the job
    DEVICE Job(const JobGrid& jobs, int index) {
        const int of_heads = index / jobs.blocks;
        sequence = of_heads / jobs.heads;
        head = of_heads % jobs.heads;
        first = index % jobs.blocks * QUERIES;
    }
};

// `full`: the copies into a stage have ended. `empty`, `queries_empty`: all consumer warps have read a stage, or the queries of a job.
struct Barriers {
    u64 full[STAGES], empty[STAGES], queries_empty[2];
};

// A stage, and the parity of the phase that ends when it is full.
struct StageCursor {
    int stage = 0, parity = 0;
    DEVICE void next() {
        if (++stage < STAGES) return;
        stage = 0;
        parity ^= 1;
    }
};

// One arrival for a warp, behind everything that its lanes did.
DEVICE void warp_arrive(u64* barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

// The thread that issues the copies.
template <int HEAD> struct Producer {
    Barriers& barriers;
    const u32 queries, stages;
    const TensorMap &wide, &narrow;

    // ROWS rows of a head from `row` on; `value` is the first value of the head in a row.
    template <int ROWS> DEVICE void copy(u32 wide_to, u32 narrow_to, int value, int row, int sequence, u64* full) {
#pragma unroll
        for (int at = 0; at < ROWS; at += BOX) {
            copy_box(wide_to + at * WIDE_ROW, wide, value, row + at, sequence, full);
            if (HEAD == 72) copy_box(narrow_to + at * NARROW_ROW, narrow, value + 64, row + at, sequence, full);
        }
    }
    DEVICE void copy_queries(const Job& job, int buffer, u64* full) {
        for (int group = 0; group < GROUPS; group++) {
            const u32 to = queries + (buffer * GROUPS + group) * queries_bytes(HEAD);
            copy<64>(to, to + NARROW_QUERIES, job.head * HEAD, job.first + group * 64, job.sequence, full);
        }
    }
    DEVICE void run(const JobGrid& jobs) {
        StageCursor cursor;
        bool all_used = false;      // every stage was filled at least once
        int jobs_before = 0;
        for (int index = blockIdx.x; index < jobs.count; index += gridDim.x, jobs_before++) {
            const Job job(jobs, index);
            const int buffer = jobs_before % 2;
            if (jobs_before > 1) barrier_wait(barriers.queries_empty + buffer, jobs_before / 2 % 2 ^ 1);
            for (int key = 0; key < jobs.length; key += KEYS) {
                u64* full = barriers.full + cursor.stage;
                if (all_used) barrier_wait(barriers.empty + cursor.stage, cursor.parity ^ 1);
                barrier_expect_bytes(full, stage_bytes(HEAD) + (key == 0 ? QUERIES * HEAD * 2 : 0));
                if (key == 0) copy_queries(job, buffer, full);
                const u32 to = stages + cursor.stage * stage_bytes(HEAD);
                copy<KEYS>(to, to + NARROW_KEYS, (jobs.heads + job.head) * HEAD, key, job.sequence, full);
                copy<KEYS>(to + VALUES, to + NARROW_VALUES, (2 * jobs.heads + job.head) * HEAD, key, job.sequence, full);
                cursor.next();
                all_used |= cursor.stage == 0;
            }
        }
    }
};

// 64 queries of one warpgroup.
template <int HEAD> struct WarpgroupAttention {
    static constexpr int UNITS = HEAD / 8;
    float s[KEYS / 2], o[HEAD / 2];
    u32 p[KEYS / 16][4];
    float row_base[2], row_sum[2];

    DEVICE WarpgroupAttention() {
#pragma unroll
        for (int i = 0; i < HEAD / 2; i++) o[i] = 0.0f;
        row_base[0] = row_base[1] = NEG_INF;
        row_sum[0] = row_sum[1] = 0.0f;
        pin_registers(o);
    }

    // Issue products. Arguments are addresses in shared memory: of the warpgroup's queries and of a stage.
    DEVICE void issue_scores(u32 queries, u32 stage) {
#pragma unroll
        for (int step = 0; step < 4; step++) wgmma_shared(s, swizzled_descriptor(queries + step * 32), swizzled_descriptor(stage + step * 32), step > 0);
        if (HEAD == 72) wgmma_shared(s, shared_descriptor(queries + NARROW_QUERIES, 64 * NARROW_ROW, 128), shared_descriptor(stage + NARROW_KEYS, 0, 128), true);
        wgmma_commit();
    }
    DEVICE void issue_outputs(u32 stage) {
        float (&wide)[32] = *reinterpret_cast<float (*)[32]>(o), (&narrow)[4] = *reinterpret_cast<float (*)[4]>(o + HEAD / 2 - 4);
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++) {
            wgmma(wide, p[step], swizzled_descriptor(stage + VALUES + step * 16 * WIDE_ROW));
            if (HEAD == 72) wgmma(narrow, p[step], shared_descriptor(stage + NARROW_VALUES + step * 16 * NARROW_ROW, 128, 128));
        }
        wgmma_commit();
    }

    // Turns scores into weights in place, over the `keys` keys that exist, and computes the factor for the outputs so far.
    DEVICE void online_softmax(float scale_log2, int keys, float (&rescale)[2]) {
        const int t = threadIdx.x % 4;
        if (keys < KEYS) {
#pragma unroll
            for (int i = 0; i < KEYS / 2; i++) {
                if (i / 4 * 8 + t * 2 + i % 2 >= keys) s[i] = NEG_INF;
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float new_max = NEG_INF;
#pragma unroll
            for (int i = half * 2; i < KEYS / 2; i += 4) new_max = fmaxf(new_max, fmaxf(s[i], s[i + 1]));
            new_max = fmaxf(new_max, __shfl_xor_sync(WARP_ALL, new_max, 1));
            new_max = fmaxf(new_max, __shfl_xor_sync(WARP_ALL, new_max, 2));
            new_max *= scale_log2;
            const bool grows = new_max > row_base[half] + RESCALE_LOG2;
            rescale[half] = grows ? exp2_fast(row_base[half] - new_max) : 1.0f;
            row_base[half] = grows ? new_max : row_base[half];
            float sum = 0.0f;
#pragma unroll
            for (int i = half * 2; i < KEYS / 2; i += 4) {
                s[i] = exp2_fast(s[i] * scale_log2 - row_base[half]);
                s[i + 1] = exp2_fast(s[i + 1] * scale_log2 - row_base[half]);
                sum += s[i] + s[i + 1];
            }
            row_sum[half] = row_sum[half] * rescale[half] + sum;
        }
    }
    // Rounds the weights to operands of the next product, after the outputs of the previous weights have been computed.
    DEVICE void pack_weights(const float (&rescale)[2]) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i += 2) p[i / 8][i / 2 % 4] = bf16_pair(s[i], s[i + 1]);
        if (!__any_sync(WARP_ALL, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < HEAD / 2; i++) o[i] *= rescale[i / 2 % 2];
    }

    template <typename OUT> DEVICE void store(OUT* rows, int stride, int first, int length, float out_scale) {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = row_sum[half];
            sum += __shfl_xor_sync(WARP_ALL, sum, 1);
            sum += __shfl_xor_sync(WARP_ALL, sum, 2);
            const int query = first + g + half * 8;
            if (query >= length) continue;
            OUT* to = rows + size_t(query) * stride + t * 2;
            const float inverse_sum = 1.0f / sum;
#pragma unroll
            for (int n = 0; n < UNITS; n++) {
                store_two(to + n * 8, o[n * 4 + half * 2] * inverse_sum, o[n * 4 + half * 2 + 1] * inverse_sum, out_scale);
            }
        }
    }
};

template <int HEAD, typename OUT>
DEVICE void consume(const JobGrid& jobs, Barriers& barriers, u32 queries, u32 stages, OUT* out, int out_stride, float scale, float out_scale) {
    const int group = threadIdx.x / 128, last_key = (jobs.length - 1) / KEYS * KEYS;
    const float scale_log2 = scale * LOG2_E;
    StageCursor cursor;
    int buffer = 0;
    auto stage = [&] { return stages + cursor.stage * stage_bytes(HEAD); };
    auto wait_filled = [&] { barrier_wait(barriers.full + cursor.stage, cursor.parity); };
    for (int index = blockIdx.x; index < jobs.count; index += gridDim.x, buffer ^= 1) {
        const u32 mine = queries + (buffer * GROUPS + group) * queries_bytes(HEAD);
        WarpgroupAttention<HEAD> a;
        float rescale[2];
        wait_filled();
        wgmma_fence();
        a.issue_scores(mine, stage());
        wgmma_wait<0>(a.s);
        a.online_softmax(scale_log2, jobs.length, rescale);
        a.pack_weights(rescale);
        for (int key = KEYS; key <= last_key; key += KEYS) {
            const u32 before = stage();
            u64* empty = barriers.empty + cursor.stage;
            cursor.next();
            wait_filled();
            wgmma_fence();
            a.issue_scores(mine, stage());
            a.issue_outputs(before);
            wgmma_wait<1>(a.s);
            a.online_softmax(scale_log2, jobs.length - key, rescale);
            wgmma_wait<0>(a.o);
            pin_registers(a.p);
            warp_arrive(empty);
            a.pack_weights(rescale);
        }
        warp_arrive(barriers.queries_empty + buffer);
        wgmma_fence();
        a.issue_outputs(stage());
        wgmma_wait<0>(a.o);
        warp_arrive(barriers.empty + cursor.stage);
        cursor.next();
        const Job job(jobs, index);
        OUT* to = out + size_t(job.sequence) * jobs.length * out_stride + job.head * HEAD;
        a.store(to, out_stride, job.first + threadIdx.x / 32 * 16, jobs.length, out_scale);
    }
}

template <int HEAD, typename OUT>
DEVICE void attend_wide(const TensorMap& wide, const TensorMap& narrow, OUT* out, int length, int out_stride, int heads, float scale, float out_scale, int sequences) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ Barriers barriers;
    const int blocks = (length + QUERIES - 1) / QUERIES;
    const JobGrid jobs = {length, heads, blocks, blocks * heads * sequences};
    const u32 queries = shared_address(shared), stages = queries + 2 * GROUPS * queries_bytes(HEAD);
    if (HEAD == 72) {
        for (int i = threadIdx.x; i < 2 * GROUPS * 64; i += THREADS) {
            unsigned char* zeros = shared + i / 64 * queries_bytes(HEAD) + NARROW_QUERIES + 64 * NARROW_ROW;
            reinterpret_cast<uint4*>(zeros)[i % 64] = make_uint4(0, 0, 0, 0);
        }
        fence_async_proxy();
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(barriers.full + i, 1);
            barrier_init(barriers.empty + i, GROUPS * 4);
        }
        for (int i = 0; i < 2; i++) barrier_init(barriers.queries_empty + i, GROUPS * 4);
    }
    __syncthreads();
    if (threadIdx.x >= GROUPS * 128) {
        release_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == GROUPS * 128) Producer<HEAD>{barriers, queries, stages, wide, narrow}.run(jobs);
    } else {
        claim_registers<CONSUMER_REGISTERS>();
        consume<HEAD>(jobs, barriers, queries, stages, out, out_stride, scale, out_scale);
    }
}

#define MAPS const __grid_constant__ TensorMap wide, const __grid_constant__ TensorMap narrow
#define ARGUMENTS int length, int out_stride, int heads, float scale, float out_scale, int sequences
#define PASS wide, narrow, out, length, out_stride, heads, scale, out_scale, sequences
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)
KERNEL attend_wide_64(MAPS, bf16* out, ARGUMENTS) { attend_wide<64>(PASS); }
KERNEL attend_wide_72(MAPS, bf16* out, ARGUMENTS) { attend_wide<72>(PASS); }
KERNEL attend_wide_64_e4m3(MAPS, e4m3* out, ARGUMENTS) { attend_wide<64>(PASS); }
KERNEL attend_wide_72_e4m3(MAPS, e4m3* out, ARGUMENTS) { attend_wide<72>(PASS); }
#endif
