/* project_avx512.c - project_body.inc for AVX-512: 24 sums of 32 registers. */
#define PROJECT_RUN mmla_project_avx512
#define PROJECT_TILE_ROWS 4
#define PROJECT_TILE_TOKENS 6
#include "ops/project/project_body.inc"
