/* cmd_kv.c - megamla kv: how many tokens fit, for each pair of record formats. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "app/cli/cmd.h"
#include "app/cli/kv_plan.h"
#include "app/term/term.h"

enum {
    OPT_CONTEXT,
    OPT_MEMORY,
    OPT_WINDOW_FORMAT,
    OPT_COMPRESSED_FORMAT,
    OPT_INDEX_FORMAT,
    OPT_DRAFT,
    OPT_WINDOW_PAGE,
    OPT_BLOCK,
    OPT_JSON
};

static const cmd_option options[] = {
    [OPT_CONTEXT] = {"context", 'c', "N", "tokens of each request, such as 8000, 64k or 1m (64k)"},
    [OPT_MEMORY] = {"memory", 'm', "SIZE",
                    "memory for the caches, such as 80GiB or 64GB (80GiB);\n"
                    "units B, KiB, MiB, GiB, TiB, kB, MB, GB, TB"},
    [OPT_WINDOW_FORMAT] = {"window-format", 'w', "FORMAT",
                           "only this window record: v4, v41_fp8 or v41_fp4"},
    [OPT_COMPRESSED_FORMAT] = {"compressed-format", 'f', "FORMAT",
                               "only this compressed record, likewise"},
    [OPT_INDEX_FORMAT] = {"index-format", 'i', "FORMAT",
                          "only this index key: index_fp8 or index_fp4"},
    [OPT_DRAFT] = {"draft", 'd', "N", "draft tokens of a step, which size the rings (5)"},
    [OPT_WINDOW_PAGE] = {"window-page", 0, "N", "tokens a page of the window caches (32)"},
    [OPT_BLOCK] = {"block", 0, "N",
                   "original tokens a page of the compressed caches, even\n"
                   "(128: pages of 128 records at ratio 1, of 64 at ratio 2)"},
    [OPT_JSON] = {"json", 0, NULL, "print JSON, to standard output"},
    {0},
};

static const cmd_spec spec = {
    .verb = "kv",
    .synopsis = "[OPTION]...",
    .about = "Shows what the key-value caches of DeepSeek-V4.1-Flash take: bytes a token, bytes a\n"
             "request, and how many tokens and requests fit, for each legal pair of window and\n"
             "compressed records. A request holds 43 windows of 128 tokens in whole pages, 2.5\n"
             "compressed records and index keys a token, and three compressor rings.",
    .options = options,
    .epilogue = "examples\n"
                "  megamla kv --context 128k --memory 141GB\n"
                "  megamla kv --window-format v41_fp8 --compressed-format v41_fp4 --json\n\n"
                "exit status: 0 success; 1 the output could not be written; 2 bad usage",
};

/* The largest numbers that keep every product below 2^63. */
static const int64_t CONTEXT_MAX = INT64_C(1) << 40;
enum { DRAFT_MAX = 4096, PAGE_MAX = 65536 };

typedef struct settings {
    kv_setting kv; /* a format NONE: all of them */
    int64_t memory_bytes;
    bool json;
} settings;

/* A format by name, which must be of records (dims 512) or of index keys (128). */
static bool
format_parse(const char *option, const char *text, int32_t dims, mmla_kv_format *format) {
    mmla_error err;
    if (mmla_kv_format_parse(text, format, &err) == MMLA_OK && mmla_kv_dims(*format) == dims) {
        return true;
    }
    cmd_message(&spec, "--%s is '%s', must be %s", option, text,
                dims == MMLA_INDEX_DIM ? "index_fp8 or index_fp4" : "v4, v41_fp8 or v41_fp4");
    return false;
}

static bool option_apply(int option, const char *value, settings *s) {
    const char *name = options[option].name;
    switch (option) {
    case OPT_CONTEXT:
        return cmd_parse_tokens(&spec, name, value, CONTEXT_MAX, &s->kv.context_tokens);
    case OPT_MEMORY:
        return cmd_parse_bytes(&spec, name, value, &s->memory_bytes);
    case OPT_WINDOW_FORMAT:
        return format_parse(name, value, MMLA_LATENT_DIM, &s->kv.window);
    case OPT_COMPRESSED_FORMAT:
        return format_parse(name, value, MMLA_LATENT_DIM, &s->kv.compressed);
    case OPT_INDEX_FORMAT:
        return format_parse(name, value, MMLA_INDEX_DIM, &s->kv.index);
    case OPT_DRAFT:
        return cmd_parse_count(&spec, name, value, 0, DRAFT_MAX, &s->kv.draft_tokens);
    case OPT_WINDOW_PAGE:
        return cmd_parse_count(&spec, name, value, 1, PAGE_MAX, &s->kv.window_page_tokens);
    case OPT_BLOCK:
        if (!cmd_parse_count(&spec, name, value, 2, PAGE_MAX, &s->kv.block_tokens)) {
            return false;
        }
        if (s->kv.block_tokens % 2 != 0) {
            cmd_message(&spec, "--block is %s, must be even: half of it is a page at ratio 2",
                        value);
            return false;
        }
        return true;
    default:
        s->json = true;
        return true;
    }
}

/* One line of the result. */
typedef struct row {
    kv_setting kv;
    kv_cost cost;
    int64_t tokens_per_gib; /* at the setting's context, everything included */
    int64_t requests;       /* whole ones that fit */
} row;

enum { ROWS_MAX = 32 };

static row row_make(const settings *s, mmla_kv_format w, mmla_kv_format c, mmla_kv_format i) {
    row r = {.kv = s->kv};
    r.kv.window = w;
    r.kv.compressed = c;
    r.kv.index = i;
    r.cost = kv_cost_count(&r.kv);
    r.tokens_per_gib = (int64_t)((double)(INT64_C(1) << 30) * (double)r.kv.context_tokens /
                                 (double)r.cost.request);
    r.requests = s->memory_bytes / r.cost.request;
    return r;
}

/* Every legal combination the settings leave open. */
static int rows_make(const settings *s, row rows[ROWS_MAX]) {
    static const mmla_kv_format records[] = {MMLA_KV_V4, MMLA_KV_V41_FP8, MMLA_KV_V41_FP4};
    static const mmla_kv_format keys[] = {MMLA_KV_INDEX_FP8, MMLA_KV_INDEX_FP4};
    int n = 0;
    for (int w = 0; w < 3; w++) {
        for (int c = 0; c < 3; c++) {
            for (int i = 0; i < 2; i++) {
                const bool wanted =
                    (s->kv.window == MMLA_KV_NONE || s->kv.window == records[w]) &&
                    (s->kv.compressed == MMLA_KV_NONE || s->kv.compressed == records[c]) &&
                    (s->kv.index == MMLA_KV_NONE || s->kv.index == keys[i]);
                if (wanted && kv_pair_is_legal(records[w], records[c])) {
                    rows[n++] = row_make(s, records[w], records[c], keys[i]);
                }
            }
        }
    }
    return n;
}

static void table_print(const settings *s, const row *rows, int n) {
    printf("DeepSeek-V4.1-Flash, %s tokens a request, %s for the caches\n\n",
           term_count(s->kv.context_tokens).text, term_bytes((double)s->memory_bytes).text);
    printf("%-8s %-10s %-9s %7s %10s %10s %11s %9s %13s\n", "window", "compressed", "index",
           "B/token", "windows", "a request", "tokens/GiB", "requests", "tokens");
    for (int k = 0; k < n; k++) {
        const row *r = &rows[k];
        printf("%-8s %-10s %-9s %7.0f %10s %10s %11s %9s %13s\n", mmla_kv_format_name(r->kv.window),
               mmla_kv_format_name(r->kv.compressed), mmla_kv_format_name(r->kv.index),
               r->cost.per_token, term_bytes((double)r->cost.window).text,
               term_bytes((double)r->cost.request).text, term_count(r->tokens_per_gib).text,
               term_count(r->requests).text, term_count(r->requests * r->kv.context_tokens).text);
    }
    bool all_fit = true, none_fits = true;
    for (int k = 0; k < n; k++) {
        all_fit = all_fit && rows[k].requests > 0;
        none_fits = none_fits && rows[k].requests == 0;
    }
    if (!all_fit) {
        printf("\n%s not even one request fits into %s.\n",
               none_fits ? "With these settings" : "Where requests is 0,",
               term_bytes((double)s->memory_bytes).text);
    }
    printf("\n"
           "B/token is what one more token adds: 2.5 compressed records and index keys. A request\n"
           "holds 43 windows at their worst alignment and %s of compressor rings, all in whole\n"
           "pages: %lld tokens a window page, %lld original tokens a compressed page.\n",
           term_bytes((double)rows[0].cost.rings).text, (long long)s->kv.window_page_tokens,
           (long long)s->kv.block_tokens);
}

static json_t *row_json(const row *r) {
    const kv_cost *c = &r->cost;
    return json_pack(
        "{s:s, s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "window_format",
        mmla_kv_format_name(r->kv.window), "compressed_format",
        mmla_kv_format_name(r->kv.compressed), "index_format", mmla_kv_format_name(r->kv.index),
        "bytes_per_token", c->per_token, "window_bytes", (json_int_t)c->window, "window_live_bytes",
        (json_int_t)c->window_live, "compressed_bytes", (json_int_t)c->compressed, "index_bytes",
        (json_int_t)c->index, "ring_bytes", (json_int_t)c->rings, "request_bytes",
        (json_int_t)c->request, "tokens_per_gib", (json_int_t)r->tokens_per_gib, "requests",
        (json_int_t)r->requests, "tokens", (json_int_t)(r->requests * r->kv.context_tokens));
}

static json_t *rows_json(const settings *s, const row *rows, int n) {
    json_t *list = json_array();
    for (int k = 0; k < n; k++) {
        json_array_append_new(list, row_json(&rows[k]));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "context_tokens",
                     (json_int_t)s->kv.context_tokens, "memory_bytes", (json_int_t)s->memory_bytes,
                     "draft_tokens", (json_int_t)s->kv.draft_tokens, "window_page_tokens",
                     (json_int_t)s->kv.window_page_tokens, "block_tokens",
                     (json_int_t)s->kv.block_tokens, "rows", list);
}

int cmd_kv(int argc, char **argv) {
    settings s = {
        .kv = {.context_tokens = 65536,
               .draft_tokens = 5,
               .window_page_tokens = 32,
               .block_tokens = 128},
        .memory_bytes = INT64_C(80) << 30,
    };
    cmd_parser parser = cmd_parser_init(&spec, argc, argv);
    for (int option; (option = cmd_parser_next(&parser)) != CMD_OPTION_END;) {
        if (option == CMD_OPTION_HELP) {
            return CMD_OK;
        }
        if (option < 0 || !option_apply(option, parser.value, &s)) {
            return CMD_USAGE;
        }
    }
    if (!cmd_parser_has_operands(&parser, 0, 0)) {
        return CMD_USAGE;
    }
    row rows[ROWS_MAX];
    const int n = rows_make(&s, rows);
    if (n == 0) {
        cmd_message(&spec,
                    "window %s with compressed %s is no legal pair: both the same, or v41_fp8 with "
                    "v41_fp4",
                    mmla_kv_format_name(s.kv.window), mmla_kv_format_name(s.kv.compressed));
        return CMD_USAGE;
    }
    if (s.json) {
        return cmd_json_print(&spec, rows_json(&s, rows, n));
    }
    table_print(&s, rows, n);
    return CMD_OK;
}
