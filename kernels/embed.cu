// The hidden states that a step begins with.
//
// embed: rows. Grid (positions, width / 64), 256 threads: a block computes 64 values of a row, a warp 8 of them.
//   kind     [positions] 0 token (a = id), 1 coordinate (a = bits of f32), 2 size (a, b = bits of width and height),
//            3 carried: a is the index in `decided` of the row that decides it;
//            -1 padding, whose state is zeros
//   decided  what the rows of steps in flight decided. After the end, or after no decision, the row is a zombie: its state is zeros
//   wte      [vocab, width] bf16
//   coord_frequencies [coord_half], size_frequencies [2][size_half] f32; coord_weight [width, 2 * coord_half],
//   size_weight [width, 2 * size_half] bf16, biases [width] bf16; the halves multiples of 8, up to 256
//   out      [positions, width] bf16; is_zombie [positions]
// A value is encoded as linear([cos f | sin f]), f = 2 pi x . frequencies. Coordinate bin b is b / 1024, size bin b is
// 2^(b / 1023 * 10 - 10). The features are in shared memory (512 f32). A warp sums an output in f32, lanes then shuffles.
// CPU reference: cpu/device.rs, embed; cpu/region.rs. Launched by cuda/kernels/layers.rs.
#include "decision.cuh"

extern "C" __global__ void __launch_bounds__(256) embed(const int* kind, const int* a, const int* b, const Decision* decided, const bf16* wte, const float* coord_frequencies, const bf16* coord_weight, const bf16* coord_bias, int coord_half, const float* size_frequencies, const bf16* size_weight, const bf16* size_bias, int size_half, bf16* out, int* is_zombie, int width) {
    __shared__ float features[512];
    const int row = blockIdx.x, first = blockIdx.y * 64;
    int what = kind[row];
    float x = __int_as_float(a[row]), y = __int_as_float(b[row]);
    int id = a[row];
    if (what == 3) {
        Decision d = decided[id];
        what = d.kind == TOKEN ? 0 : d.kind == COORD ? 1 : d.kind == SIZE ? 2 : -1;
        id = d.first;
        x = what == 1 ? d.first / 1024.0f : exp2f(d.first / 1023.0f * 10.0f - 10.0f);
        y = exp2f(d.second / 1023.0f * 10.0f - 10.0f);
    }
    if (blockIdx.y == 0 && threadIdx.x == 0) is_zombie[row] = what < 0;
    bf16* to = out + size_t(row) * width + first;
    if (what <= 0) {
        if (threadIdx.x < 64 && first + threadIdx.x < width) to[threadIdx.x] = what < 0 ? bf16(0) : wte[size_t(id) * width + first + threadIdx.x];
        return;
    }
    const int half = what == 1 ? coord_half : size_half, values = half * 2;
    const bf16* weight = what == 1 ? coord_weight : size_weight;
    const bf16* bias = what == 1 ? coord_bias : size_bias;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // All weights are loaded while the features are computed: output warp + 8i, values lane * 8 + 256k and the 7 behind.
    uint4 w[8][2];
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int output = first + warp + i * 8, at = lane * 8 + k * 256;
            const bool there = output < width && at < values;
            w[i][k] = keep_if(*reinterpret_cast<const uint4*>(weight + (there ? size_t(output) * values + at : 0)), there);
        }
    }
    for (int i = threadIdx.x; i < half; i += 256) {
        float f = what == 1 ? x * coord_frequencies[i] : x * size_frequencies[i] + y * size_frequencies[half + i];
        f *= 6.283185307179586f;
        features[i] = cosf(f);
        features[half + i] = sinf(f);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const F32x8 e = f32x8_from(w[i][k]);
            const int at = lane * 8 + k * 256;
            for (int j = 0; j < 8 && at < values; j++) sum += e.x[j] * features[at + j];
        }
        sum = warp_sum(sum);
        const int output = warp + i * 8;
        if (lane == 0 && first + output < width) to[output] = bf16_from_f32(sum + f32_from_bf16(bias[first + output]));
    }
}

// Images: BOS, then the image's tokens. Grid (images * (tokens + 1)), 256 threads: a block copies a row.
//   tokens_in [images * tokens, width] bf16, bos [width]; out [images * (tokens + 1), width]
extern "C" __global__ void place_images(const bf16* tokens_in, const bf16* bos, bf16* out, int tokens, int width) {
    const int image = blockIdx.x / (tokens + 1), place = blockIdx.x % (tokens + 1);
    const uint4* from = reinterpret_cast<const uint4*>(place == 0 ? bos : tokens_in + (size_t(image) * tokens + place - 1) * width);
    uint4* to = reinterpret_cast<uint4*>(out + size_t(blockIdx.x) * width);
    for (int i = threadIdx.x; i < width / 8; i += blockDim.x) to[i] = from[i];
}

// Rows by index: out[i] = x[index[i]]; x [any, width], out [rows, width] bf16, index [rows]. Grid (rows), 256 threads.
extern "C" __global__ void gather_rows(const bf16* x, const int* index, bf16* out, int width) {
    const uint4* from = reinterpret_cast<const uint4*>(x + size_t(index[blockIdx.x]) * width);
    uint4* to = reinterpret_cast<uint4*>(out + size_t(blockIdx.x) * width);
    for (int i = threadIdx.x; i < width / 8; i += blockDim.x) to[i] = from[i];
}
