// The decode step (decode_step.cu) on one of two GPUs (ranks) that compute it together.
//
// A rank has half of the heads, with their part of the cache, and half of the MLP: of qkv_fc1 half of the outputs of each part, of proj_fc2 half
// of the inputs, 1024 attended values and `inner` of the MLP. hidden += the partial sums of both ranks, f32, in the order of ranks, so both get
// equal bits; the bias is a part of rank 0's, and zero in rank 1. A rank stores its partial sums as words (words.cuh) into the other one's memory:
//   up to 2 rows   each chunk's; the next layer's blocks add up all
//   more rows      the sum of the chunks; the block that finishes an output's last chunk waits for the other rank's sum
// Of words there are two buffers in turn. A rank sends those of layer n + 2 after it has all of layer n + 1, which the other one has sent after it had
// read those of layer n.
// Blocks keep to a chunk as on one GPU. The MLP's chunks first, on blocks that do not attend, and then the attended values on all blocks is not
// faster on an H200 (us, 1 and 8 rows): bf16 586 and 721 instead of 580 and 683, fp8 455 and 575 instead of 478 and 550.
// Ranks launch the same steps in the same order, each on all multiprocessors of its GPU. Launched by cuda/kernels/decode_step.rs.
#define RANKS 2
#include "decode_layers.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2_of_2(const __grid_constant__ StepArgument step) { STEP(bf16, 2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8_of_2(const __grid_constant__ StepArgument step) { STEP(bf16, 8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16_of_2(const __grid_constant__ StepArgument step) { STEP(bf16, 16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32_of_2(const __grid_constant__ StepArgument step) { STEP(bf16, 32); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2_of_2_int8(const __grid_constant__ StepArgument step) { STEP(s8, 2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8_of_2_int8(const __grid_constant__ StepArgument step) { STEP(s8, 8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16_of_2_int8(const __grid_constant__ StepArgument step) { STEP(s8, 16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32_of_2_int8(const __grid_constant__ StepArgument step) { STEP(s8, 32); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2_of_2_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8_of_2_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16_of_2_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32_of_2_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(32); }
