// Chooses tokens from the vocabulary's logits: the largest logit of those that are allowed, the lowest id among equals. Of a token that
// means a coordinate or a size, the value is the decision.
//
//   logits    [rows][vocab] f32
//   choice    [rows][8] int: pick, index in `carried` (-1: none), number of banned ids (-1: the mask decides), position, id of a
//             coordinate, row of its logits, id of a size, row of its logits (-1: there is no such token)
//   banned    [rows][4] ids
//   mask      [rows][mask_words] packed bits: id i is bit i % 32 of word i / 32
//   is_zombie [positions]: zombies decide nothing
//   coords    [any][1024] f32; sizes [any][2048] f32: as in decide.cu
//   out       [picks], carried: as in decide.cu
//
// Grid (rows), 1024 threads: a block decides one row. Exponentials and their sums in f32. The reported probability is that of
// softmax(logits) over all ids.
// CPU reference: cpu/decide.rs, token. Launched by cuda/kernels/decisions.rs.
#include "decision.cuh"

#define THREADS 1024

struct Allowed {
    int count;
    const int* banned;
    const u32* mask;
    DEVICE bool operator()(int id) const {
        if (count < 0) return mask[id / 32] >> (id % 32) & 1;
        for (int i = 0; i < count; i++) {
            if (banned[i] == id) return false;
        }
        return true;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) choose_token(const float* all_logits, const int* choice, const int* banned, const u32* mask, const int* is_zombie, const float* coords, const float* sizes, Decision* out, Decision* carried, int vocab, int mask_words) {
    __shared__ float scratch[32];
    const int* c = choice + blockIdx.x * 8;
    const float* logits = all_logits + size_t(blockIdx.x) * vocab;
    const Allowed allowed = {c[2], banned + blockIdx.x * 4, mask + size_t(blockIdx.x) * mask_words};
    if (is_zombie[c[3]]) return;
    float best = NEG_INF, max_logit = NEG_INF;
    int at = vocab;
    for (int id = threadIdx.x; id < vocab; id += THREADS) {
        max_logit = fmaxf(max_logit, logits[id]);
        if (logits[id] > best && allowed(id)) best = logits[id], at = id;
    }
    const float max_allowed = block_max(best, scratch);
    max_logit = block_max(max_logit, scratch);
    const int id = -int(block_max(best == max_allowed ? -float(at) : NEG_INF, scratch));
    // No id is allowed, because the row has no mask: it decides nothing.
    if (max_allowed == NEG_INF) return;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < vocab; i += THREADS) sum += expf(logits[i] - max_logit);
    sum = block_sum(sum, scratch);
    const float probability = expf(logits[id] - max_logit) / sum;
    Decision d = {TOKEN, id, 0, probability, 1.0f, {0, 0, 0}};
    if (id == c[4]) d = choose_coord<THREADS>(coords + size_t(c[5]) * BINS, probability, scratch);
    if (id == c[6]) d = choose_size<THREADS>(sizes + size_t(c[7]) * 2 * BINS, probability, scratch);
    if (threadIdx.x == 0) {
        out[c[0]] = d;
        if (c[1] >= 0) carried[c[1]] = d;
    }
}
