// What the kernels of experts share: scales, the order of the rows, and the sum of their results. Used by experts_*.cu, route.cu and layer_norm.cu.
//
// A layer has up to 64 experts: y = down(gelu(h) * (g + 1)) with [h | g] = up(x), GELU in the erf form. Weights, without bias:
//   up      [experts, 2 * inner, width]: the first `inner` rows of an expert are h, the others g
//   down    [experts, width, inner]
//   bf16; or e4m3 or int8 with scales [experts, outputs] f32: a weight is the number times the scale of its output. Widths are multiples of 16.
//   Or int4 (s4x8, along the input) with scales [experts, outputs, inputs / 128] bf16, a scale for 128 inputs, of which widths are multiples.
// A slot is a row of one expert: slots are sorted by expert, then by row (route.cu):
//   offset    [experts + 1] first slot of each expert
//   slot_row  [slots] row of x of each slot
#pragma once
#include "common.cuh"

// Values of an element of w.
template <typename W> constexpr int VALUES = 1;
template <> constexpr int VALUES<s4x8> = 8;
// True where weights have scales of groups: products scale them before they sum up different groups.
template <typename W> constexpr bool IS_GROUPED = VALUES<W> == 8;
constexpr int GROUP = 128;
// The scale of a row of w in the group that an input is in.
DEVICE bf16 group_scale(const float* scales, size_t row, int depth, int input) {
    return reinterpret_cast<const bf16*>(scales)[row * (depth / GROUP) + input / GROUP];
}
template <typename W> DEVICE float output_scale(const float* scales, const W*, size_t output) { return scales[output]; }
DEVICE float output_scale(const float*, const bf16*, size_t) { return 1.0f; }
DEVICE float output_scale(const float*, const s4x8*, size_t) { return 1.0f; }

// The inner value of an expert.
DEVICE float gated(float h, float g) { return gelu_erf(h) * (g + 1.0f); }

// What the experts of rows have made of them (route.cu): `results` of each slot, [slots, width] bf16; of each row and expert its expert, or -1,
// its weight and its slot, [rows, active].
struct ExpertResults {
    const bf16* results;
    const int* expert;
    const float* weight;
    const int* slot_of;
    int active;
    DEVICE bool has(int row) const { return expert[row * active] >= 0; }
    // 8 values of a row, the i-th ones, plus the sum of weight * result over its experts, by falling logit, in f32, rounded once.
    DEVICE uint4 added(uint4 to, int row, int i, int width) const {
        F32x8 sum = {};
#pragma unroll 8
        for (int k = 0; k < active; k++) {
            const F32x8 result = f32x8_from(reinterpret_cast<const uint4*>(results + size_t(slot_of[row * active + k]) * width)[i]);
            const float share = weight[row * active + k];
#pragma unroll
            for (int j = 0; j < 8; j++) sum.x[j] += share * result.x[j];
        }
        const F32x8 before = f32x8_from(to);
#pragma unroll
        for (int j = 0; j < 8; j++) sum.x[j] += before.x[j];
        return bf16x8_from(sum);
    }
};
