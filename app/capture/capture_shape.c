#include "app/capture/capture_shape.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"

/* One word of a pattern: number + letter, or one of the two. */
typedef struct word {
    int64_t number; /* 0: none */
    char letter;    /* 0: none */
} word;

/* The next word of *pattern, which moves past it. */
static word word_next(const char **pattern) {
    word w = {0};
    const char *p = *pattern;
    if (isdigit((unsigned char)*p)) {
        char *end;
        w.number = strtoll(p, &end, 10);
        p = *end == '+' ? end + 1 : end;
    }
    if (isalpha((unsigned char)*p)) {
        w.letter = *p++;
    }
    while (*p == ' ') {
        p++;
    }
    *pattern = p;
    return w;
}

/* What w stands for, -1 when its letter is not known (or too large to be anything). */
static int64_t word_value(word w, const int64_t letters[128]) {
    if (w.letter == 0) {
        return w.number;
    }
    int64_t value = letters[(unsigned char)w.letter];
    return value >= 0 && mmla_add_i64(value, w.number, &value) ? value : -1;
}

bool capture_shape_match(const char *pattern,
                         int32_t rank,
                         const int64_t *shape,
                         int64_t letters[128]) {
    int32_t at = 0;
    while (*pattern != '\0') {
        const word w = word_next(&pattern);
        if (at >= rank) {
            return false;
        }
        const int64_t size = shape[at++];
        if (w.letter != 0 && letters[(unsigned char)w.letter] < 0) {
            if (size < w.number) {
                return false;
            }
            letters[(unsigned char)w.letter] = size - w.number;
        } else if (size != word_value(w, letters)) {
            return false;
        }
    }
    return at == rank;
}

void capture_shape_expected(const char *pattern,
                            const int64_t letters[128],
                            char out[CAPTURE_SHAPE_BYTES]) {
    size_t at = (size_t)snprintf(out, CAPTURE_SHAPE_BYTES, "[");
    while (*pattern != '\0' && at < CAPTURE_SHAPE_BYTES) {
        const char *first = pattern;
        const word w = word_next(&pattern);
        const int64_t value = word_value(w, letters);
        const char *comma = *pattern != '\0' ? ", " : "";
        if (value >= 0) {
            at += (size_t)snprintf(out + at, CAPTURE_SHAPE_BYTES - at, "%lld%s", (long long)value,
                                   comma);
        } else {
            int n = 0;
            while (first[n] != '\0' && first[n] != ' ') {
                n++;
            }
            at += (size_t)snprintf(out + at, CAPTURE_SHAPE_BYTES - at, "%.*s%s", n, first, comma);
        }
    }
    if (at < CAPTURE_SHAPE_BYTES) {
        snprintf(out + at, CAPTURE_SHAPE_BYTES - at, "]");
    }
}

void capture_shape_format(int32_t rank, const int64_t *shape, char out[CAPTURE_SHAPE_BYTES]) {
    size_t at = (size_t)snprintf(out, CAPTURE_SHAPE_BYTES, "[");
    for (int32_t i = 0; i < rank && at < CAPTURE_SHAPE_BYTES; i++) {
        at += (size_t)snprintf(out + at, CAPTURE_SHAPE_BYTES - at, "%s%lld", i > 0 ? ", " : "",
                               (long long)shape[i]);
    }
    if (at < CAPTURE_SHAPE_BYTES) {
        snprintf(out + at, CAPTURE_SHAPE_BYTES - at, "]");
    }
}
