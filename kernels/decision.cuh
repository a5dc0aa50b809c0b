// The decision of a row. The layout is that of DecisionRecord in cuda/record.rs.
#pragma once
#include "common.cuh"

enum DecisionKind { END = 0, COORD = 1, SIZE = 2, TOKEN = 3, NOTHING = 4 };

struct Decision {
    int kind;
    int first;          // coordinate bin, width bin or token id
    int second;         // height bin
    float probability;
    float sharpness;
    int pad[3];
};

#define BINS 1024

struct BinChoice {
    int bin;
    float sharpness;
};

// The largest of BINS logits, by a block of THREADS threads; `scratch` has 32 floats.
template <int THREADS> DEVICE BinChoice choose_bin(const float* logits, float* scratch) {
    float x[BINS / THREADS], best = NEG_INF;
    int at = 0;
#pragma unroll
    for (int j = 0; j < BINS / THREADS; j++) x[j] = logits[threadIdx.x + j * THREADS];
#pragma unroll
    for (int j = 0; j < BINS / THREADS; j++) {
        if (x[j] > best) best = x[j], at = threadIdx.x + j * THREADS;
    }
    float max_logit = block_max(best, scratch);
    // The lowest index among equals; a float represents it exactly.
    int bin = -int(block_max(best == max_logit ? -float(at) : NEG_INF, scratch));
    float all = 0.0f, near = 0.0f;
#pragma unroll
    for (int j = 0; j < BINS / THREADS; j++) {
        float p = expf(x[j] - max_logit);
        all += p;
        if (abs(int(threadIdx.x) + j * THREADS - bin) <= 2) near += p;
    }
    all = block_sum(all, scratch);
    near = block_sum(near, scratch);
    return {bin, near / all};
}

// A coordinate and a size from their logits, which go on or are chosen with `probability`.
template <int THREADS> DEVICE Decision choose_coord(const float* logits, float probability, float* scratch) {
    BinChoice c = choose_bin<THREADS>(logits, scratch);
    return {COORD, c.bin, 0, probability, c.sharpness, {0, 0, 0}};
}

template <int THREADS> DEVICE Decision choose_size(const float* logits, float probability, float* scratch) {
    BinChoice w = choose_bin<THREADS>(logits, scratch), h = choose_bin<THREADS>(logits + BINS, scratch);
    return {SIZE, w.bin, h.bin, probability, fminf(w.sharpness, h.sharpness), {0, 0, 0}};
}
