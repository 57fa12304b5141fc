/* gpu/convert.cuh on a GPU: every input of every function, against the functions of src/num, which the
 * GPU runs too; and those against themselves on the host, on many inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

extern "C" {
#include <cmocka.h>
}

#include "gpu/convert.cuh"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"

enum { THREADS = 256, BLOCKS = 1024, SAMPLES = 1 << 20 };

/* What a kernel found. */
typedef struct verdict {
    unsigned long long n_wrong;
    unsigned long long first; /* the smallest wrong input, in the kernel's own numbering */
} verdict;

static __device__ void judge(verdict *v, bool right, uint64_t input) {
    if (!right) {
        atomicAdd(&v->n_wrong, 1ull);
        atomicMin(&v->first, (unsigned long long)input);
    }
}

#define FOR_ALL(i, n)                                                                  \
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < (uint64_t)(n); \
         i += (uint64_t)gridDim.x * THREADS)

static __device__ float f32(uint32_t bits) {
    return __uint_as_float(bits);
}

/* The same number or both NaN. */
static __device__ bool same(float a, float b) {
    return (isnan(a) && isnan(b)) || __float_as_uint(a) == __float_as_uint(b);
}

/* Another number for the other half of a pair; a bijection. */
static __device__ uint32_t other(uint32_t x) {
    return x * 2654435761u + 12345u;
}

static __global__ void e4m3_from_every_f32(verdict *v) {
    FOR_ALL(i, 1ull << 32) {
        const float a = f32((uint32_t)i), b = f32(other((uint32_t)i));
        const uint32_t codes = gpu_e4m3x2_from_f32x2(a, b);
        judge(v, codes == (mmla_e4m3_from_f32(a) | (uint32_t)mmla_e4m3_from_f32(b) << 8), i);
    }
}

static __global__ void bf16_from_every_f32(verdict *v) {
    FOR_ALL(i, 1ull << 32) {
        const float a = f32((uint32_t)i), b = f32(other((uint32_t)i));
        const uint32_t halves = gpu_bf16x2_from_f32x2(a, b);
        judge(v, halves == (mmla_bf16_from_f32(a) | (uint32_t)mmla_bf16_from_f32(b) << 16), i);
    }
}

/* Every e4m3 pair: alone, with other bits above, and under every ue8m0 and every e4m3 scale. */
static __global__ void every_e4m3_pair(verdict *v) {
    FOR_ALL(i, 65536u * 512u) {
        const uint32_t pair = (uint32_t)(i & 0xFFFF), scale = (uint32_t)(i >> 16);
        const float a = mmla_e4m3_to_f32((uint8_t)pair);
        const float b = mmla_e4m3_to_f32((uint8_t)(pair >> 8));
        const float s =
            scale < 256 ? mmla_ue8m0_to_f32((uint8_t)scale) : mmla_e4m3_to_f32((uint8_t)scale);
        const float2 x = gpu_f32x2_from_e4m3x2(pair | scale << 16);
        judge(v, same(x.x, a) && same(x.y, b), i);
        const uint32_t want = mmla_bf16_from_f32(a * s) | (uint32_t)mmla_bf16_from_f32(b * s) << 16;
        judge(v, gpu_bf16x2_from_e4m3x2(pair | scale << 16, s) == want, i);
    }
}

/* Every e2m1 pair at each of the four places of a word, under every e4m3 scale. */
static __global__ void every_e2m1_pair(verdict *v) {
    FOR_ALL(i, 256u * 256u * 4u) {
        const uint32_t pair = (uint32_t)(i & 0xFF), scale = (uint32_t)(i >> 8 & 0xFF);
        const uint32_t place = (uint32_t)(i >> 16);
        const float s = mmla_e4m3_to_f32((uint8_t)scale);
        const float a = mmla_e2m1_to_f32((uint8_t)(pair & 15)) * s * 0x1p-7f;
        const float b = mmla_e2m1_to_f32((uint8_t)(pair >> 4)) * s * 0x1p-7f;
        const uint32_t want = mmla_bf16_from_f32(a) | (uint32_t)mmla_bf16_from_f32(b) << 16;
        const uint32_t codes = pair << 8 * place | (~0u ^ 0xFFu << 8 * place);
        const uint4 x = gpu_bf16x8_from_e2m1x8_128th(codes, s);
        const uint32_t halves[4] = {x.x, x.y, x.z, x.w};
        judge(v, isnan(s) || halves[place] == want, i);
    }
}

static __global__ void every_ue8m0_and_every_bf16(verdict *v) {
    FOR_ALL(i, 65536) {
        const uint16_t code = (uint16_t)i;
        const uint8_t byte = (uint8_t)i;
        judge(v, same(gpu_f32_from_ue8m0(byte), mmla_ue8m0_to_f32(byte)), i);
        const float2 x = gpu_f32x2_from_bf16x2((uint32_t)i << 16 | (i ^ 0x5555));
        judge(v, __float_as_uint(x.y) == (uint32_t)code << 16, i);
        judge(v, __float_as_uint(x.x) == ((uint32_t)code ^ 0x5555) << 16, i);
    }
}

/* fp16 pairs: there and back, for every one that is no NaN. */
static __global__ void every_f16(verdict *v) {
    FOR_ALL(i, 65536) {
        const uint32_t half = (uint32_t)i;
        const float2 x = gpu_f32x2_from_f16x2(half | (half ^ 0x8000) << 16);
        const bool is_nan = (half & 0x7FFF) > 0x7C00;
        judge(v, isnan(x.x) == is_nan && isnan(x.y) == is_nan, i);
        judge(v, is_nan || gpu_f16x2_from_f32x2(x.x, x.y) == (half | (half ^ 0x8000) << 16), i);
    }
}

/* What group maxima rely on: of a number and a NaN of any kind, the maximum is the number. */
static __global__ void maximum_ignores_every_nan(verdict *v) {
    FOR_ALL(i, 1ull << 32) {
        const float x = f32((uint32_t)i);
        if (isnan(x)) {
            judge(v, fmaxf(2.5f, fabsf(x)) == 2.5f && fmaxf(x, 2.5f) == 2.5f, i);
            judge(v, fminf(2.5f, x) == 2.5f, i);
        }
    }
}

/* Scalar functions, one result a sample: e4m3 code, bf16 code. */
static __global__ void scalars(uint32_t *results) {
    FOR_ALL(i, SAMPLES) {
        const float x = f32((uint32_t)i * 4096u + other((uint32_t)i) % 4096u);
        results[i] = mmla_e4m3_from_f32(x) | (uint32_t)mmla_bf16_from_f32(x) << 16;
    }
}

static void check_cuda(cudaError_t e) {
    if (e != cudaSuccess) {
        fail_msg("%s", cudaGetErrorString(e));
    }
}

static bool has_gpu(void) {
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
}

static void assert_right(void (*kernel)(verdict *)) {
    if (!has_gpu()) {
        skip();
    }
    verdict result = {0, ~0ull}, *device;
    check_cuda(cudaMalloc((void **)&device, sizeof *device));
    check_cuda(cudaMemcpy(device, &result, sizeof result, cudaMemcpyHostToDevice));
    kernel<<<BLOCKS, THREADS>>>(device);
    check_cuda(cudaMemcpy(&result, device, sizeof result, cudaMemcpyDeviceToHost));
    check_cuda(cudaFree(device));
    if (result.n_wrong > 0) {
        fail_msg("%llu wrong, the first is input %llX", result.n_wrong, result.first);
    }
}

static void convert_e4m3_is_right_from_every_f32(void **state) {
    (void)state;
    assert_right(e4m3_from_every_f32);
}

static void convert_bf16_is_right_from_every_f32(void **state) {
    (void)state;
    assert_right(bf16_from_every_f32);
}

static void convert_every_e4m3_pair_under_every_scale(void **state) {
    (void)state;
    assert_right(every_e4m3_pair);
}

static void convert_every_e2m1_pair_under_every_scale(void **state) {
    (void)state;
    assert_right(every_e2m1_pair);
}

static void convert_every_ue8m0_and_every_bf16(void **state) {
    (void)state;
    assert_right(every_ue8m0_and_every_bf16);
}

static void convert_every_f16_there_and_back(void **state) {
    (void)state;
    assert_right(every_f16);
}

static void convert_maximum_ignores_every_nan(void **state) {
    (void)state;
    assert_right(maximum_ignores_every_nan);
}

static uint32_t host_other(uint32_t x) {
    return x * 2654435761u + 12345u;
}

static void convert_scalar_functions_are_the_same_on_host_and_device(void **state) {
    (void)state;
    if (!has_gpu()) {
        skip();
    }
    uint32_t *device, *results = (uint32_t *)malloc(SAMPLES * sizeof *results);
    assert_non_null(results);
    check_cuda(cudaMalloc((void **)&device, SAMPLES * sizeof *device));
    scalars<<<BLOCKS, THREADS>>>(device);
    check_cuda(cudaMemcpy(results, device, SAMPLES * sizeof *device, cudaMemcpyDeviceToHost));
    check_cuda(cudaFree(device));
    for (uint32_t i = 0; i < SAMPLES; i++) {
        const float x = mmla_f32_of_bits(i * 4096u + host_other(i) % 4096u);
        assert_int_equal(results[i], mmla_e4m3_from_f32(x) | (uint32_t)mmla_bf16_from_f32(x) << 16);
    }
    free(results);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convert_e4m3_is_right_from_every_f32),
        cmocka_unit_test(convert_bf16_is_right_from_every_f32),
        cmocka_unit_test(convert_every_e4m3_pair_under_every_scale),
        cmocka_unit_test(convert_every_e2m1_pair_under_every_scale),
        cmocka_unit_test(convert_every_ue8m0_and_every_bf16),
        cmocka_unit_test(convert_every_f16_there_and_back),
        cmocka_unit_test(convert_maximum_ignores_every_nan),
        cmocka_unit_test(convert_scalar_functions_are_the_same_on_host_and_device),
    };
    return cmocka_run_group_tests_name("convert_gpu", tests, NULL, NULL);
}
