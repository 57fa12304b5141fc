#include "support/chain_fixture.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static_assert(CHAIN_FIXTURE_STEPS == (int)MMLA_CHAIN_QUANTISE, "every step before the last");

struct run {
    mmla_chain_plan *plan;
    test_buffer work;
};

static struct run begin(attend_fixture *f) {
    struct run r;
    f->args.error = &f->error;
    if (mmla_chain_plan_create(f->ctx, &f->desc, &r.plan, &f->error) != MMLA_OK) {
        fail_msg("%s", f->error.message);
    }
    r.work = test_buffer_create(mmla_chain_workspace_bytes(r.plan), 64);
    memset(r.work.data, 0xFF, r.work.bytes); /* NaN: nothing may rely on an old workspace */
    test_buffer *const outputs[] = {&f->out, &f->out_scale, &f->lse, &f->max_logits};
    for (int i = 0; i < 4; i++) {
        test_buffer_poison(outputs[i]);
    }
    return r;
}

static void end(const attend_fixture *f, struct run *r) {
    const test_buffer *const all[] = {&f->out, &f->out_scale, &f->lse, &f->max_logits, &r->work};
    for (int i = 0; i < 5; i++) {
        assert_true(test_buffer_is_intact(all[i]));
    }
    test_buffer_destroy(&r->work);
    mmla_chain_plan_destroy(r->plan);
}

mmla_status chain_fixture_run(attend_fixture *f) {
    struct run r = begin(f);
    const mmla_status status = mmla_chain_run(r.plan, &f->args, r.work.data, NULL);
    end(f, &r);
    return status;
}

mmla_status chain_fixture_run_steps(attend_fixture *f, uint16_t *after[CHAIN_FIXTURE_STEPS]) {
    struct run r = begin(f);
    mmla_status result = MMLA_OK;
    const size_t bytes = (size_t)(f->n_tokens * f->desc.n_heads) * MMLA_LATENT_DIM * 2;
    for (int s = 0; s < MMLA_CHAIN_STEPS; s++) {
        const mmla_chain_step step = (mmla_chain_step)s;
        const mmla_status status = mmla_chain_step_run(r.plan, step, &f->args, r.work.data, NULL);
        result = result == MMLA_OK ? status : result;
        const uint16_t *left = mmla_chain_intermediate(r.plan, step, r.work.data);
        if (s < CHAIN_FIXTURE_STEPS) {
            assert_non_null(left);
            after[s] = malloc(bytes + 1); /* one more: no token is no reason for NULL */
            memcpy(after[s], left, bytes);
        } else {
            assert_null(left);
        }
    }
    end(f, &r);
    return result;
}

void chain_fixture_free_steps(uint16_t *after[CHAIN_FIXTURE_STEPS]) {
    for (int s = 0; s < CHAIN_FIXTURE_STEPS; s++) {
        free(after[s]);
        after[s] = NULL;
    }
}

test_buffer chain_fixture_results(const attend_fixture *f) {
    const test_buffer *const parts[] = {&f->out, &f->out_scale, &f->lse, &f->max_logits};
    size_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        bytes += parts[i]->bytes;
    }
    test_buffer all = test_buffer_create(bytes, 4);
    bytes = 0;
    for (int i = 0; i < 4; i++) {
        memcpy((uint8_t *)all.data + bytes, parts[i]->data, parts[i]->bytes);
        bytes += parts[i]->bytes;
    }
    return all;
}
