// The phases of a layer of the decode step, and the layers one behind the other. Part of decode_step.cu.
#pragma once
#include "decode_attend.cuh"
#include "decode_few.cuh"

// `parity` is that of the gates in the layer before.
template <typename TRAITS> DEVICE void qkv_fc1(const StepArgument& s, int at_layer, u32 parity, SharedState& shared, WeightStream<TRAITS>& weights) {
    typedef typename TRAITS::Weight Weight;
    const Layer& layer = shared.layers[at_layer];
    const Linear& linear = layer.linear[QKV_FC1];
    const PhaseShare share = shared.shares[QKV_FC1];
    const SumPlace place = place_of_thread<TRAITS>();
    const int i = place.output, row = place.row;
    const bool there = row < s.rows;
    const int position = there ? s.position[row] : 0, slot = there ? s.slot[row] : -1;
    // Units of queries, keys and values come first; at least one unit of the MLP follows.
    const int qkv_units = (QKV_TILES - share.first + share.step - 1) / share.step;
    // Read one unit ahead, because the compiler would wait for them before the product.
    auto output_of = [&](int k) { return (share.first + k * share.step) * UNIT + i; };
    auto bias_of = [&](int k) { return k < share.count ? linear.bias[output_of(k)] : bf16(0); };
    auto scale_of = [&](int k) { return k < share.count ? sum_scale(linear, Weight(), output_of(k)) : 0.0f; };
    bf16 next_bias = bias_of(0);
    float next_scale = scale_of(0);
    Inputs<Weight, TRAITS::BLOCKS> in;
    if constexpr (TRAITS::IS_FEW) {
        few_inputs<TRAITS>(in, s, at_layer, parity, shared);
    } else {
        load_inputs(in, s.hidden, WIDTH, s.rows);
        norm_inputs(in, layer, shared);
    }
    for (int k = 0; k < share.count; k++) {
        const int output = output_of(k), tile = output / UNIT;
        const bf16 bias = next_bias;
        const float scale = next_scale;
        next_bias = bias_of(k + 1);
        next_scale = scale_of(k + 1);
        const float sum = unit_product(s, shared, weights, k, in, place) * scale;
        if (tile >= QKV_TILES) {
            if (k == qkv_units) signal_gate(s.counters, QUERIES);
            if (there) s.proj_fc2_in[size_t(row) * (HEADS_WIDTH + s.inner) + output - 2 * HEADS_WIDTH] = bf16_from_f32(gelu_tanh(sum + f32_from_bf16(bias)));
            continue;
        }
        // The first 32 of the 64 outputs of a head are rotated; pairs are 8 apart.
        const int head = output % HEADS_WIDTH / TEXT_HEAD, d = output % TEXT_HEAD;
        const float2 cos_sin = s.rope_cos_sin[position * 16 + tile % 2 * 8 + i % 8];
        // Rounded before the rotation, as in the separate kernels.
        float x = f32_from_bf16(bf16_from_f32(sum + f32_from_bf16(bias))), pair = __shfl_xor_sync(WARP_ALL, x, 8);
        if (output < 2 * HEADS_WIDTH && tile % 4 < 2) x = i < 8 ? x * cos_sin.x - pair * cos_sin.y : pair * cos_sin.y + x * cos_sin.x;
        const bf16 value = bf16_from_f32(x);
        const size_t page = size_t(at_layer) * s.layer_values + (size_t(slot / PAGE) * HEADS + head) * PAGE * TEXT_HEAD;
        if (output < HEADS_WIDTH) {
            if (there) s.queries[size_t(row) * HEADS_WIDTH + output] = value;
        } else if (slot >= 0 && output < 2 * HEADS_WIDTH) {
            s.keys[page + slot % PAGE * TEXT_HEAD + d] = value;
        } else if (slot >= 0) {
            s.values[page + d * PAGE + slot % PAGE] = value;
        }
    }
}

// The norm's parameters that qkv_fc1 of that layer reads first, in lines of 128 bytes, and biases and scales of this block's units.
DEVICE void prefetch_qkv_fc1(const Layer& layer, const PhaseShare& share) {
    const int i = threadIdx.x;
    const Linear& linear = layer.linear[QKV_FC1];
    const int output = (share.first + (i - 64) * share.step) * UNIT;
    if (i < 64) prefetch_line((i < 32 ? layer.ln_weight : layer.ln_bias) + i % 32 * 64);
    if (i < 64 || i >= 64 + share.count) return;
    prefetch_line(linear.bias + output);
    if (linear.by_output != nullptr) prefetch_line(linear.by_output + output);
}

// Adds the layer to the hidden states of outputs whose last chunk this block has finished, on all ranks from the same numbers. All of a block's
// sums are sent before it waits for the other rank's.
DEVICE void add_layer_of_ranks(const StepArgument& s, int at_layer, const PhaseShare& share, const SharedState& shared) {
    const int chunks = proj_fc2_chunks(s), count = share.count * s.rows * UNIT;
    const auto which_of = [&](int k) { return k / UNIT / s.rows; };
    const auto place_of = [&](int k) { return size_t(k / UNIT % s.rows) * WIDTH + (share.first + which_of(k) * share.step) * UNIT + k % UNIT; };
    for (int k = threadIdx.x; k < count; k += WARPS * 32) {
        if (!shared.is_last[which_of(k)]) continue;
        const size_t place = place_of(k);
        // All loads are issued before the first result is used.
        float parts[CHUNKS_MAX];
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) parts[c] = c < chunks ? load_l2(s.sums + size_t(c) * s.rows * WIDTH + place) : 0.0f;
        float sum = 0.0f;
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) sum += parts[c];
        s.sums[place] = sum;
        send(s, at_layer, place, sum);
    }
    for (int k = threadIdx.x; k < count; k += WARPS * 32) {
        if (!shared.is_last[which_of(k)]) continue;
        const size_t place = place_of(k);
        const float own = load_l2(s.sums + place), before = f32_from_bf16(load_l2(s.hidden + place));
        const u32 number = s.number + at_layer;
        u64 word;
        wait_until([&] { return word = load_word(s.received + number % 2 * RANK_WORDS + place), number_of(word) == number; });
        const float other = __uint_as_float(u32(word));
        s.hidden[place] = bf16_from_f32(before + (s.rank == 0 ? own + other : other + own));
    }
}

template <typename TRAITS> DEVICE void proj_fc2(const StepArgument& s, int at_layer, SharedState& shared, WeightStream<TRAITS>& weights) {
    typedef typename TRAITS::Weight Weight;
    const Layer& layer = shared.layers[at_layer];
    const Linear& linear = layer.linear[PROJ_FC2];
    const PhaseShare share = shared.shares[PROJ_FC2];
    const int chunks = proj_fc2_chunks(s);
    const SumPlace place = place_of_thread<TRAITS>();
    auto output_of = [&](int k) { return (share.first + k * share.step) * UNIT + place.output; };
    auto scale_of = [&](int k) { return k < share.count ? sum_scale(linear, Weight(), output_of(k)) : 0.0f; };
    // A rank's bias is a part of its partial sums.
    auto bias_of = [&](int k) { return RANKS > 1 && share.chunk == 0 && k < share.count ? linear.bias[output_of(k)] : bf16(0); };
    float next_scale = scale_of(0);
    bf16 next_bias = bias_of(0);
    Inputs<Weight, TRAITS::BLOCKS> in;
    load_inputs(in, s.proj_fc2_in + first_input(share.chunk), HEADS_WIDTH + s.inner, is_idle_warp(PROJ_FC2, share.chunk) ? 0 : s.rows);
    scale_inputs(in, linear.in);
    if (threadIdx.x < 32) prefetch_line(linear.bias + threadIdx.x * 64);
    if (at_layer + 1 < s.layer_count) prefetch_qkv_fc1(shared.layers[at_layer + 1], shared.shares[QKV_FC1]);
    for (int k = 0; k < share.count; k++) {
        const float scale = next_scale;
        next_scale = scale_of(k + 1);
        float sum = unit_product(s, shared, weights, k, in, place) * scale;
        if (RANKS > 1) sum += f32_from_bf16(next_bias), next_bias = bias_of(k + 1);
        if (place.row < s.rows) {
            const size_t to = (size_t(share.chunk) * s.rows + place.row) * WIDTH + output_of(k);
            s.sums[to] = sum;
            if (RANKS > 1 && TRAITS::IS_FEW) send(s, at_layer, to, sum);
        }
    }
    if constexpr (TRAITS::IS_FEW) return;
    __syncthreads();
    if (threadIdx.x < share.count) {
        u32* counter = s.counters + GATES + share.first + threadIdx.x * share.step;
        shared.is_last[threadIdx.x] = arrive(counter, 1) == chunks - 1;
        if (shared.is_last[threadIdx.x]) *counter = 0;
    }
    __syncthreads();
#if RANKS > 1
    add_layer_of_ranks(s, at_layer, share, shared);
#else
    for (int k = threadIdx.x; k < share.count * s.rows * UNIT; k += WARPS * 32) {
        const int which = k / UNIT / s.rows, row = k / UNIT % s.rows;
        if (!shared.is_last[which]) continue;
        const int output = (share.first + which * share.step) * UNIT + k % UNIT;
        bf16* to = s.hidden + size_t(row) * WIDTH + output;
        // All loads are issued before the first result is used.
        float parts[CHUNKS_MAX];
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) parts[c] = c < chunks ? load_l2(s.sums + (size_t(c) * s.rows + row) * WIDTH + output) : 0.0f;
        float sum = f32_from_bf16(linear.bias[output]);
        const float before = f32_from_bf16(load_l2(to));
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) sum += parts[c];
        *to = bf16_from_f32(before + sum);
    }
#endif
}

template <typename TRAITS> DEVICE void decode_step(const StepArgument& s) {
    __shared__ SharedState shared;
    __shared__ FirstItems first;
    const int warp = threadIdx.x / 32, group = warp / GROUP;
    const u64* from = reinterpret_cast<const u64*>(s.layers);
    for (int i = threadIdx.x; i < s.layer_count * int(sizeof(Layer) / 8); i += WARPS * 32) reinterpret_cast<u64*>(shared.layers)[i] = from[i];
    if (threadIdx.x == 0) shared.shares[QKV_FC1] = share_of(s, QKV_FC1), shared.shares[PROJ_FC2] = share_of(s, PROJ_FC2);
    u32 parity = gate_parity(s.counters);
    __syncthreads();
    const int item = blockIdx.x * GROUPS + group, items = s.tiles * HEADS * s.splits;
    TilePages::PageView& page = first.pages[warp];
    if (item < items) {
        const TilePages tile(s, item / s.splits / HEADS);
        const PageRange range(s, tile, item);
        if (warp % GROUP == 0) tile.save(first.tiles[group]);
        page = range.begin < range.end ? tile.at(s, range.begin) : TilePages::PageView{0, 0, 0};
    }
    __syncthreads();
    for (int layer = 0; layer < s.layer_count; layer++) {
        // Weights are loaded before a gate is waited for.
        WeightStream<TRAITS> qkv_fc1_weights(shared, layer, QKV_FC1);
        if (!TRAITS::IS_FEW && layer > 0) wait_gate(s.counters, HIDDEN, parity ^ 0x80000000u);
        qkv_fc1<TRAITS>(s, layer, parity ^ 0x80000000u, shared, qkv_fc1_weights);
        if (item < items) prefetch_page(s, page_offset(s, layer, page.page, item / s.splits % HEADS));
        __syncthreads();
        signal_gate(s.counters, INNER);
        wait_gate(s.counters, QUERIES, parity);
        attend<TRAITS>(s, layer, shared, first);
        __syncthreads();
        signal_gate(s.counters, ATTENDED);
        WeightStream<TRAITS> proj_fc2_weights(shared, layer, PROJ_FC2);
        wait_gate(s.counters, shared.shares[PROJ_FC2].chunk == 0 ? ATTENDED : INNER, parity);
        proj_fc2<TRAITS>(s, layer, shared, proj_fc2_weights);
        __syncthreads();
        signal_gate(s.counters, HIDDEN);
        parity ^= 0x80000000u;
    }
    if (TRAITS::IS_FEW && blockIdx.x == 0) store_hidden<TRAITS>(s, parity ^ 0x80000000u, shared);
}

// Bodies of the kernels.
#define STEP(WEIGHT, ROWS) decode_step<KernelTraits<WEIGHT, ROWS>>(step)
// Earlier GPUs do not support fp8: the host rejects it there.
#if __CUDA_ARCH__ >= 890
#define STEP_E4M3(ROWS) STEP(e4m3, ROWS)
#else
#define STEP_E4M3(ROWS)
#endif
