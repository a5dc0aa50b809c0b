// All blocks of the decoder for a step of up to 32 positions, in one launch.
//
//   of each layer
//     qkv_fc1    n = norm(hidden); [q | k | v | inner] = n w^T + bias; q and k are rotated, k and v go to the cache, inner through GELU
//     attend     rows to the prefix of their image and to their own pages (decode_attend.cuh)
//     proj_fc2   hidden += [attended | inner] w^T + bias
//
//   step   StepArgument (decode_base.cuh): hidden states in and out, weights, cache, tables, scratch, with shapes
//
// Grid: one block on each multiprocessor, launched cooperatively; 512 threads, 16 warps. decode_step_N takes up to N rows;
// decode_step_N_int8 has weights in int8, decode_step_N_e4m3 weights in e4m3 and inputs in f16. Such a step is bound by reading the weights
// once, so each block keeps weights on their way all the time (decode_base.cuh). Work is in units of 16 outputs by 2048 inputs, of which
// each warp has 128 inputs, in registers over all units of a phase. In proj_fc2 a block keeps to one chunk of 2048 inputs; the block that
// finishes the last chunk of 16 outputs adds up all chunks, in their order, so that results do not depend on which block is last.
// Most work is between signal and wait of a gate: queries, keys and values are signalled before the units of the MLP and waited for
// behind them; the MLP's values are waited for behind attention, and only by blocks that project them. Hidden states are waited for at
// once; with one or two rows (decode_few.cuh) when the next layer begins. Sums, norms and softmax in f32.
// CPU reference: cpu/text.rs, forward. Launched by cuda/kernels/decode_step.rs.
#include "decode_layers.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2(const __grid_constant__ StepArgument step) { STEP(bf16, 2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8(const __grid_constant__ StepArgument step) { STEP(bf16, 8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16(const __grid_constant__ StepArgument step) { STEP(bf16, 16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32(const __grid_constant__ StepArgument step) { STEP(bf16, 32); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2_int8(const __grid_constant__ StepArgument step) { STEP(s8, 2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8_int8(const __grid_constant__ StepArgument step) { STEP(s8, 8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16_int8(const __grid_constant__ StepArgument step) { STEP(s8, 16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32_int8(const __grid_constant__ StepArgument step) { STEP(s8, 32); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_2_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(2); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_8_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(8); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_16_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(16); }
extern "C" __global__ void __launch_bounds__(512, 1) decode_step_32_e4m3(const __grid_constant__ StepArgument step) { STEP_E4M3(32); }
