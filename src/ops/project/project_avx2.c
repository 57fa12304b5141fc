/* project_avx2.c - project_body.inc for AVX2 and FMA: 12 sums, 3 spare registers of 16. */
#define PROJECT_RUN mmla_project_avx2
#define PROJECT_TILE_ROWS 4
#define PROJECT_TILE_TOKENS 3
#include "ops/project/project_body.inc"
