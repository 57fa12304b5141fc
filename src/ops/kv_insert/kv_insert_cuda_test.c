/* The arithmetic that kv_insert's kernels share with the host: shares of rows, claims, e2m1 codes
 * without a division. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/convert_bits.h"
#include "num/bf16.h"
#include "num/e2m1.h"
#include "num/ue8m0.h"
#include "ops/kv_insert/kv_insert_cuda.h"
#include "support/rng.h"

static uint64_t seed;

static void insert_warps_cover_every_row_once(void **state) {
    (void)state;
    static const int64_t n[] = {1, 2, 31, 256, 3168, 3169, 4097, 65536, 1 << 20, INT32_MAX};
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        for (int32_t n_sms = 1; n_sms <= 256; n_sms += 51) {
            for (int32_t at_once = 1; at_once <= 4; at_once += 3) {
                const int32_t warp_rows = kv_insert_warp_rows(n[i], n_sms, at_once);
                assert_in_range(warp_rows, 1, KV_INSERT_WARP);
                assert_true(warp_rows == 1 || warp_rows % at_once == 0);
                const int64_t blocks = kv_insert_n_blocks(n[i], warp_rows);
                const int64_t block_rows = (int64_t)warp_rows * KV_INSERT_WARPS;
                assert_true(blocks * block_rows >= n[i] && (blocks - 1) * block_rows < n[i]);
            }
        }
    }
    assert_int_equal(kv_insert_warp_rows(256, 132, 1), 1); /* a decode step: a warp a row */
    assert_int_equal(kv_insert_warp_rows(132 * 24, 132, 4), 1);
    assert_int_equal(kv_insert_warp_rows(132 * 24 + 1, 132, 1), 2);
}

static void insert_claim_holds_slot_and_row(void **state) {
    (void)state;
    static const int64_t numbers[] = {0, 1, 77, INT32_MAX - 1};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) {
            const uint64_t claim = kv_insert_claim(numbers[i], numbers[j]);
            assert_true(claim != 0);
            assert_int_equal(kv_insert_claim_slot(claim), numbers[i]);
            assert_int_equal(kv_insert_claim_row(claim), numbers[j]);
        }
        assert_true(kv_insert_claim(numbers[i], 8) > kv_insert_claim(numbers[i], 7));
    }
}

static void insert_claim_search_stays_in_the_table(void **state) {
    (void)state;
    static const uint32_t n_claims[] = {2, 6, 5000, 1u << 22, 2u * INT32_MAX};
    test_rng rng = {seed};
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < 10000; j++) {
            const int64_t slot = test_rng_below(&rng, INT32_MAX);
            assert_true(kv_insert_claim_first(slot, n_claims[i]) < n_claims[i]);
        }
        assert_int_equal(kv_insert_claim_next(n_claims[i] - 1, n_claims[i]), 0);
        assert_int_equal(kv_insert_claim_next(0, n_claims[i]), 1);
    }
}

static void insert_table_has_twice_the_slots_that_can_be_named(void **state) {
    (void)state;
    mmla_kv_insert_problem p = {.cache = {.n_slots = 1000}};
    assert_int_equal(kv_insert_n_claims(&p, 400), 800);
    assert_int_equal(kv_insert_n_claims(&p, 4000), 2000);
    p.cache.n_slots = INT32_MAX;
    assert_true(kv_insert_n_claims(&p, INT32_MAX) == 2u * INT32_MAX);
}

/* Slots as decode and prefill name them: the search must be short although the table is half full. */
static void insert_claims_of_regular_slots_are_found_soon(void **state) {
    (void)state;
    enum { N = 4096, N_CLAIMS = 2 * N };
    static uint64_t claims[N_CLAIMS];
    static const int64_t strides[] = {1, 2, 61, 64, 256, 4096, 65536, 130048};
    for (int i = 0; i < 8; i++) {
        int64_t steps = 0;
        memset(claims, 0, sizeof claims);
        for (int64_t row = 0; row < N; row++) {
            const int64_t slot = row * strides[i];
            uint32_t at = kv_insert_claim_first(slot, N_CLAIMS);
            while (claims[at] != 0) {
                at = kv_insert_claim_next(at, N_CLAIMS);
                steps++;
            }
            claims[at] = kv_insert_claim(slot, row);
        }
        assert_in_range(steps, 0, 4 * N);
    }
}

/* a, at most 6 * 2^-14, to the nearest fp16, ties to even: a sum with a power of two whose last bit
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

static uint32_t code_of_product(float x, float factor) {
    const float most = MMLA_E2M1_MAX * 0x1p-14f;
    const uint32_t signs = mmla_bits_of_f32(x) >> 16 & 0x8000u;
    return mmla_e2m1x2_from_f16x2_times_2_14th(f16_from_f32(fminf(fabsf(x * factor), most)), signs);
}

static void e2m1_by_product_is_by_division_for_every_value_and_scale(void **state) {
    (void)state;
    for (int scale = 1; scale <= MMLA_E4M3_MAX_CODE; scale++) {
        const float divisor = mmla_e4m3_to_f32((uint8_t)scale);
        const float factor = kv_insert_e2m1_factor((uint8_t)scale);
        for (uint32_t code = 0; code < 65536; code++) {
            const float x = mmla_bf16_to_f32((uint16_t)code);
            if (!isnan(x) && code_of_product(x, factor) != mmla_e2m1_from_f32(x / divisor)) {
                fail_msg("%a / %a", (double)x, (double)divisor);
            }
        }
    }
}

static void e2m1_by_product_is_exact_for_every_power_of_two(void **state) {
    (void)state;
    for (int byte = 1; byte < 256; byte++) {
        const float inverse = mmla_ue8m0_inverse((uint8_t)byte);
        for (uint32_t code = 0; code < 65536; code++) {
            const float x = mmla_bf16_to_f32((uint16_t)code);
            if (!isnan(x) &&
                code_of_product(x, inverse * 0x1p-14f) != mmla_e2m1_from_f32(x * inverse)) {
                fail_msg("%a * %a", (double)x, (double)inverse);
            }
        }
    }
}

int main(int argc, char **argv) {
    seed = test_seed(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(insert_warps_cover_every_row_once),
        cmocka_unit_test(insert_claim_holds_slot_and_row),
        cmocka_unit_test(insert_claim_search_stays_in_the_table),
        cmocka_unit_test(insert_table_has_twice_the_slots_that_can_be_named),
        cmocka_unit_test(insert_claims_of_regular_slots_are_found_soon),
        cmocka_unit_test(e2m1_by_product_is_by_division_for_every_value_and_scale),
        cmocka_unit_test(e2m1_by_product_is_exact_for_every_power_of_two),
    };
    return cmocka_run_group_tests_name("kv_insert_cuda", tests, NULL, NULL);
}
