/* report_json.h - what every JSON document of the command is made of, and writing one. */
#ifndef APP_REPORT_REPORT_JSON_H
#define APP_REPORT_REPORT_JSON_H

#include <jansson.h>

#include <megamla/status.h>

/* A text from outside: file names and command lines are bytes, JSON is UTF-8. Each byte that is not
 * part of it becomes U+FFFD. NULL when memory is short. */
json_t *report_text(const char *text);

/* A number; JSON has no infinities and no NaN, they become null. */
json_t *report_real(double x);

/* object[key] = value, or the next element of array; takes value. When that fails, or value is NULL
 * because making it failed, the whole is freed and becomes NULL: no document lacks a part. */
void report_set(json_t **object, const char *key, json_t *value);
void report_append(json_t **array, json_t *value);

/* Writes a document and frees it: "-" is standard output, a file appears whole or not at all. A
 * NULL document is one there was no memory for. The message says what is wrong, without the path.
 */
mmla_status report_save(json_t *document, const char *path, size_t flags, mmla_error *err);

#endif
