// Chooses tokens from the vocabulary's logits, among those that are allowed: the largest logit, or a sample of the nucleus.
//
//   logits    [rows][vocab] f32
//   choice    [rows][8] int: pick, index in `carried` (-1: none), number of banned ids (-1: the mask decides), bits of the f32
//             temperature (0: greedy), top_p and uniform number, position, 0
//   banned    [rows][4] ids
//   mask      [rows][mask_words] packed bits: id i is bit i % 32 of word i / 32
//   is_zombie [positions]: zombies decide nothing
//   out       [picks], carried: as in decide.cu; out has the coordinate bin already
//
// Grid (rows), 1024 threads: a block decides one row. Shared memory: SharedState, 6 KB. Exponentials and their sums in f32.
// Greedy: the largest logit, the lowest id among equals. Nucleus of softmax(logits / temperature): an id is left out when the
// probability mass of the likelier ids (and of equal ones with lower ids) exceeds top_p; the uniform number picks a place in the rest.
// Mass is counted in integers (2^40 is 1), so the order of additions does not matter. The id at a mass is found digit by digit of the
// probability's bits, in four passes over 256 counters. The reported probability is that of softmax(logits) over all ids.
// CPU reference: cpu/decide.rs, token and nucleus. Launched by cuda/kernels/decisions.rs.
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

struct TokenAtMass {
    int id;
    u64 before;    // mass of the likelier ids
    u64 mass;      // of this id
};

struct SharedState {
    float scratch[32];
    u64 counters[256];
    u64 before;
    u32 digits;
    int counts[THREADS];
    int id;
};

DEVICE float probability(const float* logits, int id, const Allowed& allowed, float max_allowed, float inverse_temperature, float inverse_sum) {
    return allowed(id) ? expf((logits[id] - max_allowed) * inverse_temperature) * inverse_sum : 0.0f;
}
DEVICE u64 mass_of(float p) { return u64(p * 1099511627776.0f); }

// The id at which the mass, counted from the likeliest on, passes `target`.
DEVICE TokenAtMass token_at_mass(const float* logits, int vocab, const Allowed& allowed, float max_allowed, float inverse_temperature, float inverse_sum, u64 target, SharedState& s) {
    u64 before = 0;
    u32 digits = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        if (threadIdx.x < 256) s.counters[threadIdx.x] = 0;
        __syncthreads();
        for (int id = threadIdx.x; id < vocab; id += THREADS) {
            float p = probability(logits, id, allowed, max_allowed, inverse_temperature, inverse_sum);
            u32 bits = __float_as_uint(p);
            bool same = shift == 24 || bits >> (shift + 8) == digits >> (shift + 8);
            if (same && p > 0.0f) atomicAdd(&s.counters[bits >> shift & 255], mass_of(p));
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 passed = before;
            int last = 0;
            bool found = false;
            for (int digit = 255; digit >= 0 && !found; digit--) {
                if (s.counters[digit] == 0) continue;
                last = digit;
                s.before = passed;
                found = passed + s.counters[digit] > target;
                passed += s.counters[digit];
            }
            s.digits = digits | u32(last) << shift;
        }
        __syncthreads();
        before = s.before;
        digits = s.digits;
        __syncthreads();
    }
    // All ids whose probability has these bits are equally likely; the lowest come first.
    u64 mass = mass_of(__uint_as_float(digits));
    int chunk = (vocab + THREADS - 1) / THREADS, from = threadIdx.x * chunk, count = 0;
    for (int id = from; id < min(from + chunk, vocab); id++) {
        count += __float_as_uint(probability(logits, id, allowed, max_allowed, inverse_temperature, inverse_sum)) == digits;
    }
    s.counts[threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
        int equal = 0;
        for (int i = 0; i < THREADS; i++) equal += s.counts[i];
        u64 wanted = mass == 0 || target < before ? 0 : (target - before) / mass;
        int nth = int(wanted < u64(equal) ? wanted : u64(equal - 1)), seen = 0, thread = 0;
        while (seen + s.counts[thread] <= nth) seen += s.counts[thread++];
        int id = thread * chunk - 1;
        for (int left = nth - seen + 1; left > 0;) {
            id++;
            left -= __float_as_uint(probability(logits, id, allowed, max_allowed, inverse_temperature, inverse_sum)) == digits;
        }
        s.id = id;
        s.before = before + u64(nth) * mass;
    }
    __syncthreads();
    return {s.id, s.before, mass};
}

extern "C" __global__ void __launch_bounds__(THREADS) choose_token(const float* all_logits, const int* choice, const int* banned, const u32* mask, const int* is_zombie, Decision* out, Decision* carried, int vocab, int mask_words) {
    __shared__ SharedState s;
    const int* c = choice + blockIdx.x * 8;
    const float* logits = all_logits + size_t(blockIdx.x) * vocab;
    const Allowed allowed = {c[2], banned + blockIdx.x * 4, mask + size_t(blockIdx.x) * mask_words};
    if (is_zombie[c[6]]) return;
    float best = NEG_INF, max_logit = NEG_INF;
    int at = vocab;
    for (int id = threadIdx.x; id < vocab; id += THREADS) {
        max_logit = fmaxf(max_logit, logits[id]);
        if (logits[id] > best && allowed(id)) best = logits[id], at = id;
    }
    const float max_allowed = block_max(best, s.scratch);
    max_logit = block_max(max_logit, s.scratch);
    int id = -int(block_max(best == max_allowed ? -float(at) : NEG_INF, s.scratch));
    const float temperature = __int_as_float(c[3]);
    // No id is allowed, because the row has no mask: it decides nothing.
    if (max_allowed == NEG_INF) return;
    if (temperature > 0.0f) {
        float inverse_temperature = 1.0f / temperature, sum = 0.0f;
        for (int i = threadIdx.x; i < vocab; i += THREADS) sum += probability(logits, i, allowed, max_allowed, inverse_temperature, 1.0f);
        float inverse_sum = 1.0f / block_sum(sum, s.scratch);
        TokenAtMass last = token_at_mass(logits, vocab, allowed, max_allowed, inverse_temperature, inverse_sum, mass_of(__int_as_float(c[4])), s);
        float kept = float(last.before + last.mass);
        id = token_at_mass(logits, vocab, allowed, max_allowed, inverse_temperature, inverse_sum, u64(__int_as_float(c[5]) * kept), s).id;
    }
    float sum = 0.0f;
    for (int i = threadIdx.x; i < vocab; i += THREADS) sum += expf(logits[i] - max_logit);
    sum = block_sum(sum, s.scratch);
    if (threadIdx.x == 0) {
        Decision d = {TOKEN, id, out[c[0]].second, expf(logits[id] - max_logit) / sum, 1.0f, {0, 0, 0}};
        out[c[0]] = d;
        if (c[1] >= 0) carried[c[1]] = d;
    }
}
