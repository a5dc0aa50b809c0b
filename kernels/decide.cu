// Decisions of detect and point: x or the end, then y, then width and height.
//
//   hidden    [positions, width] bf16, after the last block
//   pick      [picks][4] int: kind (0 x or the end, 1 coordinate, 2 size, 3 token), position, row of its logits (of a token -1), index
//             in `carried` (-1: none)
//   is_zombie [positions]: zombies decide nothing
//   ln_weight, ln_bias [width]; on_end_weight [2][width] bf16, on_end_bias [2] f32: the vocabulary's rows of the coordinate token and
//             of the end token
//   coords    [rows][1024] f32; sizes [rows][2048] f32: width bins, then height bins
//   out       [picks], carried: the decisions; a later step embeds those in `carried`
//
// Grid (picks), 256 threads: a block decides one pick. Shared memory: 32 floats for sums over the block. Sums in f32.
// The decision is x unless the end's logit is larger. The largest bin is chosen, the lowest among equals; sharpness is the probability
// of this bin and of two bins on each side. The norm is (x - mean) / sqrt(var + 1e-5) * weight + bias.
// A token is not decided here but by choose_token.cu; until then its record is NOTHING.
// CPU reference: cpu/decide.rs, Outputs::decide. Launched by cuda/kernels/decisions.rs.
#include "decision.cuh"

extern "C" __global__ void __launch_bounds__(256) decide(const bf16* hidden, const int4* pick, const int* is_zombie, const bf16* ln_weight, const bf16* ln_bias, const bf16* on_end_weight, const float* on_end_bias, const float* coords, const float* sizes, Decision* out, Decision* carried, int width) {
    __shared__ float scratch[32];
    // These are read after several sums over the block; prefetched, they have arrived by then. Lines of 128 bytes.
    for (int i = threadIdx.x; i < width / 64; i += 256) {
        prefetch_line(ln_weight + i * 64), prefetch_line(ln_bias + i * 64);
        prefetch_line(on_end_weight + i * 64), prefetch_line(on_end_weight + width + i * 64);
    }
    const int4 p = pick[blockIdx.x];
    Decision d = {NOTHING, 0, 0, 0.0f, 1.0f, {0, 0, 0}};
    if (p.x != 3 && !is_zombie[p.y]) {
        d = p.x == 2 ? choose_size<256>(sizes + size_t(p.z) * 2 * BINS, 1.0f, scratch) : choose_coord<256>(coords + size_t(p.z) * BINS, 1.0f, scratch);
        if (p.x == 0) {
            const bf16* x = hidden + size_t(p.y) * width;
            float sum = 0.0f, squares = 0.0f, on = 0.0f, end = 0.0f;
            for (int i = threadIdx.x; i < width; i += 256) sum += f32_from_bf16(x[i]);
            float mean = block_sum(sum, scratch) / width;
            for (int i = threadIdx.x; i < width; i += 256) {
                float c = f32_from_bf16(x[i]) - mean;
                squares += c * c;
            }
            float inverse_std = rsqrtf(block_sum(squares, scratch) / width + 1e-5f);
            for (int i = threadIdx.x; i < width; i += 256) {
                float n = (f32_from_bf16(x[i]) - mean) * inverse_std * f32_from_bf16(ln_weight[i]) + f32_from_bf16(ln_bias[i]);
                on += n * f32_from_bf16(on_end_weight[i]);
                end += n * f32_from_bf16(on_end_weight[width + i]);
            }
            on = block_sum(on, scratch) + on_end_bias[0];
            end = block_sum(end, scratch) + on_end_bias[1];
            d.probability = 1.0f / (1.0f + expf(end - on));
            if (end > on) d = {END, 0, 0, 1.0f - d.probability, 1.0f, {0, 0, 0}};
        }
    }
    if (threadIdx.x == 0) {
        out[blockIdx.x] = d;
        if (p.w >= 0) carried[p.w] = d;
    }
}
