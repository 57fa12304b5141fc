/* check_attend_case.h - one description of the fused call with inputs chosen to hurt. */
#ifndef APP_CHECK_CHECK_ATTEND_CASE_H
#define APP_CHECK_CHECK_ATTEND_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include <megamla/megamla.h>

#include "app/check/check_session.h"
#include "app/check/check_buffer.h"
#include "app/check/check_cache.h"
#include "app/check/check_near.h"

/* What is known of a token's result without computing it. */
typedef enum check_token {
    CHECK_TOKEN_PLAIN = 0,
    CHECK_TOKEN_NAN = 1,   /* a used row is NaN: everything is NaN */
    CHECK_TOKEN_FAULT = 2, /* its position is outside the table: everything is NaN, and an error */
    CHECK_TOKEN_WILD = 3   /* a used row or its q holds an infinity: not compared, but contained */
} check_token;

typedef struct check_attend_case {
    mmla_attend_desc desc; /* without implementation */
    mmla_attend_args args; /* inputs and counts; results are whoever calls */
    bool amplified;
    int32_t n_faults; /* tokens outside the table */
    check_token *tokens;
    check_tolerance out_tolerance, lse_tolerance; /* the second also of max_logits */
    char shape[CHECK_TEXT_BYTES];
    /* What args points to. */
    check_cache window, compressed;
    check_buffer q, positions, cos_sin, sink, list, lens, compressed_list, compressed_lens, kv;
} check_attend_case;

/* Draws case idx. T is chosen so that the reference needs some tenths of a second at most. */
check_attend_case check_attend_case_create(check_session *s, int64_t idx);

/* The same with everything under the caller's control that tests of size need. */
typedef struct check_attend_wish {
    mmla_attend_kind kind;
    int32_t n_heads;
    int64_t n_tokens;
    int32_t width, compressed_width;
    mmla_kv_format window, compressed;
    int32_t page_tokens, compressed_page_tokens;
    check_stride stride;
    int64_t n_pages; /* 0: as many as the records need */
    mmla_q_layout q_layout;
    mmla_out_form out_form;
    bool q_norm, sink, amplified, batch_invariant;
    bool sharp; /* a large scale; full lists, for a reason given where it is used */
    bool plain; /* no holes, no lengths, no NaN, no faults */
} check_attend_wish;

check_attend_case
check_attend_case_wish(check_session *s, const check_attend_wish *wish, check_rng *rng);
/* No element of a key of the case exceeds it. */
double check_attend_largest_key(const check_attend_case *c);

void check_attend_case_destroy(check_attend_case *c);

#endif
