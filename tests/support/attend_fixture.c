#include "support/attend_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kv/attend_output.h"
#include "kv/record.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/ue8m0.h"
#include "support/implementation_walk.h"

enum { POSITIONS = 64, D = MMLA_LATENT_DIM };

static attend_fixture fixture(int32_t n_threads) {
    attend_fixture f = {.n_tokens = 1, .n_rows = 16};
    const mmla_context_options options = {.n_threads = n_threads};
    assert_int_equal(mmla_context_create(&options, &f.ctx, &f.error), MMLA_OK);
    f.desc = (mmla_attend_desc){
        .n_heads = 8,
        .scale = 0.04419417382f,
        .rope_positions = POSITIONS,
        .list_width = 4,
    };
    return f;
}

attend_fixture attend_fixture_rows(int32_t n_threads) {
    attend_fixture f = fixture(n_threads);
    f.desc.kind = MMLA_ATTEND_ROWS;
    return f;
}

attend_fixture attend_fixture_paged(int32_t n_threads) {
    attend_fixture f = fixture(n_threads);
    f.desc.window = (mmla_cache_desc){MMLA_KV_V41_FP8, 16, 3, 0};
    f.desc.compressed = (mmla_cache_desc){MMLA_KV_V41_FP4, 8, 5, 0};
    f.desc.compressed_width = 6;
    return f;
}

/* Random rows through the library's encoder into every slot; page padding stays poison. */
static test_buffer fill_cache(const mmla_cache_desc *desc, test_rng *rng) {
    mmla_kv_view view;
    float x[D];
    assert_int_equal(mmla_kv_view_init(desc, "cache", &view, NULL), MMLA_OK);
    test_buffer b = test_buffer_create((size_t)(desc->n_pages * view.page_stride_bytes), 16);
    for (int64_t slot = 0; slot < view.n_slots; slot++) {
        for (int i = 0; i < D; i++) {
            x[i] = mmla_bf16_round(test_rng_normal(rng));
        }
        mmla_kv_record_encode(view.format, x, 0,
                              (uint8_t *)b.data + mmla_kv_data_offset(&view, slot),
                              (uint8_t *)b.data + mmla_kv_scale_offset(&view, slot));
    }
    return b;
}

static test_buffer fill_bf16(int64_t n, test_rng *rng) {
    test_buffer b = test_buffer_create((size_t)n * sizeof(uint16_t), 16);
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)b.data)[i] = mmla_bf16_from_f32(test_rng_normal(rng));
    }
    return b;
}

static test_buffer fill_i32(int64_t n, int64_t low, int64_t below, test_rng *rng) {
    test_buffer b = test_buffer_create((size_t)n * sizeof(int32_t), 4);
    for (int64_t i = 0; i < n; i++) {
        ((int32_t *)b.data)[i] = (int32_t)(low + test_rng_below(rng, below - low));
    }
    return b;
}

static void create_outputs(attend_fixture *f) {
    const size_t rows = (size_t)(f->n_tokens * f->desc.n_heads);
    const mmla_out_scale_strides s = mmla_out_scale_strides_get(
        f->desc.out_scale_word_stride, f->desc.out_scale_group_stride, f->n_tokens);
    size_t scale_bytes = 0;
    switch (f->desc.out_form) {
    case MMLA_OUT_FP8_PERMUTED:
        scale_bytes = 4 * (size_t)(f->desc.n_heads / MMLA_HEADS_PER_GROUP * s.group);
        break;
    case MMLA_OUT_FP8:
    case MMLA_OUT_FP8_128:
        scale_bytes = rows * 16; /* 16 bytes, or four floats */
        break;
    case MMLA_OUT_BF16:
        break;
    }
    f->out = test_buffer_create(rows * D * (f->desc.out_form == MMLA_OUT_BF16 ? 2 : 1), 32);
    f->out_scale = test_buffer_create(scale_bytes, 4);
    f->lse = test_buffer_create(rows * sizeof(float), 4);
    f->max_logits = test_buffer_create(rows * sizeof(float), 4);
}

void attend_fixture_fill(attend_fixture *f, uint64_t seed) {
    test_rng rng = {seed};
    mmla_attend_desc *d = &f->desc;
    const int64_t n = f->n_tokens;
    d->max_tokens = n;
    f->q = fill_bf16(n * d->n_heads * D, &rng);
    f->positions = fill_i32(n, 0, POSITIONS, &rng);
    f->cos_sin = test_buffer_create(POSITIONS * MMLA_ROPE_DIM * sizeof(float), 4);
    mmla_rope_desc rope;
    assert_int_equal(mmla_rope_desc_for_ratio(1, &rope, NULL), MMLA_OK);
    assert_int_equal(mmla_rope_table_fill(&rope, 0, POSITIONS, f->cos_sin.data, NULL), MMLA_OK);
    f->sink = test_buffer_create((size_t)d->n_heads * sizeof(float), 4);
    for (int32_t h = 0; h < d->n_heads; h++) {
        ((float *)f->sink.data)[h] = test_rng_normal(&rng);
    }
    f->lens = fill_i32(n, d->list_width, d->list_width + 1, &rng);
    int64_t n_slots = f->n_rows;
    if (d->kind == MMLA_ATTEND_ROWS) {
        d->max_rows = f->n_rows;
        f->kv = fill_bf16(f->n_rows * D, &rng);
    } else {
        n_slots = d->window.n_pages * d->window.page_tokens;
        f->window = fill_cache(&d->window, &rng);
        if (d->compressed.format != MMLA_KV_NONE) {
            f->compressed = fill_cache(&d->compressed, &rng);
            f->compressed_list = fill_i32(n * d->compressed_width, 0,
                                          d->compressed.n_pages * d->compressed.page_tokens, &rng);
            f->compressed_lens = fill_i32(n, d->compressed_width, d->compressed_width + 1, &rng);
        }
    }
    f->list = fill_i32(n * d->list_width, 0, n_slots, &rng);
    create_outputs(f);
    f->args = (mmla_attend_args){
        .n_tokens = n,
        .q = f->q.data,
        .positions = f->positions.data,
        .cos_sin = f->cos_sin.data,
        .sink = f->sink.data,
        .list = f->list.data,
        .lens = f->lens.data,
        .window_cache = f->window.data,
        .compressed_cache = f->compressed.data,
        .compressed_list = f->compressed_list.data,
        .compressed_lens = f->compressed_lens.data,
        .kv = f->kv.data,
        .n_rows = f->n_rows,
        .out = f->out.data,
        .out_scale = d->out_form == MMLA_OUT_BF16 ? NULL : f->out_scale.data,
        .lse = f->lse.data,
        .max_logits = f->max_logits.data,
    };
}

mmla_status attend_fixture_run(attend_fixture *f, const char *implementation) {
    mmla_attend_plan *plan;
    f->desc.implementation = implementation;
    f->args.error = &f->error;
    if (mmla_attend_plan_create(f->ctx, &f->desc, &plan, &f->error) != MMLA_OK) {
        fail_msg("%s: %s", implementation, f->error.message);
    }
    test_buffer work = test_buffer_create(mmla_attend_workspace_bytes(plan), 64);
    test_buffer *const outputs[] = {&f->out, &f->out_scale, &f->lse, &f->max_logits, &work};
    for (int i = 0; i < 4; i++) {
        test_buffer_poison(outputs[i]);
    }
    const mmla_status status = mmla_attend_run(plan, &f->args, work.data, NULL);
    for (int i = 0; i < 5; i++) {
        assert_true(test_buffer_is_intact(outputs[i]));
    }
    test_buffer_destroy(&work);
    mmla_attend_plan_destroy(plan);
    return status;
}

void attend_fixture_destroy(attend_fixture *f) {
    test_buffer *const all[] = {&f->q,          &f->positions, &f->cos_sin,         &f->sink,
                                &f->list,       &f->lens,      &f->compressed_list, &f->window,
                                &f->compressed, &f->kv,        &f->compressed_lens, &f->out,
                                &f->out_scale,  &f->lse,       &f->max_logits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_buffer_destroy(all[i]);
    }
    mmla_context_destroy(f->ctx);
}

uint8_t attend_fixture_code(const attend_fixture *f, int64_t token, int32_t head, int32_t x) {
    const int64_t base = token * f->desc.n_heads * D;
    return ((const uint8_t *)f->out.data)[base + (f->desc.out_form == MMLA_OUT_FP8_PERMUTED
                                                      ? mmla_out_permuted_index(head, x)
                                                      : (int64_t)head * D + x)];
}

uint8_t attend_fixture_scale_byte(const attend_fixture *f, int64_t token, int32_t head, int32_t c) {
    const mmla_out_scale_strides s = mmla_out_scale_strides_get(
        f->desc.out_scale_word_stride, f->desc.out_scale_group_stride, f->n_tokens);
    return ((const uint8_t *)f->out_scale.data)[f->desc.out_form == MMLA_OUT_FP8_PERMUTED
                                                    ? mmla_out_scale_offset(s, token, head, c)
                                                    : (token * f->desc.n_heads + head) * 16 + c];
}

double attend_fixture_out(const attend_fixture *f, int64_t token, int32_t head, int32_t x) {
    const int64_t row = token * f->desc.n_heads + head;
    switch (f->desc.out_form) {
    case MMLA_OUT_BF16:
        return (double)mmla_bf16_to_f32(((const uint16_t *)f->out.data)[row * D + x]);
    case MMLA_OUT_FP8_128:
        return (double)mmla_e4m3_to_f32(attend_fixture_code(f, token, head, x)) *
               (double)((const float *)f->out_scale.data)[row * 4 + x / 128];
    default:
        return (double)mmla_e4m3_to_f32(attend_fixture_code(f, token, head, x)) *
               (double)mmla_ue8m0_to_f32(attend_fixture_scale_byte(f, token, head, x / 32));
    }
}

const char *attend_fixture_implementation(const attend_fixture *f, int32_t idx) {
    return test_implementation(f->ctx, "attend", (size_t)idx);
}
