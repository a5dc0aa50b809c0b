// What the products of experts share: operands of a lane, and the order of the rows. Used by experts_product.cu and experts_few.cu.
//
// A layer has up to 64 experts: y = down(gelu(h) * (g + 1)) with [h | g] = up(x), GELU in the erf form. Weights, without bias:
//   up      [experts, 2 * inner, width]: the first `inner` rows of an expert are h, the others g
//   down    [experts, width, inner]
//   bf16, or e4m3 with scales [experts, outputs] f32: a weight is the number times the scale of its output. Widths are multiples of 16.
// A slot is a row of one expert: slots are sorted by expert, then by row (route.cu):
//   offset    [experts + 1] first slot of each expert
//   slot_row  [slots] row of x of each slot
#pragma once
#include "common.cuh"

// 16 neighbouring values of one row of an operand. Of 64 summed values, lane t has 16t and the 15 behind them, of both operands: the column of
// a fragment that a value is in does not matter as long as they agree.
template <typename T> struct LaneValues;
template <> struct LaneValues<bf16> {
    uint4 raw[2];
    DEVICE void load(const bf16* from) { raw[0] = reinterpret_cast<const uint4*>(from)[0], raw[1] = reinterpret_cast<const uint4*>(from)[1]; }
    DEVICE void stream(const bf16* from) { raw[0] = stream_16(from), raw[1] = stream_16(from + 8); }
    DEVICE uint4 eight(int half) const { return raw[half]; }
};
template <> struct LaneValues<e4m3> {
    uint4 raw;
    DEVICE void stream(const e4m3* from) { raw = stream_16(from); }
    DEVICE uint4 eight(int half) const {
        uint4 to;
        bf16_from_e4m3(to.x, to.y, half ? raw.z : raw.x);
        bf16_from_e4m3(to.z, to.w, half ? raw.w : raw.y);
        return to;
    }
};

DEVICE float output_scale(const float*, const bf16*, size_t) { return 1.0f; }
DEVICE float output_scale(const float* scales, const e4m3*, size_t output) { return scales[output]; }

// The inner value of an expert: GELU in the erf form of h, times g + 1.
DEVICE float gated(float h, float g) { return 0.5f * h * (1.0f + erff(h * 0.7071067811865476f)) * (g + 1.0f); }
