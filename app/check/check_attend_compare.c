/* check_attend_compare.c - values by tolerance, special tokens by what is known of them. */
#include "app/check/check_attend_compare.h"

#include <math.h>
#include <string.h>

enum { D = MMLA_LATENT_DIM };

/* The running comparisons of one result. */
typedef struct comparison {
    check_near out, scale, lse, max_logits;
    int64_t n_scales, n_scales_differ;
    bool scale_is_far;
} comparison;

static bool all_nan(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(x[i])) {
            return false;
        }
    }
    return true;
}

static bool any_nan(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) {
            return true;
        }
    }
    return false;
}

static bool all_zero(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (x[i] != 0.0f) {
            return false;
        }
    }
    return true;
}

/* One result of one token: n values at index `at` of it. */
static void look_at(check_token token,
                    const float *got,
                    int64_t n,
                    int64_t t,
                    const char *what,
                    check_verdict *verdict) {
    if (token == CHECK_TOKEN_PLAIN && any_nan(got, n)) {
        check_verdict_fail(verdict, "%s of token %lld has a NaN, but no row it uses has", what,
                           (long long)t);
    }
    if ((token == CHECK_TOKEN_NAN || token == CHECK_TOKEN_FAULT) && !all_nan(got, n)) {
        check_verdict_fail(verdict, "%s of token %lld is not all NaN, but %s", what, (long long)t,
                           token == CHECK_TOKEN_NAN ? "a row it uses is" : "its position is bad");
    }
}

/* Power-of-two scales: where an implementation's maximum lies on the other side of a power of two
 * than the reference's, the scale is one step off and the values are as good. That is rare. */
static void add_scales(comparison *k, const float *got, const float *want, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        k->n_scales++;
        k->n_scales_differ += got[i] != want[i];
        k->scale_is_far |= got[i] > 2.0f * want[i] || want[i] > 2.0f * got[i];
    }
}

double check_attend_largest(const check_attend_case *c, const check_attend_result *result) {
    double largest = 0.0;
    for (int64_t i = 0; i < result->n_tokens * c->desc.n_heads * D; i++) {
        const double x = fabs((double)result->out[i]);
        largest = isfinite(x) && x > largest ? x : largest;
    }
    return largest;
}

static void report_worst(const check_near *near, const char *what, int64_t dims, check_verdict *v) {
    if (!(check_near_used(near) <= 1.0)) {
        check_verdict_fail(v,
                           "%s: token %lld, element %lld is %.9g, reference %.9g: %.3g times the "
                           "tolerance; cosine distance %.2e",
                           what, (long long)(near->worst_at / dims),
                           (long long)(near->worst_at % dims), (double)near->got,
                           (double)near->want, near->worst, check_near_cosine(near));
    }
}

static void compare_token(const check_attend_case *c,
                          int64_t t,
                          const check_attend_result *got,
                          int64_t got_t,
                          const check_attend_result *want,
                          comparison *k,
                          check_verdict *verdict) {
    const int64_t h = c->desc.n_heads;
    const float *out = got->out + got_t * h * D, *scale = got->scale + got_t * got->n_scales;
    const float *lse = got->lse + got_t * h, *max_logits = got->max_logits + got_t * h;
    const check_token token = c->tokens[t];
    if (token == CHECK_TOKEN_WILD) {
        return;
    }
    look_at(token, out, h * D, t, "out", verdict);
    look_at(token, lse, h, t, "lse", verdict);
    look_at(token, max_logits, h, t, "max_logits", verdict);
    check_near_add(&k->out, out, want->out + t * h * D, h * D, t * h * D);
    check_near_add(&k->lse, lse, want->lse + t * h, h, t * h);
    check_near_add(&k->max_logits, max_logits, want->max_logits + t * h, h, t * h);
    if (c->desc.out_form == MMLA_OUT_FP8_128) {
        check_near_add(&k->scale, scale, want->scale + t * want->n_scales, want->n_scales,
                       t * want->n_scales);
    } else {
        add_scales(k, scale, want->scale + t * want->n_scales, want->n_scales);
    }
    if (token == CHECK_TOKEN_PLAIN && want->max_logits[t * h] == -INFINITY &&
        !all_zero(out, h * D)) {
        check_verdict_fail(verdict, "token %lld has no key, but its output is not zero",
                           (long long)t);
    }
    /* NaN in bf16 has no fixed bits; codes and scales of FP8 have. */
    const bool is_fixed = token == CHECK_TOKEN_FAULT && c->desc.out_form != MMLA_OUT_BF16;
    const int64_t bytes = check_attend_cast_bytes(&c->desc);
    const uint8_t *a = got->bytes + got_t * got->token_bytes;
    const uint8_t *b = want->bytes + t * want->token_bytes;
    const int64_t at = is_fixed ? check_bytes_compare(a, b, bytes) : -1;
    if (at >= 0) {
        check_verdict_fail(verdict,
                           "token %lld, outside the table: byte %lld of its results is 0x%02X, not "
                           "0x%02X",
                           (long long)t, (long long)at, a[at], b[at]);
    }
}

void check_attend_compare(const check_attend_case *c,
                          int64_t first,
                          const check_attend_result *got,
                          const check_attend_result *want,
                          check_verdict *verdict) {
    check_tolerance each = c->out_tolerance;
    each.cosine = 0.0;
    comparison k = {.out = check_near_begin(c->out_tolerance),
                    .scale = check_near_begin(each),
                    .lse = check_near_begin(c->lse_tolerance),
                    .max_logits = check_near_begin(c->lse_tolerance)};
    for (int64_t t = 0; t < got->n_tokens; t++) {
        compare_token(c, first + t, got, t, want, &k, verdict);
    }
    report_worst(&k.out, "out", c->desc.n_heads * D, verdict);
    report_worst(&k.scale, "448 * scale", want->n_scales > 0 ? want->n_scales : 1, verdict);
    report_worst(&k.lse, "lse", c->desc.n_heads, verdict);
    report_worst(&k.max_logits, "max_logits", c->desc.n_heads, verdict);
    const int64_t may_differ = 4 + k.n_scales / 20;
    if (!c->amplified && (k.scale_is_far || k.n_scales_differ > may_differ)) {
        check_verdict_fail(verdict, "%lld of %lld scales differ from the reference's%s",
                           (long long)k.n_scales_differ, (long long)k.n_scales,
                           k.scale_is_far ? ", some by more than one step" : "");
    }
    verdict->out_used = fmax(k.out.worst, k.scale.worst);
    verdict->cosine = check_near_cosine(&k.out);
    verdict->lse_used = fmax(k.lse.worst, k.max_logits.worst);
}

void check_attend_same(const check_attend_result *a,
                       int64_t first,
                       const check_attend_result *b,
                       int64_t bytes,
                       const char *what,
                       check_verdict *verdict) {
    for (int64_t t = 0; t < b->n_tokens; t++) {
        const int64_t at = check_bytes_compare(a->bytes + (first + t) * a->token_bytes,
                                               b->bytes + t * b->token_bytes, bytes);
        if (at >= 0) {
            check_verdict_fail(verdict, "token %lld has other bits %s, from byte %lld of %lld on",
                               (long long)(first + t), what, (long long)at, (long long)bytes);
            return;
        }
    }
}
