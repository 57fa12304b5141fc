/* bench_plot.h - time against tokens as a picture, drawn by gnuplot.
 *
 * A panel for every operation and pair of formats that has heads, in it a line for every number of
 * heads, dashed below it the floor.
 */
#ifndef APP_BENCH_BENCH_PLOT_H
#define APP_BENCH_BENCH_PLOT_H

#include <stdbool.h>

#include "app/bench/bench.h"

/* MMLA_OK when there is a gnuplot. */
mmla_status bench_plot_ask(mmla_error *err);

/* True for operations that are drawn. */
bool bench_plot_has(const char *op);

/* What gnuplot is given, to be freed; NULL when memory is out, empty when no row can be drawn. */
char *bench_plot_script(const bench_session *s);

/* Draws the session's verified rows into an SVG file, which appears whole or not at all. The message
 * of a failure says why, without the path. */
mmla_status bench_plot_save(const bench_session *s, const char *path, mmla_error *err);

#endif
