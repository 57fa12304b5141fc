/* project_portable.c - project_body.inc for any processor: two halves of a vector, so a small tile
 * in 16 registers. */
#define VEC_PORTABLE
#define PROJECT_RUN mmla_project_portable
#define PROJECT_TILE_ROWS 2
#define PROJECT_TILE_TOKENS 2
#include "ops/project/project_body.inc"
