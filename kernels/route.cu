// Which experts compute a row, and the rows of each expert.
//
// route: the `active` largest of a row's logits, the lowest expert among equals first, and their softmax.
//   logits      [rows, experts] bf16; up to 64 experts, up to 32 of them active
//   is_zombie   [flagged]: of the first rows, those that have no expert: zombies and padding. No weights are read for them
//   expert, weight   [rows, active] the row's experts by falling logit, or -1, and their weights, f32
//   chosen      [rows] the same as a set: bit i is expert i
// Grid (ceil(rows / 4)), 128 threads: a warp routes a row; lane i has experts i and i + 32. Softmax in f32, summed by falling logit.
//
// group_rows: slots (experts.cuh), without atomics: equal steps have equal slots.
//   offset, slot_row   as in experts.cuh
//   used        [experts] the experts that have rows, ascending, then -1
//   slot_of     [rows, active] the slot of each row and expert; not written where the row has no expert
// Grid (experts), 1024 threads: a block counts all rows of lower experts, then gives its expert's rows their slots, 1024 rows at a time.
//
// route_few: both for up to 32 rows. Grid (1), 1024 threads: a warp routes a row, then it gives slots to every 32nd expert, a lane to each row.
//
// add_experts: x += the sum of ExpertResults.
//   x           [rows, width] bf16; width a multiple of 8
// Grid (rows), 256 threads: a thread has 8 values at a time.
// Reference: cuda/tests/experts.rs. Launched by cuda/kernels/experts.rs.
#include "experts.cuh"

// Sorts as the logit does, and among equals by falling expert; 0: none. bf16 has 16 bits, so both fit.
DEVICE u32 key_of(const bf16* logits, int expert, int experts) {
    if (expert >= experts) return 0;
    const u32 raw = logits[expert], bits = raw == 0x8000 ? 0 : raw;
    const u32 ordered = bits & 0x8000 ? ~bits & 0xffff : bits | 0x8000;
    return (ordered << 6 | (63 - expert)) + 1;
}
DEVICE int expert_of(u32 key) { return 63 - int((key - 1) & 63); }
DEVICE float logit_of(u32 key) {
    const u32 ordered = (key - 1) >> 6;
    return f32_from_low(ordered & 0x8000 ? ordered & 0x7fff : ~ordered & 0xffff);
}

// Routes a row, by a warp. Returns its experts as a set.
DEVICE u64 route_row(const bf16* logits, bool is_idle, int* expert, float* weight, int experts, int active) {
    const int lane = threadIdx.x % 32;
    u32 low = key_of(logits, lane, experts), high = key_of(logits, lane + 32, experts);
    float largest_logit = 0.0f, sum = 0.0f, own = 0.0f;
    int own_expert = -1;
    u64 set = 0;
    for (int k = 0; k < active && !is_idle; k++) {
        const u32 best = __reduce_max_sync(WARP_ALL, max(low, high));
        low = low == best ? 0 : low;
        high = high == best ? 0 : high;
        const float logit = logit_of(best);
        if (k == 0) largest_logit = logit;
        const float p = expf(logit - largest_logit);
        sum += p;
        set |= u64(1) << expert_of(best);
        if (lane == k) own = p, own_expert = expert_of(best);
    }
    if (lane < active) {
        expert[lane] = own_expert;
        weight[lane] = is_idle ? 0.0f : own / sum;
    }
    return set;
}

// The tables of slots.
struct Slots {
    int *offset, *used, *slot_row, *slot_of;
    // An expert with `count` slots from `first` on; `all` is the set of experts that have rows.
    DEVICE void write_expert(int expert, int first, int count, u64 all, int experts) const {
        offset[expert] = first;
        if (expert == experts - 1) offset[experts] = first + count;
        const int used_below = __popcll(all & ((u64(1) << expert) - 1));
        // An expert without rows is behind all that have some.
        used[count > 0 ? used_below : __popcll(all) + expert - used_below] = count > 0 ? expert : -1;
    }
    DEVICE void write_slot(int slot, int row, int mine, const int* expert, int active) const {
        slot_row[slot] = row;
        for (int k = 0; k < active; k++) {
            if (expert[row * active + k] == mine) slot_of[row * active + k] = slot;
        }
    }
};
DEVICE u64 warp_or(u64 x) { return __reduce_or_sync(WARP_ALL, u32(x)) | u64(__reduce_or_sync(WARP_ALL, u32(x >> 32))) << 32; }
DEVICE int lanes_below(u32 lanes) { return __popc(lanes & ((1u << threadIdx.x % 32) - 1)); }

extern "C" __global__ void __launch_bounds__(128) route(const bf16* logits, const int* is_zombie, int* expert, float* weight, u64* chosen, int rows, int flagged, int experts, int active) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= rows) return;
    const bool is_idle = row < flagged && is_zombie[row];
    const u64 set = route_row(logits + size_t(row) * experts, is_idle, expert + row * active, weight + row * active, experts, active);
    if (threadIdx.x % 32 == 0) chosen[row] = set;
}

#define GROUP_THREADS 1024
#define GROUP_WARPS (GROUP_THREADS / 32)
extern "C" __global__ void __launch_bounds__(GROUP_THREADS) group_rows(const int* expert, const u64* chosen, int* offset, int* used, int* slot_row, int* slot_of, int rows, int experts, int active) {
    __shared__ int below[GROUP_WARPS], own[GROUP_WARPS];
    __shared__ u64 any[GROUP_WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, mine = blockIdx.x;
    const Slots slots = {offset, used, slot_row, slot_of};
    const u64 bit = u64(1) << mine;
    int lower = 0, count = 0;
    u64 all = 0;
    for (int row = threadIdx.x; row < rows; row += GROUP_THREADS) {
        const u64 set = chosen[row];
        lower += __popcll(set & (bit - 1));
        count += set & bit ? 1 : 0;
        all |= set;
    }
    lower = __reduce_add_sync(WARP_ALL, lower);
    count = __reduce_add_sync(WARP_ALL, count);
    all = warp_or(all);
    if (lane == 0) below[warp] = lower, own[warp] = count, any[warp] = all;
    __syncthreads();
    int first = __reduce_add_sync(WARP_ALL, below[lane]);
    const int total = __reduce_add_sync(WARP_ALL, own[lane]);
    all = warp_or(any[lane]);
    if (threadIdx.x == 0) slots.write_expert(mine, first, total, all, experts);
    for (int from = 0; from < rows; from += GROUP_THREADS) {
        const int row = from + threadIdx.x;
        const bool has = row < rows && chosen[row] & bit;
        const u32 lanes = __ballot_sync(WARP_ALL, has);
        __syncthreads();
        if (lane == 0) own[warp] = __popc(lanes);
        __syncthreads();
        const int slot = first + __reduce_add_sync(WARP_ALL, lane < warp ? own[lane] : 0) + lanes_below(lanes);
        first += __reduce_add_sync(WARP_ALL, own[lane]);
        if (has) slots.write_slot(slot, row, mine, expert, active);
    }
}

extern "C" __global__ void __launch_bounds__(1024) route_few(const bf16* logits, const int* is_zombie, int* expert, float* weight, int* offset, int* used, int* slot_row, int* slot_of, int rows, int flagged, int experts, int active) {
    __shared__ u64 sets[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Slots slots = {offset, used, slot_row, slot_of};
    u64 set = 0;
    if (warp < rows) {
        const bool is_idle = warp < flagged && is_zombie[warp];
        set = route_row(logits + warp * experts, is_idle, expert + warp * active, weight + warp * active, experts, active);
    }
    if (lane == 0) sets[warp] = set;
    __syncthreads();
    set = sets[lane];
    const u64 all = warp_or(set);
    for (int mine = warp; mine < experts; mine += 32) {
        const u64 bit = u64(1) << mine;
        const int first = __reduce_add_sync(WARP_ALL, __popcll(set & (bit - 1)));
        const bool has = set & bit;
        const u32 lanes = __ballot_sync(WARP_ALL, has);
        if (lane == 0) slots.write_expert(mine, first, __popc(lanes), all, experts);
        if (has) slots.write_slot(first + lanes_below(lanes), lane, mine, expert, active);
    }
}

extern "C" __global__ void __launch_bounds__(256) add_experts(const bf16* results, const int* expert, const float* weight, const int* slot_of, bf16* x, int width, int x_stride, int active) {
    const ExpertResults experts = {results, expert, weight, slot_of, active};
    const int row = blockIdx.x;
    if (!experts.has(row)) return;
    uint4* to = reinterpret_cast<uint4*>(x + size_t(row) * x_stride);
    for (int i = threadIdx.x; i < width / 8; i += 256) to[i] = experts.added(to[i], row, i, width);
}
