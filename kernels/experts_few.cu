// Products of experts for few rows: up with gelu(h) * (g + 1), and down. Bound by reading the weights of the chosen experts once.
//
//   x         [rows, depth] bf16, rows x_stride values apart, by slot_row; without it [slots, depth]
//   w, scales, offset, slot_row   as in experts.cuh; slot_row 0: none
//   used      [experts] experts that have rows, then -1 (route.cu)
//   out       [slots, outputs] bf16
//
// Grid (outputs / 8 of up, / 16 of down; experts that may have rows), 256 threads: a block computes 16 outputs of one expert, of up 8 of h and
// the same 8 of g, for its rows, 8 at a time; behind the first 8 it reads the weights again, from the L2. Its eight warps share the
// summed dimension, 64 values at a time in turn. The weights are the 16-row operand of the tensor core, x the 8-column one, both straight from
// memory to registers (LaneValues): lane (g, t) has outputs g and g + 8, row g, and values 16t.. of 64.
// f32 sums: in the tensor core over a warp's values, then the warps in their order, in shared memory ([8][16][9] f32).
// Reference: cuda/tests/experts.rs. Launched by cuda/kernels/experts.rs.
#include "experts.cuh"

// STAGE: parts of 512 values whose loads are issued together: all of Moondream 3's.
template <bool UP, int STAGE, typename W>
DEVICE void experts_few(const bf16* x, const W* w, const float* scales, const int* offset, const int* slot_row, const int* used, bf16* out, int outputs, int depth, int x_stride) {
    __shared__ float sums[8][16][9];
    const int expert = used[blockIdx.y];
    if (expert < 0) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first_slot = offset[expert], slots = offset[expert + 1] - first_slot;
    // Rows of w of an expert; `outputs` are those of out.
    const int w_rows = UP ? 2 * outputs : outputs, first = blockIdx.x * (UP ? 8 : 16), apart = UP ? outputs : 8;
    const size_t upper_row = size_t(expert) * w_rows + first + g;
    const W *upper = w + upper_row * depth / VALUES<W>, *lower = upper + size_t(apart) * depth / VALUES<W>;
    // Of the thread's result. Read before the weights: behind the products a block would wait for them.
    const int output = threadIdx.x % (UP ? 8 : 16), row = threadIdx.x / (UP ? 8 : 16);
    const size_t w_row = size_t(expert) * w_rows + first + output;
    const float scale = output_scale(scales, w, w_row), gate_scale = UP ? output_scale(scales, w, w_row + outputs) : 0.0f;
    // A used expert has a slot at least: its weights are requested before the number of its slots is known.
    int from_slot = 0;
    do {
        float c[4] = {};
        for (int from = warp * 64; from < depth; from += STAGE * 512) {
            LaneValues<W> a[STAGE], b[STAGE];
            LaneValues<bf16> v[STAGE];
            bf16 upper_scale[STAGE], lower_scale[STAGE];
            // Beyond the end the first weights are read and multiplied with zeros.
            auto column_of = [&](int stage) { return from + stage * 512 + t * 16; };
            auto inside = [&](int stage) { return column_of(stage) < depth ? column_of(stage) : 0; };
#pragma unroll
            for (int stage = 0; stage < STAGE; stage++) {
                a[stage].stream(upper + inside(stage) / VALUES<W>);
                b[stage].stream(lower + inside(stage) / VALUES<W>);
                if constexpr (IS_GROUPED<W>) {
                    upper_scale[stage] = group_scale(scales, upper_row, depth, inside(stage));
                    lower_scale[stage] = group_scale(scales, upper_row + apart, depth, inside(stage));
                }
            }
            const bool there = from_slot + g < slots;
            const int slot = first_slot + from_slot + (there ? g : 0);
            const bf16* column = x + size_t(slot_row ? slot_row[slot] : slot) * x_stride;
#pragma unroll
            for (int stage = 0; stage < STAGE; stage++) {
                v[stage].load(column + inside(stage));
                for (int i = 0; i < 2; i++) v[stage].raw[i] = keep_if(v[stage].raw[i], column_of(stage) < depth && there);
            }
            // Without it the compiler puts each load just before its product.
            __syncwarp();
#pragma unroll
            for (int stage = 0; stage < STAGE; stage++) {
                float of_group[4] = {};
                float(&sum)[4] = IS_GROUPED<W> ? of_group : c;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const uint4 wa = a[stage].eight(i), wb = b[stage].eight(i), x8 = v[stage].eight(i);
                    const u32 low[4] = {wa.x, wb.x, wa.y, wb.y}, high[4] = {wa.z, wb.z, wa.w, wb.w};
                    mma_16_8_16(sum, low, x8.x, x8.y);
                    mma_16_8_16(sum, high, x8.z, x8.w);
                }
                if constexpr (IS_GROUPED<W>) {
                    const float scale[2] = {f32_from_bf16(upper_scale[stage]), f32_from_bf16(lower_scale[stage])};
                    for (int i = 0; i < 4; i++) c[i] += of_group[i] * scale[i / 2];
                }
            }
        }
        for (int i = 0; i < 4; i++) sums[warp][g + i / 2 * 8][t * 2 + i % 2] = c[i];
        __syncthreads();
        if (row < 8 && from_slot + row < slots) {
            float sum = 0.0f, gate = 0.0f;
            for (int i = 0; i < 8; i++) {
                sum += sums[i][output][row];
                if (UP) gate += sums[i][output + 8][row];
            }
            sum *= scale;
            if (UP) sum = gated(sum, gate * gate_scale);
            out[size_t(first_slot + from_slot + row) * outputs + first + output] = bf16_from_f32(sum);
        }
        __syncthreads();
        from_slot += 8;
    } while (from_slot < slots);
}

#define ARGUMENTS(W) const bf16 *x, const W *w, const float *scales, const int *offset, const int *slot_row, const int *used, bf16 *out, int outputs, int depth, int x_stride
#define PASS x, w, scales, offset, slot_row, used, out, outputs, depth, x_stride
// `outputs` are those of out: inner of up, width of down; `depth` is the summed dimension.
extern "C" __global__ void __launch_bounds__(256) experts_few_up(ARGUMENTS(bf16)) { experts_few<true, 4>(PASS); }
extern "C" __global__ void __launch_bounds__(256) experts_few_up_e4m3(ARGUMENTS(e4m3)) { experts_few<true, 4>(PASS); }
extern "C" __global__ void __launch_bounds__(256) experts_few_up_int8(ARGUMENTS(s8)) { experts_few<true, 4>(PASS); }
extern "C" __global__ void __launch_bounds__(256) experts_few_up_int4(ARGUMENTS(s4x8)) { experts_few<true, 4>(PASS); }
extern "C" __global__ void __launch_bounds__(256) experts_few_down(ARGUMENTS(bf16)) { experts_few<false, 2>(PASS); }
extern "C" __global__ void __launch_bounds__(256) experts_few_down_e4m3(ARGUMENTS(e4m3)) { experts_few<false, 2>(PASS); }
extern "C" __global__ void __launch_bounds__(256) experts_few_down_int8(ARGUMENTS(s8)) { experts_few<false, 2>(PASS); }
extern "C" __global__ void __launch_bounds__(256) experts_few_down_int4(ARGUMENTS(s4x8)) { experts_few<false, 2>(PASS); }
