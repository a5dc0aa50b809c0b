// Data for another GPU that are signalled by themselves: each 4 bytes are stored with the number of the exchange as one word of 8 bytes. They
// take one way, where a signal behind data takes three: the data, their acknowledgement and the signal.
#pragma once
#include "common.cuh"

#define WAIT_NS_MAX 10000000000ull

DEVICE void store_words(ulonglong2* to, u32 x, u32 y, u32 number) {
    const u64 high = u64(number) << 32;
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1,%2};" ::"l"(to), "l"(high | x), "l"(high | y) : "memory");
}
DEVICE void store_word(u64* to, u32 x, u32 number) { asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(u64(number) << 32 | x) : "memory"); }
DEVICE u64 load_word(const u64* from) {
    u64 word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}
DEVICE ulonglong2 load_words(const ulonglong2* from) {
    ulonglong2 words;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0,%1}, [%2];" : "=l"(words.x), "=l"(words.y) : "l"(from) : "memory");
    return words;
}
DEVICE u32 number_of(u64 word) { return u32(word >> 32); }

// Repeats `is_there` until it is true. After 10 s it traps: the other GPU is lost, and the launch ends with an error.
template <typename IsThere> DEVICE void wait_until(IsThere is_there) {
    u64 since = 0, now;
    for (u32 times = 1; !is_there(); times++) {
        if (times % 1024) continue;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (since == 0) since = now;
        if (now - since > WAIT_NS_MAX) __trap();
    }
}
