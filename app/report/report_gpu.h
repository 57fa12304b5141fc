/* report_gpu.h - which GPU and which software a result is of. */
#ifndef APP_REPORT_REPORT_GPU_H
#define APP_REPORT_REPORT_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "base/gpu.h"

enum { REPORT_GPU_BYTES = 256 };

typedef struct report_gpu {
    char name[REPORT_GPU_BYTES];
    char driver[64]; /* its version; where that is not told, the newest CUDA it supports */
    char cuda[32];   /* the runtime's version, "13.0" */
} report_gpu;

/* Empty strings for what cannot be found out. */
report_gpu report_gpu_of(const mmla_gpu *gpu);

/* 13000 -> "13.0", as CUDA counts its versions. */
void report_gpu_version(int32_t version, char *out, size_t bytes);

#endif
