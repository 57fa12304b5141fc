/* Opening devices, in any build and on any machine: what there is decides what is expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <megamla/context.h>

#include "base/context.h"
#include "base/gpu_memory.h"

static bool is_said(const char *message, const char *text) {
    return strstr(message, text) != NULL;
}

/* A sentence for a person: the device, the reason, and no more than fits. */
static void assert_reason(const mmla_error *err) {
    assert_int_equal(err->status, MMLA_E_DEVICE);
    assert_memory_equal(err->argument, "device", strlen("device"));
    assert_true(is_said(err->message, ", but "));
    assert_true(strlen(err->message) < MMLA_ERROR_MESSAGE_BYTES - 1);
    assert_false(is_said(err->message, "(null)"));
}

static void no_device_is_an_error_with_the_reason(void **state) {
    (void)state;
    if (mmla_gpu_count() > 0) {
        skip();
    }
    mmla_gpu gpu, before;
    mmla_error err;
    memset(&gpu, 0x5a, sizeof gpu);
    before = gpu;
    assert_int_equal(mmla_gpu_open(0, &gpu, &err), MMLA_E_DEVICE);
    assert_reason(&err);
    assert_memory_equal(&gpu, &before, sizeof gpu);
    if (!is_said(err.message, "built without CUDA")) {
        assert_true(is_said(err.message, "driver"));
        assert_true(err.detail != 0); /* CUDA's own code */
    }
    assert_int_equal(mmla_gpu_open(0, &gpu, NULL), MMLA_E_DEVICE);
}

static void an_index_outside_is_refused(void **state) {
    (void)state;
    const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, mmla_gpu_count()};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        mmla_gpu gpu;
        mmla_error err;
        char index[16];
        assert_int_equal(mmla_gpu_open(outside[i], &gpu, &err), MMLA_E_DEVICE);
        assert_reason(&err);
        snprintf(index, sizeof index, "%d", (int)outside[i]);
        assert_true(is_said(err.message, index));
    }
}

/* Every device either opens or says why, and what opened is usable. */
static void a_device_opens_or_says_why(void **state) {
    (void)state;
    for (int32_t i = 0; i < mmla_gpu_count(); i++) {
        mmla_gpu gpu;
        mmla_error err;
        if (mmla_gpu_open(i, &gpu, &err) != MMLA_OK) {
            assert_reason(&err);
            continue;
        }
        mmla_gpu_facts facts;
        assert_int_equal(gpu.index, i);
        assert_true(gpu.code >= 80 && gpu.code <= gpu.capability);
        assert_true(gpu.capability >= 80 && gpu.n_sms > 0 && gpu.smem_bytes > 0);
        assert_string_equal(mmla_gpu_missing(MMLA_GPU_SM80, gpu.features), "");
        assert_int_equal(mmla_gpu_facts_get(&gpu, &facts, &err), MMLA_OK);
        assert_true(strlen(facts.name) > 0 && facts.memory_bytes > 0);
        assert_true(facts.driver_cuda > 0 && facts.runtime_cuda > 0);
    }
}

static void a_context_without_its_device_is_not_created(void **state) {
    (void)state;
    const mmla_context_options options = {.device = MMLA_CUDA(mmla_gpu_count())};
    for (int i = 0; i < 3; i++) {
        mmla_context *ctx = (mmla_context *)&options;
        mmla_error err;
        assert_int_equal(mmla_context_create(&options, &ctx, &err), MMLA_E_DEVICE);
        assert_null(ctx);
        assert_reason(&err);
    }
    /* The process goes on as if nothing had been asked. */
    mmla_context *cpu;
    assert_int_equal(mmla_context_create(NULL, &cpu, NULL), MMLA_OK);
    assert_true(mmla_implementation_count(cpu) > 0);
    mmla_context_destroy(cpu);
}

static void a_bad_thread_count_is_refused_on_any_device(void **state) {
    (void)state;
    const mmla_context_options options = {.device = MMLA_CUDA(0), .n_threads = -1};
    mmla_context *ctx;
    mmla_error err;
    assert_int_equal(mmla_context_create(&options, &ctx, &err), MMLA_E_VALUE);
    assert_string_equal(err.argument, "n_threads");
}

/* Threads are the CPU's: on a CUDA device the option says nothing. */
static void a_cuda_context_takes_any_thread_count(void **state) {
    (void)state;
    const int32_t n_threads[] = {0, 1, 4096};
    for (size_t i = 0; i < sizeof n_threads / sizeof n_threads[0]; i++) {
        const mmla_context_options options = {.device = MMLA_CUDA(0), .n_threads = n_threads[i]};
        mmla_context *ctx;
        mmla_error err;
        const mmla_status status = mmla_context_create(&options, &ctx, &err);
        assert_int_equal(status == MMLA_OK, ctx != NULL);
        if (status == MMLA_OK) {
            assert_int_equal(mmla_context_get_device(ctx).kind, MMLA_DEVICE_CUDA);
            mmla_context_destroy(ctx);
        } else {
            assert_reason(&err);
        }
    }
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    mmla_gpu gpu;
    if (mmla_gpu_open(0, &gpu, NULL) != MMLA_OK) {
        assert_true(strlen(mmla_gpu_missing(MMLA_GPU_SM80, 0)) > 0);
        return;
    }
    assert_string_equal(mmla_gpu_missing(0, 0), "");
    assert_string_equal(mmla_gpu_missing(MMLA_GPU_SM90A, MMLA_GPU_SM80 | MMLA_GPU_SM90A), "");
    assert_true(is_said(mmla_gpu_missing(MMLA_GPU_SM90A, MMLA_GPU_SM80), "9.0"));
    assert_true(is_said(mmla_gpu_missing(MMLA_GPU_SM80, 0), "8.0"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_device_is_an_error_with_the_reason),
        cmocka_unit_test(an_index_outside_is_refused),
        cmocka_unit_test(a_device_opens_or_says_why),
        cmocka_unit_test(a_context_without_its_device_is_not_created),
        cmocka_unit_test(a_bad_thread_count_is_refused_on_any_device),
        cmocka_unit_test(a_cuda_context_takes_any_thread_count),
        cmocka_unit_test(what_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
