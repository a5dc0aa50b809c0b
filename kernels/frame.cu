// From a decoded frame to patches, in four kernels: colour, two passes of scaling, cutting with normalisation.
//
// Integer arithmetic up to the patches, so the crops are equal to those of the CPU in every bit. A thread makes one pixel
// (rgb_from_planes, scale_across), one byte (scale_down) or values of a patch (patches). No shared memory.
// CPU reference: colour.rs, resize.rs and crops.rs of the model; cpu/vision.rs, patches. Launched by cuda/kernels/frames.rs.
#include "common.cuh"

DEVICE unsigned char to_byte(int x) { return (unsigned char)min(max(x, 0), 255); }

// rgb [height][width][3] from 8-bit planes.
//   format  0 RGB (plane 0), 1 NV12 (0 luma, 1 pairs of U V at half size), 2 I420 (0 luma, 1 U, 2 V at half size)
//   stride0, stride1  bytes from row to row of luma (or RGB) and of chroma
//   coefficients with 16 fractional bits: (y - black) * luma + red_from_v * v and so on (model::colour::Yuv)
// Each chroma sample is used for all the pixels it covers. A thread makes one pixel: grid (ceil(width / 128), height), 128 threads.
struct Coefficients {
    int black, luma, red_from_v, green_from_u, green_from_v, blue_from_u;
};
extern "C" __global__ void rgb_from_planes(const unsigned char* plane0, const unsigned char* plane1, const unsigned char* plane2, int format, int stride0, int stride1, Coefficients yuv, unsigned char* rgb, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    unsigned char* to = rgb + (size_t(y) * width + x) * 3;
    if (format == 0) {
        const unsigned char* from = plane0 + size_t(y) * stride0 + x * 3;
        to[0] = from[0], to[1] = from[1], to[2] = from[2];
        return;
    }
    const size_t chroma = size_t(y / 2) * stride1;
    int u = (format == 1 ? plane1[chroma + x / 2 * 2] : plane1[chroma + x / 2]) - 128;
    int v = (format == 1 ? plane1[chroma + x / 2 * 2 + 1] : plane2[chroma + x / 2]) - 128;
    int luma = (plane0[size_t(y) * stride0 + x] - yuv.black) * yuv.luma + (1 << 15);
    to[0] = to_byte((luma + yuv.red_from_v * v) >> 16);
    to[1] = to_byte((luma + yuv.green_from_u * u + yuv.green_from_v * v) >> 16);
    to[2] = to_byte((luma + yuv.blue_from_u * u) >> 16);
}

// One pass of a separable scaling, 22 fractional bits, rounded to 8 bits: out pixel i is the sum of weights[i][0..count[i]]
// over source pixels first[i]...
//   first, count [out pixels along the axis], weights [out pixels][most]
// across: in [height][in_width][3] to out [height][out_width][3], grid (ceil(out_width / 128), height).
extern "C" __global__ void scale_across(const unsigned char* in, const int* first, const int* count, const int* weights, int most, unsigned char* out, int in_width, int out_width) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x >= out_width) return;
    const unsigned char* from = in + (size_t(blockIdx.y) * in_width + first[x]) * 3;
    const int* w = weights + size_t(x) * most;
    int r = 1 << 21, g = 1 << 21, b = 1 << 21;
    for (int i = 0; i < count[x]; i++) {
        r += from[i * 3] * w[i];
        g += from[i * 3 + 1] * w[i];
        b += from[i * 3 + 2] * w[i];
    }
    unsigned char* to = out + (size_t(blockIdx.y) * out_width + x) * 3;
    to[0] = to_byte(r >> 22), to[1] = to_byte(g >> 22), to[2] = to_byte(b >> 22);
}
// down: rows of `row_bytes` bytes, out height rows, grid (ceil(row_bytes / 128), out height).
extern "C" __global__ void scale_down(const unsigned char* in, const int* first, const int* count, const int* weights, int most, unsigned char* out, int row_bytes) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (at >= row_bytes) return;
    const unsigned char* from = in + size_t(first[y]) * row_bytes + at;
    const int* w = weights + size_t(y) * most;
    int sum = 1 << 21;
    for (int i = 0; i < count[y]; i++) sum += from[size_t(i) * row_bytes] * w[i];
    out[size_t(y) * row_bytes + at] = to_byte(sum >> 22);
}

// Patches of crops: out [crops * grid * grid][row] bf16, in a row channel by channel, line by line, then zeros up to `row`.
//   rgb     [..][image_width][3]; crop c begins at (corner[c][0] across, corner[c][1] down)
//   table   [256] what each byte becomes, (x / 255 - 0.5) / 0.5
// Grid (crops * grid * grid), 128 threads.
extern "C" __global__ void patches(const unsigned char* rgb, const int2* corner, const bf16* table, bf16* out, int image_width, int grid, int patch, int row) {
    const int crop = blockIdx.x / (grid * grid), cell = blockIdx.x % (grid * grid);
    const int left = corner[crop].x + cell % grid * patch, top = corner[crop].y + cell / grid * patch;
    bf16* to = out + size_t(blockIdx.x) * row;
    for (int i = threadIdx.x; i < row; i += blockDim.x) {
        int channel = i / (patch * patch), y = top + i / patch % patch, x = left + i % patch;
        to[i] = channel < 3 ? table[rgb[(size_t(y) * image_width + x) * 3 + channel]] : bf16(0);
    }
}
