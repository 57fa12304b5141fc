/* binding_weights.c - weight permutations, and q's layout both ways. */
#include "python/src/binding_functions.h"

#include <inttypes.h>
#include <string.h>

#include "python/src/binding_call.h"

PLAN_KIND(weights);

enum {
    WEIGHTS_KIND,
    WEIGHTS_N_HEADS,
    WEIGHTS_IN,
    WEIGHTS_OUT,
    WEIGHTS_SCALE_IN,
    WEIGHTS_SCALE_OUT,
    WEIGHTS_STREAM,
    WEIGHTS_END
};

/* Rows of bytes, two dimensions or a stack of them; or tokens of q, whose row is all heads. */
typedef struct matrix {
    array a;
    int64_t rows, cols;
} matrix;

static matrix read_matrix(call *c, int i, const char *name, bool of_q, bool optional) {
    const element kind = of_q ? ELEMENT_BF16 : ELEMENT_BYTE;
    const int least = of_q ? 3 : 2;
    const array a = optional ? call_optional(c, i, name, kind, least, 3)
                             : call_array(c, i, name, kind, least, 3);
    call_contiguous(c, &a, name, 0);
    if (a.ndim < 3) {
        return (matrix){a, a.shape[0], a.shape[1]};
    }
    return of_q ? (matrix){a, a.shape[0], a.shape[1] * a.shape[2]}
                : (matrix){a, a.shape[0] * a.shape[1], a.shape[2]};
}

static void
same_shape(call *c, const matrix *m, const char *name, const matrix *like, const char *like_name) {
    if (!c->failed && m->a.given && (m->rows != like->rows || m->cols != like->cols)) {
        call_fail(c, name,
                  "has %" PRId64 " rows of %" PRId64 ", must have %" PRId64 " of %" PRId64
                  " as %s has",
                  m->rows, m->cols, like->rows, like->cols, like_name);
    }
}

int binding_weights(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"n_heads", "n_heads"}, {"rows", "weight"},
                                        {"cols", "weight"},     {"scale_cols", "scale"},
                                        {"in", "weight"},       {"scale_in", "scale"},
                                        {"scale_out", "out"},   {NULL, NULL}};
    static const field_name q_fields[] = {
        {"n_heads", "q"}, {"rows", "q"}, {"in", "q"}, {NULL, NULL}};
    static const field_name expand_fields[] = {{"rows", "rows"},
                                               {"scale_cols", "scale"},
                                               {"scale_in", "scale"},
                                               {"scale_out", "out"},
                                               {NULL, NULL}};
    call c;
    if (!call_init(&c, self, argv, argc, WEIGHTS_END, fields)) {
        return -1;
    }
    mmla_weights_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_weights_args args = {.error = &err};
    memset(&desc, 0, sizeof desc); /* padding too: plans are found by its bytes */
    desc.kind =
        (mmla_weights_kind)call_integer(&c, WEIGHTS_KIND, "kind", 0, MMLA_WEIGHTS_Q_TO_STANDARD);
    desc.n_heads = (int32_t)call_integer(&c, WEIGHTS_N_HEADS, "n_heads", INT32_MIN, INT32_MAX);
    const bool of_q = desc.kind >= MMLA_WEIGHTS_Q_TO_FUSED;
    const bool expands = desc.kind == MMLA_WEIGHTS_EXPAND_SCALES;
    c.fields = of_q ? q_fields : expands ? expand_fields : fields;
    const char *name = of_q ? "q" : "weight";
    const matrix in = read_matrix(&c, WEIGHTS_IN, name, of_q, expands);
    const matrix out = read_matrix(&c, WEIGHTS_OUT, "out", of_q, expands);
    const matrix scale = read_matrix(&c, WEIGHTS_SCALE_IN, "scale", false, !expands);
    const matrix scale_out = read_matrix(&c, WEIGHTS_SCALE_OUT, "out_scale", false, !expands);
    same_shape(&c, &out, "out", &in, name);
    if (expands) {
        desc.rows = scale_out.rows;
        call_dim(&c, &scale_out.a, "out_scale", 1, scale.cols, "the columns of scale");
        if (!c.failed && scale.rows != (scale_out.rows + 31) / 32) {
            call_fail(&c, "scale",
                      "has %" PRId64 " rows, must have %" PRId64 ", one for 32 of the result",
                      scale.rows, (scale_out.rows + 31) / 32);
        }
    } else {
        desc.rows = in.rows;
        desc.cols = of_q ? 0 : in.cols;
        same_shape(&c, &scale_out, "out_scale", &scale, "scale");
        if (!c.failed && scale.a.given && scale.rows != in.rows) {
            call_fail(&c, "scale", "has %" PRId64 " rows, must have %" PRId64 ", those of weight",
                      scale.rows, in.rows);
        }
        if (!c.failed && scale.a.given != scale_out.a.given) {
            call_fail(&c, "out_scale", "and scale must be given together");
        }
        if (!c.failed && of_q && in.cols != (int64_t)desc.n_heads * MMLA_LATENT_DIM) {
            call_fail(&c, "q", "has rows of %" PRId64 ", must have %d heads of %d", in.cols,
                      desc.n_heads, MMLA_LATENT_DIM);
        }
    }
    desc.scale_cols = scale.a.given ? scale.cols : 0;
    args.in = in.a.data;
    args.out = out.a.data;
    args.scale_in = scale.a.data;
    args.scale_out = scale_out.a.data;
    return call_run(&c, &plan_weights, &desc, run_weights, &args, &err, -1, WEIGHTS_STREAM, result);
}
