#include "support/list_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

mmla_status list_run_once(const mmla_list_desc *desc, mmla_list_args *args, mmla_error *err) {
    mmla_context *ctx;
    mmla_list_plan *plan;
    memset(err, 0, sizeof *err);
    assert_int_equal(mmla_context_create(NULL, &ctx, err), MMLA_OK);
    if (mmla_list_plan_create(ctx, desc, &plan, err) != MMLA_OK) {
        fail_msg("plan: %s", err->message);
    }
    args->error = err;
    const mmla_status status = mmla_list_run(plan, args, NULL, NULL);
    mmla_list_plan_destroy(plan);
    mmla_context_destroy(ctx);
    return status;
}

void list_run_ok(const mmla_list_desc *desc, mmla_list_args *args) {
    mmla_error err;
    if (list_run_once(desc, args, &err) != MMLA_OK) {
        fail_msg("run: %s", err.message);
    }
}

void assert_list_row(const int32_t *row, int width, const int32_t *want, int n) {
    for (int k = 0; k < width; k++) {
        assert_int_equal(row[k], k < n ? want[k] : -1);
    }
}
