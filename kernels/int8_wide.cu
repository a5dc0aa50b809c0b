// Products of many rows in int8 as in int8_product.cu, with wgmma (sm_90a): out = epilogue(x w^T * x_scale * w_scale + bias).
//
//   x, w      tensor maps of [rows, inner] and [outputs, inner] int8: boxes of 128 rows, or OUTPUTS rows of w, by 128 bytes with the 128-byte swizzle
//   The others are those of int8_product.cu.
//
// Grid: as many blocks as the multiprocessors have room for, or fewer; 288 threads. A tile is 128 rows by OUTPUTS outputs; a block takes every
// gridDim.x-th. Two warpgroups are consumers with 64 rows each. One thread of the last warp is the producer: it copies 128 inputs of the tile's
// rows and outputs at a time into a ring of stages, without a break between tiles. Rows beyond the ends are zeros and are not written.
// Dynamic shared memory: the stages. With 128 outputs two blocks fit, and one computes while the other writes.
// int32 sums in the tensor core, exact; then f32.
// Reference: cuda/tests/int8.rs. Launched by cuda/kernels/int8.rs.
#include "barrier.cuh"
#include "int8.cuh"
#include "warpgroup.cuh"

#ifdef HAS_WARPGROUPS
constexpr int TILE_ROWS = 128, DEPTH = 128;
constexpr int stage_bytes(int outputs) { return (TILE_ROWS + outputs) * DEPTH; }

// d += a b, or d = a b without `add`: 64 rows by twice the values of d, over a sum of 32; both in shared memory.
DEVICE void wgmma_int8(int (&d)[64], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, add;\n}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]), "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63]) : "l"(a), "l"(b), "r"(int(add)));
}
DEVICE void wgmma_int8(int (&d)[128], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, %128, %129, add;\n}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]), "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63]), "+r"(d[64]), "+r"(d[65]), "+r"(d[66]), "+r"(d[67]), "+r"(d[68]), "+r"(d[69]), "+r"(d[70]), "+r"(d[71]), "+r"(d[72]), "+r"(d[73]), "+r"(d[74]), "+r"(d[75]), "+r"(d[76]), "+r"(d[77]), "+r"(d[78]), "+r"(d[79]), "+r"(d[80]), "+r"(d[81]), "+r"(d[82]), "+r"(d[83]), "+r"(d[84]), "+r"(d[85]), "+r"(d[86]), "+r"(d[87]), "+r"(d[88]), "+r"(d[89]), "+r"(d[90]), "+r"(d[91]), "+r"(d[92]), "+r"(d[93]), "+r"(d[94]), "+r"(d[95]), "+r"(d[96]), "+r"(d[97]), "+r"(d[98]), "+r"(d[99]), "+r"(d[100]), "+r"(d[101]), "+r"(d[102]), "+r"(d[103]), "+r"(d[104]), "+r"(d[105]), "+r"(d[106]), "+r"(d[107]), "+r"(d[108]), "+r"(d[109]), "+r"(d[110]), "+r"(d[111]), "+r"(d[112]), "+r"(d[113]), "+r"(d[114]), "+r"(d[115]), "+r"(d[116]), "+r"(d[117]), "+r"(d[118]), "+r"(d[119]), "+r"(d[120]), "+r"(d[121]), "+r"(d[122]), "+r"(d[123]), "+r"(d[124]), "+r"(d[125]), "+r"(d[126]), "+r"(d[127]) : "l"(a), "l"(b), "r"(int(add)));
}
DEVICE void pin(int& x) { asm volatile("" : "+r"(x)::"memory"); }

// `full`: the copies into a stage have ended. `empty`: all consumer warps have read it.
template <int STAGES> struct Ring {
    u64 full[STAGES], empty[STAGES];
};
// A barrier of the consumers.
DEVICE void consumers_meet() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

template <int OUTPUTS, int STAGES, Epilogue EPILOGUE>
DEVICE void int8_wide(const TensorMap& x, const TensorMap& w, const Int8Output& to, int inner) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ Ring<STAGES> ring;
    // Of a tile and of the next one: a warpgroup may be one tile ahead.
    __shared__ TileColumns<OUTPUTS> columns[2];
    const u32 stages = shared_address(shared);
    const int row_tiles = (to.rows + TILE_ROWS - 1) / TILE_ROWS, output_tiles = (to.outputs + OUTPUTS - 1) / OUTPUTS;
    const int tiles = row_tiles * output_tiles, depths = (inner + DEPTH - 1) / DEPTH;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.full + i, 1);
            barrier_init(ring.empty + i, 8);
        }
    }
    __syncthreads();
    int stage = 0, parity = 0;
    auto next = [&] {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    };
    if (threadIdx.x >= 256) {
        if (threadIdx.x != 256) return;
        for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
            const int2 tile = tile_of_block(index, row_tiles, output_tiles);
            for (int depth = 0; depth < depths; depth++) {
                barrier_wait(ring.empty + stage, parity ^ 1);
                barrier_expect_bytes(ring.full + stage, stage_bytes(OUTPUTS));
                const u32 at = stages + stage * stage_bytes(OUTPUTS);
                copy_box(at, x, depth * DEPTH, tile.x * TILE_ROWS, 0, ring.full + stage);
                copy_box(at + TILE_ROWS * DEPTH, w, depth * DEPTH, tile.y * OUTPUTS, 0, ring.full + stage);
                next();
            }
        }
        return;
    }
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32;
    auto arrive = [&](int stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(ring.empty + stage);
    };
    int buffer = 0;
    for (int index = blockIdx.x; index < tiles; index += gridDim.x, buffer ^= 1) {
        const int2 tile = tile_of_block(index, row_tiles, output_tiles);
        const int first_output = tile.y * OUTPUTS;
        columns[buffer].template load<256>(to, first_output, threadIdx.x);
        consumers_meet();
        int c[OUTPUTS / 2];
        int before = -1;
        for (int depth = 0; depth < depths; depth++) {
            barrier_wait(ring.full + stage, parity);
            const u32 rows = stages + stage * stage_bytes(OUTPUTS) + group * 64 * DEPTH, outputs = stages + stage * stage_bytes(OUTPUTS) + TILE_ROWS * DEPTH;
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < DEPTH / 32; step++) {
                wgmma_int8(c, swizzled_descriptor(rows + step * 32), swizzled_descriptor(outputs + step * 32), depth > 0 || step > 0);
            }
            wgmma_commit();
            if (before >= 0) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                arrive(before);
            }
            before = stage;
            next();
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < OUTPUTS / 2; i++) pin(c[i]);
        arrive(before);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = tile.x * TILE_ROWS + warp * 16 + half * 8 + threadIdx.x % 32 / 4;
            if (row < to.rows) write_row<EPILOGUE, OUTPUTS / 8>(to, columns[buffer], row, first_output, 0, c, half);
        }
    }
}

#define ARGUMENTS const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap w, const float *x_scale, const float *w_scale, const bf16 *bias, bf16 *out, int rows, int outputs, int inner, int out_stride
#define PASS x, w, Int8Output{x_scale, w_scale, bias, out, rows, outputs, out_stride}, inner
#define KERNEL extern "C" __global__ void
KERNEL __launch_bounds__(288, 2) int8_wide_128_bias(ARGUMENTS) { int8_wide<128, 3, BIAS>(PASS); }
KERNEL __launch_bounds__(288, 2) int8_wide_128_gelu(ARGUMENTS) { int8_wide<128, 3, BIAS_GELU>(PASS); }
KERNEL __launch_bounds__(288, 2) int8_wide_128_add(ARGUMENTS) { int8_wide<128, 3, BIAS_ADD>(PASS); }
KERNEL __launch_bounds__(288, 1) int8_wide_256_bias(ARGUMENTS) { int8_wide<256, 4, BIAS>(PASS); }
KERNEL __launch_bounds__(288, 1) int8_wide_256_gelu(ARGUMENTS) { int8_wide<256, 4, BIAS_GELU>(PASS); }
KERNEL __launch_bounds__(288, 1) int8_wide_256_add(ARGUMENTS) { int8_wide<256, 4, BIAS_ADD>(PASS); }
#endif
