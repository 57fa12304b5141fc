/* cpu.h - what the processor can do, asked once per context. */
#ifndef MMLA_BASE_CPU_H
#define MMLA_BASE_CPU_H

#include <stdint.h>

/* Sets of instructions an implementation may need. One bit stands for all that its file is compiled
 * with, so a file's flags in CMakeLists.txt and its bit say the same. */
enum mmla_cpu_feature {
    MMLA_CPU_AVX2 = 1 << 0,        /* avx2, fma, f16c */
    MMLA_CPU_AVX512 = 1 << 1,      /* avx512 f, bw, dq, vl beside the above */
    MMLA_CPU_AVX512_BF16 = 1 << 2, /* avx512_bf16 beside the above */
    MMLA_CPU_NEON = 1 << 3         /* aarch64 */
};

/* The set this processor and its operating system support. */
uint32_t mmla_cpu_features(void);

/* Processors this process may run on, at least 1. */
int32_t mmla_cpu_count(void);

/* "avx2, fma or f16c" and so on: the first feature of `needed` that `have` lacks, for messages. */
const char *mmla_cpu_missing(uint32_t needed, uint32_t have);

#endif
