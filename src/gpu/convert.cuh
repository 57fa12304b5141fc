/* convert.cuh - numbers from one format to another, two at a time, on the GPU.
 *
 * PROBLEM    The functions of src/num, where a thread has a pair. Of a pair, the first number is
 *            the one at the lower address: the low byte of two e4m3, the low nibble of two e2m1,
 *            the low half of two bf16.
 *
 *                e4m3 pair --> two fp32                                   ue8m0 byte --> fp32
 *                e4m3 pair, scale --> two bf16, rounded once
 *                eight e2m1, scale --> eight bf16, exact
 *                two fp32 --> e4m3 pair       two fp32 --> two bf16       two bf16 --> two fp32
 *
 * NUMERICS   Every result is that of the function of src/num, for every input: ties to even,
 *            saturation at 448 (of infinities too), subnormals kept, NaN to 0x7F and 0x7FFF. Only
 *            an fp32 NaN that comes out may have other bits than on the CPU; whatever is made of
 *            it by the functions here has not. tests/gpu checks all 2^32 fp32 and all codes.
 *
 * COST       From capability 8.9 on, e4m3 has instructions, half a one a number. Before, three to
 *            four to read one, and about fifteen to make one. e2m1 takes shifts everywhere: its
 *            instruction exists only on some GPUs of capability 10.0 and later.
 *
 * LIMITS     Capability 8.0.
 */
#ifndef MMLA_GPU_CONVERT_CUH
#define MMLA_GPU_CONVERT_CUH

#include <stdint.h>

#include "gpu/convert_bits.h"
#include "num/e4m3.h"

#define GPU_DEVICE static __device__ __forceinline__

/* Two bf16 of a word. Exact; the bits of a NaN are kept. */
GPU_DEVICE float2 gpu_f32x2_from_bf16x2(uint32_t halves) {
    return make_float2(__uint_as_float(halves << 16), __uint_as_float(halves & 0xFFFF0000u));
}

/* Two fp32 rounded to bf16, as mmla_bf16_from_f32. */
GPU_DEVICE uint32_t gpu_bf16x2_from_f32x2(float first, float second) {
    uint32_t halves;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
}

/* Two fp32 rounded to fp16, ties to even; overflow goes to infinity. */
GPU_DEVICE uint32_t gpu_f16x2_from_f32x2(float first, float second) {
    uint32_t halves;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(second), "f"(first));
    return halves;
}

GPU_DEVICE uint32_t gpu_abs_bf16x2(uint32_t halves) {
    uint32_t magnitudes;
    asm("abs.bf16x2 %0, %1;" : "=r"(magnitudes) : "r"(halves));
    return magnitudes;
}

/* Of a number and a NaN, quiet or signalling, the number. */
GPU_DEVICE uint32_t gpu_max_bf16x2(uint32_t a, uint32_t b) {
    uint32_t most;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

/* Products of two pairs of bf16, each rounded once; subnormals are kept. The instruction is a fused
 * multiply-add of minus zero, which capability 8.0 has and which changes no product. */
GPU_DEVICE uint32_t gpu_mul_bf16x2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
}

/* Two fp16 of a word. Exact. */
GPU_DEVICE float2 gpu_f32x2_from_f16x2(uint32_t halves) {
    float2 x;
    asm("{\n"
        ".reg .f16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}"
        : "=f"(x.x), "=f"(x.y)
        : "r"(halves));
    return x;
}

/* The values of two e4m3 codes; only the low 16 bits of `codes` are looked at. */
GPU_DEVICE float2 gpu_f32x2_from_e4m3x2(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)codes));
    return gpu_f32x2_from_f16x2(halves);
#else
    return make_float2(mmla_e4m3_to_f32_by_bits(codes & 0xFFu),
                       mmla_e4m3_to_f32_by_bits(codes >> 8 & 0xFFu));
#endif
}

/* Four e4m3 codes as two pairs of fp16, which has all their values; for code compiled for 8.9 or
 * later. A NaN stays one. The instruction can take either half of a register, so that there is no
 * shift. */
GPU_DEVICE void gpu_f16x4_from_e4m3x4(uint32_t codes, uint32_t *first, uint32_t *second) {
#if __CUDA_ARCH__ >= 890
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}"
        : "=r"(*first), "=r"(*second)
        : "r"(codes));
#else
    *first = *second = 0;
    (void)codes;
#endif
}

/* Products of two pairs of fp16, each rounded once; subnormals are kept. */
GPU_DEVICE uint32_t gpu_mul_f16x2(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/* The same by one fp16 of a pair, the first or the second. */
GPU_DEVICE uint32_t gpu_mul_f16x2_first(uint32_t a, uint32_t pair) {
    uint32_t product;
    asm("{\n"
        ".reg .b16 low, high;\n"
        ".reg .b32 both;\n"
        "mov.b32 {low, high}, %2;\n"
        "mov.b32 both, {low, low};\n"
        "mul.rn.f16x2 %0, %1, both;\n"
        "}"
        : "=r"(product)
        : "r"(a), "r"(pair));
    return product;
}
GPU_DEVICE uint32_t gpu_mul_f16x2_second(uint32_t a, uint32_t pair) {
    uint32_t product;
    asm("{\n"
        ".reg .b16 low, high;\n"
        ".reg .b32 both;\n"
        "mov.b32 {low, high}, %2;\n"
        "mov.b32 both, {high, high};\n"
        "mul.rn.f16x2 %0, %1, both;\n"
        "}"
        : "=r"(product)
        : "r"(a), "r"(pair));
    return product;
}

/* Two e4m3 codes times a scale, the product rounded to bf16. */
GPU_DEVICE uint32_t gpu_bf16x2_from_e4m3x2(uint32_t codes, float scale) {
    const float2 x = gpu_f32x2_from_e4m3x2(codes);
    return gpu_bf16x2_from_f32x2(x.x * scale, x.y * scale);
}

/* Two fp32 to e4m3 codes, as mmla_e4m3_from_f32; the high 16 bits of the result are 0. */
GPU_DEVICE uint32_t gpu_e4m3x2_from_f32x2(float first, float second) {
#if __CUDA_ARCH__ >= 890
    uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
    return codes;
#else
    return mmla_e4m3_from_f32(first) | (uint32_t)mmla_e4m3_from_f32(second) << 8;
#endif
}

/* A scale, an e4m3 value, as gpu_bf16x8_from_e2m1x8_by wants it: with 2^119 in it it still fits
 * bf16. */
GPU_DEVICE uint32_t gpu_e2m1_factor_128th(float scale) {
    return gpu_bf16x2_from_f32x2(scale * 0x1p119f, scale * 0x1p119f);
}

/* Eight e2m1 codes times a scale, as 128ths of that: bf16, all exact. */
GPU_DEVICE uint4 gpu_bf16x8_from_e2m1x8_by(uint32_t codes, uint32_t factor) {
    uint32_t x[4]; /* codes i and i + 4 share a register */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        x[i] = gpu_mul_bf16x2(mmla_e2m1x2_to_bf16x2_times_2_126th(codes, i), factor);
    }
    return make_uint4(__byte_perm(x[0], x[1], 0x5410), __byte_perm(x[2], x[3], 0x5410),
                      __byte_perm(x[0], x[1], 0x7632), __byte_perm(x[2], x[3], 0x7632));
}

/* Both in one. */
GPU_DEVICE uint4 gpu_bf16x8_from_e2m1x8_128th(uint32_t codes, float scale) {
    return gpu_bf16x8_from_e2m1x8_by(codes, gpu_e2m1_factor_128th(scale));
}

/* The value of a ue8m0 byte, 0 .. 255. */
GPU_DEVICE float gpu_f32_from_ue8m0(uint32_t byte) {
    return mmla_ue8m0_to_f32_by_bits(byte);
}

#undef GPU_DEVICE

#endif
