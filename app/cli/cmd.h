/* cmd.h - the verbs of the megamla command, and what they share: options, messages, a context.
 *
 * A verb is one file, cmd_<verb>.c, with one entry point and one cmd_spec. The spec's option table
 * makes the parser, the --help text and the "did you mean" of a misspelled option, so the three
 * cannot disagree:
 *
 *     cmd_parser p = cmd_parser_init(&spec, argc, argv);
 *     for (int o; (o = cmd_parser_next(&p)) != CMD_OPTION_END;) {
 *         switch (o) {
 *         case OPT_OUTPUT: output = p.value; break;
 *         case CMD_OPTION_HELP: return CMD_OK;        it is already printed
 *         default: return CMD_USAGE;                  so is the message
 *         }
 *     }
 *     p.n_operands and p.operands hold the rest.
 */
#ifndef APP_CLI_CMD_H
#define APP_CLI_CMD_H

#include <stdio.h>
#include <stdbool.h>
#include <stdint.h>

#include <megamla/context.h>

/* Every verb, in the order of help: name and one line about it. */
#define CMD_MAP(X)                                                             \
    X(run, "replay one captured operation, time it, compare it")               \
    X(check, "try every implementation on this machine against the reference") \
    X(bench, "measure the operations against their bounds")                    \
    X(info, "show version, devices and implementations")                       \
    X(kv, "show how many tokens fit into memory")

/* Exit statuses of the command. */
enum {
    CMD_OK = 0,
    CMD_FAILED = 1, /* a comparison or an operation failed */
    CMD_USAGE = 2   /* the command line or an input file is wrong */
};

/* argv[0] is the verb. Returns an exit status. */
#define CMD_DECLARE(verb, about) int cmd_##verb(int argc, char **argv);
CMD_MAP(CMD_DECLARE)
#undef CMD_DECLARE

/* One option. Every verb also has --help (-h). */
typedef struct cmd_option {
    const char *name;  /* without dashes; NULL ends the table */
    char letter;       /* its short form, or 0 */
    const char *value; /* what it takes, for help: "FILE"; NULL: nothing */
    const char *help;  /* lines separated by \n */
} cmd_option;

typedef struct cmd_spec {
    const char *verb;
    const char *synopsis; /* "FILE [OPTION]..." */
    const char *about;    /* a paragraph, lines broken */
    const cmd_option *options;
    const char *epilogue; /* examples and the like; may be NULL */
} cmd_spec;

enum { CMD_OPTION_END = -1, CMD_OPTION_HELP = -2, CMD_OPTION_ERROR = -3, CMD_OPTIONS_MAX = 24 };

typedef struct cmd_parser {
    const cmd_spec *spec;
    int argc;
    char **argv;
    const char *value;      /* of the option just returned */
    const char *after_json; /* the word after a --json that takes none: meant as its file */
    char **operands;        /* after CMD_OPTION_END */
    int n_operands;
} cmd_parser;

cmd_parser cmd_parser_init(const cmd_spec *spec, int argc, char **argv);

/* The next option's place in spec->options, or one of CMD_OPTION_*. */
int cmd_parser_next(cmd_parser *parser);

/* True when the number of operands is in min .. max; else says what is wrong. */
bool cmd_parser_has_operands(const cmd_parser *parser, int min, int max);

/* Prints text with control characters as '?': names may hold anything, and a terminal must not obey
 * it. */
void cmd_print_clean(FILE *f, const char *text);

/* "megamla <verb>: <sentence>" on standard error. */
__attribute__((format(printf, 2, 3))) void
cmd_message(const cmd_spec *spec, const char *format, ...);

/* Values of options. Each says what is wrong and returns false; `option` is the long name. */
bool cmd_parse_count(const cmd_spec *spec,
                     const char *option,
                     const char *text,
                     int64_t low,
                     int64_t high,
                     int64_t *out);
bool cmd_parse_bytes(const cmd_spec *spec, const char *option, const char *text, int64_t *out);

/* 1 .. high, where 64k is 64 * 1024 and 1m is 1024 * 1024. */
bool cmd_parse_tokens(
    const cmd_spec *spec, const char *option, const char *text, int64_t high, int64_t *out);

/* True when text is one of the names (NULL ends them); the message lists them. */
bool cmd_parse_name(const cmd_spec *spec,
                    const char *option,
                    const char *text,
                    const char *const *names);

/* A file to write, or "-". An option in its place was most likely meant as the next option. */
bool cmd_parse_file(const cmd_spec *spec, const char *option, const char *text);

/* The name of an implementation that one of the library's operations `ops` (NULL ends them) has and
 * this device can use. */
bool cmd_parse_implementation(const cmd_spec *spec,
                              const char *option,
                              const char *text,
                              mmla_device device,
                              const char *const *ops);

/* A device that this machine has. */
bool cmd_parse_device(const cmd_spec *spec, const char *text, mmla_device *out);

/* Why there is no such device, "" when there is. The text lies in *err. */
const char *cmd_device_missing(mmla_device device, mmla_error *err);

/* A context on `device` with n_threads threads (0: all), or a message and NULL. */
mmla_context *cmd_context_create(const cmd_spec *spec, mmla_device device, int64_t n_threads);

struct json_t;

/* Prints a document to standard output and frees it; NULL says that there was no memory for it.
 * Returns an exit status. */
int cmd_json_print(const cmd_spec *spec, struct json_t *json);

/* The member of `names` (NULL ends it) nearest to `text`, or NULL when none is near. */
const char *cmd_nearest(const char *text, const char *const *names);

#endif
