/* lists_spans.c - how far a token sees inside its own image. */
#include "base/checked.h"
#include "ops/lists/lists.h"

/* The first span of the request that holds the token decides. Spans of a request are few (one an
 * image) and need not be sorted, so they are searched in order. */
mmla_lists_reach mmla_lists_span_reach(const mmla_lists_problem *p,
                                       const mmla_list_args *args,
                                       const mmla_lists_token *token) {
    const int64_t most = p->desc.image_tokens, pos = token->pos;
    if (most == 0) {
        return (mmla_lists_reach){0, 0};
    }
    const int64_t stop = args->span_start[token->request + 1];
    for (int64_t i = args->span_start[token->request]; i < stop; i++) {
        const int64_t first = args->spans[2 * i], last = args->spans[2 * i + 1];
        if (first <= pos && pos <= last) {
            return (mmla_lists_reach){(int32_t)mmla_min_i64(pos - first, most - 1),
                                      (int32_t)mmla_min_i64(last - pos, most)};
        }
    }
    return (mmla_lists_reach){0, 0};
}
