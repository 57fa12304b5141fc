/* bench_plot.c - a script for gnuplot, and running it: no shell, no pipe, files that nobody else sees. */
#include "app/bench/bench_plot.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/report/report_cpu.h"
#include "app/report/report_gpu.h"
#include "base/error.h"
#include "model/file_save.h"

enum { WIDTH = 760, PANEL_HEIGHT = 440, TITLE_BYTES = 320 };

bool bench_plot_has(const char *op) {
    return strncmp(op, "attend_", 7) == 0;
}

static bool is_drawn(const bench_row *row) {
    return row->verified && row->formats != NULL && bench_plot_has(row->op);
}

static bool same_panel(const bench_row *a, const bench_row *b) {
    return strcmp(a->op, b->op) == 0 && strcmp(a->formats, b->formats) == 0;
}

static bool same_line(const bench_row *a, const bench_row *b) {
    return same_panel(a, b) && a->heads == b->heads;
}

/* Whether a row is the first that is drawn of its panel, or of its line. */
static bool
is_first(const bench_session *s, int i, bool (*same)(const bench_row *, const bench_row *)) {
    for (int j = 0; j < i; j++) {
        if (is_drawn(&s->rows[j]) && same(&s->rows[j], &s->rows[i])) {
            return false;
        }
    }
    return is_drawn(&s->rows[i]);
}

/* Points of the line that row i begins: tokens, time, floor; in order of tokens. */
static void put_line(const bench_session *s, int i, FILE *to) {
    int64_t done = 0;
    fprintf(to, "$line%d << end_of_line\n", i);
    for (;;) {
        const bench_row *next = NULL;
        for (int j = i; j < s->n_rows; j++) {
            const bench_row *row = &s->rows[j];
            if (is_drawn(row) && same_line(&s->rows[i], row) && row->tokens > done &&
                (next == NULL || row->tokens < next->tokens)) {
                next = row;
            }
        }
        if (next == NULL) {
            break;
        }
        done = next->tokens;
        fprintf(to, "%lld %.6g %.6g\n", (long long)done, next->fused.median_us, next->floor_us);
    }
    fprintf(to, "end_of_line\n");
}

/* The device's name, without what would end a quoted text. */
static void title_of(const bench_session *s, char out[TITLE_BYTES]) {
    char cpu[REPORT_CPU_BYTES];
    if (s->device.gpu != NULL) {
        snprintf(out, TITLE_BYTES, "%.255s", report_gpu_of(s->device.gpu).name);
    } else {
        report_cpu_name(cpu);
        snprintf(out, TITLE_BYTES, "%s, %d threads", cpu[0] != '\0' ? cpu : "CPU",
                 (int)mmla_context_get_threads(s->host));
    }
    for (char *c = out; *c != '\0'; c++) {
        *c = *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? ' ' : *c;
    }
}

static void put_panel(const bench_session *s, int first, const char *title, FILE *to) {
    const bench_row *head = &s->rows[first];
    int color = 0;
    for (int i = first; i < s->n_rows; i++) {
        if (same_panel(head, &s->rows[i]) && is_first(s, i, same_line)) {
            put_line(s, i, to);
        }
    }
    fprintf(to, "set title \"%s %s: %s\"\nplot ", head->op, head->formats, title);
    for (int i = first; i < s->n_rows; i++) {
        if (same_panel(head, &s->rows[i]) && is_first(s, i, same_line)) {
            color++;
            fprintf(to,
                    "$line%d using 1:2 with linespoints lc %d pt 7 ps 0.6 title \"%lld heads\", "
                    "$line%d using 1:3 with lines lc %d dt 2 notitle, ",
                    i, color, (long long)s->rows[i].heads, i, color);
        }
    }
    fprintf(to, "NaN with lines lc rgb \"black\" dt 2 title \"floor\"\n");
}

char *bench_plot_script(const bench_session *s) {
    char *text = NULL, title[TITLE_BYTES];
    size_t bytes;
    int n_panels = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (to == NULL) {
        return NULL;
    }
    for (int i = 0; i < s->n_rows; i++) {
        n_panels += is_first(s, i, same_panel);
    }
    if (n_panels > 0) {
        title_of(s, title);
        fprintf(to,
                "set terminal svg noenhanced size %d,%d font \"sans-serif,13\" background "
                "\"white\"\n"
                "set multiplot layout %d,1\n"
                "set logscale x 2\nset logscale y 10\n"
                "set offsets graph 0.03, graph 0.03, 0, 0\n"
                "set xlabel \"query tokens of a call\"\nset ylabel \"microseconds\"\n"
                "set grid\nset key left top\n",
                WIDTH, n_panels * PANEL_HEIGHT, n_panels);
    }
    for (int i = 0; i < s->n_rows; i++) {
        if (is_first(s, i, same_panel)) {
            put_panel(s, i, title, to);
        }
    }
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* Runs gnuplot with files as its standard streams. Its exit status, or -1 and errno. */
static int gnuplot_run(char *const *argv, FILE *in, FILE *out, FILE *err) {
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(in), 0);
    posix_spawn_file_actions_adddup2(&actions, fileno(out), 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(err), 2);
    errno = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (errno != 0) {
        return -1;
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* The whole of a file from its beginning, NULL when it cannot be had. */
static char *contents(FILE *from, size_t *bytes) {
    char *text = NULL;
    const long end = fseek(from, 0, SEEK_END) == 0 ? ftell(from) : -1;
    rewind(from);
    if (end >= 0 && (text = malloc((size_t)end + 1)) != NULL) {
        *bytes = fread(text, 1, (size_t)end, from);
        text[*bytes] = '\0';
    }
    return text;
}

/* Gives gnuplot a script; *picture, to be freed, is what it writes. */
static mmla_status
draw(char *const *argv, const char *script, char **picture, size_t *bytes, mmla_error *err) {
    FILE *in = tmpfile(), *out = tmpfile(), *complaints = tmpfile();
    mmla_status status = MMLA_OK;
    *picture = NULL;
    if (in == NULL || out == NULL || complaints == NULL || fputs(script, in) == EOF ||
        fflush(in) != 0) {
        status = mmla_error_set(err, MMLA_E_VALUE, "", "no temporary file: %s", strerror(errno));
        goto done;
    }
    rewind(in);
    const int exit_status = gnuplot_run(argv, in, out, complaints);
    if (exit_status != 0) {
        size_t n = 0;
        char *why = exit_status > 0 ? contents(complaints, &n) : NULL;
        status = mmla_error_set(err, MMLA_E_VALUE, "", "gnuplot failed: %.150s",
                                exit_status < 0 ? strerror(errno)
                                : why != NULL   ? why + strspn(why, "\n ^")
                                                : "");
        free(why);
    } else if ((*picture = contents(out, bytes)) == NULL) {
        status = mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory");
    }
done:
    if (in != NULL) {
        fclose(in);
    }
    if (out != NULL) {
        fclose(out);
    }
    if (complaints != NULL) {
        fclose(complaints);
    }
    return status;
}

mmla_status bench_plot_ask(mmla_error *err) {
    char *const argv[] = {"gnuplot", "--version", NULL};
    char *answer;
    size_t bytes;
    mmla_error why = {0};
    const mmla_status status = draw(argv, "", &answer, &bytes, &why);
    free(answer);
    return status == MMLA_OK
               ? MMLA_OK
               : mmla_error_set(err, MMLA_E_VALUE, "",
                                "needs gnuplot, which does not run here (%.120s)", why.message);
}

mmla_status bench_plot_save(const bench_session *s, const char *path, mmla_error *err) {
    char *const argv[] = {"gnuplot", "-d", NULL}; /* not as the user has it set up */
    char *script = bench_plot_script(s), *picture = NULL;
    size_t bytes = 0;
    if (script == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory");
    }
    mmla_status status = script[0] != '\0'
                             ? draw(argv, script, &picture, &bytes, err)
                             : mmla_error_set(err, MMLA_E_VALUE, "", "no row can be drawn");
    if (status == MMLA_OK) {
        const file_part part = {picture, bytes};
        status = file_save(path, &part, 1, err);
    }
    free(picture);
    free(script);
    return status;
}
