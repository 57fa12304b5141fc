/* attend_wgmma_few8_tile_test.c - attend_wgmma_few_tile_test.inc for 8 heads. */
#define ATTEND_WGMMA_TILE_HEADS 8
#include "gpu/attend_wgmma_few_tile_test.inc"
