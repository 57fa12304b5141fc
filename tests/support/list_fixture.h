/* list_fixture.h - one run of an index builder, and a look at a row of what it made. */
#ifndef TESTS_SUPPORT_LIST_FIXTURE_H
#define TESTS_SUPPORT_LIST_FIXTURE_H

#include <stdint.h>

#include <megamla/list.h>

/* Plans, which must succeed, and runs once on the CPU; the status of the run, its error in *err. */
mmla_status list_run_once(const mmla_list_desc *desc, mmla_list_args *args, mmla_error *err);

/* The same, which must succeed. */
void list_run_ok(const mmla_list_desc *desc, mmla_list_args *args);

/* A row of `width` entries has the n wanted ones, and then nothing but -1. */
void assert_list_row(const int32_t *row, int width, const int32_t *want, int n);

#endif
