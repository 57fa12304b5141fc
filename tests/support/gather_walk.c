#include "support/gather_walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/implementation_walk.h"

static const mmla_kv_format formats[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

void gather_walk(uint64_t seed,
                 gather_change_fn shape,
                 gather_change_fn content,
                 gather_check_fn check) {
    for (int i = 0; i < N_FORMATS; i++) {
        gather_fixture f = gather_fixture_create(formats[i]);
        if (shape != NULL) {
            shape(&f);
        }
        gather_fixture_fill(&f, 1, seed);
        if (content != NULL) {
            content(&f);
        }
        const char *name;
        for (size_t n = 0; (name = test_implementation_anywhere(f.ctx, "kv_gather", n)) != NULL;
             n++) {
            check(&f, name);
        }
        gather_fixture_destroy(&f);
    }
}

int64_t gather_walk_slot(gather_fixture *f, int64_t r, int64_t pos) {
    const int32_t page = gather_fixture_table(f, r)[pos / GATHER_PAGE];
    return (int64_t)page * GATHER_PAGE + pos % GATHER_PAGE;
}

void gather_walk_set_lens(gather_fixture *f, int64_t r, int32_t seq, int32_t gather) {
    gather_fixture_seq_lens(f)[r] = seq;
    gather_fixture_gather_lens(f)[r] = gather;
}

void gather_walk_assert_rows(gather_fixture *f, int64_t r, int64_t first, int64_t n) {
    const int64_t offset = gather_fixture_offset(f);
    gather_fixture_assert_untouched(f, r, 0, offset);
    for (int64_t i = 0; i < n; i++) {
        gather_fixture_assert_row(f, r, offset + i, gather_walk_slot(f, r, first + i));
    }
    gather_fixture_assert_untouched(f, r, offset + n, gather_fixture_rows(f));
}

void gather_walk_various_lens(gather_fixture *f) {
    gather_walk_set_lens(f, 0, 20, 20); /* the whole table */
    gather_walk_set_lens(f, 1, 13, 6);  /* from the middle of a page */
    gather_walk_set_lens(f, 2, 11, 1);
}

void gather_walk_check_last_rows(gather_fixture *f, const char *implementation) {
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    gather_walk_assert_rows(f, 0, 0, 20);
    gather_walk_assert_rows(f, 1, 7, 6);
    gather_walk_assert_rows(f, 2, 10, 1);
}

void gather_walk_check_whole_sequences(gather_fixture *f, const char *implementation) {
    f->args.gather_lens = NULL;
    assert_int_equal(gather_fixture_run(f, implementation), MMLA_OK);
    gather_walk_assert_rows(f, 0, 0, 20);
    gather_walk_assert_rows(f, 1, 0, 13);
    gather_walk_assert_rows(f, 2, 0, 11);
}

void gather_walk_offset_20(gather_fixture *f) {
    f->desc.offset = 20;
}

void gather_walk_lens_beyond_the_room(gather_fixture *f) {
    gather_walk_set_lens(f, 0, 20, 4); /* fits exactly */
    gather_walk_set_lens(f, 1, 20, 5);
    gather_walk_set_lens(f, 2, 20, 20);
}
