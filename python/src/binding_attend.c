/* binding_attend.c - attend_paged, attend_rows, merge_lse, supports. */
#include "python/src/binding_functions.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "python/src/binding_attend.h"
#include "python/src/binding_call.h"
#include "python/src/binding_places.h"

enum {
    GROUP_CHUNKS = MMLA_GROUP_DIM / MMLA_OUT_CHUNK_DIM,
    GROUP_WORDS = GROUP_CHUNKS / 4, /* four scale bytes an int32 */
    HEAD_CHUNKS = MMLA_LATENT_DIM / MMLA_OUT_CHUNK_DIM,
    HEAD_SCALES_128 = MMLA_LATENT_DIM / 128
};

PLAN_KIND(attend);

static const field_name fields_of_both[] = {
    {"n_heads", "q"},
    {"max_tokens", "q"},
    {"q_token_stride", "q"},
    {"rope_positions", "cos_sin"},
    {"out_scale_word_stride", "out_scale"},
    {"out_scale_group_stride", "out_scale"},
    {"list_width", "list"},
    {"list_stride", "list"},
    {"max_rows", "kv"},
    {"kv_row_stride", "kv"},
    {NULL, NULL},
};

static const field_name fields_of_paged[] = {
    {"n_heads", "q"},
    {"max_tokens", "q"},
    {"q_token_stride", "q"},
    {"rope_positions", "cos_sin"},
    {"out_scale_word_stride", "out_scale"},
    {"out_scale_group_stride", "out_scale"},
    {"list_width", "window_list"},
    {"list_stride", "window_list"},
    {"list", "window_list"},
    {"lens", "window_lens"},
    {"window.", "window_cache"},
    {"compressed.", "compressed_cache"},
    {"compressed_width", "compressed_list"},
    {"compressed_stride", "compressed_list"},
    {NULL, NULL},
};

/* Results of T tokens and H heads in one of the forms. */
typedef struct outputs {
    array out, out_scale;
    int64_t word_stride, group_stride; /* as a desc has them */
    int64_t max_tokens;                /* the most tokens that those strides leave room for */
} outputs;

/* Scales as planes of words [1, G, 32, tokens], for frameworks whose tensors have no strides: the same
 * memory. */
static void check_planes(call *c, const outputs *o, int64_t t, int64_t groups) {
    const array *s = &o->out_scale;
    call_dim(c, s, "out_scale", 0, 1, "as planes");
    call_dim(c, s, "out_scale", 1, groups, "groups of 8 heads");
    call_dim(c, s, "out_scale", 2, GROUP_WORDS, "words of 4 scales");
    call_dim(c, s, "out_scale", 3, (t + 3) / 4 * 4, "the tokens of q, rounded up to 4");
    call_contiguous(c, s, "out_scale", 0);
}

static void check_packed_scales(call *c, outputs *o, int64_t t, int64_t groups) {
    const array *s = &o->out_scale;
    call_dim(c, s, "out_scale", 0, t, "the tokens of q");
    call_dim(c, s, "out_scale", 1, groups, "groups of 8 heads");
    call_dim(c, s, "out_scale", 2, GROUP_WORDS, "words of 4 scales");
    if (c->failed || t == 0) {
        return;
    }
    if (t > 1 && s->strides[0] != 1) {
        call_fail(c, "out_scale",
                  "has a stride of %" PRId64 " in dimension 0, must have 1: tokens lie closely",
                  s->strides[0]);
    }
    const int64_t padded = (t + 3) / 4 * 4;
    if (s->strides[2] == padded && (groups == 1 || s->strides[1] == GROUP_WORDS * padded)) {
        return; /* the default, which serves calls of any size from one plan */
    }
    if (s->strides[2] < t) {
        call_fail(c, "out_scale",
                  "has a stride of %" PRId64 " in dimension 2, must have at least %" PRId64
                  ", the tokens of q",
                  s->strides[2], t);
    }
    o->word_stride = s->strides[2];
    o->group_stride = groups == 1 ? 0 : s->strides[1];
    o->max_tokens = o->word_stride;
}

static outputs
read_outputs(call *c, int i_out, int i_out_scale, mmla_out_form form, int64_t t, int64_t heads) {
    static const element out_kinds[] = {ELEMENT_E4M3, ELEMENT_E4M3, ELEMENT_E4M3, ELEMENT_BF16};
    static const element scale_kinds[] = {ELEMENT_I32, ELEMENT_UE8M0, ELEMENT_F32, ELEMENT_F32};
    outputs o = {.max_tokens = INT32_MAX};
    const int64_t groups = heads / MMLA_HEADS_PER_GROUP;
    const bool grouped = form == MMLA_OUT_FP8_PERMUTED;
    o.out = call_array(c, i_out, "out", out_kinds[form], 3, 3);
    call_dim(c, &o.out, "out", 0, t, "the tokens of q");
    call_dim(c, &o.out, "out", 1, grouped ? groups : heads,
             grouped ? "groups of 8 heads" : "the heads of q");
    call_dim(c, &o.out, "out", 2, grouped ? MMLA_GROUP_DIM : MMLA_LATENT_DIM,
             grouped ? "8 heads of 512" : "one head");
    call_contiguous(c, &o.out, "out", 0);
    if (form == MMLA_OUT_BF16) {
        if (!c->failed && !call_is_none(c, i_out_scale)) {
            call_fail(c, "out_scale", "was given, but a bf16 result has none: it must be None");
        }
        return o;
    }
    o.out_scale = call_array(c, i_out_scale, "out_scale", scale_kinds[form], 3, grouped ? 4 : 3);
    if (grouped && o.out_scale.ndim == 4) {
        check_planes(c, &o, t, groups);
        return o;
    }
    if (grouped) {
        check_packed_scales(c, &o, t, groups);
        return o;
    }
    call_dim(c, &o.out_scale, "out_scale", 0, t, "the tokens of q");
    call_dim(c, &o.out_scale, "out_scale", 1, heads, "the heads of q");
    call_dim(c, &o.out_scale, "out_scale", 2, form == MMLA_OUT_FP8 ? HEAD_CHUNKS : HEAD_SCALES_128,
             "scales of a head");
    call_contiguous(c, &o.out_scale, "out_scale", 0);
    return o;
}

/* Per token and head, or per head: contiguous floats that may be left out. */
static float *read_floats(call *c, int i, const char *name, int64_t t, int64_t heads) {
    array a = call_optional(c, i, name, ELEMENT_F32, t < 0 ? 1 : 2, t < 0 ? 1 : 2);
    if (t >= 0) {
        call_dim(c, &a, name, 0, t, "the tokens of q");
    }
    call_dim(c, &a, name, t < 0 ? 0 : 1, heads, "the heads of q");
    call_contiguous(c, &a, name, 0);
    return a.data;
}

/* A list and its lengths; width is 0 when there is no list. */
typedef struct entries {
    const int32_t *list, *lens;
    int32_t width;
    int64_t stride;
} entries;

static entries
read_list(call *c, int i, const char *name, int i_lens, const char *lens_name, int64_t t) {
    const array list = call_optional(c, i, name, ELEMENT_I32, 2, 2);
    const array lens = call_optional(c, i_lens, lens_name, ELEMENT_I32, 1, 1);
    call_dim(c, &list, name, 0, t, "the tokens of q");
    call_dim(c, &lens, lens_name, 0, t, "the tokens of q");
    call_contiguous(c, &list, name, 1);
    call_contiguous(c, &lens, lens_name, 0);
    if (!c->failed && list.given && list.shape[1] > INT32_MAX) {
        call_fail(c, name, "has %" PRId64 " columns, must have less than 2^31", list.shape[1]);
    }
    if (!c->failed && lens.given && !list.given) {
        call_fail(c, lens_name, "was given without %s", name);
    }
    return (entries){list.data, lens.data, (int32_t)(list.given ? list.shape[1] : 0),
                     call_row_stride(c, &list, name)};
}

/* q [T, H, 512]; its inner two dimensions lie closely, tokens may be further apart. */
static int64_t read_query(call *c, mmla_attend_desc *desc, mmla_attend_args *args) {
    const array q = call_array(c, AT_Q, "q", ELEMENT_BF16, 3, 3);
    call_dim(c, &q, "q", 2, MMLA_LATENT_DIM, "the width of a head");
    call_contiguous(c, &q, "q", 1);
    if (!c->failed && q.shape[1] > MMLA_HEADS_MAX) { /* before it becomes an int32 */
        call_fail(c, "q", "has %" PRId64 " heads, must have a multiple of 8, 8 .. %d", q.shape[1],
                  MMLA_HEADS_MAX);
    }
    desc->n_heads = (int32_t)q.shape[1];
    desc->q_token_stride = call_row_stride(c, &q, "q");
    args->q = q.data;
    args->n_tokens = q.shape[0];
    return q.shape[0];
}

void attend_read(call *c, mmla_attend_desc *desc, mmla_attend_args *args) {
    const int64_t t = read_query(c, desc, args);
    const int64_t heads = desc->n_heads;
    const array positions = call_array(c, AT_POSITIONS, "positions", ELEMENT_I32, 1, 1);
    call_dim(c, &positions, "positions", 0, t, "the tokens of q");
    call_contiguous(c, &positions, "positions", 0);
    const array cos_sin = call_array(c, AT_COS_SIN, "cos_sin", ELEMENT_F32, 2, 2);
    call_dim(c, &cos_sin, "cos_sin", 1, MMLA_ROPE_DIM, "32 cosines and 32 sines");
    call_contiguous(c, &cos_sin, "cos_sin", 0);
    args->positions = positions.data;
    args->cos_sin = cos_sin.data;
    desc->rope_positions = cos_sin.shape[0];
    args->sink = read_floats(c, AT_SINK, "sink", -1, heads);
    desc->scale = (float)call_real(c, AT_SCALE, "scale", 0.0);
    desc->q_layout = (mmla_q_layout)call_integer(c, AT_Q_LAYOUT, "q_layout", 0, MMLA_Q_FUSED);
    desc->q_norm = !call_is_none(c, AT_Q_NORM_EPS);
    desc->q_norm_eps = (float)call_real(c, AT_Q_NORM_EPS, "q_norm_eps", 0.0);
    desc->out_form = (mmla_out_form)call_integer(c, AT_OUT_FORM, "out_form", 0, MMLA_OUT_BF16);
    desc->batch_invariant = (int32_t)call_integer(c, AT_BATCH_INVARIANT, "batch_invariant", 0, 1);
    const outputs o = read_outputs(c, AT_OUT, AT_OUT_SCALE, desc->out_form, t, heads);
    args->out = o.out.data;
    args->out_scale = o.out_scale.data;
    desc->out_scale_word_stride = o.word_stride;
    desc->out_scale_group_stride = o.group_stride;
    desc->max_tokens = call_max_tokens(t, o.max_tokens);
    args->lse = read_floats(c, AT_LSE, "lse", t, heads);
    args->max_logits = read_floats(c, AT_MAX_LOGITS, "max_logits", t, heads);
    const array faults = call_optional(c, AT_N_FAULTS, "n_faults", ELEMENT_I32, 1, 1);
    call_dim(c, &faults, "n_faults", 0, 1, "a counter");
    args->n_faults = faults.data;
}

bool attend_read_caches(call *c, mmla_attend_desc *desc, mmla_attend_args *args) {
    const array window = call_array(c, AT_WINDOW_CACHE, "window_cache", ELEMENT_BYTE, 2, 4);
    desc->window =
        call_cache(c, &window, "window_cache", AT_WINDOW_FORMAT, AT_WINDOW_PAGE_TOKENS, false);
    args->window_cache = window.data;
    const array other =
        call_optional(c, AT_COMPRESSED_CACHE, "compressed_cache", ELEMENT_BYTE, 2, 4);
    desc->compressed = call_cache(c, &other, "compressed_cache", AT_COMPRESSED_FORMAT,
                                  AT_COMPRESSED_PAGE_TOKENS, false);
    args->compressed_cache = other.data;
    return other.given;
}

static void set_list(const entries *e, mmla_attend_desc *desc, mmla_attend_args *args) {
    args->list = e->list;
    args->lens = e->lens;
    desc->list_width = e->width;
    desc->list_stride = e->stride;
}

static_assert((int)AT_PAGED_END <= (int)CALL_ARGUMENTS_MAX, "a call has no room for its arguments");

int binding_attend_paged(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, AT_PAGED_END, fields_of_paged)) {
        return -1;
    }
    mmla_attend_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_attend_args args = {.error = &err};
    memset(&desc, 0, sizeof desc); /* padding too: plans are found by its bytes */
    desc.kind = MMLA_ATTEND_PAGED;
    attend_read(&c, &desc, &args);
    const entries first =
        read_list(&c, AT_WINDOW_LIST, "window_list", AT_WINDOW_LENS, "window_lens", args.n_tokens);
    set_list(&first, &desc, &args);
    const bool two = attend_read_caches(&c, &desc, &args);
    const entries second = read_list(&c, AT_COMPRESSED_LIST, "compressed_list", AT_COMPRESSED_LENS,
                                     "compressed_lens", args.n_tokens);
    args.compressed_list = second.list;
    args.compressed_lens = second.lens;
    desc.compressed_width = second.width;
    desc.compressed_stride = second.stride;
    if (!c.failed && two != !call_is_none(&c, AT_COMPRESSED_LIST)) {
        call_fail(&c, two ? "compressed_list" : "compressed_cache",
                  "is None, must be given beside the other of the two");
    }
    char memory[CALL_TEXT_BYTES];
    desc.implementation = call_implementation(&c, AT_IMPLEMENTATION, memory);
    return call_run(&c, &plan_attend, &desc, run_attend, &args, &err, AT_WORKSPACE, AT_STREAM,
                    result);
}

int binding_attend_rows(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, AT_ROWS_END, fields_of_both)) {
        return -1;
    }
    mmla_attend_desc desc;
    mmla_error err = {.status = MMLA_OK};
    mmla_attend_args args = {.error = &err};
    memset(&desc, 0, sizeof desc);
    desc.kind = MMLA_ATTEND_ROWS;
    attend_read(&c, &desc, &args);
    const entries e = read_list(&c, AT_LIST, "list", AT_LENS, "lens", args.n_tokens);
    set_list(&e, &desc, &args);
    const array kv = call_array(&c, AT_KV, "kv", ELEMENT_BF16, 2, 3);
    if (kv.ndim == 3) {
        call_dim(&c, &kv, "kv", 1, 1, "the one head that all heads share");
    }
    call_dim(&c, &kv, "kv", kv.ndim == 3 ? 2 : 1, MMLA_LATENT_DIM, "the width of a row");
    call_contiguous(&c, &kv, "kv", 1);
    args.kv = kv.data;
    args.n_rows = kv.shape[0];
    desc.max_rows = call_max_tokens(kv.shape[0], INT32_MAX);
    desc.kv_row_stride = call_row_stride(&c, &kv, "kv");
    char memory[CALL_TEXT_BYTES];
    desc.implementation = call_implementation(&c, AT_IMPLEMENTATION, memory);
    return call_run(&c, &plan_attend, &desc, run_attend, &args, &err, AT_WORKSPACE, AT_STREAM,
                    result);
}

enum {
    MERGE_OUT_A,
    MERGE_LSE_A,
    MERGE_OUT_B,
    MERGE_LSE_B,
    MERGE_SINK,
    MERGE_OUT,
    MERGE_OUT_SCALE,
    MERGE_LSE,
    MERGE_OUT_FORM,
    MERGE_STREAM,
    MERGE_END
};

static const uint16_t *read_part(call *c, int i, const char *name, int64_t t, int64_t heads) {
    const array a = call_array(c, i, name, ELEMENT_BF16, 3, 3);
    call_dim(c, &a, name, 0, t, "the tokens of out_a");
    call_dim(c, &a, name, 1, heads, "the heads of out_a");
    call_dim(c, &a, name, 2, MMLA_LATENT_DIM, "the width of a head");
    call_contiguous(c, &a, name, 0);
    return a.data;
}

int binding_merge(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    static const field_name fields[] = {{"n_heads", "out_a"},
                                        {"n_tokens", "out_a"},
                                        {"out_scale_word_stride", "out_scale"},
                                        {"out_scale_group_stride", "out_scale"},
                                        {NULL, NULL}};
    call c;
    (void)result; /* stays None */
    if (!call_init(&c, self, argv, argc, MERGE_END, fields)) {
        return -1;
    }
    const array first = call_array(&c, MERGE_OUT_A, "out_a", ELEMENT_BF16, 3, 3);
    const int64_t t = first.shape[0], heads = first.shape[1];
    if (!c.failed && heads > MMLA_HEADS_MAX) {
        call_fail(&c, "out_a", "has %" PRId64 " heads, must have a multiple of 8, 8 .. %d", heads,
                  MMLA_HEADS_MAX);
    }
    mmla_attend_merge_args args = {.n_tokens = t, .n_heads = (int32_t)heads};
    args.out_form = (mmla_out_form)call_integer(&c, MERGE_OUT_FORM, "out_form", 0, MMLA_OUT_BF16);
    args.out_a = read_part(&c, MERGE_OUT_A, "out_a", t, heads);
    args.out_b = read_part(&c, MERGE_OUT_B, "out_b", t, heads);
    const array lse_a = call_array(&c, MERGE_LSE_A, "lse_a", ELEMENT_F32, 2, 2);
    const array lse_b = call_array(&c, MERGE_LSE_B, "lse_b", ELEMENT_F32, 2, 2);
    (void)lse_a; /* given; what they must look like is the same as for lse */
    (void)lse_b;
    args.lse_a = read_floats(&c, MERGE_LSE_A, "lse_a", t, heads);
    args.lse_b = read_floats(&c, MERGE_LSE_B, "lse_b", t, heads);
    args.sink = read_floats(&c, MERGE_SINK, "sink", -1, heads);
    args.lse = read_floats(&c, MERGE_LSE, "lse", t, heads);
    const outputs o = read_outputs(&c, MERGE_OUT, MERGE_OUT_SCALE, args.out_form, t, heads);
    args.out = o.out.data;
    args.out_scale = o.out_scale.data;
    args.out_scale_word_stride = o.word_stride;
    args.out_scale_group_stride = o.group_stride;
    mmla_context *ctx = call_context(&c);
    void *stream = call_stream(&c, MERGE_STREAM);
    if (c.failed) {
        return -1;
    }
    mmla_error err = {.status = MMLA_OK};
    const mmla_status status = mmla_attend_merge(ctx, &args, stream, &err);
    return status == MMLA_OK ? 0 : call_fail_status(&c, status, &err);
}

enum {
    SUPPORTS_DEVICE,
    SUPPORTS_INDEX,
    SUPPORTS_KIND,
    SUPPORTS_HEADS,
    SUPPORTS_WINDOW,
    SUPPORTS_COMPRESSED,
    SUPPORTS_OUT_FORM,
    SUPPORTS_Q_NORM,
    SUPPORTS_IMPLEMENTATION,
    SUPPORTS_END
};

/* Gives None, or the sentence that says why not. Plans an attend call of ordinary other numbers. */
int binding_supports(void *self, const TVMFFIAny *argv, int32_t argc, TVMFFIAny *result) {
    call c;
    if (!call_init(&c, self, argv, argc, SUPPORTS_END, NULL)) {
        return -1;
    }
    c.device.kind = (mmla_device_kind)call_integer(&c, SUPPORTS_DEVICE, "device", 0, 1);
    c.device.index = (int32_t)call_integer(&c, SUPPORTS_INDEX, "device", 0, INT32_MAX);
    mmla_attend_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = (mmla_attend_kind)call_integer(&c, SUPPORTS_KIND, "kind", 0, 1);
    desc.n_heads = (int32_t)call_integer(&c, SUPPORTS_HEADS, "n_heads", INT32_MIN, INT32_MAX);
    desc.max_tokens = 1;
    desc.scale = 1.0f;
    desc.rope_positions = 1;
    desc.list_width = 1;
    desc.out_form = (mmla_out_form)call_integer(&c, SUPPORTS_OUT_FORM, "out_form", 0, 3);
    desc.q_norm = (int32_t)call_integer(&c, SUPPORTS_Q_NORM, "q_norm", 0, 1);
    desc.q_norm_eps = 1.0f;
    if (desc.kind == MMLA_ATTEND_PAGED) {
        desc.window = (mmla_cache_desc){
            .format = (mmla_kv_format)call_integer(&c, SUPPORTS_WINDOW, "window_format", 0, 5),
            .page_tokens = 64};
        desc.compressed = (mmla_cache_desc){.format = (mmla_kv_format)call_integer(
                                                &c, SUPPORTS_COMPRESSED, "compressed_format", 0, 5),
                                            .page_tokens = 64};
        desc.compressed_width = 1;
    }
    char memory[CALL_TEXT_BYTES];
    const char *name = call_text(&c, SUPPORTS_IMPLEMENTATION, "implementation", memory);
    if (c.failed) {
        return -1;
    }
    desc.implementation = name;
    mmla_context *ctx = NULL;
    mmla_error err;
    mmla_status status = state_context(c.state, c.device, &ctx, &err);
    mmla_attend_plan *plan = NULL;
    if (status == MMLA_OK) {
        status = mmla_attend_plan_create(ctx, &desc, &plan, &err);
        mmla_attend_plan_destroy(plan);
    }
    return status == MMLA_OK ? 0 : result_text(result, err.message);
}
