/* The arithmetic that kv_insert's kernels share with the host: shares of rows, claims, e2m1 codes by
 * shifts and without a division. With a GPU, claims in tables of any contents, too. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/convert_bits.h"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/ue8m0.h"
#include "ops/kv_insert/kv_insert_cuda.h"
#include "support/gpu_mirror.h"
#include "support/insert_fixture.h"
#include "support/rng.h"

static uint64_t seed;

static void insert_warps_cover_every_row_once(void **state) {
    (void)state;
    static const int64_t n[] = {1, 2, 31, 256, 4224, 4225, 5000, 65536, 1 << 20, INT32_MAX};
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        for (int64_t n_warps = 24; n_warps <= 8192; n_warps += 1021) {
            for (int32_t at_once = 1; at_once <= 4; at_once += 3) {
                const int32_t warp_rows = kv_insert_warp_rows(n[i], n_warps, at_once);
                assert_in_range(warp_rows, 1, KV_INSERT_WARP);
                assert_true(warp_rows == 1 || warp_rows % at_once == 0);
                const int64_t blocks = kv_insert_n_blocks(n[i], warp_rows);
                const int64_t block_rows = (int64_t)warp_rows * KV_INSERT_WARPS;
                assert_true(blocks * block_rows >= n[i] && (blocks - 1) * block_rows < n[i]);
            }
        }
    }
    assert_int_equal(kv_insert_warp_rows(256, 4224, 1), 1); /* a decode step: a warp a row */
    assert_int_equal(kv_insert_warp_rows(4224, 4224, 4), 1);
    assert_int_equal(kv_insert_warp_rows(4225, 4224, 1), 2);
}

/* A call's rows in host memory, and the rows that have places of a table. */
enum { N_ROWS = 4096 };
static int64_t slots[N_ROWS], positions[N_ROWS];
static uint32_t claims[KV_INSERT_ROW_CLAIMS * N_ROWS];

static kv_insert_params params_of(int64_t n, int64_t n_slots) {
    kv_insert_params p = {
        .problem = {.desc = {.ratio = 1, .rope_positions = 100}, .cache = {.n_slots = n_slots}},
        .args = {.n_slots = n, .slots = slots, .positions = positions}};
    p.n_claims = kv_insert_n_claims(&p.problem, n);
    memset(positions, 0, sizeof positions);
    return p;
}

static void insert_claim_search_stays_in_the_table(void **state) {
    (void)state;
    static const uint32_t n_claims[] = {4, 7, 5000, 1u << 22, UINT32_MAX};
    test_rng rng = {seed};
    for (int i = 0; i < 5; i++) {
        const uint32_t n = n_claims[i];
        for (int j = 0; j < 10000; j++) {
            const int64_t slot = test_rng_below(&rng, INT32_MAX);
            const uint32_t first = kv_insert_claim_first(slot, n);
            assert_true(first < n);
            uint32_t at = first;
            for (uint32_t steps = 0; steps < 5 && steps < n; steps++) {
                assert_int_equal(kv_insert_claim_steps(first, at, n), steps);
                at = kv_insert_claim_next(at, n);
            }
        }
        assert_int_equal(kv_insert_claim_next(n - 1, n), 0);
        assert_int_equal(kv_insert_claim_next(0, n), 1);
    }
}

static void insert_table_has_four_places_a_row_or_slot(void **state) {
    (void)state;
    mmla_kv_insert_problem p = {.cache = {.n_slots = 1000}};
    assert_int_equal(kv_insert_n_claims(&p, 400), 1600);
    assert_int_equal(kv_insert_n_claims(&p, 4000), 4000);
    p.cache.n_slots = 0;
    assert_int_equal(kv_insert_n_claims(&p, 4000), 0);
    p.cache.n_slots = 1;
    assert_int_equal(kv_insert_n_claims(&p, 4000), 4);
    p.cache.n_slots = INT32_MAX; /* as many as 32 bits can number, and twice the slots */
    assert_true(kv_insert_n_claims(&p, INT32_MAX) == UINT32_MAX);
    assert_true(kv_insert_n_claims(&p, INT32_MAX) / 2 >= INT32_MAX);
    assert_true(kv_insert_n_claims(&p, 1 << 30) == UINT32_MAX);
    assert_true(kv_insert_n_claims(&p, (1 << 30) - 1) == UINT32_MAX - 3);
}

/* What a table may hold before: numbers of no row, of rows that are not written, of rows whose search
 * does not come by. */
static void insert_only_rows_that_come_by_have_a_claim(void **state) {
    (void)state;
    const int64_t n = 1000;
    kv_insert_params p = params_of(n, 100000);
    for (int64_t t = 0; t < n; t++) {
        slots[t] = 7 * t;
    }
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t first = kv_insert_claim_first(slots[t], p.n_claims);
        uint32_t at = first;
        for (uint32_t steps = 0; steps < 2 * KV_INSERT_PROBES; steps++) {
            assert_int_equal(kv_insert_claim_slot(&p, t, at),
                             steps < KV_INSERT_PROBES ? slots[t] : -1);
            at = kv_insert_claim_next(at, p.n_claims);
        }
    }
    const uint32_t at = kv_insert_claim_first(slots[3], p.n_claims);
    assert_int_equal(kv_insert_claim_slot(&p, 3, at), 21);
    positions[3] = 100; /* refused */
    assert_int_equal(kv_insert_claim_slot(&p, 3, at), -1);
    positions[3] = 0;
    slots[3] = -1;
    assert_int_equal(kv_insert_claim_slot(&p, 3, at), -1);
    slots[3] = 100000;
    assert_int_equal(kv_insert_claim_slot(&p, 3, at), -1);
    slots[n] = 21; /* past the last row */
    static const uint32_t nobody[] = {1000, 1001, INT32_MAX, 1u << 31, UINT32_MAX};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kv_insert_claim_slot(&p, nobody[i], at), -1);
    }
}

/* Slots as decode and prefill name them: every search must end soon. */
static void insert_claims_of_regular_slots_are_found_soon(void **state) {
    (void)state;
    static const int64_t strides[] = {1, 2, 61, 64, 256, 4096, 65536, 130048};
    for (int i = 0; i < 8; i++) {
        kv_insert_params p = params_of(N_ROWS, INT32_MAX);
        int64_t steps = 0;
        memset(claims, 0xFF, sizeof claims);
        for (uint32_t row = 0; row < N_ROWS; row++) {
            slots[row] = row * strides[i];
            uint32_t at = kv_insert_claim_first(slots[row], p.n_claims), own = 0;
            for (; kv_insert_claim_slot(&p, claims[at], at) >= 0; own++) {
                at = kv_insert_claim_next(at, p.n_claims);
            }
            assert_true(own < KV_INSERT_PROBES);
            claims[at] = row;
            steps += own;
        }
        assert_in_range(steps, 0, N_ROWS);
    }
}

/* a, at most 2^15, to the nearest fp16, ties to even: a sum with a power of two whose last bit
 * is fp16's. */
static uint32_t f16_from_f32(float a) {
    if (a < 0x1p-14f) { /* subnormals are multiples of 2^-24, and 2^-14 is 1024 of them */
        return (uint32_t)(((a + 0x1p-1f) - 0x1p-1f) * 0x1p24f);
    }
    int exponent;
    frexpf(a, &exponent); /* a is below 2^exponent and has eleven bits */
    const float magic = ldexpf(1.0f, exponent - 11 + 23);
    return (mmla_bits_of_f32((a + magic) - magic) >> 13) - (112u << 10);
}

/* Codes of eight numbers, as e2m1_codes has them: true when all went the short way. */
static bool codes_of_products(const float x[8], float factor, uint32_t *eight) {
    uint32_t seen = 0, rounded[4];
    for (int j = 0; j < 4; j++) {
        uint32_t halves = 0;
        for (int k = 0; k < 2; k++) {
            const float y = x[j + 4 * k] * factor;
            const uint32_t sign = mmla_bits_of_f32(y) >> 16 & 0x8000u;
            const float most = 0x1p15f; /* of fp16, far beyond e2m1 */
            const uint32_t half =
                isnan(y) ? 0x7FFF : sign | f16_from_f32(fabsf(y) < most ? fabsf(y) : most);
            halves |= half << 16 * k;
        }
        rounded[j] = kv_insert_e2m1_round(halves);
        seen |= halves | rounded[j];
    }
    *eight = kv_insert_e2m1_join(rounded[0], rounded[2], rounded[1], rounded[3]);
    return (seen & KV_INSERT_E2M1_BEYOND) == 0;
}

/* Every value beside others, against one code after the other. */
static void check_codes(float factor, float divisor) {
    uint32_t short_ways = 0;
    for (uint32_t code = 0; code < 65536; code += 8) {
        float x[8];
        uint32_t eight, want = 0;
        bool is_within = true;
        for (uint32_t i = 0; i < 8; i++) { /* signs differ */
            x[i] = mmla_bf16_to_f32((uint16_t)((code + i) ^ (i % 3 == 0 ? 0x8000 : 0)));
            want |= (uint32_t)mmla_e2m1_from_f32(x[i] / divisor) << 4 * i;
            is_within &= fabsf(x[i] / divisor) < 7.0f;
        }
        const bool is_short = codes_of_products(x, factor, &eight);
        if (is_short != is_within || (is_short && eight != want)) {
            fail_msg("%08X, not %08X, of %a and on, by %a", eight, want, (double)x[0],
                     (double)divisor);
        }
        short_ways += is_short;
    }
    assert_true(short_ways > 100);
}

/* Under every scale, by factors as a division in hardware may have them: wrong by two units of the
 * last place, by ten here. */
static void e2m1_by_product_is_by_division_for_every_value_and_scale(void **state) {
    (void)state;
    for (int scale = 1; scale <= MMLA_E4M3_MAX_CODE; scale++) {
        const float divisor = mmla_e4m3_to_f32((uint8_t)scale);
        const uint32_t factor = mmla_bits_of_f32(kv_insert_e2m1_factor(divisor));
        for (int off = -10; off <= 10; off += 5) {
            check_codes(mmla_f32_of_bits(factor + (uint32_t)off), divisor);
        }
    }
}

static void e2m1_by_product_is_exact_for_every_power_of_two(void **state) {
    (void)state;
    for (int exponent = -120; exponent < 120; exponent += 3) {
        const float divisor = ldexpf(1.0f, exponent);
        check_codes(ldexpf(1.0f, -exponent - 14), divisor);
    }
}

/* Numbers of 7 and more, NaN, and infinities go the slow way, wherever they stand; none below does. */
static void e2m1_beyond_is_seen_at_every_place(void **state) {
    (void)state;
    static const float beyond[] = {7.0f, -7.0f, 8.0f, 100.0f, -3e38f, INFINITY, -INFINITY, NAN};
    for (int place = 0; place < 8; place++) {
        float x[8] = {0.5f, -1.0f, 6.0f, -6.0f, 0.0f, -0.0f, 6.97f, -6.97f};
        uint32_t eight;
        assert_true(codes_of_products(x, 0x1p-14f, &eight));
        for (int i = 0; i < 8; i++) {
            x[place] = beyond[i];
            assert_false(codes_of_products(x, 0x1p-14f, &eight));
        }
    }
}

static void e2m1_scale_by_product_is_by_division_for_every_maximum(void **state) {
    (void)state;
    for (uint32_t code = 0; code <= 0x7F80; code++) {
        const float amax = mmla_bf16_to_f32((uint16_t)code);
        assert_int_equal(mmla_e4m3_from_f32(kv_insert_e2m1_raw_scale(amax)),
                         mmla_quant_e2m1_scale(amax));
    }
}

static void ue8m0_inverse_is_that_of_the_definition(void **state) {
    (void)state;
    for (uint32_t byte = 1; byte < 256; byte++) {
        assert_true(kv_insert_ue8m0_inverse(byte) == mmla_ue8m0_inverse((uint8_t)byte));
    }
}

/* What a table may hold before a call of n rows with these slots. */
enum {
    TABLE_ZEROS,
    TABLE_ROWS, /* of this call, as far as its number tells */
    TABLE_NUMBERS,
    TABLE_LAST_ROW,
    TABLE_CROWDED,
    TABLE_LEFT,
    TABLE_AGAIN, /* left by a call of the same number */
    TABLES
};

static void fill_table(int kind,
                       kv_insert_table *table,
                       uint32_t n_claims,
                       const int64_t *of,
                       int64_t n,
                       test_rng *rng) {
    if (kind == TABLE_LEFT || kind == TABLE_AGAIN) {
        table->call -= kind == TABLE_AGAIN;
        return;
    }
    table->call = table->next = (uint32_t)test_rng_next(rng) * (kind != TABLE_ZEROS);
    const uint32_t call = table->call;
    table->loser = kv_insert_claim_of(call, (uint32_t)test_rng_below(rng, n));
    for (uint32_t i = 0; i < n_claims; i++) {
        const uint32_t row = (uint32_t)(kind == TABLE_LAST_ROW ? n - 1 : test_rng_below(rng, n));
        table->claims[i] = kind == TABLE_ZEROS ? 0
                           : kind == TABLE_ROWS || kind == TABLE_LAST_ROW
                               ? kv_insert_claim_of(call, row)
                               : test_rng_next(rng);
    }
    /* Rows at all places that their searches come by: those of other slots find none and give up. */
    for (uint32_t t = 0; t < n && kind == TABLE_CROWDED; t++) {
        uint32_t at = of[t] < 0 ? 0 : kv_insert_claim_first(of[t], n_claims);
        for (int i = 0; i < KV_INSERT_PROBES && of[t] >= 0; i++) {
            table->claims[at] = kv_insert_claim_of(call, t);
            at = kv_insert_claim_next(at, n_claims);
        }
    }
}

/* On a GPU: many slots and few, each with tables of every kind. */
static void insert_keeps_the_last_row_whatever_the_table_holds(void **state) {
    (void)state;
    enum { N = 3000, N_SLOTS = 4096 };
    static const int64_t distinct[] = {N_SLOTS, 2000, 40};
    test_mirror m;
    if (!test_mirror_open(&m)) {
        skip();
    }
    test_rng rng = {seed};
    insert_fixture f = insert_fixture_create(MMLA_KV_INDEX_FP4);
    f.desc.max_tokens = f.args.n_rows = f.args.n_slots = N;
    f.desc.cache.page_tokens = 64;
    f.desc.cache.n_pages = N_SLOTS / 64;
    insert_fixture_fill(&f, 1, seed);
    mmla_context *gpu;
    mmla_kv_insert_plan *plan;
    const mmla_context_options options = {.device = MMLA_CUDA(0)};
    assert_int_equal(mmla_context_create(&options, &gpu, NULL), MMLA_OK);
    assert_int_equal(mmla_kv_insert_plan_create(gpu, &f.desc, &plan, NULL), MMLA_OK);
    const uint32_t n_claims = params_of(N, N_SLOTS).n_claims;
    const size_t bytes = mmla_kv_insert_workspace_bytes(plan);
    assert_int_equal(bytes, sizeof(kv_insert_table) + n_claims * sizeof(kv_insert_claim));
    test_buffer table = test_buffer_create(bytes, 64);
    uint8_t *want = malloc(f.cache.bytes);
    assert_non_null(want);
    const test_buffer *const all[] = {&f.rows,    &f.positions, &f.slots,
                                      &f.cos_sin, &f.cache,     &table};
    for (int i = 0; i < 6; i++) {
        test_mirror_add_buffer(&m, all[i]);
    }
    mmla_kv_insert_args args = f.args;
    args.rows = test_mirror_at(&m, f.rows.data);
    args.positions = test_mirror_at(&m, f.positions.data);
    args.slots = test_mirror_at(&m, f.slots.data);
    args.cos_sin = test_mirror_at(&m, f.cos_sin.data);
    args.norm_weight = NULL;
    args.cache = test_mirror_at(&m, f.cache.data);
    args.n_faults = NULL;
    for (int round = 0; round < 3 * TABLES; round++) {
        int64_t *of = insert_fixture_slots(&f);
        for (int64_t t = 0; t < N; t++) { /* all different ones in the first rounds */
            const bool same = distinct[round / TABLES] == N_SLOTS;
            of[t] = same ? t : test_rng_below(&rng, distinct[round / TABLES]);
            of[t] = test_rng_below(&rng, 9) == 0 ? -1 : of[t];
        }
        assert_int_equal(insert_fixture_run(&f, "portable"), MMLA_OK);
        memcpy(want, f.cache.data, f.cache.bytes);
        fill_table(round % TABLES, table.data, n_claims, of, N, &rng);
        test_buffer_poison(&f.cache);
        test_mirror_push(&m);
        void *stream = round % 2 == 0 ? m.stream : NULL;
        assert_int_equal(mmla_kv_insert_run(plan, &args, test_mirror_at(&m, table.data), stream),
                         MMLA_OK);
        assert_int_equal(mmla_gpu_stream_wait(&m.gpu, stream, NULL), MMLA_OK);
        test_mirror_pull(&m, (char *)f.cache.data - TEST_GUARD_BYTES);
        test_mirror_pull(&m, (char *)table.data - TEST_GUARD_BYTES);
        assert_true(test_buffer_is_intact(&f.cache) && test_buffer_is_intact(&table));
        if (memcmp(want, f.cache.data, f.cache.bytes) != 0) {
            fail_msg("%d slots, table %d", (int)distinct[round / TABLES], round % TABLES);
        }
    }
    free(want);
    test_buffer_destroy(&table);
    mmla_kv_insert_plan_destroy(plan);
    mmla_context_destroy(gpu);
    insert_fixture_destroy(&f);
    test_mirror_close(&m);
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(insert_warps_cover_every_row_once),
        cmocka_unit_test(insert_claim_search_stays_in_the_table),
        cmocka_unit_test(insert_table_has_four_places_a_row_or_slot),
        cmocka_unit_test(insert_only_rows_that_come_by_have_a_claim),
        cmocka_unit_test(insert_claims_of_regular_slots_are_found_soon),
        cmocka_unit_test(insert_keeps_the_last_row_whatever_the_table_holds),
        cmocka_unit_test(e2m1_by_product_is_by_division_for_every_value_and_scale),
        cmocka_unit_test(e2m1_by_product_is_exact_for_every_power_of_two),
        cmocka_unit_test(e2m1_beyond_is_seen_at_every_place),
        cmocka_unit_test(e2m1_scale_by_product_is_by_division_for_every_maximum),
        cmocka_unit_test(ue8m0_inverse_is_that_of_the_definition),
    };
    return cmocka_run_group_tests_name("kv_insert_cuda", tests, NULL, NULL);
}
