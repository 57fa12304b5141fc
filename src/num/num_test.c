#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "num/bf16.h"
#include "num/quant.h"

static void e4m3_every_code_round_trips(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) {
        if ((code & 0x7F) != MMLA_E4M3_NAN) {
            assert_int_equal(mmla_e4m3_from_f32(mmla_e4m3_to_f32((uint8_t)code)), code);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(e4m3_every_code_round_trips)};
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
