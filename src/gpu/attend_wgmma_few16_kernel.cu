/* attend_wgmma_few16_kernel.cu - attend_wgmma_few_kernel.inc for 16 heads a CTA. */
#define ATTEND_WGMMA_TILE_HEADS 16
#define ATTEND_WGMMA_FEW_KERNEL attend_wgmma_few16_bf16_sm90a
#define ATTEND_WGMMA_FEW_SHAPE attend_wgmma_shape_few16
#include "gpu/attend_wgmma_few_kernel.inc"
