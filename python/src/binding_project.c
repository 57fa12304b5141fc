/* binding_project.c - the output projection, and its weight made wide. */
#include "python/src/binding_functions.h"

#include <inttypes.h>
#include <string.h>

#include "python/src/binding_call.h"

PLAN_KIND(project);

enum {
    PROJECT_X,
    PROJECT_X_SCALE,
    PROJECT_WEIGHT,
    PROJECT_WEIGHT_SCALE,
    PROJECT_WEIGHT_WIDE,
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

typedef struct weights {
    array weight, scale;
} weights;

/* The weight at place i and its scales behind it. Sets the rank; the groups are those of x, if given. */
static weights read_weights(call *c, int i, const array *x, mmla_project_desc *desc) {
    weights w = {.weight = call_array(c, i, "weight", ELEMENT_E4M3, 3, 3)};
    const int64_t groups = x != NULL ? x->shape[1] : w.weight.shape[0], rank = w.weight.shape[1];
    const char *what = x != NULL ? "the groups of x" : "the groups of weight";
    call_dim(c, &w.weight, "weight", 0, groups, what);
    call_dim(c, &w.weight, "weight", 2, MMLA_GROUP_DIM, "8 heads of 512");
    call_contiguous(c, &w.weight, "weight", 0);
    if (!c->failed && (rank < 1 || rank > INT32_MAX)) { /* the desc takes 0 for a default */
        call_fail(c, "weight", "has a rank of %" PRId64 ", must have a multiple of 8", rank);
    }
    w.scale = call_array(c, i + 1, "weight_scale", ELEMENT_UE8M0, 3, 3);
    call_dim(c, &w.scale, "weight_scale", 0, groups, what);
    call_dim(c, &w.scale, "weight_scale", 1, rank, "the rows of weight");
    call_dim(c, &w.scale, "weight_scale", 2, GROUP_SCALES, "scales of a row");
    call_contiguous(c, &w.scale, "weight_scale", 0);
    desc->rank = (int32_t)rank;
    return w;
}

/* A run whose wide weight's bytes only the plan can judge. */
typedef struct project_job {
    call *c;
    mmla_project_args args;
    array wide;
} project_job;

/* Whether there are as many as the plan wants; says so if not. */
static bool
wide_is_enough(call *c, const char *name, const mmla_project_plan *plan, const array *wide) {
    const size_t wanted = mmla_project_wide_bytes(plan);
    const int64_t bytes = wide->shape[0];
    if ((uint64_t)bytes < wanted) {
        call_fail(c, name, "has %" PRId64 " bytes, must have %zu", bytes, wanted);
    }
    return (uint64_t)bytes >= wanted;
}

static mmla_status run_with_wide(const void *plan, void *job, void *memory, void *stream) {
    project_job *j = job;
    if (j->wide.given && !wide_is_enough(j->c, "weight_wide", plan, &j->wide)) {
        return MMLA_OK; /* it has raised */
    }
    return run_project(plan, &j->args, memory, stream);
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
    const weights w = read_weights(&c, PROJECT_WEIGHT, &x, &desc);
    const array wide = call_optional(&c, PROJECT_WEIGHT_WIDE, "weight_wide", ELEMENT_BYTE, 1, 1);
    call_contiguous(&c, &wide, "weight_wide", 0);
    const array out = call_array(&c, PROJECT_OUT, "out", ELEMENT_BF16, 3, 3);
    call_dim(&c, &out, "out", 0, t, "the tokens of x");
    call_dim(&c, &out, "out", 1, groups, "the groups of x");
    call_dim(&c, &out, "out", 2, desc.rank, "the rows of weight");
    call_contiguous(&c, &out, "out", 0);
    desc.max_tokens = call_max_tokens(t, limit);
    args.n_tokens = t;
    args.x = x.data;
    args.weight = w.weight.data;
    args.weight_scale = w.scale.data;
    args.weight_wide = wide.data;
    args.z = out.data;
    char memory[CALL_TEXT_BYTES];
    desc.implementation = call_implementation(&c, PROJECT_IMPLEMENTATION, memory);
    project_job job = {&c, args, wide};
    return call_run(&c, &plan_project, &desc, run_with_wide, &job, &err, PROJECT_WORKSPACE,
                    PROJECT_STREAM, result);
}

enum { WIDEN_WEIGHT, WIDEN_WEIGHT_SCALE, WIDEN_OUT, WIDEN_IMPLEMENTATION, WIDEN_STREAM, WIDEN_END };

typedef struct widen_job {
    call *c;
    mmla_project_widen_args args;
    array out;
    size_t missing_bytes; /* of out, when it was not given */
} widen_job;

/* Without out it only finds out its size, unless the plan has no use for it. */
static mmla_status run_widen(const void *plan, void *job, void *memory, void *stream) {
    widen_job *j = job;
    (void)memory;
    const size_t bytes = mmla_project_wide_bytes(plan);
    if (!j->out.given && bytes > 0) {
        j->missing_bytes = bytes;
        return MMLA_OK;
    }
    if (j->out.given && !wide_is_enough(j->c, "out", plan, &j->out)) {
        return MMLA_OK; /* it has raised */
    }
    return mmla_project_widen(plan, &j->args, stream);
}

/* *result is the number of bytes of out when that is None, and None otherwise. */
int binding_project_widen(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"n_groups", "weight"},
                                        {"rank", "weight"},
                                        {"plan", "weight"},
                                        {"wide", "out"},
                                        {NULL, NULL}};
    call c;
    if (!call_init(&c, self, argv, argc, WIDEN_END, fields)) {
        return -1;
    }
    mmla_project_desc desc;
    mmla_error err = {.status = MMLA_OK};
    memset(&desc, 0, sizeof desc);
    const weights w = read_weights(&c, WIDEN_WEIGHT, NULL, &desc);
    if (!c.failed && w.weight.shape[0] > 16) { /* before it becomes an int32 */
        call_fail(&c, "weight", "has %" PRId64 " groups, must have 1 .. 16", w.weight.shape[0]);
    }
    desc.n_groups = (int32_t)w.weight.shape[0];
    desc.x_scale_layout = MMLA_SCALE_BYTES;
    const array out = call_optional(&c, WIDEN_OUT, "out", ELEMENT_BYTE, 1, 1);
    call_contiguous(&c, &out, "out", 0);
    char memory[CALL_TEXT_BYTES];
    desc.implementation = call_implementation(&c, WIDEN_IMPLEMENTATION, memory);
    widen_job job = {.c = &c,
                     .args = {.weight = w.weight.data,
                              .weight_scale = w.scale.data,
                              .wide = out.data,
                              .error = &err},
                     .out = out};
    const int status =
        call_run(&c, &plan_project, &desc, run_widen, &job, &err, -1, WIDEN_STREAM, result);
    if (status == 0 && job.missing_bytes > 0) {
        result_integer(result, (int64_t)job.missing_bytes);
    }
    return status;
}
