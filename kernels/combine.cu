// Between the vision encoder and the decoder: features of the whole picture beside the pooled features of its tiles.
//
//   features  [crops][grid * grid][width] bf16, made by this step
//   kept      the same, kept from earlier steps
//   image     [images][3]: first crop, tiles down, tiles across; with one tile, the whole picture is that tile
//   source    [crops]: of an image the whole picture first, then its tiles row by row: index in `features`, or -1 - index in `kept`
//   out       [images * grid * grid][2 * width] bf16
//
// Tiles are stitched; where two overlap, each gives up `margin` cells. Cell i of the grid is the mean of cells
// floor(i n / grid) .. ceil((i + 1) n / grid) of the n stitched ones along each axis: f32 sums, row by row, times 1 / count.
// Grid (images * grid * grid), 128 threads: a block computes a cell, a thread 8 features at a time; width a multiple of 8.
// CPU reference: cpu/vision.rs, combine. Launched by cuda/kernels/layers.rs.
#include "common.cuh"

extern "C" __global__ void combine(const bf16* features, const bf16* kept, const int* image, const int* source, bf16* out, int grid, int margin, int width) {
    const auto crop_at = [=](int crop) {
        const int s = source[crop];
        return (s < 0 ? kept + size_t(-1 - s) * grid * grid * width : features + size_t(s) * grid * grid * width);
    };
    const int tokens = grid * grid, which = blockIdx.x / tokens, cell = blockIdx.x % tokens;
    const int crop = image[which * 3], down = image[which * 3 + 1], across = image[which * 3 + 2];
    const int step = grid - 2 * margin, single = down * across == 1;
    const int height = down * step + 2 * margin, length = across * step + 2 * margin;
    const int row = cell / grid, column = cell % grid;
    const int top = row * height / grid, bottom = ((row + 1) * height + grid - 1) / grid;
    const int left = column * length / grid, right = ((column + 1) * length + grid - 1) / grid;
    const float inverse_count = 1.0f / ((bottom - top) * (right - left));
    bf16* to = out + size_t(blockIdx.x) * 2 * width;
    const bf16* whole = crop_at(crop) + size_t(cell) * width;
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
        *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(whole + i);
        F32x8 sum = {};
        for (int y = top; y < bottom; y++) {
            int tile_y = min(max(y - margin, 0) / step, down - 1);
            for (int x = left; x < right; x++) {
                int tile_x = min(max(x - margin, 0) / step, across - 1);
                int tile = single ? crop : crop + 1 + tile_y * across + tile_x;
                int inside = (y - tile_y * step) * grid + x - tile_x * step;
                F32x8 e = f32x8_from(*reinterpret_cast<const uint4*>(crop_at(tile) + size_t(inside) * width + i));
                for (int j = 0; j < 8; j++) sum.x[j] += e.x[j];
            }
        }
        for (int j = 0; j < 8; j++) sum.x[j] *= inverse_count;
        *reinterpret_cast<uint4*>(to + width + i) = bf16x8_from(sum);
    }
}

// Adds position embeddings: x[row] += places[row % tokens]; x [rows][width], places [tokens][width] bf16. Grid (rows), 128 threads.
// CPU reference: cpu/vision.rs. Launched by cuda/kernels/layers.rs.
extern "C" __global__ void add_places(bf16* x, const bf16* places, int tokens, int width) {
    uint4* to = reinterpret_cast<uint4*>(x + size_t(blockIdx.x) * width);
    const uint4* from = reinterpret_cast<const uint4*>(places + size_t(blockIdx.x % tokens) * width);
    for (int i = threadIdx.x; i < width / 8; i += blockDim.x) {
        F32x8 a = f32x8_from(to[i]), b = f32x8_from(from[i]);
        for (int j = 0; j < 8; j++) a.x[j] += b.x[j];
        to[i] = bf16x8_from(a);
    }
}
