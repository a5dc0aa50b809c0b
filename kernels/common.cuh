// Helpers of all kernels: conversions, sums over warps and blocks, asynchronous copies, tensor-core products, the layout of the cache.
//
// No CUDA header is included, so that NVRTC needs none and compiles a kernel in less than a second: bf16 is raw bits with conversions,
// and what C++ does not offer is inline PTX for sm_80 and newer.
#pragma once

typedef unsigned short bf16;
typedef unsigned char e4m3;
typedef signed char s8;
typedef unsigned int u32;
typedef unsigned long long u64;
// Eight int4 values, each plus 8: of the low half 0, 2, 4, 6 from the lowest bits on, of the high half 1, 3, 5, 7.
struct s4x8 {
    u32 raw;
};

#define WARP_ALL 0xffffffffu
#define DEVICE __device__ __forceinline__

DEVICE float f32_from_bf16(bf16 x) { return __uint_as_float(u32(x) << 16); }
DEVICE float f32_from_low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float f32_from_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

// Rounds to nearest, ties to even.
DEVICE u32 bf16_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE bf16 bf16_from_f32(float x) { return bf16(bf16_pair(x, 0.0f)); }

// Eight values from one 16-byte load.
struct F32x8 {
    float x[8];
};
DEVICE F32x8 f32x8_from(uint4 raw) {
    return {{f32_from_low(raw.x), f32_from_high(raw.x), f32_from_low(raw.y), f32_from_high(raw.y),
             f32_from_low(raw.z), f32_from_high(raw.z), f32_from_low(raw.w), f32_from_high(raw.w)}};
}
DEVICE uint4 bf16x8_from(const F32x8& e) {
    return make_uint4(bf16_pair(e.x[0], e.x[1]), bf16_pair(e.x[2], e.x[3]), bf16_pair(e.x[4], e.x[5]),
                      bf16_pair(e.x[6], e.x[7]));
}

// `raw` or zeros. A conditional load becomes a branch, and the loads behind it wait for it; so kernels always load, from an address that
// exists, and drop the result where it is not needed.
DEVICE uint4 keep_if(uint4 raw, bool keep) {
    const u32 mask = keep ? WARP_ALL : 0;
    return make_uint4(raw.x & mask, raw.y & mask, raw.z & mask, raw.w & mask);
}

// e4m3: sign, 4 bits of exponent, 3 of mantissa. Rounds to nearest, ties to even, magnitudes above 448 to 448. Only for
// sm_89 and newer: the host rejects fp8 on other GPUs.
DEVICE u32 e4m3_pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
    unsigned short pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return 0;
#endif
}

// Four e4m3 values as two pairs of f16, which represents each exactly.
DEVICE void f16_from_e4m3(u32& low, u32& high, u32 four) {
#if __CUDA_ARCH__ >= 890
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(low), "=r"(high) : "r"(four));
#else
    low = high = 0;
#endif
}
// Four e4m3 values as two pairs of bf16, which represents each exactly: with exponent and mantissa moved to their places they are
// 2^120 times too small. None of them is NaN.
DEVICE void bf16_from_e4m3(u32& low, u32& high, u32 four) {
    const u32 pairs[2] = {__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424)};
    u32 to[2];
    for (int i = 0; i < 2; i++) {
        const u32 small = (pairs[i] & 0x7f007f00) >> 4 | (pairs[i] & 0x80008000);
        // small * 2^120 + -0
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(to[i]) : "r"(small), "r"(0x7b807b80u), "r"(0x80008000u));
    }
    low = to[0], high = to[1];
}
// Four int8 values as two pairs of bf16, which represents each exactly: seven bits go behind 128 or, of a negative one, 256 less is taken.
DEVICE void bf16_from_s8(u32& low, u32& high, u32 four) {
    const u32 pairs[2] = {__byte_perm(four, 0, 0x4140), __byte_perm(four, 0, 0x4342)};
    u32 to[2];
    for (int i = 0; i < 2; i++) {
        const u32 plus = (pairs[i] & 0x007f007f) | 0x43004300, minus = (pairs[i] & 0x00800080) | 0xc300c300;
        // plus * 1 + minus
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(to[i]) : "r"(plus), "r"(0x3f803f80u), "r"(minus));
    }
    low = to[0], high = to[1];
}
DEVICE void bf16_from_four(u32& low, u32& high, u32 four, s8) { bf16_from_s8(low, high, four); }
DEVICE void bf16_from_four(u32& low, u32& high, u32 four, e4m3) { bf16_from_e4m3(low, high, four); }
// a * b + c of two pairs.
DEVICE u32 fma_pair(u32 a, u32 b, u32 c) {
    u32 to;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(to) : "r"(a), "r"(b), "r"(c));
    return to;
}
// Eight int4 values in bf16, which represents each exactly: four bits behind 128, of which 136 is subtracted.
DEVICE uint4 bf16_from_s4(u32 eight) {
    u32 to[4];
    for (int i = 0; i < 4; i++) to[i] = fma_pair((eight >> i * 4 & 0x000f000f) | 0x43004300, 0x3f803f80, 0xc308c308);
    return make_uint4(to[0], to[1], to[2], to[3]);
}
// Rounds to nearest, ties to even; values that are too large become infinite.
DEVICE u32 f16_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// Stores of kernels that write bf16, or e4m3 of each value times `scale`.
DEVICE void store_eight(bf16* to, const F32x8& e, float) { *reinterpret_cast<uint4*>(to) = bf16x8_from(e); }
DEVICE void store_eight(e4m3* to, const F32x8& e, float scale) {
    u32 four[2];
    for (int i = 0; i < 2; i++) {
        const float* x = e.x + i * 4;
        four[i] = e4m3_pair(x[0] * scale, x[1] * scale) | e4m3_pair(x[2] * scale, x[3] * scale) << 16;
    }
    *reinterpret_cast<uint2*>(to) = make_uint2(four[0], four[1]);
}
#define NEG_INF (-__int_as_float(0x7f800000))
// The largest magnitude of `most` and the values. NaN counts as infinity.
DEVICE float largest(const F32x8& e, float most) {
    for (int j = 0; j < 8; j++) most = e.x[j] == e.x[j] ? fmaxf(most, fabsf(e.x[j])) : -NEG_INF;
    return most;
}
// What values are multiplied with to become int8, in a row with this largest magnitude.
DEVICE float s8_factor(float most) { return most > 0.0f ? 127.0f / most : 0.0f; }
// Rounds to nearest, ties to even; sizes above 127 become 127 or -128.
DEVICE u32 s8_from(const float* x, float scale) {
    u32 high, four;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(high) : "r"(__float2int_rn(x[3] * scale)), "r"(__float2int_rn(x[2] * scale)), "r"(0));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(four) : "r"(__float2int_rn(x[1] * scale)), "r"(__float2int_rn(x[0] * scale)), "r"(high));
    return four;
}
DEVICE void store_eight(s8* to, const F32x8& e, float scale) {
    *reinterpret_cast<uint2*>(to) = make_uint2(s8_from(e.x, scale), s8_from(e.x + 4, scale));
}
DEVICE void store_two(bf16* to, float low, float high, float) { *reinterpret_cast<u32*>(to) = bf16_pair(low, high); }
DEVICE void store_two(e4m3* to, float low, float high, float scale) {
    *reinterpret_cast<unsigned short*>(to) = (unsigned short)e4m3_pair(low * scale, high * scale);
}
DEVICE void store_one(bf16* to, float x, float) { *to = bf16_from_f32(x); }
DEVICE void store_one(e4m3* to, float x, float scale) { *to = e4m3(e4m3_pair(x * scale, 0.0f)); }

// GELU in the tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
DEVICE float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

#define LOG2_E 1.4426950408889634f
// 1 / x, off by one bit.
DEVICE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// GELU in the erf form. erf is that of Abramowitz and Stegun 7.1.26, off by up to 2e-7 of 1; erff takes three times as long.
DEVICE float gelu_erf(float x) {
    const float z = fabsf(x) * 0.7071067811865476f, t = reciprocal(1.0f + 0.3275911f * z);
    const float series = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    const float erf = 1.0f - series * exp2_fast(-LOG2_E * z * z);
    return 0.5f * x + 0.5f * fabsf(x) * erf;
}

// Over a warp, or neighbouring lanes of it.
template <int LANES = 32> DEVICE float warp_sum(float x) {
    for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(WARP_ALL, x, step);
    return x;
}
template <int LANES = 32> DEVICE float warp_max(float x) {
    for (int step = LANES / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, step));
    return x;
}

// Sum and maximum over a block of up to 32 warps, returned to every thread. `scratch` has 32 floats. They end with a barrier, so that the
// scratch can be used again.
DEVICE float block_sum(float x, float* scratch) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    x = warp_sum(x);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? scratch[lane] : 0.0f);
    __syncthreads();
    return x;
}
DEVICE float block_max(float x, float* scratch) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    x = warp_max(x);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = warp_max(lane < warps ? scratch[lane] : -__int_as_float(0x7f800000));
    __syncthreads();
    return x;
}

// 16 bytes that are read once.
DEVICE uint4 stream_16(const void* from) {
    uint4 r;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(from) : "memory");
    return r;
}

// The same of 8 bytes.
DEVICE uint2 stream_8(const void* from) {
    uint2 r;
    asm volatile("ld.global.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(from) : "memory");
    return r;
}

// Prefetches 128 bytes into the L2.
DEVICE void prefetch_line(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// Copies 16 bytes from global to shared memory without registers; zeros when `there` is false (then `from` is not read).
DEVICE void copy_async_16(u32 to_shared, const void* from, bool there) {
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copy_async_16(void* to_shared, const void* from, bool there) { copy_async_16(u32(__cvta_generic_to_shared(to_shared)), from, there); }
DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Four (two) 8x8 matrices of bf16 from shared memory into the fragments of a tensor-core product. Lane i gives the
// address of row i % 8 of matrix i / 8.
DEVICE void load_matrix_x4(u32 (&r)[4], const bf16* row) {
    u32 at = u32(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEVICE void load_matrix_x2(u32 (&r)[2], const bf16* row) {
    u32 at = u32(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
}
DEVICE void load_matrix_x4_transposed(u32 (&r)[4], const bf16* row) {
    u32 at = u32(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEVICE void load_matrix_x2_transposed(u32 (&r)[2], const bf16* row) {
    u32 at = u32(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
}

// c += a b with a 16x16, b 16x8, c 16x8. With g = lane / 4 and t = lane % 4:
//   a[0], a[2]: row g, columns 2t.. and 2t+8..; a[1], a[3]: row g+8    b[0], b[1]: rows 2t.. and 2t+8.., column g
//   c[0], c[1]: row g, columns 2t, 2t+1;        c[2], c[3]: row g+8
DEVICE void mma_16_8_16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same with a and b in f16.
DEVICE void mma_16_8_16_f16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The same with a 16x32 and b 32x8 in e4m3, four neighbouring columns where bf16 has two. Only for sm_89 and newer.
DEVICE void mma_16_8_32_e4m3(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 890
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
// c += a b with a 16x32, b 32x8, c 16x8, all int8 to int32. With g = lane / 4 and t = lane % 4:
//   a[0], a[2]: row g, columns 4t.. and 4t+16..; a[1], a[3]: row g+8    b0, b1: rows 4t.. and 4t+16.., column g
//   c[0], c[1]: row g, columns 2t, 2t+1;         c[2], c[3]: row g+8
DEVICE void mma_16_8_32_s8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// mma_16_8_16 with a 16x8 and b 8x8.
DEVICE void mma_16_8_8(float (&c)[4], const u32 (&a)[2], u32 b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
}

// Four lanes of a row, t = lane % 4, with four values each: value n of lane t becomes value t of lane n.
DEVICE void transpose_quad(u32 (&x)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    auto exchange = [&](u32& low, u32& up, bool keeps_up, int lanes) {
        const u32 other = __shfl_xor_sync(~0u, keeps_up ? low : up, lanes);
        low = keeps_up ? other : low;
        up = keeps_up ? up : other;
    };
    exchange(x[0], x[1], odd, 1);
    exchange(x[2], x[3], odd, 1);
    exchange(x[0], x[2], high, 2);
    exchange(x[1], x[3], high, 2);
}

// 16 neighbouring values of one row of an operand. Of 64 summed values, lane t has 16t and the 15 behind them, of both operands: the column of
// a fragment that a value is in does not matter as long as they agree.
template <typename T> struct LaneValues;
template <> struct LaneValues<bf16> {
    uint4 raw[2];
    DEVICE void load(const bf16* from) { raw[0] = reinterpret_cast<const uint4*>(from)[0], raw[1] = reinterpret_cast<const uint4*>(from)[1]; }
    DEVICE void stream(const bf16* from) { raw[0] = stream_16(from), raw[1] = stream_16(from + 8); }
    DEVICE uint4 eight(int half) const { return raw[half]; }
};
// Of numbers in 8 bits.
template <typename T> struct LaneValues {
    uint4 raw;
    DEVICE void stream(const T* from) { raw = stream_16(from); }
    DEVICE uint4 eight(int half) const {
        uint4 to;
        bf16_from_four(to.x, to.y, half ? raw.z : raw.x, T());
        bf16_from_four(to.z, to.w, half ? raw.w : raw.y, T());
        return to;
    }
};
template <> struct LaneValues<s4x8> {
    uint2 raw;
    DEVICE void stream(const s4x8* from) { raw = stream_8(from); }
    DEVICE uint4 eight(int half) const { return bf16_from_s4(half ? raw.y : raw.x); }
};

// The KV cache, bf16. A page holds 16 positions of all layers:
//   keys    [layer][page][head][16 positions][64]
//   values  [layer][page][head][64][16 positions]     transposed, so that neighbouring positions are adjacent
// A slot is a position of the cache: page * 16 + position in the page. Slot -1 writes nothing.
#define PAGE 16
#define TEXT_HEAD 64
