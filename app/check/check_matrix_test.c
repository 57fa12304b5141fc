/* What the matrix of the fused call is said to contain, it contains: every width, page size, stride
 * and pair of formats, and every nasty content, in the cases of the default seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/check/check_attend_case.h"

enum { COUNTS = 64 };

/* How many cases have a property, by name. */
typedef struct tally {
    int n;
    const char *names[COUNTS];
    int64_t counts[COUNTS];
} tally;

static void count(tally *t, const char *name, bool has) {
    int i = 0;
    while (i < t->n && t->names[i] != name) {
        i++;
    }
    if (i == t->n) {
        assert_true(t->n < COUNTS);
        t->names[t->n++] = name;
    }
    t->counts[i] += has;
}

typedef struct named_value {
    const char *name;
    int64_t value;
} named_value;

static const named_value widths[] = {{"width 1", 1},
                                     {"width 63", 63},
                                     {"width 65", 65},
                                     {"width 127", 127},
                                     {"width 513", 513},
                                     {"width 2048", 2048},
                                     {0}};
static const named_value second_widths[] = {{"second width 1", 1},
                                            {"second width 63", 63},
                                            {"second width 65", 65},
                                            {"second width 127", 127},
                                            {"second width 513", 513},
                                            {"second width 2048", 2048},
                                            {0}};
static const named_value pages[] = {
    {"page 1", 1},   {"page 2", 2},     {"page 16", 16},   {"page 61", 61},
    {"page 64", 64}, {"page 128", 128}, {"page 256", 256}, {0}};
static const named_value heads[] = {{"8 heads", 8},
                                    {"16 heads", 16},
                                    {"24 heads", 24},
                                    {"64 heads", 64},
                                    {"72 heads", 72},
                                    {"128 heads", 128},
                                    {0}};
static const named_value forms[] = {{"fp8_permuted", MMLA_OUT_FP8_PERMUTED},
                                    {"fp8", MMLA_OUT_FP8},
                                    {"fp8_128", MMLA_OUT_FP8_128},
                                    {"bf16", MMLA_OUT_BF16},
                                    {0}};

static void count_value(tally *t, const named_value *values, int64_t value) {
    for (; values->name != NULL; values++) {
        count(t, values->name, value == values->value);
    }
}

static void count_shapes(tally *t, const check_attend_case *c) {
    const mmla_attend_desc *d = &c->desc;
    count_value(t, widths, d->list_width);
    count_value(t, second_widths, d->compressed_width);
    count_value(t, pages, d->window.page_tokens);
    count_value(t, heads, d->n_heads);
    count_value(t, forms, (int64_t)d->out_form);
    count(t, "rows", d->kind == MMLA_ATTEND_ROWS);
    count(t, "one cache", d->kind == MMLA_ATTEND_PAGED && d->compressed.format == MMLA_KV_NONE);
    count(t, "fp8 with fp4",
          d->window.format == MMLA_KV_V41_FP8 && d->compressed.format == MMLA_KV_V41_FP4);
    count(t, "v4 twice", d->window.format == MMLA_KV_V4 && d->compressed.format == MMLA_KV_V4);
    count(t, "a stride of a million", d->window.page_stride_bytes > 1 << 20);
    count(t, "q_norm", d->q_norm != 0);
    count(t, "strided q", d->q_token_stride > d->n_heads * MMLA_LATENT_DIM);
    count(t, "strided scales", d->out_scale_word_stride > 0);
}

static void count_lists(tally *t, const check_attend_case *c) {
    const int32_t width = c->desc.list_width;
    const int64_t n = c->args.n_tokens;
    bool zero = c->args.lens != NULL, past = false, negative = false, beyond = false, hole = false,
         twice = false, lowest = false, highest = false;
    for (int64_t token = 0; token < n; token++) {
        const int32_t length = c->args.lens != NULL ? c->args.lens[token] : width;
        const int32_t *row = c->args.list + token * c->desc.list_stride;
        zero = zero && length == 0;
        beyond = beyond || length > width;
        negative = negative || length < 0;
        for (int32_t k = 1; k < width; k++) {
            const bool is_read = k < length;
            hole = hole || (is_read && row[k - 1] < 0 && row[k] >= 0);
            twice = twice || (is_read && row[k] >= 0 && row[k] == row[k - 1]);
            past = past || (!is_read && row[k] >= 0);
            lowest = lowest || (is_read && row[k] == INT32_MIN);
            highest = highest || (is_read && row[k] == INT32_MAX);
        }
    }
    count(t, "every length zero", zero);
    count(t, "entries past the length", past);
    count(t, "a negative length", negative);
    count(t, "a length past the width", beyond);
    count(t, "no lengths", c->args.lens == NULL);
    count(t, "holes", hole);
    count(t, "repeated entries", twice);
    count(t, "entry INT32_MIN", lowest);
    count(t, "entry INT32_MAX", highest);
}

static void count_contents(tally *t, const check_attend_case *c) {
    bool plus = false, minus = false, nan = false, wild = false;
    for (int32_t h = 0; c->args.sink != NULL && h < c->desc.n_heads; h++) {
        plus = plus || c->args.sink[h] == INFINITY;
        minus = minus || c->args.sink[h] == -INFINITY;
    }
    for (int64_t token = 0; token < c->args.n_tokens; token++) {
        nan = nan || c->tokens[token] == CHECK_TOKEN_NAN;
        wild = wild || c->tokens[token] == CHECK_TOKEN_WILD;
    }
    count(t, "sink +inf", plus);
    count(t, "sink -inf", minus);
    count(t, "no sink", c->args.sink == NULL);
    count(t, "a row of NaN that is used", nan);
    count(t, "an infinity that is used", wild);
    count(t, "a position outside the table", c->n_faults > 0);
    count(t, "amplified keys", c->amplified);
}

static void the_matrix_has_what_it_promises(void **state) {
    (void)state;
    check_session s;
    tally t = {0};
    const check_options o = {.seed = 1};
    assert_int_equal(check_session_init(&s, &o, NULL), MMLA_OK);
    for (int64_t idx = 0; idx < check_suite_attend.n_full; idx++) {
        check_attend_case c = check_attend_case_create(&s, idx);
        count_shapes(&t, &c);
        count_lists(&t, &c);
        count_contents(&t, &c);
        check_attend_case_destroy(&c);
    }
    for (int i = 0; i < t.n; i++) {
        print_message("%5lld cases: %s\n", (long long)t.counts[i], t.names[i]);
        assert_true(t.counts[i] >= 3);
    }
    check_session_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_matrix_has_what_it_promises)};
    return cmocka_run_group_tests_name("check_matrix", tests, NULL, NULL);
}
