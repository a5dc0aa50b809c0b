// The decode step with one or two rows: every block keeps the hidden states of all rows in shared memory and adds up each layer itself,
// from the partial sums of all blocks.
//
// So no block waits for another one to add up and to write. For more rows the additional reads would cost more than that saves.
// A thread has 4 neighbouring values of each row. Partial sums are added in f32 in the order of chunks, so that all blocks get equal
// results; the hidden state is rounded to bf16 after each layer, as kernel by kernel.
// CPU reference: cpu/text.rs, forward. Part of decode_step.cu.
#pragma once
#include "decode_product.cuh"

// Operands of products, 16-bit values, [FEW_ROWS][WIDTH]. They share memory with the partial results of attention, which has not begun.
template <typename TRAITS> DEVICE bf16* few_operands() { return reinterpret_cast<bf16*>(TRAITS::partials()); }
// Hidden states, [FEW_ROWS][WIDTH].
template <typename TRAITS> DEVICE bf16* few_hidden() { return reinterpret_cast<bf16*>(TRAITS::partials() + GROUPS); }
static_assert(sizeof(WarpPartials<FEW_ROWS>) * GROUPS >= FEW_ROWS * WIDTH * 2, "the operands fit into the memory of partial results");

// A thread has four values of each row: outputs 4 * threadIdx.x and the three behind.
struct F32x4 {
    float x[4];
};
DEVICE F32x4 f32x4_from(const bf16* from) {
    const uint2 raw = *reinterpret_cast<const uint2*>(from + threadIdx.x * 4);
    return {{f32_from_low(raw.x), f32_from_high(raw.x), f32_from_low(raw.y), f32_from_high(raw.y)}};
}
DEVICE uint2 bf16x4_from(const F32x4& f) { return make_uint2(bf16_pair(f.x[0], f.x[1]), bf16_pair(f.x[2], f.x[3])); }
template <typename WEIGHT> DEVICE uint2 operand_from(const F32x4& f, WEIGHT, float) { return bf16x4_from(f); }
DEVICE uint2 operand_from(const F32x4& f, e4m3, float scale) {
    return make_uint2(f16_pair(f.x[0] * scale, f.x[1] * scale), f16_pair(f.x[2] * scale, f.x[3] * scale));
}

// The sum of each row over the block, for all threads. A barrier of the block; consecutive calls use different `place`s.
DEVICE void sum_few(float (&x)[FEW_ROWS], int rows, SharedState& shared, int place) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        if (row < rows) x[row] = warp_sum(x[row]);
        if (lane == 0) shared.few[place][row][warp] = x[row];
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        if (row >= rows) continue;
        x[row] = shared.few[place][row][lane % WARPS];
        for (int step = WARPS / 2; step > 0; step /= 2) x[row] += __shfl_xor_sync(WARP_ALL, x[row], step);
    }
}

// Adds a layer to the hidden states: bias, then the partial sums of all chunks of inputs, in the order of chunks.
DEVICE void add_layer(F32x4 (&hidden)[FEW_ROWS], const StepArgument& s, const F32x4& bias) {
    const int chunks = proj_fc2_chunks(s);
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        if (row >= s.rows) continue;
        // All loads are issued before the first result is used.
        float4 parts[CHUNKS_MAX];
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) {
            const float* from = s.sums + (size_t(c) * s.rows + row) * WIDTH + threadIdx.x * 4;
            parts[c] = c < chunks ? load_l2(reinterpret_cast<const float4*>(from)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        F32x4 sum = bias;
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) sum.x[0] += parts[c].x, sum.x[1] += parts[c].y, sum.x[2] += parts[c].z, sum.x[3] += parts[c].w;
        for (int j = 0; j < 4; j++) hidden[row].x[j] = f32_from_bf16(bf16_from_f32(hidden[row].x[j] + sum.x[j]));
    }
}

// A value of the exchange between ranks in a layer, for a place in its words.
DEVICE void send(const StepArgument& s, int at_layer, size_t place, float value) {
    const u32 number = s.number + at_layer;
    store_word(s.sent + number % 2 * RANK_WORDS + place, __float_as_uint(value), number);
}

// The same over two ranks, from the partial sums of both in their order: all blocks of both get equal results.
DEVICE void add_layer_of_ranks(F32x4 (&hidden)[FEW_ROWS], const StepArgument& s, int at_layer) {
    constexpr int MOST = CHUNKS_MAX / RANKS;
    const int chunks = proj_fc2_chunks(s);
    const u32 number = s.number + at_layer;
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        if (row >= s.rows) continue;
        float4 parts[2][MOST];
        ulonglong2 low[MOST], high[MOST];
        const auto place = [&](int c) { return (size_t(c < chunks ? c : 0) * s.rows + row) * WIDTH + threadIdx.x * 4; };
#pragma unroll
        for (int c = 0; c < MOST; c++) parts[0][c] = load_l2(reinterpret_cast<const float4*>(s.sums + place(c)));
        wait_until([&] {
            bool is_there = true;
#pragma unroll
            for (int c = 0; c < MOST; c++) {
                const ulonglong2* from = reinterpret_cast<const ulonglong2*>(s.received + number % 2 * RANK_WORDS + place(c));
                low[c] = load_words(from), high[c] = load_words(from + 1);
            }
#pragma unroll
            for (int c = 0; c < MOST; c++) {
                is_there &= number_of(low[c].x) == number && number_of(low[c].y) == number && number_of(high[c].x) == number && number_of(high[c].y) == number;
            }
            return is_there;
        });
        const auto value = [](u64 word) { return __uint_as_float(u32(word)); };
#pragma unroll
        for (int c = 0; c < MOST; c++) parts[1][c] = make_float4(value(low[c].x), value(low[c].y), value(high[c].x), value(high[c].y));
        F32x4 sum = {};
#pragma unroll
        for (int rank = 0; rank < 2; rank++) {
#pragma unroll
            for (int c = 0; c < MOST; c++) {
                if (c >= chunks) continue;
                const float4 part = rank == s.rank ? parts[0][c] : parts[1][c];
                sum.x[0] += part.x, sum.x[1] += part.y, sum.x[2] += part.z, sum.x[3] += part.w;
            }
        }
        for (int j = 0; j < 4; j++) hidden[row].x[j] = f32_from_bf16(bf16_from_f32(hidden[row].x[j] + sum.x[j]));
    }
}

// Hidden states after layer `at_layer` - 1, once all blocks have written their partial sums; before the first layer, the step's input.
template <typename TRAITS> DEVICE void update_hidden(F32x4 (&hidden)[FEW_ROWS], const StepArgument& s, int at_layer, u32 parity, const SharedState& shared) {
    uint2* kept_hidden = reinterpret_cast<uint2*>(few_hidden<TRAITS>()) + threadIdx.x;
    const F32x4 bias = at_layer > 0 ? f32x4_from(shared.layers[at_layer - 1].linear[PROJ_FC2].bias) : F32x4{};
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        const bf16* from = at_layer > 0 ? few_hidden<TRAITS>() + row * WIDTH : s.hidden + size_t(row) * WIDTH;
        hidden[row] = row < s.rows ? f32x4_from(from) : F32x4{};
    }
    if (at_layer > 0) {
        wait_gate(s.counters, HIDDEN, parity);
        if constexpr (RANKS > 1) {
            add_layer_of_ranks(hidden, s, at_layer - 1);
        } else {
            add_layer(hidden, s, bias);
        }
    }
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) kept_hidden[row * WIDTH / 4] = bf16x4_from(hidden[row]);
}

// Loads the operands that the block's threads have written. A barrier of the block.
template <typename TRAITS> DEVICE void load_operands(Inputs<typename TRAITS::Weight, 1>& in, const StepArgument& s) {
    __syncthreads();
    const int row = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4* from = reinterpret_cast<const uint4*>(few_operands<TRAITS>() + row * WIDTH + column<typename TRAITS::Weight>(i));
        in.x[0][i] = row < s.rows ? *from : make_uint4(0, 0, 0, 0);
    }
}

// Normed inputs of qkv_fc1: load_inputs and norm_inputs for few rows.
template <typename TRAITS> DEVICE void few_inputs(Inputs<typename TRAITS::Weight, 1>& in, const StepArgument& s, int at_layer, u32 parity, SharedState& shared) {
    const Layer& layer = shared.layers[at_layer];
    // Loaded while the block waits for the others.
    const F32x4 weight = f32x4_from(layer.ln_weight), bias = f32x4_from(layer.ln_bias);
    F32x4 hidden[FEW_ROWS];
    update_hidden<TRAITS>(hidden, s, at_layer, parity, shared);
    float mean[FEW_ROWS], squares[FEW_ROWS];
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        mean[row] = hidden[row].x[0] + hidden[row].x[1] + hidden[row].x[2] + hidden[row].x[3];
    }
    sum_few(mean, s.rows, shared, 0);
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        mean[row] /= WIDTH;
        squares[row] = 0.0f;
        for (int j = 0; j < 4; j++) squares[row] += (hidden[row].x[j] - mean[row]) * (hidden[row].x[j] - mean[row]);
    }
    sum_few(squares, s.rows, shared, 1);
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        const float scale = rsqrtf(squares[row] / WIDTH + 1e-5f);
        F32x4 e;
        for (int j = 0; j < 4; j++) e.x[j] = (hidden[row].x[j] - mean[row]) * scale * weight.x[j] + bias.x[j];
        reinterpret_cast<uint2*>(few_operands<TRAITS>() + row * WIDTH)[threadIdx.x] = operand_from(e, typename TRAITS::Weight(), layer.linear[QKV_FC1].in);
    }
    load_operands<TRAITS>(in, s);
}

// Writes the step's result; called by one block.
template <typename TRAITS> DEVICE void store_hidden(const StepArgument& s, u32 parity, const SharedState& shared) {
    F32x4 hidden[FEW_ROWS];
    update_hidden<TRAITS>(hidden, s, s.layer_count, parity, shared);
#pragma unroll
    for (int row = 0; row < FEW_ROWS; row++) {
        if (row < s.rows) reinterpret_cast<uint2*>(s.hidden + size_t(row) * WIDTH)[threadIdx.x] = bf16x4_from(hidden[row]);
    }
}
