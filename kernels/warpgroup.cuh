// Products of a warpgroup (wgmma, sm_90a): four warps, the first of which has a number divisible by 4, multiply together; the tensor cores
// read at least one side from shared memory. Without sm_90a, HAS_WARPGROUPS is not defined and this file is empty.
//
// This file has the PTX and the order that it requires; the kernel decides which data are where. Used by attend_wide.cu and stages.cuh.
#pragma once
#include "common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARPGROUPS

// Descriptor of an operand in shared memory without a swizzle: pieces of 8 rows of 16 bytes, one row behind the other. Bytes from piece to
// piece, multiples of 16: `inner` along the summed dimension, `outer` to the next 8 outputs. PTX ISA, "Strides" of wgmma.
DEVICE u64 descriptor_of(u32 low, u32 high) {
    u64 to;
    asm("mov.b64 %0, {%1, %2};" : "=l"(to) : "r"(low), "r"(high));
    return to;
}
DEVICE u64 shared_descriptor(u32 shared_address, u32 inner, u32 outer) { return descriptor_of(shared_address >> 4 | inner >> 4 << 16, outer >> 4); }
// Rows of 128 bytes, one behind the other from a multiple of 1024 on, their 16-byte pieces swizzled as copy_box does. The summed dimension
// is along the rows (then the next step is 32 bytes further) or across them. PTX ISA, "128-Byte swizzle mode".
// Where the outputs are along the rows, those behind 64 are `behind` bytes further, swizzled by their own addresses.
DEVICE u64 swizzled_descriptor(u32 shared_address, u32 behind = 1024) { return descriptor_of(shared_address >> 4 | behind >> 4 << 16, 1024 >> 4 | 1 << 30); }
// The same operand, `bytes` further in shared memory.
DEVICE u64 further(u64 descriptor, int bytes) { return descriptor_of(u32(descriptor) + (bytes >> 4), descriptor >> 32); }

// A product of 64 rows (16 per warp) by as many columns as twice the values of d, over a sum of 16. With g = lane / 4, t = lane % 4:
// d[n * 4], d[n * 4 + 1]: row g, columns n * 8 + 2t, 2t + 1; d[n * 4 + 2], [n * 4 + 3]: row g + 8.
// It is asynchronous: d and a may not be touched before `wgmma_wait`.
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D32 D16(0), D16(16)
#define D36 D32, D4(32)
#define D48 D32, D16(32)
#define NAMES_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_36 NAMES_32 ",%32,%33,%34,%35"
#define NAMES_48 NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_64 NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_128 NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
    "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WGMMA(COLUMNS) "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32.bf16.bf16 "

// d += a b: a in registers as in mma_16_8_16; in b, outputs are adjacent.
#define MULTIPLY(COUNT, COLUMNS, D_NAMES, A_NAMES, B, D)                                                    \
    DEVICE void wgmma(float (&d)[COUNT], const u32 (&a)[4], u64 b) {                                     \
        asm volatile(WGMMA(COLUMNS) "{" D_NAMES "}, {" A_NAMES "}, " B ", 1, 1, 1, 1;"                      \
                     : D : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                             \
    }
MULTIPLY(36, "72", NAMES_36, "%36,%37,%38,%39", "%40", D36)
MULTIPLY(32, "64", NAMES_32, "%32,%33,%34,%35", "%36", D32)

// d = a b, or with `add` d += a b: both in shared memory; in both, the summed dimension is adjacent.
DEVICE void wgmma_shared(float (&d)[48], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %50, 0;\n" WGMMA("96") "{" NAMES_48 "}, %48, %49, add, 1, 1, 0, 0;\n}"
                 : D48 : "l"(a), "l"(b), "r"(int(add)));
}

// Required before the first product, and after registers of a product were written.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes a group of products.
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Keeps uses of these registers behind (or before) this point: the compiler does not know that products are asynchronous.
template <int COUNT> DEVICE void pin_registers(float (&x)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(x[i])::"memory");
}
template <int COUNT> DEVICE void pin_registers(int (&x)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(x[i])::"memory");
}
template <int COUNT> DEVICE void pin_registers(u32 (&x)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+r"(x[i])::"memory");
}
template <int ROWS, int COUNT> DEVICE void pin_registers(u32 (&x)[ROWS][COUNT]) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) pin_registers(x[i]);
}
// Waits for all groups but the last PENDING; then `settled`, registers of those groups, may be touched again.
template <int PENDING, typename T, int COUNT> DEVICE void wgmma_wait(T (&settled)[COUNT]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    pin_registers(settled);
}
// Each thread of the warpgroup keeps COUNT registers and releases the others.
template <int COUNT> DEVICE void release_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }
// Each thread of the warpgroup waits until it can have COUNT registers.
template <int COUNT> DEVICE void claim_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
// Makes this thread's writes to shared memory visible to products behind the next barrier.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
