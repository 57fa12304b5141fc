/* check_attend_call.h - one call of the fused operation, its results in a form to compare. */
#ifndef APP_CHECK_CHECK_ATTEND_CALL_H
#define APP_CHECK_CHECK_ATTEND_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/megamla.h>

#include "app/check/check_session.h"
#include "app/check/check_attend_case.h"

/* Results of n tokens. `bytes` are all of a token's results one behind the other, in logical order:
 * codes, scales, lse, max_logits, every NaN of the last two as one pattern. */
typedef struct check_attend_result {
    mmla_status status;
    int64_t n_tokens;
    int64_t token_bytes;
    uint8_t *bytes; /* [T, token_bytes] */
    float *out;     /* [T, H, 512] dequantised, standard order */
    float *scale;   /* [T, n_scales] scale times 448: the bound of each chunk's values */
    int64_t n_scales;
    float *lse, *max_logits; /* [T, H] */
} check_attend_result;

void check_attend_result_destroy(check_attend_result *result);

/* What of a case is to be run, and how. */
typedef struct check_attend_call {
    mmla_context *ctx;
    const char *implementation; /* NULL: the best */
    bool chain;                 /* by the unfused steps */
    int64_t first, n_tokens;    /* of the case's tokens */
    uint8_t poison;             /* what results and workspace hold before */
    bool bare;    /* without the optional results: lse and max_logits of the result are poison */
    bool corrupt; /* damage the result, to see it noticed */
    device_options staging;
} check_attend_call;

/* Plans and runs. Everything that a look at one call can find wrong (red zones, padding, an
 * unexpected status or count of faults) fails the verdict. False when the plan was refused with
 * MMLA_E_NO_IMPLEMENTATION; result is then empty. */
bool check_attend_call_run(const check_attend_call *call,
                           const check_attend_case *c,
                           check_attend_result *result,
                           check_verdict *verdict);

/* Byte offset, in a token's bytes, behind the codes and scales. */
int64_t check_attend_cast_bytes(const mmla_attend_desc *desc);

/* `staging` with the caches that are not copied whole. */
device_options check_attend_staging(const check_attend_case *c, device_options staging);

/* A plan, and its runs, of either way to the result. */
typedef struct check_attend_plan {
    mmla_attend_plan *fused;
    mmla_chain_plan *chain;
    size_t workspace_bytes;
} check_attend_plan;

mmla_status check_attend_plan_create(mmla_context *ctx,
                                     const mmla_attend_desc *desc,
                                     bool chain,
                                     check_attend_plan *plan,
                                     mmla_error *err);
mmla_status check_attend_plan_run(const check_attend_plan *plan,
                                  const mmla_attend_args *args,
                                  void *workspace,
                                  void *stream);
void check_attend_plan_destroy(check_attend_plan *plan);

/* Result buffers of a description for n tokens: also used by the suite of merge. */
typedef struct check_attend_buffers {
    check_buffer out, out_scale, lse, max_logits;
} check_attend_buffers;

check_attend_buffers
check_attend_buffers_create(const mmla_attend_desc *desc, int64_t n_tokens, uint8_t poison);
void check_attend_buffers_destroy(check_attend_buffers *buffers);

/* Fails the verdict when a red zone or a word between the scales changed. */
void check_attend_buffers_check(const check_attend_buffers *buffers,
                                const mmla_attend_desc *desc,
                                int64_t n_tokens,
                                uint8_t poison,
                                check_verdict *verdict);

/* Brings the buffers into the form above. */
check_attend_result check_attend_result_create(const check_attend_buffers *buffers,
                                               const mmla_attend_desc *desc,
                                               int64_t n_tokens);

#endif
