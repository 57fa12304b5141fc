/* project_wide_store.cuh - results to z but those of odd rows and tokens, in the kernels with a wide weight. */
#ifndef MMLA_OPS_PROJECT_WIDE_STORE_CUH
#define MMLA_OPS_PROJECT_WIDE_STORE_CUH

#include "ops/project/project_wgmma.cuh"

/* Eight results of a token to z, at once where it allows that; some_odd: but those of rows with a mark, or of a token
 * with one. */
PROJECT_DEVICE void project_wide_eight_store(const mmla_project_params *p,
                                             uint16_t *z,
                                             const int32_t *row_marks,
                                             int32_t token_mark,
                                             bool some_odd,
                                             uint4 eight) {
    if (p->z_in_chunks && !some_odd) {
        *(uint4 *)z = eight;
        return;
    }
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int32_t i = 0; i < 8; i++) {
        if ((row_marks[i] | token_mark) == 0) {
            z[i] = (uint16_t)(words[i / 2] >> 16 * (i % 2));
        }
    }
}

#endif
