/* report_json.c - values that JSON can hold, documents that are complete. */
#include "app/report/report_json.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/file_save.h"

static const char REPLACEMENT[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Bytes of the character at s, which ends with a zero; 0 when it is none. */
static size_t character_bytes(const unsigned char *s) {
    /* The smallest code of each length: a longer form of a smaller one is not UTF-8. */
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = s[0] < 0x80             ? 1
                     : (s[0] & 0xE0) == 0xC0 ? 2
                     : (s[0] & 0xF0) == 0xE0 ? 3
                     : (s[0] & 0xF8) == 0xF0 ? 4
                                             : 0;
    if (n <= 1) {
        return n;
    }
    uint32_t code = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) { /* the zero at the end, too */
            return 0;
        }
        code = code << 6 | (s[i] & 0x3Fu);
    }
    const int is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    return code < least[n] || code > 0x10FFFF || is_surrogate ? 0 : n;
}

json_t *report_text(const char *text) {
    const size_t most = strlen(text) * (sizeof REPLACEMENT - 1) + 1;
    char *utf8 = malloc(most), *to = utf8;
    if (utf8 == NULL) {
        return NULL;
    }
    while (*text != '\0') {
        const size_t n = character_bytes((const unsigned char *)text);
        const char *from = n > 0 ? text : REPLACEMENT;
        const size_t n_out = n > 0 ? n : sizeof REPLACEMENT - 1;
        memcpy(to, from, n_out);
        to += n_out;
        text += n > 0 ? n : 1;
    }
    json_t *value = json_stringn(utf8, (size_t)(to - utf8));
    free(utf8);
    return value;
}

json_t *report_real(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

void report_set(json_t **object, const char *key, json_t *value) {
    if (json_object_set_new(*object, key, value) != 0) {
        json_decref(*object);
        *object = NULL;
    }
}

void report_append(json_t **array, json_t *value) {
    if (json_array_append_new(*array, value) != 0) {
        json_decref(*array);
        *array = NULL;
    }
}

mmla_status report_save(json_t *document, const char *path, size_t flags, mmla_error *err) {
    char *text = document != NULL ? json_dumps(document, flags) : NULL;
    json_decref(document);
    if (text == NULL) {
        return mmla_error_set(err, MMLA_E_MEMORY, "", "out of memory");
    }
    mmla_status status = MMLA_OK;
    if (strcmp(path, "-") != 0) {
        const file_part parts[] = {{text, strlen(text)}, {"\n", 1}};
        status = file_save(path, parts, 2, err);
    } else if (fputs(text, stdout) == EOF || fputc('\n', stdout) == EOF || fflush(stdout) != 0) {
        status = mmla_error_set(err, MMLA_E_VALUE, "", "cannot be written: %s", strerror(errno));
    }
    free(text);
    return status;
}
