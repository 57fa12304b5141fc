#include "app/term/term.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double REDRAW_SECONDS = 0.1;

term_text term_count(int64_t n) {
    char digits[TERM_TEXT_BYTES];
    term_text t = {{0}};
    const int n_digits = snprintf(digits, sizeof digits, "%lld", (long long)n);
    size_t at = 0;
    for (int i = 0; i < n_digits; i++) {
        const int left = n_digits - i;
        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') {
            t.text[at++] = ',';
        }
        t.text[at++] = digits[i];
    }
    return t;
}

/* Three significant digits, which is what a person compares. */
static term_text scaled(double value, double step, const char *const *units, int n_units) {
    int unit = 0;
    /* 999.5 prints as 1000 of this unit, so it already belongs to the next. */
    while (unit < n_units - 1 && fabs(value) >= (step == 1000.0 ? 999.5 : 1023.5)) {
        value /= step;
        unit++;
    }
    const double size = fabs(value);
    const int decimals = size >= 99.95 || value == floor(value) ? 0 : size >= 9.995 ? 1 : 2;
    term_text t = {{0}};
    snprintf(t.text, sizeof t.text, "%.*f %s", decimals, value, units[unit]);
    return t;
}

term_text term_bytes(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return scaled(bytes, 1024.0, units, 6);
}

term_text term_seconds(double seconds) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(seconds * 1e9, 1000.0, units, 4);
}

double term_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

term_progress term_progress_init(const char *what) {
    return (term_progress){.what = what, .last = -1.0};
}

void term_progress_set(term_progress *progress, int64_t done, int64_t total, const char *detail) {
    const double now = term_now();
    if (now - progress->last < REDRAW_SECONDS || !isatty(STDERR_FILENO)) {
        return;
    }
    fprintf(stderr, "\r\033[K%s %lld", progress->what, (long long)done);
    if (total > 0) {
        fprintf(stderr, " of %lld", (long long)total);
    }
    fprintf(stderr, " %s", detail);
    fflush(stderr);
    progress->shown = true;
    progress->last = now;
}

void term_progress_deinit(term_progress *progress) {
    if (progress->shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
        progress->shown = false;
    }
}
