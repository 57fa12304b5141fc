/* binding_weights.c - weight permutations, q's layout both ways, and the output projection. */
#include "python/src/binding_functions.h"

#include <inttypes.h>
#include <string.h>

#include "python/src/binding_call.h"

PLAN_KIND(weights);
PLAN_KIND(project);

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

enum {
    PROJECT_X,
    PROJECT_X_SCALE,
    PROJECT_WEIGHT,
    PROJECT_WEIGHT_SCALE,
    PROJECT_OUT,
    PROJECT_IMPLEMENTATION,
    PROJECT_WORKSPACE,
    PROJECT_STREAM,
    PROJECT_END
};

enum { GROUP_SCALES = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM, GROUP_WORDS = GROUP_SCALES / 4 };

static bool is_words(const TVMFFIAny *value) {
    const DLTensor *t = value->type_index == kTVMFFITensor
                            ? (const DLTensor *)((const char *)value->v_ptr + sizeof(TVMFFIObject))
                            : NULL;
    return t != NULL && t->dtype.bits == 32;
}

/* Plain bytes [T, G, 128], or int32 words [T, G, 32]: as the fused call wrote them, tokens closest,
 * or contiguous, which is the plain bytes again. */
static void
read_x_scale(call *c, int64_t t, mmla_project_desc *desc, mmla_project_args *args, int64_t *limit) {
    const bool words = !c->failed && is_words(&c->args[PROJECT_X_SCALE]);
    const array s =
        call_array(c, PROJECT_X_SCALE, "x_scale", words ? ELEMENT_I32 : ELEMENT_UE8M0, 3, 3);
    call_dim(c, &s, "x_scale", 0, t, "the tokens of x");
    call_dim(c, &s, "x_scale", 1, desc->n_groups, "the groups of x");
    call_dim(c, &s, "x_scale", 2, words ? GROUP_WORDS : GROUP_SCALES,
             words ? "words of 4 scales" : "scales of a group");
    args->x_scale = s.data;
    desc->x_scale_layout = MMLA_SCALE_BYTES;
    if (c->failed || t == 0) {
        return;
    }
    const bool closely = s.strides[2] == 1 && (s.shape[1] == 1 || s.strides[1] == s.shape[2]) &&
                         (t == 1 || s.strides[0] == s.shape[1] * s.shape[2]);
    if (!words) {
        call_contiguous(c, &s, "x_scale", 0);
    } else if (!closely) {
        if (t > 1 && s.strides[0] != 1) {
            call_fail(c, "x_scale",
                      "has a stride of %" PRId64 " in dimension 0, must have 1, or be contiguous",
                      s.strides[0]);
        }
        desc->x_scale_layout = MMLA_SCALE_PACKED;
        const int64_t padded = (t + 3) / 4 * 4;
        if (s.strides[2] != padded || (s.shape[1] > 1 && s.strides[1] != GROUP_WORDS * padded)) {
            desc->x_scale_word_stride = s.strides[2];
            desc->x_scale_group_stride = s.shape[1] > 1 ? s.strides[1] : 0;
            *limit = s.strides[2];
        }
    }
}

int binding_project(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"n_groups", "x"},
                                        {"max_tokens", "x"},
                                        {"rank", "weight"},
                                        {"x_scale_word_stride", "x_scale"},
                                        {"x_scale_group_stride", "x_scale"},
                                        {"z", "out"},
                                        {NULL, NULL}};
    call c;
    if (!call_init(&c, self, argv, argc, PROJECT_END, fields)) {
        return -1;
    }
    mmla_project_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_project_args args = {.error = &err};
    memset(&desc, 0, sizeof desc);
    const array x = call_array(&c, PROJECT_X, "x", ELEMENT_E4M3, 3, 3);
    const int64_t t = x.shape[0], groups = x.shape[1];
    call_dim(&c, &x, "x", 2, MMLA_GROUP_DIM, "8 heads of 512");
    call_contiguous(&c, &x, "x", 0);
    if (!c.failed && groups > 16) { /* before it becomes an int32 */
        call_fail(&c, "x", "has %" PRId64 " groups, must have 1 .. 16", groups);
    }
    desc.n_groups = (int32_t)groups;
    int64_t limit = INT32_MAX;
    read_x_scale(&c, t, &desc, &args, &limit);
    const array weight = call_array(&c, PROJECT_WEIGHT, "weight", ELEMENT_E4M3, 3, 3);
    const int64_t rank = weight.shape[1];
    call_dim(&c, &weight, "weight", 0, groups, "the groups of x");
    call_dim(&c, &weight, "weight", 2, MMLA_GROUP_DIM, "8 heads of 512");
    call_contiguous(&c, &weight, "weight", 0);
    if (!c.failed && (rank < 1 || rank > INT32_MAX)) { /* the desc takes 0 for a default */
        call_fail(&c, "weight", "has a rank of %" PRId64 ", must have a multiple of 8", rank);
    }
    const array scale = call_array(&c, PROJECT_WEIGHT_SCALE, "weight_scale", ELEMENT_UE8M0, 3, 3);
    call_dim(&c, &scale, "weight_scale", 0, groups, "the groups of x");
    call_dim(&c, &scale, "weight_scale", 1, rank, "the rows of weight");
    call_dim(&c, &scale, "weight_scale", 2, GROUP_SCALES, "scales of a row");
    call_contiguous(&c, &scale, "weight_scale", 0);
    const array out = call_array(&c, PROJECT_OUT, "out", ELEMENT_BF16, 3, 3);
    call_dim(&c, &out, "out", 0, t, "the tokens of x");
    call_dim(&c, &out, "out", 1, groups, "the groups of x");
    call_dim(&c, &out, "out", 2, rank, "the rows of weight");
    call_contiguous(&c, &out, "out", 0);
    desc.rank = (int32_t)rank;
    desc.max_tokens = call_max_tokens(t, limit);
    args.n_tokens = t;
    args.x = x.data;
    args.weight = weight.data;
    args.weight_scale = scale.data;
    args.z = out.data;
    char memory[CALL_TEXT_BYTES];
    desc.implementation = call_implementation(&c, PROJECT_IMPLEMENTATION, memory);
    return call_run(&c, &plan_project, &desc, run_project, &args, &err, PROJECT_WORKSPACE,
                    PROJECT_STREAM, result);
}
