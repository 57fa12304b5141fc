/* main.c - the megamla command: picks the verb. Everything else is in cmd_<verb>.c. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <megamla/version.h>

#include "app/cli/cmd.h"

typedef struct verb {
    const char *name;
    const char *about;
    int (*main)(int argc, char **argv);
} verb;

static const verb verbs[] = {
#define VERB(name, about) {#name, about, cmd_##name},
    CMD_MAP(VERB)
#undef VERB
};

enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

static void usage_print(FILE *to) {
    fprintf(to,
            "usage: megamla VERB [OPTION]...\n\n"
            "DeepSeek V4.1 attention, fused end to end: replay, check, measure, plan memory.\n\n"
            "verbs\n");
    for (int i = 0; i < N_VERBS; i++) {
        fprintf(to, "  %-8s %s\n", verbs[i].name, verbs[i].about);
    }
    fprintf(to, "\nmegamla VERB --help (or megamla help VERB) shows the options of a verb;\n"
                "megamla --version shows the version.\n\n"
                "exit status: 0 success; 1 a comparison or an operation failed; 2 bad usage or "
                "input\n");
}

static const verb *verb_find(const char *name) {
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(name, verbs[i].name) == 0) {
            return &verbs[i];
        }
    }
    const char *names[N_VERBS + 1] = {0};
    for (int i = 0; i < N_VERBS; i++) {
        names[i] = verbs[i].name;
    }
    const char *near = cmd_nearest(name, names);
    cmd_message(NULL, "there is no verb '%s'%s%s%s; megamla --help lists them", name,
                near != NULL ? ", did you mean '" : "", near != NULL ? near : "",
                near != NULL ? "'" : "");
    return NULL;
}

static int help_run(int argc, char **argv) {
    if (argc < 2) {
        usage_print(stdout);
        return CMD_OK;
    }
    const verb *v = verb_find(argv[1]);
    char help[] = "--help";
    char *verb_argv[] = {argv[1], help, NULL};
    return v == NULL ? CMD_USAGE : v->main(2, verb_argv);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        usage_print(stderr);
        return CMD_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("megamla %s\n", mmla_version_string());
        return CMD_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        usage_print(stdout);
        return CMD_OK;
    }
    if (strcmp(name, "help") == 0) {
        return help_run(argc - 1, argv + 1);
    }
    if (name[0] == '-') {
        cmd_message(NULL, "unknown option '%s'; megamla --help shows the usage", name);
        return CMD_USAGE;
    }
    const verb *v = verb_find(name);
    return v == NULL ? CMD_USAGE : v->main(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    signal(SIGXFSZ,
           SIG_IGN); /* a file too large is a failed write, with a message and a clean-up */
    const int status = dispatch(argc, argv);
    /* A result that could not be written is a failure even when everything before went well. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "megamla: cannot write to standard output: %s\n", strerror(errno));
        return status == CMD_OK ? CMD_FAILED : status;
    }
    return status;
}
