#include "support/project_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "num/e4m3.h"
#include "support/gpu_mirror.h"
#include "support/implementation_walk.h"
#include "support/rng.h"

enum { K = MMLA_PROJECT_DIM, SCALES = MMLA_PROJECT_SCALES };

static int64_t scale_offset(const project_fixture *f, int64_t t, int64_t g, int64_t i) {
    const mmla_project_desc *d = &f->desc;
    if (d->x_scale_layout == MMLA_SCALE_BYTES) {
        return (t * d->n_groups + g) * SCALES + i;
    }
    const int64_t word =
        d->x_scale_word_stride ? d->x_scale_word_stride : (f->args.n_tokens + 3) / 4 * 4;
    const int64_t group = d->x_scale_group_stride ? d->x_scale_group_stride : 32 * word;
    return 4 * (g * group + i / 4 * word + t) + i % 4;
}

uint8_t *project_x_scale_at(const project_fixture *f, int64_t t, int64_t g, int64_t i) {
    return (uint8_t *)f->x_scale.data + scale_offset(f, t, g, i);
}

uint8_t *project_x_at(const project_fixture *f, int64_t t, int64_t g) {
    return (uint8_t *)f->x.data + (t * f->desc.n_groups + g) * K;
}

uint8_t *project_weight_at(const project_fixture *f, int64_t g, int64_t n) {
    return (uint8_t *)f->weight.data + (g * f->rank + n) * K;
}

uint8_t *project_weight_scale_at(const project_fixture *f, int64_t g, int64_t n) {
    return (uint8_t *)f->weight_scale.data + (g * f->rank + n) * SCALES;
}

uint16_t project_z_at(const project_fixture *f, int64_t t, int64_t g, int64_t n) {
    return ((const uint16_t *)f->z.data)[(t * f->desc.n_groups + g) * f->rank + n];
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Arrays of at least so much alignment, or the least that each must have. */
static project_fixture
create(mmla_project_desc desc, int64_t n_tokens, int32_t n_threads, size_t alignment) {
    project_fixture f = {.desc = desc, .rank = desc.rank ? desc.rank : 1024};
    const mmla_context_options options = {.n_threads = n_threads};
    assert_int_equal(mmla_context_create(&options, &f.ctx, NULL), MMLA_OK);
    const size_t rows = (size_t)desc.n_groups * (size_t)f.rank;
    const size_t vectors = (size_t)n_tokens * (size_t)desc.n_groups;
    f.args.n_tokens = n_tokens;
    const int64_t last = scale_offset(&f, n_tokens - 1, desc.n_groups - 1, SCALES - 1);
    f.x = test_buffer_create(vectors * K, 16);
    f.x_scale = test_buffer_create(
        (size_t)last + 1, larger(desc.x_scale_layout == MMLA_SCALE_PACKED ? 4 : 1, alignment));
    f.weight = test_buffer_create(rows * K, 16);
    f.weight_scale = test_buffer_create(rows * SCALES, larger(1, alignment));
    f.z = test_buffer_create(vectors * (size_t)f.rank * 2, larger(2, alignment));
    memset(f.x_scale.data, 0xFF, f.x_scale.bytes);
    f.args = (mmla_project_args){.n_tokens = n_tokens,
                                 .x = f.x.data,
                                 .x_scale = f.x_scale.data,
                                 .weight = f.weight.data,
                                 .weight_scale = f.weight_scale.data,
                                 .z = f.z.data};
    return f;
}

project_fixture
project_fixture_create(mmla_project_desc desc, int64_t n_tokens, int32_t n_threads) {
    return create(desc, n_tokens, n_threads, 1);
}

project_fixture
project_fixture_create_aligned(mmla_project_desc desc, int64_t n_tokens, int32_t n_threads) {
    return create(desc, n_tokens, n_threads, 16);
}

void project_fixture_destroy(project_fixture *f) {
    test_buffer_destroy(&f->x);
    test_buffer_destroy(&f->x_scale);
    test_buffer_destroy(&f->weight);
    test_buffer_destroy(&f->weight_scale);
    test_buffer_destroy(&f->z);
    mmla_context_destroy(f->ctx);
}

static uint8_t random_code(test_rng *rng) {
    const uint8_t code = (uint8_t)test_rng_below(rng, 256);
    return (code & 0x7F) == MMLA_E4M3_NAN ? 0x7E : code;
}

void project_fixture_fill(
    project_fixture *f, uint64_t seed, int x_low, int x_high, int w_low, int w_high) {
    test_rng rng = {seed};
    for (size_t i = 0; i < f->x.bytes; i++) {
        ((uint8_t *)f->x.data)[i] = random_code(&rng);
    }
    for (size_t i = 0; i < f->weight.bytes; i++) {
        ((uint8_t *)f->weight.data)[i] = random_code(&rng);
    }
    for (size_t i = 0; i < f->weight_scale.bytes; i++) {
        ((uint8_t *)f->weight_scale.data)[i] =
            (uint8_t)(w_low + test_rng_below(&rng, w_high - w_low + 1));
    }
    for (int64_t t = 0; t < f->args.n_tokens; t++) {
        for (int64_t g = 0; g < f->desc.n_groups; g++) {
            for (int64_t i = 0; i < SCALES; i++) {
                *project_x_scale_at(f, t, g, i) =
                    (uint8_t)(x_low + test_rng_below(&rng, x_high - x_low + 1));
            }
        }
    }
}

/* The implementations of GPUs, and how many of them GPU 0 has; their runs are on copies of the arrays. */
static const char *const on_gpu[] = {"mma", "wgmma", "wgmma wide"};

const char *project_on_gpu(size_t idx) {
    return on_gpu[idx];
}

size_t project_n_on_gpu(void) {
    mmla_gpu gpu;
    if (mmla_gpu_count() == 0 || mmla_gpu_open(0, &gpu, NULL) != MMLA_OK) {
        return 0;
    }
    return gpu.features & MMLA_GPU_SM90A ? 3 : 1;
}

const char *project_implementation(const project_fixture *f, size_t idx) {
    const size_t n = project_n_on_gpu();
    return idx < n ? on_gpu[idx] : test_implementation(f->ctx, "project", idx - n);
}

static bool is_on_gpu(const char *name) {
    for (size_t i = 0; i < sizeof on_gpu / sizeof on_gpu[0]; i++) {
        if (strcmp(name, on_gpu[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool project_is_wide(const char *name) {
    return strcmp(name, on_gpu[2]) == 0;
}

/* The call's weight, wide, by the GPU's own memory. */
static void
widen_on_gpu(const mmla_project_plan *plan, mmla_project_args *args, uint8_t *wide, void *stream) {
    const mmla_project_widen_args widen = {.weight = args->weight,
                                           .weight_scale = args->weight_scale,
                                           .wide = wide,
                                           .error = args->error};
    assert_int_equal(mmla_project_widen(plan, &widen, stream), MMLA_OK);
    args->weight_wide = wide;
}

static void run_on_gpu(const project_fixture *f, const mmla_project_plan *plan, bool is_wide) {
    static const size_t pointers[] = {
        offsetof(mmla_project_args, x),      offsetof(mmla_project_args, x_scale),
        offsetof(mmla_project_args, weight), offsetof(mmla_project_args, weight_scale),
        offsetof(mmla_project_args, z),      offsetof(mmla_project_args, weight_wide)};
    test_buffer wide = test_buffer_create(is_wide ? mmla_project_wide_bytes(plan) : 0, 128);
    const test_buffer *const all[] = {&f->x, &f->x_scale, &f->weight, &f->weight_scale,
                                      &f->z, &wide};
    mmla_project_args args = f->args;
    args.weight_wide = is_wide ? wide.data : NULL;
    test_mirror m;
    assert_true(test_mirror_open(&m));
    for (int i = 0; i < 5 + is_wide; i++) {
        test_mirror_add_buffer(&m, all[i]);
    }
    test_mirror_move(&m, &args, pointers, sizeof pointers / sizeof pointers[0]);
    test_mirror_push(&m);
    if (is_wide) {
        widen_on_gpu(plan, &args, (uint8_t *)args.weight_wide, m.stream);
    }
    assert_int_equal(mmla_project_workspace_bytes(plan), 0);
    assert_int_equal(mmla_project_run(plan, &args, NULL, m.stream), MMLA_OK);
    test_mirror_pull(&m, f->z.data);
    if (is_wide) {
        test_mirror_pull(&m, wide.data);
        assert_true(test_buffer_is_intact(&wide));
    }
    test_mirror_close(&m);
    test_buffer_destroy(&wide);
}

static void run_on_cpu(const project_fixture *f, const mmla_project_plan *plan) {
    const size_t bytes = mmla_project_workspace_bytes(plan);
    assert_true(bytes <= (size_t)mmla_context_get_threads(f->ctx) << 20);
    test_buffer work = test_buffer_create(bytes, 64);
    memset(work.data, 0xFF, bytes); /* NaN: nothing may rely on what a workspace holds */
    assert_int_equal(mmla_project_run(plan, &f->args, work.data, NULL), MMLA_OK);
    assert_true(test_buffer_is_intact(&work));
    test_buffer_destroy(&work);
}

void project_fixture_run(project_fixture *f, const char *name) {
    const bool is_gpu = is_on_gpu(name);
    mmla_context *gpu = NULL;
    if (is_gpu) {
        const mmla_context_options options = {.device = MMLA_CUDA(0)};
        assert_int_equal(mmla_context_create(&options, &gpu, NULL), MMLA_OK);
    }
    f->desc.implementation = is_gpu && project_is_wide(name) ? on_gpu[1] : name;
    mmla_error err;
    mmla_project_plan *plan;
    if (mmla_project_plan_create(is_gpu ? gpu : f->ctx, &f->desc, &plan, &err) != MMLA_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(mmla_project_plan_implementation(plan), f->desc.implementation);
    test_buffer_poison(&f->z);
    if (is_gpu) {
        run_on_gpu(f, plan, project_is_wide(name));
    } else {
        run_on_cpu(f, plan);
    }
    assert_true(test_buffer_is_intact(&f->z));
    mmla_project_plan_destroy(plan);
    mmla_context_destroy(gpu);
}
