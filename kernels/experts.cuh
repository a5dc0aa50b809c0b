// What the products of experts share: scales, and the order of the rows. Used by experts_product.cu and experts_few.cu.
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

DEVICE float output_scale(const float*, const bf16*, size_t) { return 1.0f; }
DEVICE float output_scale(const float* scales, const e4m3*, size_t output) { return scales[output]; }

// The inner value of an expert.
DEVICE float gated(float h, float g) { return gelu_erf(h) * (g + 1.0f); }
