/* capture_golden_test.c - every sample capture, replayed by every implementation this machine has,
 * gives what tools/make_capture.py expects: the same bytes, or numbers within the tolerance. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/capture/capture.h"
#include "app/capture/capture_compare.h"

#define EXAMPLES MMLA_SOURCE_DIR "/examples/"
#define GOLDEN MMLA_SOURCE_DIR "/tests/golden/captures/"

enum { PATH_BYTES = 4096 };

/* The expected file in the shape of a finished call, which is what capture_compare takes. */
static void expected_load(const char *name, const capture_call *call, capture_call *out) {
    char path[PATH_BYTES];
    mmla_error err = {0};
    safetensors_file *file;
    snprintf(path, sizeof path, GOLDEN "%s.expected.safetensors", name);
    if (safetensors_load(path, &file, &err) != MMLA_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    assert_int_equal(safetensors_count(file), call->n_outputs);
    *out = (capture_call){.state = file, .n_outputs = call->n_outputs};
    for (int32_t i = 0; i < call->n_outputs; i++) {
        const safetensors_tensor *got = &call->outputs[i];
        const safetensors_tensor *want = safetensors_find(file, got->name);
        assert_non_null(want);
        assert_non_null(safetensors_align(file, want, 64));
        assert_int_equal(got->dtype, want->dtype);
        assert_int_equal(got->rank, want->rank);
        assert_memory_equal(got->shape, want->shape, sizeof got->shape);
        out->outputs[i] = *want;
    }
}

/* Replays with one implementation (NULL: the best) and holds every output against its expected
 * values. */
static void
replay(const char *name, const capture *c, mmla_context *ctx, const char *implementation) {
    mmla_error err = {0};
    capture_call *call, expected;
    capture_difference differences[CAPTURE_OUTPUTS_MAX];
    if (capture_call_create(c, ctx, implementation, &call, &err) != MMLA_OK ||
        capture_call_run(call, &err) != MMLA_OK) {
        fail_msg("%s with %s: %s", name, implementation ? implementation : "the best", err.message);
    }
    assert_int_equal(capture_call_finish(call, &err), MMLA_OK);
    expected_load(name, call, &expected);
    const int32_t n = capture_compare(call, &expected, differences);
    for (int32_t i = 0; i < n; i++) {
        const capture_difference *d = &differences[i];
        printf("%-26s %-12s %-10s %lld of %lld differ", name, call->implementation, d->name,
               (long long)d->n_different, (long long)d->n);
        printf(d->is_near ? ", %.3f of the tolerance\n" : "\n", check_near_used(&d->near));
        assert_true(d->is_passed);
    }
    safetensors_destroy(expected.state);
    capture_call_destroy(call);
}

static void replay_all(const char *path, const char *name) {
    mmla_error err = {0};
    mmla_context *ctx;
    capture *c;
    assert_int_equal(mmla_context_create(NULL, &ctx, &err), MMLA_OK);
    if (capture_load(path, &c, &err) != MMLA_OK) {
        fail_msg("%s: %s", path, err.message);
    }
    int n = 0;
    for (int32_t i = 0; i < mmla_implementation_count(ctx); i++) {
        mmla_implementation impl;
        assert_int_equal(mmla_implementation_get(ctx, i, &impl, &err), MMLA_OK);
        if (strcmp(impl.op, c->op->library_op) == 0 && impl.available) {
            replay(name, c, ctx, impl.name);
            n++;
        }
    }
    assert_true(n > 0);
    capture_destroy(c);
    mmla_context_destroy(ctx);
}

static void replay_of_every_small_capture_gives_the_expected_results(void **state) {
    (void)state;
    static const char suffix[] = ".safetensors";
    struct dirent **entries;
    const int n = scandir(EXAMPLES "captures", &entries, NULL, alphasort);
    int n_captures = 0;
    for (int i = 0; i < n; i++) {
        char *end = strstr(entries[i]->d_name, suffix);
        if (end != NULL) {
            char path[PATH_BYTES];
            snprintf(path, sizeof path, EXAMPLES "captures/%s", entries[i]->d_name);
            *end = '\0';
            replay_all(path, entries[i]->d_name);
            n_captures++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_int_equal(n_captures, 15);
}

static void replay_of_the_mixed_batch_gives_the_expected_results(void **state) {
    (void)state;
    replay_all(EXAMPLES "mixed_batch.safetensors", "mixed_batch");
}

static void replay_with_one_thread_gives_the_same_bits(void **state) {
    (void)state;
    mmla_error err = {0};
    capture *c;
    mmla_context *ctx[2];
    capture_call *calls[2];
    assert_int_equal(capture_load(EXAMPLES "mixed_batch.safetensors", &c, &err), MMLA_OK);
    for (int i = 0; i < 2; i++) {
        const mmla_context_options options = {.n_threads = i == 0 ? 1 : 3};
        assert_int_equal(mmla_context_create(&options, &ctx[i], &err), MMLA_OK);
        assert_int_equal(capture_call_create(c, ctx[i], NULL, &calls[i], &err), MMLA_OK);
        assert_int_equal(capture_call_run(calls[i], &err), MMLA_OK);
        assert_int_equal(capture_call_finish(calls[i], &err), MMLA_OK);
    }
    for (int32_t k = 0; k < calls[0]->n_outputs; k++) {
        assert_memory_equal(calls[0]->memory[k], calls[1]->memory[k],
                            (size_t)calls[0]->outputs[k].n_bytes);
    }
    for (int i = 0; i < 2; i++) {
        capture_call_destroy(calls[i]);
        mmla_context_destroy(ctx[i]);
    }
    capture_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay_of_every_small_capture_gives_the_expected_results),
        cmocka_unit_test(replay_of_the_mixed_batch_gives_the_expected_results),
        cmocka_unit_test(replay_with_one_thread_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
