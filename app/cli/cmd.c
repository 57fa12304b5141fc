/* cmd.c - option tables, help and messages. */
#include "app/cli/cmd.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

enum {
    LONG_ONLY = 256,  /* getopt's value of option i is LONG_ONLY + i, above every letter */
    HELP_COLUMN = 26, /* where the text of an option starts */
    MESSAGE_BYTES = 1024,
    NAME_BYTES_MAX = 48 /* of words compared by cmd_nearest */
};

static const char JSON_HINT[] = "; it prints to standard output, which can be redirected: > FILE";

void cmd_print_clean(FILE *f, const char *text) {
    for (const char *c = text; *c != '\0'; c++) {
        fputc((unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c, f);
    }
}

void cmd_message(const cmd_spec *spec, const char *format, ...) {
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fflush(stdout);
    fprintf(stderr, "megamla%s%s: ", spec != NULL ? " " : "", spec != NULL ? spec->verb : "");
    cmd_print_clean(stderr, text);
    fputc('\n', stderr);
}

static void option_print(const cmd_option *o) {
    char left[64];
    const char letter[] = {'-', o->letter, ',', ' ', '\0'};
    const int n = snprintf(left, sizeof left, "  %s--%s%s%s", o->letter != 0 ? letter : "    ",
                           o->name, o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
    /* A long left side pushes its text to the next line instead of out of the column. */
    printf("%s%*s", left, n < HELP_COLUMN ? HELP_COLUMN - n : 0, "");
    if (n >= HELP_COLUMN) {
        printf("\n%*s", HELP_COLUMN, "");
    }
    for (const char *line = o->help; line != NULL;) {
        const char *end = strchr(line, '\n');
        printf("%.*s\n", end != NULL ? (int)(end - line) : (int)strlen(line), line);
        line = end != NULL ? end + 1 : NULL;
        if (line != NULL) {
            printf("%*s", HELP_COLUMN, "");
        }
    }
}

static void help_print(const cmd_spec *spec) {
    printf("usage: megamla %s %s\n\n%s\n\noptions\n", spec->verb, spec->synopsis, spec->about);
    for (const cmd_option *o = spec->options; o->name != NULL; o++) {
        option_print(o);
    }
    option_print(&(cmd_option){"help", 'h', NULL, "show this text"});
    if (spec->epilogue != NULL) {
        printf("\n%s\n", spec->epilogue);
    }
}

cmd_parser cmd_parser_init(const cmd_spec *spec, int argc, char **argv) {
    optind = 1;
    opterr = 0;
    return (cmd_parser){.spec = spec, .argc = argc, .argv = argv};
}

/* How many of the names begin with `start`, and which: "--context, --compressed-format". */
static int begun_list(const char *start, const char *const *names, char *out, size_t bytes) {
    int n = 0;
    size_t at = 0;
    out[0] = '\0';
    for (; *names != NULL; names++) {
        if (strncmp(start, *names, strlen(start)) == 0 && at < bytes) {
            at += (size_t)snprintf(out + at, bytes - at, "%s--%s", n++ > 0 ? ", " : "", *names);
        }
    }
    return n;
}

/* The message for an option getopt did not accept; `word` is how the user wrote it. */
static void complain(const cmd_spec *spec, int code, const char *word) {
    const char *names[CMD_OPTIONS_MAX + 2] = {"help"};
    for (int i = 0; spec->options[i].name != NULL; i++) {
        names[i + 1] = spec->options[i].name;
    }
    const bool is_letter = optopt > 0 && optopt < LONG_ONLY;
    if (code == ':') {
        if (is_letter) { /* in a cluster the word is another one */
            cmd_message(spec, "option '-%c' needs a value", optopt);
        } else {
            cmd_message(spec, "option '%s' needs a value", word);
        }
        return;
    }
    if (optopt >= LONG_ONLY) {
        const char *name = spec->options[optopt - LONG_ONLY].name;
        cmd_message(spec, "option '--%s' takes no value%s", name,
                    strcmp(name, "json") == 0 ? JSON_HINT : "");
        return;
    }
    if (is_letter) {
        cmd_message(spec, "unknown option '-%c'; megamla %s --help lists the options", optopt,
                    spec->verb);
        return;
    }
    char name[NAME_BYTES_MAX] = {0};
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    char candidates[MESSAGE_BYTES / 2];
    if (begun_list(name, names, candidates, sizeof candidates) > 1) {
        cmd_message(spec, "option '--%s' is ambiguous: %s", name, candidates);
        return;
    }
    const char *near = cmd_nearest(name, names);
    if (near != NULL) {
        cmd_message(spec, "unknown option '--%s', did you mean '--%s'?", name, near);
    } else {
        cmd_message(spec, "unknown option '--%s'; megamla %s --help lists the options", name,
                    spec->verb);
    }
}

int cmd_parser_next(cmd_parser *parser) {
    struct option longs[CMD_OPTIONS_MAX + 2] = {{"help", no_argument, NULL, 'h'}};
    char shorts[3 * CMD_OPTIONS_MAX + 3] =
        ":h"; /* ':' tells a missing value from an unknown name */
    size_t n_shorts = 2;
    const cmd_option *options = parser->spec->options;
    for (int i = 0; options[i].name != NULL && i < CMD_OPTIONS_MAX; i++) {
        const int has_value = options[i].value != NULL ? required_argument : no_argument;
        longs[i + 1] = (struct option){options[i].name, has_value, NULL, LONG_ONLY + i};
        if (options[i].letter != 0) {
            shorts[n_shorts++] = options[i].letter;
            if (options[i].value != NULL) {
                shorts[n_shorts++] = ':';
            }
        }
    }
    const int code = getopt_long(parser->argc, parser->argv, shorts, longs, NULL);
    parser->value = optarg;
    if (code == -1) {
        parser->operands = parser->argv + optind;
        parser->n_operands = parser->argc - optind;
        return CMD_OPTION_END;
    }
    if (code == 'h') {
        help_print(parser->spec);
        return CMD_OPTION_HELP;
    }
    if (code == ':' || code == '?') {
        complain(parser->spec, code, parser->argv[optind - 1]);
        return CMD_OPTION_ERROR;
    }
    if (code >= LONG_ONLY) {
        const int i = code - LONG_ONLY;
        if (options[i].value == NULL && strcmp(options[i].name, "json") == 0) {
            parser->after_json = optind < parser->argc ? parser->argv[optind] : NULL;
        }
        return i;
    }
    for (int i = 0; options[i].name != NULL; i++) {
        if (options[i].letter == code) {
            return i;
        }
    }
    return CMD_OPTION_ERROR;
}

bool cmd_parser_has_operands(const cmd_parser *parser, int min, int max) {
    const char *verb = parser->spec->verb;
    if (parser->n_operands < min) {
        cmd_message(parser->spec, "needs an operand: megamla %s %s", verb, parser->spec->synopsis);
        return false;
    }
    /* getopt moves operands to the end; the word after --json is the one meant as its file. */
    for (int i = 0; i < parser->n_operands && parser->n_operands > max; i++) {
        if (parser->operands[i] == parser->after_json) {
            cmd_message(parser->spec, "--json does not take '%s'%s", parser->operands[i],
                        JSON_HINT);
            return false;
        }
    }
    if (parser->n_operands > max) {
        cmd_message(parser->spec, "does not take '%s': megamla %s %s", parser->operands[max], verb,
                    parser->spec->synopsis);
        return false;
    }
    return true;
}

mmla_context *cmd_context_create(const cmd_spec *spec, mmla_device device, int64_t n_threads) {
    mmla_context *ctx = NULL;
    mmla_error err = {0};
    const mmla_context_options options = {.device = device, .n_threads = (int32_t)n_threads};
    if (mmla_context_create(&options, &ctx, &err) != MMLA_OK) {
        cmd_message(spec, "%s", err.message);
    }
    return ctx;
}

int cmd_json_print(const cmd_spec *spec, struct json_t *json) {
    if (json == NULL) {
        cmd_message(spec, "out of memory");
        return CMD_FAILED;
    }
    const int status = json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(json);
    return status == 0 ? CMD_OK : CMD_FAILED; /* main says what is wrong with standard output */
}

/* Letters to insert, delete, replace or swap to turn a into b. */
static size_t edits(const char *a, const char *b) {
    size_t rows[3][NAME_BYTES_MAX + 1];
    const size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > NAME_BYTES_MAX || n_b > NAME_BYTES_MAX) {
        return SIZE_MAX;
    }
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= n_b; j++) {
        now[j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
            const size_t shifted = (last[j] < now[j - 1] ? last[j] : now[j - 1]) + 1;
            now[j] = replaced < shifted ? replaced : shifted;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < now[j]) {
                now[j] = before[j - 2] + 1;
            }
        }
    }
    return now[n_b];
}

const char *cmd_nearest(const char *text, const char *const *names) {
    const char *best = NULL;
    /* A third of the word may be wrong; beyond that a suggestion is noise. */
    size_t limit = strlen(text) / 3 + 1;
    for (; *names != NULL; names++) {
        const size_t n = edits(text, *names);
        if (n <= limit) {
            best = *names;
            limit = n > 0 ? n - 1 : 0;
        }
    }
    return best;
}
