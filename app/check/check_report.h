/* check_report.h - the rows of a session as a table for people and as JSON for programs. */
#ifndef APP_CHECK_CHECK_REPORT_H
#define APP_CHECK_CHECK_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "app/check/check_session.h"

/* The table, line by line as suites finish: one an operation and implementation. */
void check_report_head_print(FILE *to);
void check_report_row_print(const check_row *row, FILE *to);

/* The first failure of each row with the command that replays it, and the sum. */
void check_report_end_print(const check_session *s, FILE *to);

/* The same as JSON, whole or not at all; "-" is standard output. The message of a failure says why,
 * without the path. */
mmla_status check_report_save(const check_session *s, const char *path, mmla_error *err);

#endif
