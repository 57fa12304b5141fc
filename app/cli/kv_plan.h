/* kv_plan.h - what the model's caches take, from its geometry.
 *
 * DeepSeek-V4.1-Flash has 43 layers (40 and 3 draft layers), each with its own window cache of the
 * last 128 tokens. Four layers write a compressed cache that the others read: 2, 8 and 14 one
 * record for every two tokens, 20 one for every token; so a token costs 2.5 compressed records and
 * as many index keys. The three of ratio 2 keep a ring of uncompressed rows for each request.
 */
#ifndef APP_CLI_KV_PLAN_H
#define APP_CLI_KV_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/layout.h>

/* What is stored how, and for how long a request. */
typedef struct kv_setting {
    mmla_kv_format window, compressed, index;
    int64_t context_tokens;     /* of each request */
    int64_t draft_tokens;       /* proposed in a step; sizes the rings */
    int64_t window_page_tokens; /* tokens a page of the window caches, at most 65536 */
    int64_t block_tokens;       /* original tokens a page of the compressed caches, even */
} kv_setting;

/* Bytes. */
typedef struct kv_cost {
    double per_token;    /* compressed records and index keys of one more token, pages aside */
    int64_t window;      /* of one request: whole pages, at the worst alignment of the window */
    int64_t window_live; /* of which records in use */
    int64_t compressed;  /* of one request: whole pages */
    int64_t index;       /* of one request: whole pages */
    int64_t rings;       /* of one request */
    int64_t request;     /* the sum */
} kv_cost;

/* One cache's records and the window's pair: is this a pair the attention accepts? */
bool kv_pair_is_legal(mmla_kv_format window, mmla_kv_format compressed);

/* Every number of a setting whose formats are legal. Contexts up to 2^40 are exact. */
kv_cost kv_cost_count(const kv_setting *setting);

#endif
