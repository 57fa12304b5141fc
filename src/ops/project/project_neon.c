/* project_neon.c - project_body.inc for NEON: 8 sums of two registers each, of 32. */
#define PROJECT_RUN mmla_project_neon
#define PROJECT_TILE_ROWS 4
#define PROJECT_TILE_TOKENS 2
#include "ops/project/project_body.inc"
