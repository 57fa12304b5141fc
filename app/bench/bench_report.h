/* bench_report.h - the rows of a session as a table for people and as JSON for files. */
#ifndef APP_BENCH_BENCH_REPORT_H
#define APP_BENCH_BENCH_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "app/bench/bench.h"

/* The table: its head with the ceilings, a row, and what is to be said about all of them. */
void bench_report_head_print(const bench_session *s, FILE *to);
void bench_report_row_print(const bench_session *s, const bench_row *row, FILE *to);
void bench_report_end_print(const bench_session *s, FILE *to);

/* Writes the result file, whole or not at all; "-" is standard output. `command` is the command
 * line, `commit` may be NULL. docs/performance.md describes the fields. The message of a failure
 * says why, without the path. */
mmla_status bench_report_save(const bench_session *s,
                              const char *path,
                              const char *command,
                              const char *commit,
                              mmla_error *err);

/* Rows whose output was wrong or that could not be run. */
int bench_report_problems(const bench_session *s);

#endif
