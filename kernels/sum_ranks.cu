// Sums over the GPUs (ranks) that compute one model together, and copies between them.
//
//   sum_ranks, sum_ranks_few          hidden = bf16(hidden + p0 + p1 + ...), [count * 8] bf16, p_r being the `partial` of rank r
//   sum_ranks_f32, sum_ranks_few_f32  x = x0 + x1 + ..., [count * 4] f32, in place
//   share_ranks                       x, with the parts that the other ranks have made: rank r has made those of `parts`
//
//   ranks    Ranks: where this rank sends to and receives from
//   count    groups of 16 bytes, 16-byte aligned
//
// All ranks launch the same kernels in the same order with the same sizes and grids, and get equal bits: f32 sums in the order of ranks.
// A rank stores what it has into a receive buffer at each of the others, which is the other GPU's memory, or the host's where GPUs cannot
// access each other's. Block b of a rank exchanges with the blocks b of the others alone and waits for no block of its own grid. How far it
// is, is counted on the GPU (Ranks::done), so that a launch can be recorded and repeated.
//
// sum_ranks, sum_ranks_f32, share_ranks: grid up to two for each multiprocessor and up to the pieces, 512 threads; a block has every `gridDim.x`-th
// piece of 16 KB, a thread 16 bytes in two places of it. A piece is stored, then signalled; the next one is stored before the block waits
// for this one. A slot of the buffer is free again 4 pieces later: a rank sends piece n after it has received n - 2, which the other has
// sent after it had read n - 4.
// sum_ranks_few, for few values: grid (ceil(count / 256)), up to 64 and up to the multiprocessors, 256 threads with 16 bytes each, which are sent as words (words.cuh).
// A word is free again two exchanges later.
// A rank that has waited for 10 s traps: the other one is lost, and the launch ends with an error.
// Reference: cuda/tests/peers.rs. Launched by cuda/kernels/sum_ranks.rs.
#include "words.cuh"

#define RANKS_MAX 8
#define BLOCKS_MAX 256
#define FEW_BLOCKS_MAX 64
#define THREADS 512
#define THREADS_FEW 256
// Groups of a thread in a piece.
#define VECTORS 2
#define PIECE (VECTORS * THREADS)
#define SLOTS 4

struct ReceiveBuffer {
    uint4 pieces[BLOCKS_MAX][SLOTS][PIECE];
    ulonglong2 words[FEW_BLOCKS_MAX][2][2][THREADS_FEW];
    u32 signals[BLOCKS_MAX];    // pieces that have arrived
    u64 decoder[2 * 32 * 2048];  // of decode_step_ranks.cu
};
// RECEIVE_BYTES of cuda/kernels/sum_ranks.rs.
static_assert(sizeof(ReceiveBuffer) == 18875392, "");

// The same fields in the same order are in cuda/kernels/sum_ranks.rs.
struct Ranks {
    ReceiveBuffer* to[RANKS_MAX];       // this rank's at each other one
    ReceiveBuffer* from[RANKS_MAX];     // each other one's at this rank
    u32* done;                          // [BLOCKS_MAX + FEW_BLOCKS_MAX]: pieces, and exchanges of few values, of each block so far
    int rank, ranks;
};
// Groups of x that rank r has made: those from first[r] on, before first[r + 1].
struct Parts {
    int first[RANKS_MAX + 1];
};

DEVICE void signal_system(u32* to, u32 value) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory"); }
DEVICE u32 signal_of_system(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
DEVICE uint4 load_received(const uint4* from) {
    uint4 r;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from) : "memory");
    return r;
}

struct Bf16Sum {
    typedef F32x8 Sum;
    DEVICE static Sum start(uint4 raw) { return f32x8_from(raw); }
    DEVICE static void add(Sum& sum, uint4 raw) {
        const F32x8 e = f32x8_from(raw);
        for (int j = 0; j < 8; j++) sum.x[j] += e.x[j];
    }
    DEVICE static uint4 end(const Sum& sum) { return bf16x8_from(sum); }
};
struct F32Sum {
    typedef float4 Sum;
    DEVICE static Sum start(uint4) { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); }
    DEVICE static void add(Sum& sum, uint4 raw) {
        sum.x += __uint_as_float(raw.x), sum.y += __uint_as_float(raw.y), sum.z += __uint_as_float(raw.z), sum.w += __uint_as_float(raw.w);
    }
    DEVICE static uint4 end(const Sum& s) { return make_uint4(__float_as_uint(s.x), __float_as_uint(s.y), __float_as_uint(s.z), __float_as_uint(s.w)); }
};

// to += own of all ranks, of `count` groups.
template <typename TYPE> struct SumWork {
    uint4* to;
    const uint4* own;
    int count;

    // The nth group that this rank sends.
    DEVICE uint4 sent(int nth) const { return own[nth]; }
    DEVICE int sent_count(const Ranks&) const { return count; }
    // Groups from `first` on, `step` apart. `wait` ensures that others' are there, `received` has their k-th one.
    template <int GROUPS, typename Wait, typename Received> DEVICE void receive(const Ranks& at, int first, int step, Wait wait, Received received) const {
        typename TYPE::Sum sum[GROUPS];
        uint4 mine[GROUPS];
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            const int i = first + k * step, safe = i < count ? i : 0;
            mine[k] = own[safe], sum[k] = TYPE::start(to[safe]);
        }
        wait();
        for (int r = 0; r < at.ranks; r++) {
            uint4 part[GROUPS];
#pragma unroll
            for (int k = 0; k < GROUPS; k++) part[k] = r == at.rank ? mine[k] : received(r, k);
#pragma unroll
            for (int k = 0; k < GROUPS; k++) TYPE::add(sum[k], part[k]);
        }
#pragma unroll
        for (int k = 0; k < GROUPS; k++) {
            if (first + k * step < count) to[first + k * step] = TYPE::end(sum[k]);
        }
    }
};

struct ShareWork {
    uint4* x;
    const Parts& parts;
    int rank;

    DEVICE uint4 sent(int nth) const { return x[parts.first[rank] + nth]; }
    DEVICE int sent_count(const Ranks& at) const { return parts.first[rank + 1] - parts.first[rank]; }
    template <int GROUPS, typename Wait, typename Received> DEVICE void receive(const Ranks& at, int first, int step, Wait wait, Received received) const {
        wait();
        for (int r = 0; r < at.ranks; r++) {
            const int start = parts.first[r], count = parts.first[r + 1] - start;
#pragma unroll
            for (int k = 0; k < GROUPS; k++) {
                const int i = first + k * step;
                if (r != rank && i < count) x[start + i] = received(r, k);
            }
        }
    }
};

// True for lanes that have another rank.
DEVICE bool has_peer(const Ranks& at) { return int(threadIdx.x) < at.ranks && int(threadIdx.x) != at.rank; }

// Piece by piece, the longest part of a rank being `longest` groups.
template <typename WORK> DEVICE void exchange(const Ranks& at, const WORK& work, int longest) {
    const int block = blockIdx.x, step = gridDim.x, pieces = (longest + PIECE - 1) / PIECE, count = (pieces - block + step - 1) / step;
    const u32 before = at.done[block];
    const int sent_count = work.sent_count(at);
    const auto first_of = [&](int k) { return (block + k * step) * PIECE + int(threadIdx.x); };
    const auto send = [&](int k) {
        uint4 mine[VECTORS];
        const u32 number = before + k;
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int i = first_of(k) + v * THREADS;
            mine[v] = i < sent_count ? work.sent(i) : make_uint4(0, 0, 0, 0);
        }
        for (int r = 0; r < at.ranks; r++) {
            if (r == at.rank) continue;
#pragma unroll
            for (int v = 0; v < VECTORS; v++) {
                if (first_of(k) + v * THREADS < sent_count) at.to[r]->pieces[block][number % SLOTS][v * THREADS + threadIdx.x] = mine[v];
            }
        }
        __syncthreads();
        if (has_peer(at)) signal_system(&at.to[threadIdx.x]->signals[block], number + 1);
    };
    send(0);
    for (int k = 0; k < count; k++) {
        if (k + 1 < count) send(k + 1);
        const u32 number = before + k;
        const auto wait = [&] {
            // Signals may be ahead of this piece.
            if (has_peer(at)) wait_until([&] { return int(signal_of_system(&at.from[threadIdx.x]->signals[block]) - (number + 1)) >= 0; });
            __syncthreads();
        };
        const auto received = [&](int r, int v) { return load_received(&at.from[r]->pieces[block][number % SLOTS][v * THREADS + threadIdx.x]); };
        work.template receive<VECTORS>(at, first_of(k), THREADS, wait, received);
    }
    if (threadIdx.x == 0) at.done[block] = before + count;
}

// All threads send and receive, also those behind the end: a word that is not from this exchange is always from the one before the last.
template <typename WORK> DEVICE void exchange_few(const Ranks& at, const WORK& work) {
    const int block = blockIdx.x, t = threadIdx.x, i = block * THREADS_FEW + t;
    const u32 number = at.done[BLOCKS_MAX + block] + 1;
    const uint4 mine = work.sent(i < work.count ? i : 0);
    for (int r = 0; r < at.ranks; r++) {
        if (r == at.rank) continue;
        ulonglong2 (*to)[THREADS_FEW] = at.to[r]->words[block][number % 2];
        store_words(&to[0][t], mine.x, mine.y, number);
        store_words(&to[1][t], mine.z, mine.w, number);
    }
    const auto received = [&](int r, int) {
        const ulonglong2 (*from)[THREADS_FEW] = at.from[r]->words[block][number % 2];
        ulonglong2 low, high;
        wait_until([&] {
            low = load_words(&from[0][t]), high = load_words(&from[1][t]);
            return number_of(low.x) == number && number_of(low.y) == number && number_of(high.x) == number && number_of(high.y) == number;
        });
        return make_uint4(u32(low.x), u32(low.y), u32(high.x), u32(high.y));
    };
    work.template receive<1>(at, i, 1, [] {}, received);
    __syncthreads();
    if (t == 0) at.done[BLOCKS_MAX + block] = number;
}

extern "C" __global__ void __launch_bounds__(512, 2) sum_ranks(const __grid_constant__ Ranks ranks, uint4* hidden, const uint4* partial, int count) {
    exchange(ranks, SumWork<Bf16Sum>{hidden, partial, count}, count);
}
extern "C" __global__ void __launch_bounds__(256) sum_ranks_few(const __grid_constant__ Ranks ranks, uint4* hidden, const uint4* partial, int count) {
    exchange_few(ranks, SumWork<Bf16Sum>{hidden, partial, count});
}
extern "C" __global__ void __launch_bounds__(512, 2) sum_ranks_f32(const __grid_constant__ Ranks ranks, uint4* x, const uint4* own, int count) {
    exchange(ranks, SumWork<F32Sum>{x, own, count}, count);
}
extern "C" __global__ void __launch_bounds__(256) sum_ranks_few_f32(const __grid_constant__ Ranks ranks, uint4* x, const uint4* own, int count) {
    exchange_few(ranks, SumWork<F32Sum>{x, own, count});
}
extern "C" __global__ void __launch_bounds__(512, 2) share_ranks(const __grid_constant__ Ranks ranks, uint4* x, const __grid_constant__ Parts parts, int longest) {
    exchange(ranks, ShareWork{x, parts, ranks.rank}, longest);
}
