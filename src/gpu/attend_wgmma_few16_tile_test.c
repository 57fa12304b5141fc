/* attend_wgmma_few16_tile_test.c - attend_wgmma_few_tile_test.inc for 16 heads. */
#define ATTEND_WGMMA_TILE_HEADS 16
#include "gpu/attend_wgmma_few_tile_test.inc"
