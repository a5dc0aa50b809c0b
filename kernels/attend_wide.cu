// Attention within whole sequences as in attend_dense.cu, with wgmma (sm_90a): out = softmax(q k^T * scale) v.
//
//   wide, narrow   tensor maps of [sequences][length][3 * heads * HEAD] bf16: boxes of BOX rows by 64 values with the 128-byte swizzle,
//                  and by 8 values without a swizzle
//   out            [sequences * length, out_stride] bf16, or e4m3, each value times out_scale; out_stride a multiple of 8
//   from           the tensor of the maps, rows `stride` values apart
//
// Grid: one block on each multiprocessor, or fewer; 512 threads. A job is 192 queries of one head of one sequence; jobs count queries
// first, then heads, then sequences; a block takes every gridDim.x-th. Three warpgroups are consumers with 64 queries each. One thread
// of the fourth is the producer: it copies keys and values, 96 at a time, into a ring of six stages, and a job's queries with its first
// keys, without a break between jobs. Rows beyond a sequence are zeros: such queries are not written, such keys get no weight.
// Dynamic shared memory: queries of two jobs, the stages, then what heads of 72 values have beyond 64, the values of a swizzled row.
// A sum has 16 terms at least: 8 zeros follow the last 8 values of queries, and a stride of 0 reads those of keys twice. The last 8 of
// `v` have to be where one product of 72 outputs finds them, at a fixed distance from the first 64 and with the same swizzle: in rows of
// 128 bytes, of which each stage has a piece of 16. No tensor map copies that, so three warps of the fourth warpgroup do.
// Products in bf16 with f32 sums, keys ascending; softmax in f32, base 2. The row's base follows its maximum only when that has grown
// by more than RESCALE_LOG2 powers of two: the result is the same (weights stay below 2^RESCALE_LOG2) and most rescaling is saved.
// A warpgroup computes weights while the tensor cores compute the outputs of the weights before; the three issue their products in turn.
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
#define CONSUMER_REGISTERS 152
#define PRODUCER_REGISTERS 56

// Bytes of the first 64 values of a row, and of the last 8 of a head of 72.
#define WIDE_ROW 128
#define NARROW_ROW 16
// A stage: keys, then values. Swizzled parts begin at multiples of 1024 bytes.
#define VALUES (KEYS * WIDE_ROW)
#define STAGE_BYTES (2 * KEYS * WIDE_ROW)
// A warpgroup's queries: the first 64 values of each, then the last 8, then 8 zeros.
#define NARROW_QUERIES (64 * WIDE_ROW)
DEVICE constexpr int queries_bytes(int head) { return 64 * (WIDE_ROW + (head == 72 ? 2 * NARROW_ROW : 0)); }

// Where parts of shared memory begin.
template <int HEAD> struct SharedPlaces {
    u32 queries;
    DEVICE u32 of_queries(int buffer, int group) const { return queries + (buffer * GROUPS + group) * queries_bytes(HEAD); }
    DEVICE u32 stage(int i) const { return of_queries(2, 0) + i * STAGE_BYTES; }
    DEVICE u32 narrow_values(int i) const { return stage(STAGES) + i * NARROW_ROW; }
    DEVICE u32 narrow_keys(int i) const { return stage(STAGES) + KEYS * WIDE_ROW + i * KEYS * NARROW_ROW; }
};

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
    const SharedPlaces<HEAD> places;
    const TensorMap &wide, &narrow;

    // ROWS rows from `row` on; `value` is the first value of a head in a row.
    template <int ROWS> DEVICE void copy_wide(u32 to, int value, int row, int sequence, u64* full) {
#pragma unroll
        for (int at = 0; at < ROWS; at += BOX) copy_box(to + at * WIDE_ROW, wide, value, row + at, sequence, full);
    }
    template <int ROWS> DEVICE void copy_narrow(u32 to, int value, int row, int sequence, u64* full) {
        if constexpr (HEAD == 72) {
#pragma unroll
            for (int at = 0; at < ROWS; at += BOX) copy_box(to + at * NARROW_ROW, narrow, value + 64, row + at, sequence, full);
        }
    }
    DEVICE void copy_queries(const Job& job, int buffer, u64* full) {
        for (int group = 0; group < GROUPS; group++) {
            const u32 to = places.of_queries(buffer, group);
            const int value = job.head * HEAD, row = job.first + group * 64;
            copy_wide<64>(to, value, row, job.sequence, full);
            copy_narrow<64>(to + NARROW_QUERIES, value, row, job.sequence, full);
        }
    }
    DEVICE void run(const JobGrid& jobs) {
        StageCursor cursor;
        bool all_used = false;      // every stage was filled at least once
        int jobs_before = 0;
        for (int index = blockIdx.x; index < jobs.count; index += gridDim.x, jobs_before++) {
            const Job job(jobs, index);
            const int buffer = jobs_before % 2, of_keys = (jobs.heads + job.head) * HEAD, of_values = of_keys + jobs.heads * HEAD;
            if (jobs_before > 1) barrier_wait(barriers.queries_empty + buffer, jobs_before / 2 % 2 ^ 1);
            for (int key = 0; key < jobs.length; key += KEYS) {
                u64* full = barriers.full + cursor.stage;
                if (all_used) barrier_wait(barriers.empty + cursor.stage, cursor.parity ^ 1);
                barrier_expect_bytes(full, KEYS * (HEAD * 2 + WIDE_ROW) + (key == 0 ? QUERIES * HEAD * 2 : 0));
                if (key == 0) copy_queries(job, buffer, full);
                const u32 to = places.stage(cursor.stage);
                copy_wide<KEYS>(to, of_keys, key, job.sequence, full);
                copy_narrow<KEYS>(places.narrow_keys(cursor.stage), of_keys, key, job.sequence, full);
                copy_wide<KEYS>(to + VALUES, of_values, key, job.sequence, full);
                cursor.next();
                all_used |= cursor.stage == 0;
            }
        }
    }
};

// The threads that copy the last 8 of a head's values, one of a stage's rows each; `lane` counts them.
DEVICE void write_narrow_values(const JobGrid& jobs, Barriers& barriers, const SharedPlaces<72>& places, const bf16* from, int stride, int lane) {
    StageCursor cursor;
    bool all_used = false;
    for (int index = blockIdx.x; index < jobs.count; index += gridDim.x) {
        const Job job(jobs, index);
        const bf16* rows = from + size_t(job.sequence) * jobs.length * stride + (2 * jobs.heads + job.head) * 72 + 64;
        auto load = [&](int row) {
            const uint4 raw = *reinterpret_cast<const uint4*>(rows + size_t(min(row, jobs.length - 1)) * stride);
            return keep_if(raw, row < jobs.length);
        };
        uint4 eight = load(lane);
        for (int key = 0; key < jobs.length; key += KEYS) {
            const uint4 next = load(key + KEYS + lane);
            if (all_used) barrier_wait(barriers.empty + cursor.stage, cursor.parity ^ 1);
            const u32 to = places.narrow_values(cursor.stage) + lane * WIDE_ROW ^ lane % 8 * 16;
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(eight.x), "r"(eight.y), "r"(eight.z), "r"(eight.w) : "memory");
            fence_async_proxy();
            warp_arrive(barriers.full + cursor.stage);
            cursor.next();
            all_used |= cursor.stage == 0;
            eight = next;
        }
    }
}

// Eight values of a row from each of eight groups, of which this lane has two: x[group].
DEVICE void store_groups(bf16* to, const float (&x)[8][2], float, bool is_there) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
        u32 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++) pairs[i] = bf16_pair(x[n + i][0], x[n + i][1]);
        transpose_quad(pairs);
        if (is_there) *reinterpret_cast<uint4*>(to + (n + t) * 8) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}
DEVICE void store_groups(e4m3* to, const float (&x)[8][2], float scale, bool is_there) {
    const int t = threadIdx.x % 4;
    u32 pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) pairs[i] = e4m3_pair(x[i][0] * scale, x[i][1] * scale) | e4m3_pair(x[i + 4][0] * scale, x[i + 4][1] * scale) << 16;
    transpose_quad(pairs);
    if (!is_there) return;
    *reinterpret_cast<uint2*>(to + t * 8) = make_uint2(__byte_perm(pairs[0], pairs[1], 0x5410), __byte_perm(pairs[2], pairs[3], 0x5410));
    *reinterpret_cast<uint2*>(to + (t + 4) * 8) = make_uint2(__byte_perm(pairs[0], pairs[1], 0x7632), __byte_perm(pairs[2], pairs[3], 0x7632));
}

// 64 queries of one warpgroup.
template <int HEAD> struct WarpgroupAttention {
    // Scores, then weights; weights as operands; outputs.
    float s[KEYS / 2];
    u32 p[KEYS / 16][4];
    float o[HEAD / 2];
    // `rescale`: what outputs so far have to be multiplied with before those of the weights in `s` are added.
    float row_base[2], row_sum[2], rescale[2];

    DEVICE WarpgroupAttention() {
#pragma unroll
        for (int i = 0; i < HEAD / 2; i++) o[i] = 0.0f;
        row_base[0] = row_base[1] = NEG_INF;
        row_sum[0] = row_sum[1] = 0.0f;
        pin_registers(o);
    }

    // Issue products of the warpgroup's queries, at this address in shared memory, and of a stage.
    DEVICE void issue_scores(u32 queries, const SharedPlaces<HEAD>& places, int stage) {
        const u64 q = swizzled_descriptor(queries), k = swizzled_descriptor(places.stage(stage));
#pragma unroll
        for (int step = 0; step < 4; step++) wgmma_shared(s, further(q, step * 32), further(k, step * 32), step > 0);
        if (HEAD == 72) {
            const u64 narrow = shared_descriptor(queries + NARROW_QUERIES, 64 * NARROW_ROW, 128);
            wgmma_shared(s, narrow, shared_descriptor(places.narrow_keys(stage), 0, 128), true);
        }
        wgmma_commit();
    }
    DEVICE void issue_outputs(const SharedPlaces<HEAD>& places, int stage) {
        const u32 values = places.stage(stage) + VALUES;
        const u64 v = swizzled_descriptor(values, places.narrow_values(stage) - values);
#pragma unroll
        for (int step = 0; step < KEYS / 16; step++) wgmma(o, p[step], further(v, step * 16 * WIDE_ROW));
        wgmma_commit();
    }

    // No weight for keys that do not exist.
    DEVICE void mask(int keys) {
        if (keys >= KEYS) return;
        const int t = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            if (i / 4 * 8 + t * 2 + i % 2 >= keys) s[i] = NEG_INF;
        }
    }
    // Turns scores into weights in place.
    DEVICE void online_softmax(float scale_log2) {
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
        }
        float sum[2] = {};
#pragma unroll
        for (int i = 0; i < KEYS / 2; i += 2) {
            const int half = i / 2 % 2;
            s[i] = exp2_fast(s[i] * scale_log2 - row_base[half]);
            s[i + 1] = exp2_fast(s[i + 1] * scale_log2 - row_base[half]);
            sum[half] += s[i] + s[i + 1];
        }
#pragma unroll
        for (int half = 0; half < 2; half++) row_sum[half] = row_sum[half] * rescale[half] + sum[half];
        pin_registers(s);
    }
    // Rounds the weights to operands, after the outputs of the previous ones have been computed.
    DEVICE void pack_weights() {
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
            const bool is_there = query < length;
            OUT* to = rows + size_t(query) * stride;
            const float inverse_sum = 1.0f / sum;
            float x[HEAD / 8][2];
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                for (int i = 0; i < 2; i++) x[n][i] = o[n * 4 + half * 2 + i] * inverse_sum;
            }
            store_groups(to, reinterpret_cast<float (&)[8][2]>(x), out_scale, is_there);
            if (HEAD == 72 && is_there) store_two(to + 64 + t * 2, x[HEAD / 8 - 1][0], x[HEAD / 8 - 1][1], out_scale);
        }
    }
};

// The order in which the consumers issue products: each waits for the one before it.
struct Turns {
    const int group;
    bool is_first;
    DEVICE explicit Turns(int group) : group(group), is_first(group == 0) {}
    DEVICE void wait() {
        if (!is_first) asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
        is_first = false;
    }
    DEVICE void pass() const { asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group + 1) % GROUPS) : "memory"); }
};

template <int HEAD> struct Consumer {
    const JobGrid& jobs;
    Barriers& barriers;
    const SharedPlaces<HEAD> places;
    const float scale_log2;
    Turns turns;
    StageCursor cursor;

    DEVICE void wait_filled() const { barrier_wait(barriers.full + cursor.stage, cursor.parity); }
    DEVICE void release(int stage) { warp_arrive(barriers.empty + stage); }
    // Makes operands of the weights, after the outputs from stage `before` have been computed, if there is one.
    DEVICE void settle(WarpgroupAttention<HEAD>& a, int before) {
        wgmma_wait<0>(a.o);
        pin_registers(a.p);
        if (before >= 0) release(before);
        a.pack_weights();
    }
    // Attention of 64 queries.
    DEVICE void attend(WarpgroupAttention<HEAD>& a, int buffer) {
        const u32 queries = places.of_queries(buffer, turns.group);
        wait_filled();
        wgmma_fence();
        a.issue_scores(queries, places, cursor.stage);
        wgmma_wait<0>(a.s);
        a.mask(jobs.length);
        a.online_softmax(scale_log2);
        int before = -1;
        for (int left = jobs.length - KEYS; left > 0; left -= KEYS) {
            const int stage = cursor.stage;
            cursor.next();
            // Behind the loop that waits for keys, the compiler cannot wait for outputs before it computes weights.
            wait_filled();
            settle(a, before);
            turns.wait();
            wgmma_fence();
            a.issue_scores(queries, places, cursor.stage);
            a.issue_outputs(places, stage);
            turns.pass();
            before = stage;
            wgmma_wait<1>(a.s);
            a.mask(left);
            a.online_softmax(scale_log2);
        }
        settle(a, before);
        warp_arrive(barriers.queries_empty + buffer);
        wgmma_fence();
        a.issue_outputs(places, cursor.stage);
        wgmma_wait<0>(a.o);
        release(cursor.stage);
        cursor.next();
    }
};

template <int HEAD, typename OUT>
DEVICE void consume(Consumer<HEAD> consumer, OUT* out, int out_stride, float out_scale) {
    const JobGrid& jobs = consumer.jobs;
    int buffer = 0;
    for (int index = blockIdx.x; index < jobs.count; index += gridDim.x, buffer ^= 1) {
        WarpgroupAttention<HEAD> a;
        consumer.attend(a, buffer);
        const Job job(jobs, index);
        OUT* to = out + size_t(job.sequence) * jobs.length * out_stride + job.head * HEAD;
        a.store(to, out_stride, job.first + threadIdx.x / 32 * 16, jobs.length, out_scale);
    }
}

template <int HEAD, typename OUT>
DEVICE void attend_wide(const TensorMap& wide, const TensorMap& narrow, const bf16* from, OUT* out, int length, int stride, int out_stride, int heads, float scale, float out_scale, int sequences) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ Barriers barriers;
    const int blocks = (length + QUERIES - 1) / QUERIES, warp = threadIdx.x / 32;
    const JobGrid jobs = {length, heads, blocks, blocks * heads * sequences};
    const SharedPlaces<HEAD> places = {shared_address(shared)};
    if (HEAD == 72) {
        for (int i = threadIdx.x; i < 2 * GROUPS * 64; i += THREADS) {
            unsigned char* zeros = shared + i / 64 * queries_bytes(HEAD) + NARROW_QUERIES + 64 * NARROW_ROW;
            reinterpret_cast<uint4*>(zeros)[i % 64] = make_uint4(0, 0, 0, 0);
        }
        fence_async_proxy();
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(barriers.full + i, HEAD == 72 ? 1 + KEYS / 32 : 1);
            barrier_init(barriers.empty + i, GROUPS * 4);
        }
        for (int i = 0; i < 2; i++) barrier_init(barriers.queries_empty + i, GROUPS * 4);
    }
    __syncthreads();
    if (warp >= GROUPS * 4) {
        release_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x == GROUPS * 128) Producer<HEAD>{barriers, places, wide, narrow}.run(jobs);
        if constexpr (HEAD == 72) {
            if (warp > GROUPS * 4) write_narrow_values(jobs, barriers, places, from, stride, threadIdx.x - GROUPS * 128 - 32);
        }
    } else {
        claim_registers<CONSUMER_REGISTERS>();
        const int group = __shfl_sync(WARP_ALL, warp / 4, 0);
        consume(Consumer<HEAD>{jobs, barriers, places, scale * LOG2_E, Turns(group)}, out, out_stride, out_scale);
    }
}

#define MAPS const __grid_constant__ TensorMap wide, const __grid_constant__ TensorMap narrow
#define ARGUMENTS int length, int stride, int out_stride, int heads, float scale, float out_scale, int sequences
#define PASS wide, narrow, from, out, length, stride, out_stride, heads, scale, out_scale, sequences
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, 1)
KERNEL attend_wide_64(MAPS, const bf16* from, bf16* out, ARGUMENTS) { attend_wide<64>(PASS); }
KERNEL attend_wide_72(MAPS, const bf16* from, bf16* out, ARGUMENTS) { attend_wide<72>(PASS); }
KERNEL attend_wide_64_e4m3(MAPS, const bf16* from, e4m3* out, ARGUMENTS) { attend_wide<64>(PASS); }
KERNEL attend_wide_72_e4m3(MAPS, const bf16* from, e4m3* out, ARGUMENTS) { attend_wide<72>(PASS); }
#endif
