/* project_ref.c - the definition: every term and every sum in double.
 *
 * Each term is exact in double, even at the ends of the scale range, and the sum of 4096 of them
 * is rounded to fp32 and then to bf16.
 */
#include "base/parallel.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"
#include "ops/project/project.h"

struct job {
    const mmla_project_problem *p;
    const mmla_project_args *args;
};

static double value_of(uint8_t code, uint8_t scale) {
    return (double)mmla_e4m3_to_f32(code) * (double)mmla_ue8m0_to_f32(scale);
}

/* One row of weight against every token. */
static void project_row(void *job, int64_t row, int32_t thread) {
    (void)thread;
    const mmla_project_problem *p = ((const struct job *)job)->p;
    const mmla_project_args *args = ((const struct job *)job)->args;
    const mmla_project_scale_strides strides = mmla_project_scale_strides_get(p, args);
    const int64_t n_groups = p->desc.n_groups, rank = p->desc.rank;
    const int64_t g = row / rank, n = row % rank;
    double w[MMLA_PROJECT_DIM];
    for (int k = 0; k < MMLA_PROJECT_DIM; k++) {
        w[k] = value_of(args->weight[row * MMLA_PROJECT_DIM + k],
                        args->weight_scale[row * MMLA_PROJECT_SCALES + k / MMLA_PROJECT_GROUP]);
    }
    for (int64_t t = 0; t < args->n_tokens; t++) {
        const uint8_t *x = args->x + (t * n_groups + g) * MMLA_PROJECT_DIM;
        double sum = 0.0;
        for (int k = 0; k < MMLA_PROJECT_DIM; k++) {
            const uint8_t scale = mmla_project_x_scale(args, strides, t, g, k / MMLA_PROJECT_GROUP);
            sum += value_of(x[k], scale) * w[k];
        }
        args->z[(t * n_groups + g) * rank + n] = mmla_bf16_from_f32((float)sum);
    }
}

mmla_status mmla_project_reference(const mmla_project_problem *p,
                                   const mmla_project_args *args,
                                   void *workspace,
                                   void *stream) {
    (void)workspace;
    (void)stream;
    struct job job = {p, args};
    mmla_parallel_for(p->n_threads, (int64_t)p->desc.n_groups * p->desc.rank, project_row, &job);
    return MMLA_OK;
}
