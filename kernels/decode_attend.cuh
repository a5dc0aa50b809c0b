// Attention of the decode step: the rows of a tile read the prefix of their image and their own pages.
//
//   softmax(q k^T / 8) v of each row over its prefix and its own positions, into the first HEADS_WIDTH values of proj_fc2_in
//
// A work item is (tile, head, split): one part of the tile's pages. A group of 4 warps takes an item, each warp every fourth page; then
// the group merges its warps in shared memory. With several splits, the group that finishes the last split of (tile, head) merges them,
// in the order of splits. Softmax in f32, base 2 (attend_page.cuh).
// CPU reference: cpu/attention.rs, attend_past. Part of decode_step.cu.
#pragma once
#include "decode_base.cuh"

// A barrier of the four warps of a group.
DEVICE void group_barrier(int group) { asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP * 32) : "memory"); }

// The pages that a tile reads: those of its prefix, then those of its rows, one row after the other.
struct TilePages {
    int prefix, prefix_length;
    int row, own, own_length, own_end;      // lane r < 16: of row r; own_end counts the pages of all rows up to it

    // In shared memory, because it is the same in all layers.
    struct Saved {
        int prefix, prefix_length, lanes[4][TILE_ROWS];
    };

    DEVICE TilePages(const StepArgument& s, int tile) {
        const int lane = threadIdx.x % 32;
        prefix = s.tile_table[tile];
        prefix_length = s.tile_length[tile];
        row = lane < TILE_ROWS ? s.tile_row[tile * TILE_ROWS + lane] : -1;
        own = row >= 0 ? s.own_table[row] : 0;
        own_length = row >= 0 ? s.own_length[row] : 0;
        own_end = pages_of(own_length);
        for (int step = 1; step < TILE_ROWS; step *= 2) {
            int before = __shfl_up_sync(WARP_ALL, own_end, step);
            if (lane >= step) own_end += before;
        }
    }
    DEVICE TilePages(const Saved& saved) {
        const int lane = threadIdx.x % 32, r = lane % TILE_ROWS;
        prefix = saved.prefix, prefix_length = saved.prefix_length;
        row = lane < TILE_ROWS ? saved.lanes[0][r] : -1;
        own = saved.lanes[1][r], own_length = saved.lanes[2][r], own_end = saved.lanes[3][r];
    }
    DEVICE void save(Saved& saved) const {
        const int lane = threadIdx.x % 32;
        if (lane >= TILE_ROWS) return;
        saved.prefix = prefix, saved.prefix_length = prefix_length;
        saved.lanes[0][lane] = row, saved.lanes[1][lane] = own, saved.lanes[2][lane] = own_length, saved.lanes[3][lane] = own_end;
    }
    DEVICE static int pages_of(int length) { return (length + PAGE - 1) / PAGE; }
    DEVICE int count() const { return pages_of(prefix_length) + __shfl_sync(WARP_ALL, own_end, TILE_ROWS - 1); }
    DEVICE int rows() const { return __popc(__ballot_sync(WARP_ALL, row >= 0)); }

    // Page `index` of them: its number, how many of its positions are read, and by which row (-1: all).
    struct PageView {
        int page, limit, only_row;
    };
    DEVICE PageView at(const StepArgument& s, int index) const {
        if (index < pages_of(prefix_length)) return {s.pages[prefix + index], prefix_length - index * PAGE, -1};
        index -= pages_of(prefix_length);
        const int only_row = __ffs(__ballot_sync(WARP_ALL, own_end > index)) - 1;
        const int first = __shfl_sync(WARP_ALL, own, only_row), length = __shfl_sync(WARP_ALL, own_length, only_row);
        index -= __shfl_sync(WARP_ALL, own_end, only_row) - pages_of(length);
        return {s.pages[first + index], length - index * PAGE, only_row};
    }
};

// Merges the results of the splits of a tile and head; all of them are in the L2.
template <int SPLITS_MAX> DEVICE void merge_splits(const StepArgument& s, int tile, int head, int rows) {
    const size_t first = size_t(tile * HEADS + head) * s.splits * TILE_ROWS;
    for (int i = threadIdx.x % (GROUP * 32); i < rows * TEXT_HEAD; i += GROUP * 32) {
        const int row = i / TEXT_HEAD, d = i % TEXT_HEAD;
        // All loads are issued before the first result is used.
        float2 max_sums[SPLITS_MAX];
        float values[SPLITS_MAX];
#pragma unroll
        for (int j = 0; j < SPLITS_MAX; j++) {
            const size_t at = first + j * TILE_ROWS + row;
            max_sums[j] = j < s.splits ? load_l2(s.partial_max_sum + at) : make_float2(NEG_INF, 0.0f);
            values[j] = j < s.splits ? load_l2(s.partial + at * TEXT_HEAD + d) : 0.0f;
        }
        // At least one split has a position for each row.
        float row_max = NEG_INF, row_sum = 0.0f, value = 0.0f;
#pragma unroll
        for (int j = 0; j < SPLITS_MAX; j++) row_max = fmaxf(row_max, max_sums[j].x);
#pragma unroll
        for (int j = 0; j < SPLITS_MAX; j++) {
            const float weight = exp2_fast(max_sums[j].x - row_max);
            row_sum += max_sums[j].y * weight;
            value += values[j] * weight;
        }
        const int to = s.tile_row[tile * TILE_ROWS + row];
        s.proj_fc2_in[size_t(to) * (HEADS_WIDTH + s.inner) + head * TEXT_HEAD + d] = bf16_from_f32(value / row_sum);
    }
}

// Writes a group's result of a split: the output when there is one split, else a partial result. The group that finishes the last split
// merges all.
template <typename TRAITS> DEVICE void store_split(const StepArgument& s, const typename TRAITS::Partials& all, int item, int rows, u32* before) {
    const int thread = threadIdx.x % (GROUP * 32), group = threadIdx.x / (GROUP * 32);
    const int pair = item / s.splits, tile = pair / HEADS, head = pair % HEADS;
    for (int i = thread; i < rows * TEXT_HEAD; i += GROUP * 32) {
        const int row = i / TEXT_HEAD, d = i % TEXT_HEAD;
        const Merged m = merge_partials(all, row, d);
        if (s.splits == 1) {
            const int to = s.tile_row[tile * TILE_ROWS + row];
            s.proj_fc2_in[size_t(to) * (HEADS_WIDTH + s.inner) + head * TEXT_HEAD + d] = bf16_from_f32(m.value / m.row_sum);
            continue;
        }
        const size_t at = size_t(item) * TILE_ROWS + row;
        s.partial[at * TEXT_HEAD + d] = m.value;
        if (d == 0) s.partial_max_sum[at] = make_float2(m.row_max, m.row_sum);
    }
    if (s.splits == 1) return;
    u32* counter = s.counters + GATES + PROJ_FC2_TILES + pair;
    group_barrier(group);
    if (thread == 0) *before = arrive(counter, 1);
    group_barrier(group);
    if (*before != s.splits - 1) return;
    if (thread == 0) *counter = 0;
    merge_splits<TRAITS::SPLITS_MAX>(s, tile, head, rows);
}

// The first item of each group, in shared memory, because it is the same in all layers.
struct FirstItems {
    TilePages::Saved tiles[GROUPS];
    TilePages::PageView pages[WARPS];        // the first page of each warp
};

// This warp's pages of an item: every GROUP-th from begin to end.
struct PageRange {
    int begin, end;
    DEVICE PageRange(const StepArgument& s, const TilePages& tile, int item) {
        const int split = item % s.splits, count = tile.count();
        begin = count * split / s.splits + threadIdx.x / 32 % GROUP;
        end = count * (split + 1) / s.splits;
    }
};

DEVICE size_t page_offset(const StepArgument& s, int at_layer, int page, int head) {
    return at_layer * s.layer_values + (size_t(page) * HEADS + head) * PAGE * TEXT_HEAD;
}
// Prefetches keys and values of a page into the L2, 16 lines each.
DEVICE void prefetch_page(const StepArgument& s, size_t place) {
    const int lane = threadIdx.x % 32;
    prefetch_line((lane < 16 ? s.keys : s.values) + place + lane % 16 * 64);
}

template <typename TRAITS> DEVICE void attend_item(const StepArgument& s, int at_layer, int item, const TilePages& tile, TilePages::PageView one, typename TRAITS::Partials& all, u32* before) {
    const int warp = threadIdx.x / 32, group = warp / GROUP, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int head = item / s.splits % HEADS;
    const PageRange range(s, tile, item);
    // Two pages are prefetched while one is computed.
    TilePages::PageView next = range.begin + GROUP < range.end ? tile.at(s, range.begin + GROUP) : one;
    prefetch_page(s, page_offset(s, at_layer, next.page, head));
    SoftmaxState state;
    clear_softmax(state);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = __shfl_sync(WARP_ALL, tile.row, g + half * 8);
        const bf16* from = s.queries + size_t(row) * HEADS_WIDTH + head * TEXT_HEAD + t * 8;
#pragma unroll
        for (int c = 0; c < 2; c++) state.q[half][c] = row < 0 ? make_uint4(0, 0, 0, 0) : load_l2_bf16x8(from + c * 32);
    }
    for (int index = range.begin; index < range.end; index += GROUP) {
        const TilePages::PageView last = index + 2 * GROUP < range.end ? tile.at(s, index + 2 * GROUP) : next;
        prefetch_page(s, page_offset(s, at_layer, last.page, head));
        const size_t place = page_offset(s, at_layer, one.page, head);
        attend_page(state, s.keys + place, s.values + place, one.limit, one.only_row);
        one = next, next = last;
    }
    store_partial(all, warp % GROUP, state);
    group_barrier(group);
    store_split<TRAITS>(s, all, item, tile.rows(), before);
    // The next item overwrites the shared memory that this one read.
    group_barrier(group);
}

template <typename TRAITS> DEVICE void attend(const StepArgument& s, int at_layer, SharedState& shared, const FirstItems& first) {
    const int group = threadIdx.x / 32 / GROUP, items = s.tiles * HEADS * s.splits;
    typename TRAITS::Partials& all = TRAITS::partials()[group];
    for (int item = blockIdx.x * GROUPS + group, nth = 0; item < items; item += gridDim.x * GROUPS, nth++) {
        if (nth == 0) {
            attend_item<TRAITS>(s, at_layer, item, TilePages(first.tiles[group]), first.pages[threadIdx.x / 32], all, shared.before + group);
            continue;
        }
        // Kernels for few rows are launched with at most one item per group; without the code below their registers suffice.
        if (TRAITS::IS_FEW) return;
        const TilePages tile(s, item / s.splits / HEADS);
        const PageRange range(s, tile, item);
        const TilePages::PageView one = range.begin < range.end ? tile.at(s, range.begin) : TilePages::PageView{0, 0, 0};
        attend_item<TRAITS>(s, at_layer, item, tile, one, all, shared.before + group);
    }
}

