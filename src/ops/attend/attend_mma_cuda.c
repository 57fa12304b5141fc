/* attend_mma_cuda.c - the fused call on a CUDA device, by src/gpu/attend_mma_launch_cuda.c and
 * src/gpu/attend_wgmma_launch_cuda.c. */
#include "gpu/attend_mma.h"
#include "gpu/attend_wgmma.h"

#include "ops/attend/attend.h"

size_t mmla_attend_mma_workspace_bytes(const mmla_attend_problem *p) {
    return mmla_attend_mma_workspace_bytes_get(p);
}

mmla_status mmla_attend_mma(const mmla_attend_problem *p,
                            const mmla_attend_args *args,
                            void *workspace,
                            void *stream) {
    return mmla_attend_mma_fused(p, args, true, workspace, stream);
}

size_t mmla_attend_mma_counter_workspace_bytes(const mmla_attend_problem *p) {
    return mmla_attend_mma_workspace_bytes_get(p);
}

mmla_status mmla_attend_mma_counter(const mmla_attend_problem *p,
                                    const mmla_attend_args *args,
                                    void *workspace,
                                    void *stream) {
    return mmla_attend_mma_fused(p, args, false, workspace, stream);
}

size_t mmla_attend_wgmma_workspace_bytes(const mmla_attend_problem *p) {
    (void)p;
    return 0;
}

mmla_status mmla_attend_wgmma(const mmla_attend_problem *p,
                              const mmla_attend_args *args,
                              void *workspace,
                              void *stream) {
    (void)workspace;
    return mmla_attend_wgmma_fused(p, args, stream);
}

size_t mmla_attend_hopper_workspace_bytes(const mmla_attend_problem *p) {
    return mmla_attend_mma_workspace_bytes_get(p);
}

mmla_status mmla_attend_hopper(const mmla_attend_problem *p,
                               const mmla_attend_args *args,
                               void *workspace,
                               void *stream) {
    return mmla_attend_wgmma_supports(p) ? mmla_attend_wgmma_fused(p, args, stream)
                                         : mmla_attend_mma_fused(p, args, true, workspace, stream);
}
