/* attend_wgmma_few8_kernel.cu - attend_wgmma_few_kernel.inc for 8 heads a CTA. */
#define ATTEND_WGMMA_TILE_HEADS 8
#define ATTEND_WGMMA_FEW_KERNEL attend_wgmma_few8_bf16_sm90a
#define ATTEND_WGMMA_FEW_SHAPE attend_wgmma_shape_few8
#include "gpu/attend_wgmma_few_kernel.inc"
