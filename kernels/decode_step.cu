// All blocks of the decoder for a step of few positions, in one launch: what embed.cu wrote goes in, hidden states of the
// last block come out. Such a step is bound by reading the weights once, so memory must not wait: each block has a ring
// of weights on their way, STAGES units deep, that runs through the whole step, across layers and across the barriers between
// blocks, because which weights come next does not depend on any result.
//
//   of each layer
//   enter    n = norm(hidden); [q | k | v | inner] = n w^T + bias; q and k turned, k and v into the cache, inner through GELU
//   attend   rows to their image's prefix and to their own pages (attend_rows.cu says how)
//   leave    hidden += [attended | inner] w^T + bias
//
// Blocks say at gates when something of a layer is there, and most work lies between saying and waiting: queries, keys and values are said
// before the MLP's first layer and waited for behind it; its values are waited for behind attention; for what was attended wait only
// the blocks that project it. Hidden states alone are waited for at once, of few rows when the next layer begins.
//
// A unit of work is 16 outputs by 2048 inputs of a weight, 64 KB in bf16; the 16 warps of a block share its inputs, 128 each,
// and add up in shared memory. A warp's inputs stay in its registers over all units of a phase: weights are the 16-row operand of
// the tensor core, up to 32 rows of inputs its 8-column ones. In `leave` a block keeps to one chunk of 2048 inputs; who
// brings the last chunk of 16 outputs adds all of them up, in the order of chunks, so that results do not depend on who
// that was; of one or two rows each block adds up all itself. In `attend` four warps share (tile, head, split), and who brings the
// last split merges them.
//
// decode_step_N takes up to N rows; decode_step_N_e4m3 has weights in e4m3, and inputs in f16: the tensor cores that a warp has on
// Hopper multiply e4m3 as f16 as well, and memory sees the weights alone.
//
// Grid: one block on each multiprocessor, launched cooperatively; 512 threads. Sums, norms and softmax in f32.
// CPU twin: cpu::text::TextModel::forward.
#include "decode_attend.cuh"
#include "decode_few.cuh"

static_assert(WARPS == UNIT, "each warp has a row of a unit copied");

// `turn` is that of the layer before.
template <typename KIND> DEVICE void enter(const Step& s, int at_layer, u32 turn, Shared& shared) {
    const Layer& layer = shared.layers[at_layer];
    const Share share = shared.shares[ENTER];
    const Place place = place_of_thread<KIND>();
    const int i = place.output, row = place.row;
    const bool there = row < s.rows;
    const int position = there ? s.position[row] : 0, slot = there ? s.slot[row] : -1;
    // Units of queries, keys and values come first; behind them there is another one.
    const int of_qkv = (TILES_OF_QKV - share.first + share.step - 1) / share.step;
    // Read a unit ahead: what is used behind a product would be waited for before it.
    auto bias_of = [&](int k) { return k < share.count ? layer.linear[ENTER].bias[(share.first + k * share.step) * UNIT + i] : bf16(0); };
    bf16 next_bias = bias_of(0);
    Inputs<typename KIND::Weight, KIND::BLOCKS> in;
    if constexpr (KIND::IS_FEW) {
        few_inputs<KIND>(in, s, at_layer, turn, shared);
    } else {
        load_inputs(in, s.hidden, WIDTH, s.rows);
        norm_inputs(in, layer, shared);
    }
    Ring<KIND> ring(shared, at_layer, ENTER);
    const float scale = layer.scales[ENTER].out;
    auto sum_of_unit = [&](int k) { return scaled<typename KIND::Weight>(product(s, shared, ring, k, in, place), scale); };
    for (int k = 0; k < share.count; k++) {
        const int tile = share.first + k * share.step, output = tile * UNIT + i;
        const bf16 bias = next_bias;
        next_bias = bias_of(k + 1);
        if (tile >= TILES_OF_QKV) {
            const float sum = sum_of_unit(k);
            if (k == of_qkv) say(s.counters, QUERIES);
            if (there) s.mix[size_t(row) * (WIDTH + s.inner) + output - 2 * WIDTH] = bf16_from_f32(gelu_tanh(sum + f32_from_bf16(bias)));
            continue;
        }
        // Of 64 outputs of a head the first 32 are turned; pairs are eight apart.
        const int head = output % WIDTH / TEXT_HEAD, d = output % TEXT_HEAD;
        const float2 turn = s.turns[position * 16 + tile % 2 * 8 + i % 8];
        // Rounded before it is turned, as where the two are kernels of their own.
        float x = f32_from_bf16(bf16_from_f32(sum_of_unit(k) + f32_from_bf16(bias))), pair = __shfl_xor_sync(WARP_ALL, x, 8);
        if (output < 2 * WIDTH && tile % 4 < 2) x = i < 8 ? x * turn.x - pair * turn.y : pair * turn.y + x * turn.x;
        const bf16 value = bf16_from_f32(x);
        const size_t page = size_t(at_layer) * s.layer_values + (size_t(slot / PAGE) * HEADS + head) * PAGE * TEXT_HEAD;
        if (output < WIDTH) {
            if (there) s.queries[size_t(row) * WIDTH + output] = value;
        } else if (slot >= 0 && output < 2 * WIDTH) {
            s.keys[page + slot % PAGE * TEXT_HEAD + d] = value;
        } else if (slot >= 0) {
            s.values[page + d * PAGE + slot % PAGE] = value;
        }
    }
}

// What `enter` of that layer reads at once, a line of 128 bytes each, and biases of this block's units.
DEVICE void prefetch_entering(const Layer& layer, const Share& share) {
    const int i = threadIdx.x;
    if (i < 64) prefetch_line((i < 32 ? layer.ln_weight : layer.ln_bias) + i % 32 * 64);
    else if (i < 64 + share.count) prefetch_line(layer.linear[ENTER].bias + (share.first + (i - 64) * share.step) * UNIT);
}

template <typename KIND> DEVICE void leave(const Step& s, int at_layer, Shared& shared) {
    const Layer& layer = shared.layers[at_layer];
    const Share share = shared.shares[LEAVE];
    const int chunks = 1 + s.inner / WIDTH;
    Inputs<typename KIND::Weight, KIND::BLOCKS> in;
    load_inputs(in, s.mix + share.chunk * WIDTH, WIDTH + s.inner, s.rows);
    scale_inputs(in, layer.scales[LEAVE].in);
    if (threadIdx.x < 32) prefetch_line(layer.linear[LEAVE].bias + threadIdx.x * 64);
    if (at_layer + 1 < s.layer_count) prefetch_entering(shared.layers[at_layer + 1], shared.shares[ENTER]);
    const Place place = place_of_thread<KIND>();
    Ring<KIND> ring(shared, at_layer, LEAVE);
    for (int k = 0; k < share.count; k++) {
        const int output = (share.first + k * share.step) * UNIT + place.output;
        const float sum = scaled<typename KIND::Weight>(product(s, shared, ring, k, in, place), layer.scales[LEAVE].out);
        if (place.row < s.rows) s.sums[(size_t(share.chunk) * s.rows + place.row) * WIDTH + output] = sum;
    }
    if constexpr (KIND::IS_FEW) return;
    __syncthreads();
    if (threadIdx.x < share.count) {
        u32* counter = s.counters + GATES + share.first + threadIdx.x * share.step;
        shared.is_last[threadIdx.x] = arrive(counter, 1) == chunks - 1;
        if (shared.is_last[threadIdx.x]) *counter = 0;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < share.count * s.rows * UNIT; k += WARPS * 32) {
        const int which = k / UNIT / s.rows, row = k / UNIT % s.rows;
        if (!shared.is_last[which]) continue;
        const int output = (share.first + which * share.step) * UNIT + k % UNIT;
        bf16* to = s.hidden + size_t(row) * WIDTH + output;
        // All are on their way before the first is used.
        float parts[CHUNKS_MAX];
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) parts[c] = c < chunks ? fresh(s.sums + (size_t(c) * s.rows + row) * WIDTH + output) : 0.0f;
        float sum = f32_from_bf16(layer.linear[LEAVE].bias[output]);
        const float before = f32_from_bf16(fresh(to));
#pragma unroll
        for (int c = 0; c < CHUNKS_MAX; c++) sum += parts[c];
        *to = bf16_from_f32(before + sum);
    }
}

template <typename KIND> DEVICE void decode_step(const Step& s) {
    __shared__ Shared shared;
    __shared__ FirstItems first;
    const int warp = threadIdx.x / 32, group = warp / GROUP;
    const u64* from = reinterpret_cast<const u64*>(s.layers);
    for (int i = threadIdx.x; i < s.layer_count * int(sizeof(Layer) / 8); i += WARPS * 32) reinterpret_cast<u64*>(shared.layers)[i] = from[i];
    if (threadIdx.x == 0) shared.shares[ENTER] = share_of(s, ENTER), shared.shares[LEAVE] = share_of(s, LEAVE);
    if (threadIdx.x < KIND::STAGES) barrier_init(shared.fetched + threadIdx.x, 1);
    u32 turn = turn_of(s.counters);
    __syncthreads();
    const Ring<KIND> ring(shared, 0, ENTER);
    for (int unit = 0; unit < KIND::STAGES; unit++) ring.fetch(shared, unit, ring.row(s, shared, unit));
    const int item = blockIdx.x * GROUPS + group, items = s.tiles * HEADS * s.splits;
    TilePages::One& page = first.pages[warp];
    if (item < items) {
        const TilePages tile(s, item / s.splits / HEADS);
        const Range range(s, tile, item);
        if (warp % GROUP == 0) tile.save(first.tiles[group]);
        page = range.begin < range.end ? tile.at(s, range.begin) : TilePages::One{0, 0, 0};
    }
    __syncthreads();
    for (int layer = 0; layer < s.layer_count; layer++) {
        enter<KIND>(s, layer, turn ^ 0x80000000u, shared);
        if (item < items) prefetch_page(s, place_of(s, layer, page.page, item / s.splits % HEADS));
        __syncthreads();
        say(s.counters, INNER);
        wait_for(s.counters, QUERIES, turn);
        attend<KIND>(s, layer, shared, first);
        __syncthreads();
        say(s.counters, ATTENDED);
        wait_for(s.counters, shared.shares[LEAVE].chunk == 0 ? ATTENDED : INNER, turn);
        leave<KIND>(s, layer, shared);
        __syncthreads();
        say(s.counters, HIDDEN);
        if (!KIND::IS_FEW) wait_for(s.counters, HIDDEN, turn);
        turn ^= 0x80000000u;
    }
    if (KIND::IS_FEW && blockIdx.x == 0) put_hidden<KIND>(s, turn ^ 0x80000000u, shared);
}

// What is compiled for earlier GPUs is never launched: they have no barriers in shared memory.
#if __CUDA_ARCH__ >= 900
#define STEP(WEIGHT, ROWS) decode_step<Kind<WEIGHT, ROWS>>(step)
#else
#define STEP(WEIGHT, ROWS)
#endif
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2(const __grid_constant__ Step step) { STEP(bf16, 2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8(const __grid_constant__ Step step) { STEP(bf16, 8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16(const __grid_constant__ Step step) { STEP(bf16, 16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32(const __grid_constant__ Step step) { STEP(bf16, 32); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2_e4m3(const __grid_constant__ Step step) { STEP(e4m3, 2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8_e4m3(const __grid_constant__ Step step) { STEP(e4m3, 8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16_e4m3(const __grid_constant__ Step step) { STEP(e4m3, 16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32_e4m3(const __grid_constant__ Step step) { STEP(e4m3, 32); }
