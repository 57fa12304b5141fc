/* chain_cuda_test.c - the steps of the chain that go element by element, on a GPU and on the CPU from
 * the same bytes: all of theirs must be equal. Skipped where there is no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/attend_check.h"
#include "ops/chain/chain.h"
#include "support/attend_fixture.h"
#include "support/gpu_mirror.h"
#include "support/rng.h"

enum { D = MMLA_LATENT_DIM };

static uint64_t seed;

/* A call on both devices: `f` with its context of the CPU, and a copy on the GPU. */
struct pair {
    attend_fixture *f;
    mmla_context *gpu;
    mmla_chain_plan *plan; /* of the GPU */
    test_buffer work;
    int32_t n_faults;
    mmla_attend_args args; /* of the GPU */
    test_mirror mirror;
    mmla_attend_problem problem; /* of the CPU */
};

static size_t tensor_bytes(const attend_fixture *f) {
    return (size_t)(f->n_tokens * f->desc.n_heads * D) * sizeof(uint16_t);
}

/* Every bf16 there is, the common ones most often. */
static uint16_t any_bf16(test_rng *rng) {
    const uint16_t bits = (uint16_t)test_rng_below(rng, 65536);
    return test_rng_below(rng, 50) == 0 ? bits : (uint16_t)((bits & 0x81FF) | 0x3E00);
}

static void fill_bf16(void *to, size_t bytes) {
    test_rng rng = {seed};
    for (size_t i = 0; i < bytes / 2; i++) {
        ((uint16_t *)to)[i] = any_bf16(&rng);
    }
}

static void pair_open(struct pair *p, attend_fixture *f) {
    static const size_t pointers[] = {
        offsetof(mmla_attend_args, q),
        offsetof(mmla_attend_args, positions),
        offsetof(mmla_attend_args, cos_sin),
        offsetof(mmla_attend_args, sink),
        offsetof(mmla_attend_args, list),
        offsetof(mmla_attend_args, lens),
        offsetof(mmla_attend_args, window_cache),
        offsetof(mmla_attend_args, compressed_cache),
        offsetof(mmla_attend_args, compressed_list),
        offsetof(mmla_attend_args, compressed_lens),
        offsetof(mmla_attend_args, kv),
        offsetof(mmla_attend_args, out),
        offsetof(mmla_attend_args, out_scale),
        offsetof(mmla_attend_args, lse),
        offsetof(mmla_attend_args, max_logits),
        offsetof(mmla_attend_args, n_faults),
    };
    const test_buffer *const all[] = {&f->q,
                                      &f->positions,
                                      &f->cos_sin,
                                      &f->sink,
                                      &f->list,
                                      &f->lens,
                                      &f->window,
                                      &f->compressed,
                                      &f->compressed_list,
                                      &f->compressed_lens,
                                      &f->kv,
                                      &f->out,
                                      &f->out_scale,
                                      &f->lse,
                                      &f->max_logits};
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    *p = (struct pair){.f = f};
    assert_int_equal(mmla_context_create(&options, &p->gpu, NULL), MMLA_OK);
    if (mmla_chain_plan_create(p->gpu, &f->desc, &p->plan, &f->error) != MMLA_OK) {
        fail_msg("%s", f->error.message);
    }
    assert_int_equal(mmla_attend_problem_init(f->ctx, &f->desc, &p->problem, NULL), MMLA_OK);
    p->work = test_buffer_create(mmla_chain_workspace_bytes(p->plan), 64);
    assert_true(test_mirror_open(&p->mirror));
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i]->data != NULL) {
            test_mirror_add_buffer(&p->mirror, all[i]);
        }
    }
    test_mirror_add_buffer(&p->mirror, &p->work);
    test_mirror_add(&p->mirror, &p->n_faults, sizeof p->n_faults);
    p->args = f->args;
    p->args.n_faults = &p->n_faults;
    test_mirror_move(&p->mirror, &p->args, pointers, sizeof pointers / sizeof pointers[0]);
}

static void pair_close(struct pair *p) {
    test_mirror_close(&p->mirror);
    test_buffer_destroy(&p->work);
    mmla_chain_plan_destroy(p->plan);
    mmla_context_destroy(p->gpu);
}

/* Uploads everything, runs one step on the GPU, brings workspace and counter back. */
static void step_on_gpu(struct pair *p, mmla_chain_step step) {
    test_mirror_push(&p->mirror);
    void *work = test_mirror_at(&p->mirror, p->work.data);
    assert_int_equal(mmla_chain_step_run(p->plan, step, &p->args, work, p->mirror.stream), MMLA_OK);
    test_mirror_pull(&p->mirror, p->work.data);
    test_mirror_pull(&p->mirror, &p->n_faults);
    assert_true(test_buffer_is_intact(&p->work));
}

/* Rotated q on both devices. */
static void check_rope_q(struct pair *p, int32_t illegal) {
    const size_t bytes = tensor_bytes(p->f);
    uint16_t *want = malloc(bytes);
    assert_non_null(want);
    mmla_chain_rope_q(&p->problem, &p->f->args, want);
    p->n_faults = 40;
    test_buffer_poison(&p->work);
    step_on_gpu(p, MMLA_CHAIN_ROPE_Q);
    assert_memory_equal(mmla_chain_intermediate(p->plan, MMLA_CHAIN_ROPE_Q, p->work.data), want,
                        bytes);
    assert_int_equal(p->n_faults, 40 + illegal);
    free(want);
}

/* From a result of any numbers: rotated back, and cast. */
static void check_unrope_and_quantise(struct pair *p) {
    attend_fixture *f = p->f;
    const size_t bytes = tensor_bytes(f);
    uint16_t *o = mmla_chain_intermediate(p->plan, MMLA_CHAIN_UNROPE, p->work.data);
    uint16_t *want = malloc(bytes);
    uint8_t *out = malloc(f->out.bytes + 1), *out_scale = malloc(f->out_scale.bytes + 1);
    assert_true(want != NULL && out != NULL && out_scale != NULL);
    fill_bf16(o, bytes);
    memcpy(want, o, bytes);
    mmla_chain_unrope(&p->problem, &f->args, want);
    step_on_gpu(p, MMLA_CHAIN_UNROPE);
    assert_memory_equal(o, want, bytes);

    test_buffer_poison(&f->out);
    test_buffer_poison(&f->out_scale);
    mmla_chain_quantise(&p->problem, &f->args, want);
    memcpy(out, f->out.data, f->out.bytes);
    memcpy(out_scale, f->out_scale.data, f->out_scale.bytes);
    test_buffer_poison(&f->out);
    test_buffer_poison(&f->out_scale);
    step_on_gpu(p, MMLA_CHAIN_QUANTISE);
    test_mirror_pull(&p->mirror, f->out.data);
    test_mirror_pull(&p->mirror, f->out_scale.data);
    assert_true(test_buffer_is_intact(&f->out) && test_buffer_is_intact(&f->out_scale));
    assert_memory_equal(f->out.data, out, f->out.bytes);
    assert_memory_equal(f->out_scale.data, out_scale, f->out_scale.bytes);
    assert_int_equal(p->n_faults, 40 + 2); /* the steps behind the first count nothing */
    free(want);
    free(out);
    free(out_scale);
}

static void steps_on_a_gpu_give_the_bytes_of_the_cpu(void **state) {
    (void)state;
    if (mmla_gpu_count() == 0) {
        skip();
    }
    for (int i = 0; i < 12; i++) {
        attend_fixture f = attend_fixture_paged(2);
        f.n_tokens = 3 + 2 * i;
        f.desc.n_heads = i % 3 == 0 ? 8 : i % 3 == 1 ? 24 : 128;
        f.desc.out_form = (mmla_out_form)(i % 4);
        if (i >= 8) {
            f.desc.n_heads = 64;
            f.desc.q_layout = MMLA_Q_FUSED;
            f.desc.q_token_stride = 64 * D + 8;
            f.desc.out_scale_word_stride = f.desc.out_form == MMLA_OUT_FP8_PERMUTED ? 29 : 0;
        }
        attend_fixture_fill(&f, seed + (uint64_t)i);
        if (f.desc.q_token_stride != 0) {
            test_buffer_destroy(&f.q);
            f.q = test_buffer_create((size_t)(f.n_tokens * f.desc.q_token_stride) * 2, 16);
            f.args.q = f.q.data;
        }
        fill_bf16(f.q.data, f.q.bytes);
        ((int32_t *)f.positions.data)[1] = -1;
        ((int32_t *)f.positions.data)[2] = INT32_MAX;
        struct pair p;
        pair_open(&p, &f);
        check_rope_q(&p, 2);
        check_unrope_and_quantise(&p);
        pair_close(&p);
        attend_fixture_destroy(&f);
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_on_a_gpu_give_the_bytes_of_the_cpu),
    };
    return cmocka_run_group_tests_name("chain_cuda", tests, NULL, NULL);
}
