#define _GNU_SOURCE /* sched_getaffinity */
#include "base/cpu.h"

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>

/* The builtin that knows the other names refuses this one with clang 14. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

uint32_t mmla_cpu_features(void) {
    uint32_t set = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) {
        set |= MMLA_CPU_AVX2;
    }
    if ((set & MMLA_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        set |= MMLA_CPU_AVX512;
    }
    if ((set & MMLA_CPU_AVX512) && __builtin_cpu_supports("avx512bf16")) {
        set |= MMLA_CPU_AVX512_BF16;
    }
#elif defined(__aarch64__)
    set |= MMLA_CPU_NEON;
#endif
    return set;
}

int32_t mmla_cpu_count(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        const int n = CPU_COUNT(&allowed);
        if (n > 0) {
            return n;
        }
    }
    const long n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than cpu_set_t holds */
    return n > 0 ? (int32_t)n : 1;
}

const char *mmla_cpu_missing(uint32_t needed, uint32_t have) {
    const uint32_t lacks = needed & ~have;
    if (lacks & MMLA_CPU_AVX2) {
        return "the processor lacks avx2, fma or f16c";
    }
    if (lacks & MMLA_CPU_AVX512) {
        return "the processor lacks avx512f, bw, dq or vl";
    }
    if (lacks & MMLA_CPU_AVX512_BF16) {
        return "the processor lacks avx512_bf16";
    }
    if (lacks & MMLA_CPU_NEON) {
        return "the processor is not aarch64";
    }
    return "";
}
