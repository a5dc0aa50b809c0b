// Products of up to 16 rows with a large weight: out = epilogue(x w^T + bias). Bound by reading w once.
//
//   x      [rows, inner] bf16, rows x_stride values apart; up to 8 or 16 rows; inner a multiple of 64
//   w      [outputs, inner] bf16, or int8 with w_scale [outputs] f32: a value is the number times its output's scale; or e4m3 with
//          w_scale [1]; rows w_stride values apart; outputs a multiple of 16
//   bias   [outputs] bf16
//   out    [rows, outputs] bf16 or f32, rows out_stride values apart
//
// Grid (outputs / 16), 256 threads: a block computes 16 outputs of all rows; its eight warps share the inner dimension, 64 inputs at a
// time in turn. The weights are the 16-row operand of the tensor core, x the 8-column one. The column of a fragment that an input is in
// does not matter as long as both operands agree, so a lane loads 16 neighbouring bytes of each straight into registers: lane (g, t)
// takes inputs 8t.. and 32 + 8t.. of weight rows g and g + 8 and of row g of x; of 8-bit weights 16t.. in one load, which become bf16.
// f32 sums: in the tensor core over a warp's inputs, then bias plus the warps in their order, in shared memory ([8][16][9 or 17] f32).
// CPU reference: cpu/gemm.rs, Linear::forward. Launched by cuda/kernels/skinny.rs.
#include "common.cuh"

enum Epilogue { TO_BF16, TO_F32, ADD_TO, GELU_FROM };

// The weights that a lane has of one output in 64 inputs, and the inputs that belong to them: 8 each from `column(0)` and `column(1)` on.
template <typename W> struct LaneWeights;
template <> struct LaneWeights<bf16> {
    uint4 raw[2];
    static DEVICE int column(int t, int half) { return t * 8 + half * 32; }
    DEVICE void load(const bf16* row, int t) {
        for (int half = 0; half < 2; half++) raw[half] = stream_16(row + column(t, half));
    }
    DEVICE uint4 eight(int half) const { return raw[half]; }
};
// Of 8-bit weights.
template <typename W> struct LaneWeights {
    uint4 raw;
    static DEVICE int column(int t, int half) { return t * 16 + half * 8; }
    DEVICE void load(const W* row, int t) { raw = stream_16(row + column(t, 0)); }
    DEVICE uint4 eight(int half) const {
        uint4 to;
        bf16_from_four(to.x, to.y, half ? raw.z : raw.x, W());
        bf16_from_four(to.z, to.w, half ? raw.w : raw.y, W());
        return to;
    }
};
DEVICE float output_scale(const float*, const bf16*, int) { return 1.0f; }
DEVICE float output_scale(const float* scales, const s8*, int output) { return scales[output]; }
DEVICE float output_scale(const float* scale, const e4m3*, int) { return *scale; }

template <int BLOCKS, Epilogue EPILOGUE, typename W>
DEVICE void skinny(const bf16* x, const W* w, const float* w_scale, const bf16* bias, void* out, void* gelu_out, int rows, int inner, int x_stride, int w_stride, int out_stride, int gelu_stride, int gelu_from) {
    __shared__ float sums[8][16][BLOCKS * 8 + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, first = blockIdx.x * 16;
    const W* upper = w + size_t(first + g) * w_stride;
    const W* lower = upper + size_t(8) * w_stride;
    const bf16* column[BLOCKS];
    bool there[BLOCKS];
    for (int n = 0; n < BLOCKS; n++) {
        there[n] = n * 8 + g < rows;
        column[n] = x + size_t(there[n] ? n * 8 + g : 0) * x_stride;
    }
    float c[BLOCKS][4] = {};
    // All loads of a stage are issued before its products, so that a warp has 4 KB of weights in flight.
    constexpr int STAGE = 4;
    for (int from = warp * 64; from < inner; from += STAGE * 512) {
        LaneWeights<W> a[STAGE], b[STAGE];
        uint4 v[STAGE][BLOCKS][2];
#pragma unroll
        for (int stage = 0; stage < STAGE; stage++) {
            // Beyond the end the first weights are read and multiplied with zeros.
            int at = from + stage * 512;
            bool inside = at < inner;
            at = inside ? at : 0;
            a[stage].load(upper + at, t);
            b[stage].load(lower + at, t);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int behind = at + LaneWeights<W>::column(t, i);
#pragma unroll
                for (int n = 0; n < BLOCKS; n++) {
                    v[stage][n][i] = keep_if(*reinterpret_cast<const uint4*>(column[n] + behind), inside && there[n]);
                }
            }
        }
        // Without it the compiler puts each load just before its product (22 us instead of 8 for 1024 outputs of 8192 inputs).
        __syncwarp();
#pragma unroll
        for (int stage = 0; stage < STAGE; stage++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint4 wa = a[stage].eight(i), wb = b[stage].eight(i);
#pragma unroll
                for (int n = 0; n < BLOCKS; n++) {
                    const uint4 x4 = v[stage][n][i];
                    u32 low[4] = {wa.x, wb.x, wa.y, wb.y}, high[4] = {wa.z, wb.z, wa.w, wb.w};
                    mma_16_8_16(c[n], low, x4.x, x4.y);
                    mma_16_8_16(c[n], high, x4.z, x4.w);
                }
            }
        }
    }
    for (int n = 0; n < BLOCKS; n++) {
        for (int i = 0; i < 4; i++) sums[warp][g + i / 2 * 8][n * 8 + t * 2 + i % 2] = c[n][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * rows; i += 256) {
        int output = i % 16, row = i / 16, index = first + output;
        float sum = 0.0f;
        for (int from = 0; from < 8; from++) sum += sums[from][output][row];
        sum = sum * output_scale(w_scale, w, index) + f32_from_bf16(bias[index]);
        size_t at = size_t(row) * out_stride + index;
        if (EPILOGUE == TO_F32) {
            static_cast<float*>(out)[at] = sum;
        } else if (EPILOGUE == ADD_TO) {
            bf16* to = static_cast<bf16*>(out) + at;
            *to = bf16_from_f32(f32_from_bf16(*to) + sum);
        } else if (EPILOGUE == GELU_FROM && index >= gelu_from) {
            static_cast<bf16*>(gelu_out)[size_t(row) * gelu_stride + index - gelu_from] = bf16_from_f32(gelu_tanh(sum));
        } else {
            static_cast<bf16*>(out)[at] = bf16_from_f32(sum);
        }
    }
}

#define ARGUMENTS(W) const bf16 *x, const W *w, const float *w_scale, const bf16 *bias, void *out, void *gelu_out, int rows, int inner, int x_stride, int w_stride, int out_stride, int gelu_stride, int gelu_from
#define PASS x, w, w_scale, bias, out, gelu_out, rows, inner, x_stride, w_stride, out_stride, gelu_stride, gelu_from
// to_bf16: out is bf16. to_f32: out is f32. add_to: out += in bf16. gelu_from: outputs below `gelu_from` to out, the others
// through GELU to gelu_out, counted from 0, rows `gelu_stride` apart. Kernels named _int8 have weights in int8, those named _e4m3 in e4m3; the others do not
// read w_scale.
extern "C" __global__ void __launch_bounds__(256) skinny_8_to_bf16(ARGUMENTS(bf16)) { skinny<1, TO_BF16>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_to_f32(ARGUMENTS(bf16)) { skinny<1, TO_F32>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_add_to(ARGUMENTS(bf16)) { skinny<1, ADD_TO>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_gelu_from(ARGUMENTS(bf16)) { skinny<1, GELU_FROM>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_to_bf16(ARGUMENTS(bf16)) { skinny<2, TO_BF16>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_to_f32(ARGUMENTS(bf16)) { skinny<2, TO_F32>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_add_to(ARGUMENTS(bf16)) { skinny<2, ADD_TO>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_gelu_from(ARGUMENTS(bf16)) { skinny<2, GELU_FROM>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_to_bf16_int8(ARGUMENTS(s8)) { skinny<1, TO_BF16>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_to_f32_int8(ARGUMENTS(s8)) { skinny<1, TO_F32>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_add_to_int8(ARGUMENTS(s8)) { skinny<1, ADD_TO>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_gelu_from_int8(ARGUMENTS(s8)) { skinny<1, GELU_FROM>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_to_bf16_int8(ARGUMENTS(s8)) { skinny<2, TO_BF16>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_to_f32_int8(ARGUMENTS(s8)) { skinny<2, TO_F32>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_add_to_int8(ARGUMENTS(s8)) { skinny<2, ADD_TO>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_gelu_from_int8(ARGUMENTS(s8)) { skinny<2, GELU_FROM>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_to_bf16_e4m3(ARGUMENTS(e4m3)) { skinny<1, TO_BF16>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_add_to_e4m3(ARGUMENTS(e4m3)) { skinny<1, ADD_TO>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_8_gelu_from_e4m3(ARGUMENTS(e4m3)) { skinny<1, GELU_FROM>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_to_bf16_e4m3(ARGUMENTS(e4m3)) { skinny<2, TO_BF16>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_add_to_e4m3(ARGUMENTS(e4m3)) { skinny<2, ADD_TO>(PASS); }
extern "C" __global__ void __launch_bounds__(256) skinny_16_gelu_from_e4m3(ARGUMENTS(e4m3)) { skinny<2, GELU_FROM>(PASS); }
