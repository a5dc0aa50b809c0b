// Attention of the decode step: rows to their image's prefix and to their own pages.
#pragma once
#include "decode_ring.cuh"

// The four warps of a group have come here.
DEVICE void group_barrier(int group) { asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP * 32) : "memory"); }

// The pages that a tile sees: those of its prefix, then those of its rows, one row after the other.
struct TilePages {
    int prefix, prefix_length;
    int row, own, own_length, own_end;      // lane r < 16: of row r; own_end counts the pages of all rows up to it

    // In shared memory: the same in all layers.
    struct Saved {
        int prefix, prefix_length, lanes[4][ROWS_OF_TILE];
    };

    DEVICE TilePages(const Step& s, int tile) {
        const int lane = threadIdx.x % 32;
        prefix = s.tile_table[tile];
        prefix_length = s.tile_length[tile];
        row = lane < ROWS_OF_TILE ? s.tile_row[tile * ROWS_OF_TILE + lane] : -1;
        own = row >= 0 ? s.own_table[row] : 0;
        own_length = row >= 0 ? s.own_length[row] : 0;
        own_end = pages_of(own_length);
        for (int step = 1; step < ROWS_OF_TILE; step *= 2) {
            int before = __shfl_up_sync(WARP_ALL, own_end, step);
            if (lane >= step) own_end += before;
        }
    }
    DEVICE TilePages(const Saved& saved) {
        const int lane = threadIdx.x % 32, r = lane % ROWS_OF_TILE;
        prefix = saved.prefix, prefix_length = saved.prefix_length;
        row = lane < ROWS_OF_TILE ? saved.lanes[0][r] : -1;
        own = saved.lanes[1][r], own_length = saved.lanes[2][r], own_end = saved.lanes[3][r];
    }
    DEVICE void save(Saved& saved) const {
        const int lane = threadIdx.x % 32;
        if (lane >= ROWS_OF_TILE) return;
        saved.prefix = prefix, saved.prefix_length = prefix_length;
        saved.lanes[0][lane] = row, saved.lanes[1][lane] = own, saved.lanes[2][lane] = own_length, saved.lanes[3][lane] = own_end;
    }
    DEVICE static int pages_of(int length) { return (length + PAGE - 1) / PAGE; }
    DEVICE int count() const { return pages_of(prefix_length) + __shfl_sync(WARP_ALL, own_end, ROWS_OF_TILE - 1); }
    DEVICE int rows() const { return __popc(__ballot_sync(WARP_ALL, row >= 0)); }

    // Page `index` of them: its number, how many of its positions are seen, and by which row (-1: all).
    struct One {
        int page, limit, only;
    };
    DEVICE One at(const Step& s, int index) const {
        if (index < pages_of(prefix_length)) return {s.pages[prefix + index], prefix_length - index * PAGE, -1};
        index -= pages_of(prefix_length);
        const int only = __ffs(__ballot_sync(WARP_ALL, own_end > index)) - 1;
        const int first = __shfl_sync(WARP_ALL, own, only), length = __shfl_sync(WARP_ALL, own_length, only);
        index -= __shfl_sync(WARP_ALL, own_end, only) - pages_of(length);
        return {s.pages[first + index], length - index * PAGE, only};
    }
};

// Adds up what the splits of a tile and head have seen; they all lie in the L2.
template <int SPLITS_MAX> DEVICE void merge_splits(const Step& s, int tile, int head, int rows) {
    const size_t first = size_t(tile * HEADS + head) * s.splits * ROWS_OF_TILE;
    for (int i = threadIdx.x % (GROUP * 32); i < rows * TEXT_HEAD; i += GROUP * 32) {
        const int row = i / TEXT_HEAD, d = i % TEXT_HEAD;
        // All are on their way before the first is used.
        float2 masses[SPLITS_MAX];
        float values[SPLITS_MAX];
#pragma unroll
        for (int j = 0; j < SPLITS_MAX; j++) {
            const size_t at = first + j * ROWS_OF_TILE + row;
            masses[j] = j < s.splits ? fresh(s.part_mass + at) : make_float2(NEG_INF, 0.0f);
            values[j] = j < s.splits ? fresh(s.part + at * TEXT_HEAD + d) : 0.0f;
        }
        // Each row is seen by one split at least.
        float top = NEG_INF, mass = 0.0f, value = 0.0f;
#pragma unroll
        for (int j = 0; j < SPLITS_MAX; j++) top = fmaxf(top, masses[j].x);
#pragma unroll
        for (int j = 0; j < SPLITS_MAX; j++) {
            const float share = exp2_fast(masses[j].x - top);
            mass += masses[j].y * share;
            value += values[j] * share;
        }
        const int to = s.tile_row[tile * ROWS_OF_TILE + row];
        s.mix[size_t(to) * (WIDTH + s.inner) + head * TEXT_HEAD + d] = bf16_from_f32(value / mass);
    }
}

// What a group has seen of a split goes out: as results when there is one split, else to be merged by who comes last.
template <typename KIND> DEVICE void put_split(const Step& s, const typename KIND::Seen& all, int item, int rows, u32* before) {
    const int thread = threadIdx.x % (GROUP * 32), group = threadIdx.x / (GROUP * 32);
    const int pair = item / s.splits, tile = pair / HEADS, head = pair % HEADS;
    for (int i = thread; i < rows * TEXT_HEAD; i += GROUP * 32) {
        const int row = i / TEXT_HEAD, d = i % TEXT_HEAD;
        const Merged m = merge_seen(all, row, d);
        if (s.splits == 1) {
            const int to = s.tile_row[tile * ROWS_OF_TILE + row];
            s.mix[size_t(to) * (WIDTH + s.inner) + head * TEXT_HEAD + d] = bf16_from_f32(m.value / m.mass);
            continue;
        }
        const size_t at = size_t(item) * ROWS_OF_TILE + row;
        s.part[at * TEXT_HEAD + d] = m.value;
        if (d == 0) s.part_mass[at] = make_float2(m.top, m.mass);
    }
    if (s.splits == 1) return;
    u32* counter = s.counters + GATES + TILES_LEAVING + pair;
    group_barrier(group);
    if (thread == 0) *before = arrive(counter, 1);
    group_barrier(group);
    if (*before != s.splits - 1) return;
    if (thread == 0) *counter = 0;
    merge_splits<KIND::SPLITS_MAX>(s, tile, head, rows);
}

// The first item of each group, in shared memory: what is the same in all layers.
struct FirstItems {
    TilePages::Saved tiles[GROUPS];
    TilePages::One pages[WARPS];        // each warp's first
};

// This warp's pages of an item: every GROUPth from begin to end.
struct Range {
    int begin, end;
    DEVICE Range(const Step& s, const TilePages& tile, int item) {
        const int split = item % s.splits, count = tile.count();
        begin = count * split / s.splits + threadIdx.x / 32 % GROUP;
        end = count * (split + 1) / s.splits;
    }
};

DEVICE size_t place_of(const Step& s, int at_layer, int page, int head) {
    return at_layer * s.layer_values + (size_t(page) * HEADS + head) * PAGE * TEXT_HEAD;
}
// Keys and values of a page into the L2, 16 lines each.
DEVICE void prefetch_page(const Step& s, size_t place) {
    const int lane = threadIdx.x % 32;
    prefetch_line((lane < 16 ? s.keys : s.values) + place + lane % 16 * 64);
}

template <typename KIND> DEVICE void attend_item(const Step& s, int at_layer, int item, const TilePages& tile, TilePages::One one, typename KIND::Seen& all, u32* before) {
    const int warp = threadIdx.x / 32, group = warp / GROUP, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int head = item / s.splits % HEADS;
    const Range range(s, tile, item);
    // Two pages are on their way while one is looked at.
    TilePages::One next = range.begin + GROUP < range.end ? tile.at(s, range.begin + GROUP) : one;
    prefetch_page(s, place_of(s, at_layer, next.page, head));
    Seen seen;
    see_nothing(seen);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = __shfl_sync(WARP_ALL, tile.row, g + half * 8);
        const bf16* from = s.queries + size_t(row) * WIDTH + head * TEXT_HEAD + t * 8;
#pragma unroll
        for (int c = 0; c < 2; c++) seen.q[half][c] = row < 0 ? make_uint4(0, 0, 0, 0) : fresh_eight(from + c * 32);
    }
    for (int index = range.begin; index < range.end; index += GROUP) {
        const TilePages::One last = index + 2 * GROUP < range.end ? tile.at(s, index + 2 * GROUP) : next;
        prefetch_page(s, place_of(s, at_layer, last.page, head));
        const size_t place = place_of(s, at_layer, one.page, head);
        see_page(seen, s.keys + place, s.values + place, one.limit, one.only);
        one = next, next = last;
    }
    put_seen(all, warp % GROUP, seen);
    group_barrier(group);
    put_split<KIND>(s, all, item, tile.rows(), before);
    // The next item writes where this one was read.
    group_barrier(group);
}

template <typename KIND> DEVICE void attend(const Step& s, int at_layer, Shared& shared, const FirstItems& first) {
    const int group = threadIdx.x / 32 / GROUP, items = s.tiles * HEADS * s.splits;
    typename KIND::Seen& all = KIND::seen()[group];
    for (int item = blockIdx.x * GROUPS + group, turn = 0; item < items; item += gridDim.x * GROUPS, turn++) {
        if (turn == 0) {
            attend_item<KIND>(s, at_layer, item, TilePages(first.tiles[group]), first.pages[threadIdx.x / 32], all, shared.before + group);
            continue;
        }
        // Few rows are no more items than groups, and kernels without the code below have registers enough.
        if (KIND::IS_FEW) return;
        const TilePages tile(s, item / s.splits / HEADS);
        const Range range(s, tile, item);
        const TilePages::One one = range.begin < range.end ? tile.at(s, range.begin) : TilePages::One{0, 0, 0};
        attend_item<KIND>(s, at_layer, item, tile, one, all, shared.before + group);
    }
}

