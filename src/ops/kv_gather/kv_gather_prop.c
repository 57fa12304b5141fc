/* Every implementation of kv_gather gives the rows of the reference, whatever the bytes, the shapes
 * and the number of threads; and the reference's are those that kv.h says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/gather_fixture.h"
#include "support/implementation_walk.h"

static uint64_t seed;

static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* What a run left behind. */
typedef struct outcome {
    uint8_t *out;
    mmla_status status;
    int32_t n_faults;
    mmla_error error;
} outcome;

/* Runs all implementations, the reference last, so that it cannot help the others. */
static void assert_all_alike(gather_fixture *f) {
    outcome all[8];
    const char *names[8];
    size_t n = 0;
    for (; (names[n] = test_implementation_anywhere(f->ctx, "kv_gather", n)) != NULL; n++) {
        all[n].out = malloc(f->out.bytes);
        assert_non_null(all[n].out);
        all[n].status = gather_fixture_run(f, names[n]);
        all[n].n_faults = f->n_faults;
        all[n].error = f->error;
        memcpy(all[n].out, f->out.data, f->out.bytes);
    }
    assert_string_equal(names[n - 1], "reference");
    const outcome *want = &all[n - 1];
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(all[i].status, want->status);
        assert_int_equal(all[i].n_faults, want->n_faults);
        if (!test_implementation_is_cuda(names[i])) { /* which has no message */
            assert_memory_equal(&all[i].error, &want->error, sizeof want->error);
        }
        for (size_t at = 0; at < f->out.bytes; at++) {
            if (all[i].out[at] != want->out[at]) {
                fail_msg("%s, %s: byte %zu of the workspace is %02X, reference %02X", names[i],
                         mmla_kv_format_name(f->view.format), at, all[i].out[at], want->out[at]);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        free(all[i].out);
    }
}

/* The slot of a position of request r, or -1. */
static int64_t slot_of(gather_fixture *f, int64_t r, int64_t pos) {
    const int32_t page_tokens = f->desc.cache.page_tokens;
    if (pos / page_tokens >= f->desc.table_width) {
        return -1;
    }
    const int64_t page = gather_fixture_table(f, r)[pos / page_tokens];
    return page < 0 || page >= f->desc.cache.n_pages ? -1 : page * page_tokens + pos % page_tokens;
}

/* The first record that request r gathers, and in *has how many it has: a second opinion, in which a
 * window is not a number of rows but the position where it begins. */
static int64_t first_record(gather_fixture *f, int64_t r, int64_t *has) {
    const int64_t seq = gather_fixture_seq_lens(f)[r];
    const int32_t *start = gather_fixture_query_start(f) + r;
    *has = seq < 0 ? 0 : f->desc.ratio == 2 ? seq / 2 : seq;
    int64_t first = 0;
    if (f->args.gather_lens != NULL) {
        const int64_t n = gather_fixture_gather_lens(f)[r];
        first = n < 0 ? *has : *has - n;
    } else if (f->desc.window > 0) {
        const int64_t n = (int64_t)start[1] - start[0], query = n < 0 ? *has : *has - n;
        first = (query < 0 ? 0 : query) - (f->desc.window - 1);
    }
    return first < 0 ? 0 : first;
}

/* What the last run left in the workspace is what kv.h says, row by row. */
static void assert_defined(gather_fixture *f) {
    const int64_t rows = gather_fixture_rows(f), offset = gather_fixture_offset(f);
    int32_t n_faults = 0;
    for (int64_t r = 0; r < f->args.n_requests; r++) {
        int64_t has, row = offset;
        const int64_t first = first_record(f, r, &has);
        gather_fixture_assert_untouched(f, r, 0, offset);
        for (int64_t pos = first; pos < has && row < rows; pos++) {
            gather_fixture_assert_row(f, r, row++, slot_of(f, r, pos));
        }
        gather_fixture_assert_untouched(f, r, row, rows);
        n_faults += has - first > rows - offset;
    }
    assert_int_equal(f->n_faults, n_faults);
}

static void fill_cache_with_anything(gather_fixture *f, test_rng *rng) {
    uint8_t *bytes = f->cache.data;
    for (size_t i = 0; i < f->cache.bytes; i++) {
        bytes[i] = (uint8_t)test_rng_next(rng);
    }
}

static void add_nasty_indices(gather_fixture *f, test_rng *rng) {
    static const int32_t pages[] = {-1, INT32_MIN, INT32_MAX, 114514, 0, -64};
    static const int32_t lens[] = {-1, INT32_MIN, INT32_MAX, 0, 1, 1000000};
    for (int64_t r = 0; r < f->args.n_requests; r++) {
        for (int32_t i = 0; i < f->desc.table_width; i++) {
            if (test_rng_below(rng, 5) == 0) {
                gather_fixture_table(f, r)[i] = pages[test_rng_below(rng, 6)];
            }
        }
        if (test_rng_below(rng, 4) == 0) {
            gather_fixture_seq_lens(f)[r] = lens[test_rng_below(rng, 6)];
        }
        if (test_rng_below(rng, 4) == 0) {
            gather_fixture_gather_lens(f)[r] = lens[test_rng_below(rng, 6)];
        }
        if (test_rng_below(rng, 6) == 0) {
            gather_fixture_query_start(f)[r] = lens[test_rng_below(rng, 6)];
        }
    }
}

/* Records of one token or two, all of them, the last ones or those of a window, with the description's
 * rows or the call's. */
static void draw_options(gather_fixture *f, test_rng *rng) {
    static const int32_t windows[] = {1, 2, 5, 20, 128, INT32_MAX};
    f->desc.ratio = (int32_t)test_rng_below(rng, 3);
    if (f->desc.ratio != 2 && test_rng_below(rng, 4) != 0) {
        f->desc.window = windows[test_rng_below(rng, 6)];
    }
    f->desc.rows = 40;
    f->desc.offset = test_rng_below(rng, 41);
    if (test_rng_below(rng, 2) == 0) {
        f->args.rows = 1 + test_rng_below(rng, 60);
        f->args.offset = test_rng_below(rng, f->args.rows + 1);
    }
}

static void gather_all_implementations_agree_over_the_matrix(void **state) {
    (void)state;
    static const int32_t page_tokens[] = {1, 2, 61, 64}, n_threads[] = {1, 2, 3, 8};
    test_rng rng = {seed};
    for (int format = 0; format < N_FORMATS; format++) {
        for (int page = 0; page < 4; page++) {
            for (int threads = 0; threads < 4; threads++) {
                gather_fixture f = gather_fixture_create(formats[format]);
                f.desc.cache.page_tokens = page_tokens[page];
                f.desc.cache.n_pages = 1 + 100 / page_tokens[page];
                f.desc.max_requests = f.args.n_requests = 9;
                f.desc.table_width = 1 + 60 / page_tokens[page];
                f.desc.table_stride = f.desc.table_width + test_rng_below(&rng, 3);
                draw_options(&f, &rng);
                f.desc.row_stride = MMLA_LATENT_DIM + 8 * test_rng_below(&rng, 3);
                gather_fixture_fill(&f, n_threads[threads], test_rng_next(&rng));
                fill_cache_with_anything(&f, &rng);
                add_nasty_indices(&f, &rng);
                if (test_rng_below(&rng, 2) == 0) {
                    f.args.gather_lens = NULL;
                }
                assert_all_alike(&f);
                assert_defined(&f);
                gather_fixture_destroy(&f);
            }
        }
    }
}

/* One request over the whole cache, in order. */
static gather_fixture whole_cache(mmla_kv_format format, int64_t n_slots) {
    gather_fixture f = gather_fixture_create(format);
    f.desc.cache.page_tokens = (int32_t)n_slots;
    f.desc.cache.n_pages = 1;
    f.desc.max_requests = f.args.n_requests = 1;
    f.desc.table_width = 1;
    f.desc.rows = n_slots;
    f.desc.offset = 0;
    gather_fixture_fill(&f, 1, seed);
    gather_fixture_seq_lens(&f)[0] = (int32_t)n_slots;
    f.args.gather_lens = NULL;
    return f;
}

static void gather_all_implementations_agree_on_every_code_under_every_scale(void **state) {
    (void)state;
    for (int format = 0; format < N_FORMATS; format++) {
        gather_fixture f = whole_cache(formats[format], 256); /* slot s has scale byte s */
        for (int64_t slot = 0; slot < 256; slot++) {
            memset(gather_fixture_scale(&f, slot), (int)slot, (size_t)f.view.scale_bytes);
            for (int i = 0; i < f.view.data_bytes; i++) {
                gather_fixture_data(&f, slot)[i] = (uint8_t)i;
            }
        }
        assert_all_alike(&f);
        gather_fixture_destroy(&f);
    }
}

static void gather_every_scale_has_its_own_place(void **state) {
    (void)state;
    test_rng rng = {seed};
    for (int format = 0; format < N_FORMATS; format++) {
        gather_fixture f = whole_cache(formats[format], 64);
        for (int64_t slot = 0; slot < 64; slot++) { /* equal codes, so only scales tell */
            memset(gather_fixture_data(&f, slot), 0x22, (size_t)f.view.data_bytes);
            for (int i = 0; i < f.view.scale_bytes; i++) {
                gather_fixture_scale(&f, slot)[i] = (uint8_t)(96 + test_rng_below(&rng, 31));
            }
        }
        assert_all_alike(&f);
        gather_fixture_destroy(&f);
    }
}

static void gather_v4_copies_every_bf16_code_of_the_rope_part(void **state) {
    (void)state;
    gather_fixture f = whole_cache(MMLA_KV_V4, 1024);
    for (uint32_t code = 0; code < 65536; code++) {
        const uint16_t half = (uint16_t)code;
        memcpy(gather_fixture_data(&f, code / MMLA_ROPE_DIM) + MMLA_KV_V4_FP8_DIMS +
                   2 * (code % MMLA_ROPE_DIM),
               &half, sizeof half);
    }
    const char *name;
    for (size_t n = 0; (name = test_implementation_anywhere(f.ctx, "kv_gather", n)) != NULL; n++) {
        assert_int_equal(gather_fixture_run(&f, name), MMLA_OK);
        for (uint32_t code = 0; code < 65536; code++) {
            const uint16_t *row = gather_fixture_out(&f, 0, code / MMLA_ROPE_DIM);
            assert_int_equal(row[MMLA_KV_V4_FP8_DIMS + code % MMLA_ROPE_DIM], code);
        }
    }
    gather_fixture_destroy(&f);
}

static void gather_alone_or_in_a_batch_gives_the_same_rows(void **state) {
    (void)state;
    for (int format = 0; format < N_FORMATS; format++) {
        gather_fixture f = gather_fixture_create(formats[format]);
        gather_fixture_fill(&f, 3, seed);
        assert_int_equal(gather_fixture_run(&f, "portable"), MMLA_OK);
        uint8_t *batch = malloc(f.out.bytes);
        assert_non_null(batch);
        memcpy(batch, f.out.data, f.out.bytes);
        const mmla_kv_gather_args args = f.args;
        const size_t bytes = f.out.bytes / 3;
        for (int64_t r = 0; r < 3; r++) {
            f.args = args;
            f.args.n_requests = 1;
            f.args.block_table = gather_fixture_table(&f, r);
            f.args.seq_lens += r;
            f.args.gather_lens += r;
            assert_int_equal(gather_fixture_run(&f, "portable"), MMLA_OK);
            assert_memory_equal(f.out.data, batch + (size_t)r * bytes, bytes);
        }
        free(batch);
        gather_fixture_destroy(&f);
    }
}

/* Long, short and empty requests, and some that do not fit. */
static void gather_all_implementations_agree_on_thousands_of_requests(void **state) {
    (void)state;
    test_rng rng = {seed};
    for (int format = 0; format < N_FORMATS; format++) {
        gather_fixture f = gather_fixture_create(formats[format]);
        f.desc.cache.n_pages = 100;
        f.desc.max_requests = f.args.n_requests = 1300;
        f.desc.rows = 16;
        gather_fixture_fill(&f, 2, test_rng_next(&rng));
        for (int64_t r = 0; r < f.args.n_requests; r++) {
            const int64_t n = test_rng_below(&rng, 2) == 0 ? 0 : test_rng_below(&rng, 16);
            gather_fixture_seq_lens(&f)[r] = (int32_t)(n + test_rng_below(&rng, 6));
            gather_fixture_gather_lens(&f)[r] = (int32_t)n;
        }
        assert_all_alike(&f);
        gather_fixture_destroy(&f);
    }
}

static void gather_more_than_65535_requests(void **state) {
    (void)state;
    enum { N = 66000 };
    gather_fixture f = gather_fixture_create(MMLA_KV_V41_FP4);
    f.desc.max_requests = f.args.n_requests = N;
    f.desc.rows = 1;
    f.desc.offset = 0;
    gather_fixture_fill(&f, 2, seed);
    const char *name;
    for (size_t i = 0; (name = test_implementation_anywhere(f.ctx, "kv_gather", i)) != NULL; i++) {
        assert_int_equal(gather_fixture_run(&f, name), MMLA_OK);
        for (int64_t r = N - 100; r < N; r++) {
            const int64_t n = gather_fixture_gather_lens(&f)[r];
            const int64_t pos = gather_fixture_seq_lens(&f)[r] - n;
            if (n > 0) {
                gather_fixture_assert_row(
                    &f, r, 0, (int64_t)gather_fixture_table(&f, r)[pos / 5] * 5 + pos % 5);
            } else {
                gather_fixture_assert_untouched(&f, r, 0, 1);
            }
        }
    }
    gather_fixture_destroy(&f);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_all_implementations_agree_over_the_matrix),
        cmocka_unit_test(gather_all_implementations_agree_on_every_code_under_every_scale),
        cmocka_unit_test(gather_every_scale_has_its_own_place),
        cmocka_unit_test(gather_v4_copies_every_bf16_code_of_the_rope_part),
        cmocka_unit_test(gather_alone_or_in_a_batch_gives_the_same_rows),
        cmocka_unit_test(gather_all_implementations_agree_on_thousands_of_requests),
        cmocka_unit_test(gather_more_than_65535_requests),
    };
    return cmocka_run_group_tests_name("kv_gather_prop", tests, NULL, NULL);
}
