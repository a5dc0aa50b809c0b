// Products of the decode step: a block's inputs, their norm, and its sums over a unit of weights.
//
//   unit     16 outputs by 2048 inputs of a weight [outputs, inner], row-major: 64 KB in bf16, 32 KB in int8 and e4m3
//   inputs   [rows, 2048]: each of the 16 warps has a slice of 128, in registers
//
// The weights are the 16-row operand of the tensor core (m16n8k16), the rows of inputs its 8 columns. f32 sums: in the tensor core over
// a warp's slice, then over the warps in shared memory, in a fixed order.
// Weights in int8 are converted to bf16 and those in e4m3 to f16, which represent each exactly; inputs beside e4m3 are scaled and rounded to f16.
// CPU reference: cpu/gemm.rs, forward; cpu/ops.rs, forward of the norm. Part of decode_step.cu.
#pragma once
#include "decode_base.cuh"

// Column of a row where part i of 4 of this lane's inputs begins, beside the weights that it has.
template <typename WEIGHT> DEVICE int column(int i) {
    constexpr int PARTS = UnitWeights<WEIGHT>::PARTS;
    return UnitWeights<WEIGHT>::column(i * PARTS / 4) + i % (4 / PARTS) * 8;
}

// This warp's slice of the inputs: of row n * 8 + g, which is column g of operand n, 8 values from column(i) on. f16 beside weights in
// e4m3, else bf16.
template <typename WEIGHT, int BLOCKS> struct Inputs {
    uint4 x[BLOCKS][4];
};

template <typename WEIGHT> DEVICE uint4 operand_from(const F32x8& e, WEIGHT, float) { return bf16x8_from(e); }
DEVICE uint4 operand_from(const F32x8& e, e4m3, float scale) {
    u32 pairs[4];
    for (int j = 0; j < 4; j++) pairs[j] = f16_pair(e.x[j * 2] * scale, e.x[j * 2 + 1] * scale);
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

template <typename WEIGHT, int BLOCKS> DEVICE void load_inputs(Inputs<WEIGHT, BLOCKS>& in, const bf16* from, int stride, int rows) {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        const bool there = n * 8 + g < rows;
        const bf16* row = from + size_t(there ? n * 8 + g : 0) * stride;
#pragma unroll
        for (int i = 0; i < 4; i++) in.x[n][i] = keep_if(load_l2_bf16x8(row + column<WEIGHT>(i)), there);
    }
}
// Converts loaded inputs to operands; in bf16 they are operands already.
template <typename WEIGHT, int BLOCKS> DEVICE void scale_inputs(Inputs<WEIGHT, BLOCKS>&, float) {}
template <int BLOCKS> DEVICE void scale_inputs(Inputs<e4m3, BLOCKS>& in, float scale) {
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) in.x[n][i] = operand_from(f32x8_from(in.x[n][i]), e4m3(), scale);
    }
}

// The sum of each row over the block; x[n] is that of row n * 8 + g.
template <int BLOCKS> DEVICE void sum_rows(float (&x)[BLOCKS], SharedState& shared) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        x[n] += __shfl_xor_sync(WARP_ALL, x[n], 1);
        x[n] += __shfl_xor_sync(WARP_ALL, x[n], 2);
        if (t == 0) shared.partial[warp][n * 8 + g] = x[n];
    }
    __syncthreads();
    if (threadIdx.x < WARPS * BLOCKS * 8) {
        float sum = shared.partial[threadIdx.x % WARPS][threadIdx.x / WARPS];
        for (int step = WARPS / 2; step > 0; step /= 2) sum += __shfl_xor_sync(WARP_ALL, sum, step);
        if (threadIdx.x % WARPS == 0) shared.total[threadIdx.x / WARPS] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) x[n] = shared.total[n * 8 + g];
}

// The same as f32x8_from with other instructions. Otherwise the compiler keeps all inputs as f32, in twice as many registers, from their
// first use to their second, and registers do not suffice.
DEVICE F32x8 f32x8_by_permute(uint4 raw) {
    const u32 pairs[4] = {raw.x, raw.y, raw.z, raw.w};
    F32x8 e;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 low, high;
        asm volatile("prmt.b32 %0, %1, 0, 0x1044;" : "=r"(low) : "r"(pairs[j]));
        asm volatile("prmt.b32 %0, %1, 0, 0x3244;" : "=r"(high) : "r"(pairs[j]));
        e.x[j * 2] = __uint_as_float(low);
        e.x[j * 2 + 1] = __uint_as_float(high);
    }
    return e;
}

// Layer norm of the inputs, which become operands. A thread has 32 values of a row. It computes their mean and the squares around it,
// and corrects these once the mean of the row is known, so that the squares need no second pass over the values.
template <typename WEIGHT, int BLOCKS> DEVICE void norm_inputs(Inputs<WEIGHT, BLOCKS>& in, const Layer& layer, SharedState& shared) {
    float own[BLOCKS], mean[BLOCKS], squares[BLOCKS];
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            F32x8 e = f32x8_from(in.x[n][i]);
            for (int j = 0; j < 8; j++) sum += e.x[j];
        }
        own[n] = mean[n] = sum / 32;
        squares[n] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            F32x8 e = f32x8_from(in.x[n][i]);
            for (int j = 0; j < 8; j++) squares[n] += (e.x[j] - own[n]) * (e.x[j] - own[n]);
        }
    }
    sum_rows(mean, shared);
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
        mean[n] /= WIDTH / 32;
        squares[n] += 32 * (own[n] - mean[n]) * (own[n] - mean[n]);
    }
    sum_rows(squares, shared);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 w = *reinterpret_cast<const uint4*>(layer.ln_weight + column<WEIGHT>(i));
        const uint4 b = *reinterpret_cast<const uint4*>(layer.ln_bias + column<WEIGHT>(i));
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            const float scale = rsqrtf(squares[n] / WIDTH + 1e-5f);
            F32x8 e = f32x8_by_permute(in.x[n][i]), by = f32x8_from(w), plus = f32x8_from(b);
            for (int j = 0; j < 8; j++) e.x[j] = (e.x[j] - mean[n]) * scale * by.x[j] + plus.x[j];
            in.x[n][i] = operand_from(e, WEIGHT(), layer.linear[QKV_FC1].in);
        }
    }
}

// 16 weights of each of two outputs as four operands of the tensor core: of four neighbouring weights the first two belong to one half
// of an operand, the others to the other half.
DEVICE void pairs_of(u32& low, u32& high, u32 four, s8) { bf16_from_s8(low, high, four); }
DEVICE void pairs_of(u32& low, u32& high, u32 four, e4m3) { f16_from_e4m3(low, high, four); }
template <typename WEIGHT> DEVICE void operand_of(u32 (&operand)[4], u32 upper, u32 lower) {
    pairs_of(operand[0], operand[2], upper, WEIGHT());
    pairs_of(operand[1], operand[3], lower, WEIGHT());
}
DEVICE void multiply_add(float (&c)[4], const u32 (&w)[4], u32 x0, u32 x1, e4m3) { mma_16_8_16_f16(c, w, x0, x1); }
template <typename WEIGHT> DEVICE void multiply_add(float (&c)[4], const u32 (&w)[4], u32 x0, u32 x1, WEIGHT) { mma_16_8_16(c, w, x0, x1); }

// c + d += w x over this warp's slice, for the lane's part of a unit of weights. Two accumulators (one with
// 32 rows), so that a product does not wait for the previous one.
template <int BLOCKS> DEVICE void multiply(float (&c)[BLOCKS][4], float (&d)[BLOCKS][4], const UnitWeights<bf16>& w, const Inputs<bf16, BLOCKS>& in) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 a = w.upper[i], b = w.lower[i];
        const u32 low[4] = {a.x, b.x, a.y, b.y}, high[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            mma_16_8_16(c[n], low, in.x[n][i].x, in.x[n][i].y);
            mma_16_8_16(BLOCKS < 4 ? d[n] : c[n], high, in.x[n][i].z, in.x[n][i].w);
        }
    }
}
// The same with 8-bit weights.
template <typename WEIGHT, int BLOCKS> DEVICE void multiply(float (&c)[BLOCKS][4], float (&d)[BLOCKS][4], const UnitWeights<WEIGHT>& of, const Inputs<WEIGHT, BLOCKS>& in) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 a = of.upper[i], b = of.lower[i];
        u32 w[4][4];
        operand_of<WEIGHT>(w[0], a.x, b.x), operand_of<WEIGHT>(w[1], a.y, b.y), operand_of<WEIGHT>(w[2], a.z, b.z), operand_of<WEIGHT>(w[3], a.w, b.w);
#pragma unroll
        for (int n = 0; n < BLOCKS; n++) {
            const uint4 x = in.x[n][i * 2], y = in.x[n][i * 2 + 1];
            multiply_add(c[n], w[0], x.x, x.y, WEIGHT());
            multiply_add(BLOCKS < 4 ? d[n] : c[n], w[1], x.z, x.w, WEIGHT());
            multiply_add(c[n], w[2], y.x, y.y, WEIGHT());
            multiply_add(BLOCKS < 4 ? d[n] : c[n], w[3], y.z, y.w, WEIGHT());
        }
    }
}

// The sum of a unit that a thread gets, if that row exists. The sum of the output 8 before or behind is in the lane 8 before or behind.
struct SumPlace {
    int row, output;
};
template <typename TRAITS> DEVICE SumPlace place_of_thread() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (TRAITS::IS_FEW) return {warp * 2 + lane / 2 % 2, lane % 2 * 4 + lane / 8 % 2 * 8 + lane / 16 * 2 + lane / 4 % 2};
    return {int(threadIdx.x) / UNIT, lane % UNIT};
}

// Adds up the parts of a sum that the warps have.
template <typename TRAITS> DEVICE float sum_of_warps(const float* sums, const SumPlace& place) {
    constexpr int PITCH = TRAITS::ROWS * SUM_PITCH;
    sums += place.row * SUM_PITCH;
    if (!TRAITS::IS_FEW) {
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += sums[w * PITCH + place.output];
        return sum;
    }
    // With few rows, where units follow each other fastest: each lane adds four warps' parts of four neighbouring outputs, then four lanes
    // exchange theirs.
    const int lane = threadIdx.x % 32;
    const bool upper = lane & 16, odd = lane & 4;
    const float4* from = reinterpret_cast<const float4*>(sums + lane / 4 % 2 * 4 * PITCH + lane / 16 * 8 * PITCH + place.output / 4 * 4);
    float4 x = from[0];
#pragma unroll
    for (int w = 1; w < WARPS / 4; w++) {
        const float4 y = from[w * PITCH / 4];
        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
    }
    const float a = (upper ? x.z : x.x) + __shfl_xor_sync(WARP_ALL, upper ? x.x : x.z, 16);
    const float b = (upper ? x.w : x.y) + __shfl_xor_sync(WARP_ALL, upper ? x.y : x.w, 16);
    return (odd ? b : a) + __shfl_xor_sync(WARP_ALL, odd ? a : b, 4);
}

// The block's next unit, `nth` of the phase. A thread gets the sum of its `place`.
template <typename TRAITS> DEVICE float unit_product(const StepArgument& s, SharedState& shared, WeightStream<TRAITS>& weights, int nth, const Inputs<typename TRAITS::Weight, TRAITS::BLOCKS>& in, const SumPlace& place) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    constexpr int BLOCKS = TRAITS::BLOCKS, ROWS = TRAITS::ROWS;
    float c[BLOCKS][4] = {}, d[BLOCKS][4] = {};
    multiply(c, d, weights.next, in);
    weights.advance(s, shared, nth);
    float* sums = TRAITS::sums() + nth % 2 * WARPS * ROWS * SUM_PITCH;
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = n * 8 + t * 2 + i % 2;
            if (row < ROWS) sums[(warp * ROWS + row) * SUM_PITCH + g + i / 2 * 8] = c[n][i] + d[n][i];
        }
    }
    // The next unit writes the other half of `sums`, so one barrier per unit suffices.
    __syncthreads();
    return threadIdx.x < UNIT * ROWS ? sum_of_warps<TRAITS>(sums, place) : 0.0f;
}
