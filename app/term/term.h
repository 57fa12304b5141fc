/* term.h - how numbers and progress look: units people read, and a line on a terminal that stays
 * out of pipes. */
#ifndef APP_TERM_TERM_H
#define APP_TERM_TERM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { TERM_TEXT_BYTES = 48 };

/* A short text by value, so that several fit into one printf: term_bytes(n).text */
typedef struct term_text {
    char text[TERM_TEXT_BYTES];
} term_text;

term_text term_count(int64_t n);        /* 1234567 -> "1,234,567" */
term_text term_bytes(double bytes);     /* 1234567 -> "1.18 MiB" */
term_text term_seconds(double seconds); /* 0.00123 -> "1.23 ms" */

/* A monotonic clock, in seconds. */
double term_now(void);

/* One line of progress on standard error, rewritten in place; nothing when that is no terminal. A
 * total of 0 is not known. */
typedef struct term_progress {
    const char *what;
    bool shown;  /* a line stands on the terminal */
    double last; /* when it was drawn */
} term_progress;

term_progress term_progress_init(const char *what);
void term_progress_set(term_progress *progress, int64_t done, int64_t total, const char *detail);
void term_progress_deinit(term_progress *progress); /* wipes the line */

#endif
