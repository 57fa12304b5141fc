/* check_attend_result.c - the four output forms, read back into one. */
#include <stdlib.h>
#include <string.h>

#include "app/check/check_attend_call.h"
#include "app/check/check_num.h"

enum { D = MMLA_LATENT_DIM, CHUNK = MMLA_OUT_CHUNK_DIM, WIDE_CHUNK = 128, NAN_BITS = 0x7FC00000 };

/* Sizes of one head's results. */
static int64_t head_code_bytes(const mmla_attend_desc *d) {
    return d->out_form == MMLA_OUT_BF16 ? 2 * D : D;
}

static int64_t head_scale_count(const mmla_attend_desc *d) {
    switch (d->out_form) {
    case MMLA_OUT_BF16:
        return 0;
    case MMLA_OUT_FP8_128:
        return D / WIDE_CHUNK;
    default:
        return D / CHUNK;
    }
}

static int64_t scale_bytes(const mmla_attend_desc *d) {
    return d->out_form == MMLA_OUT_FP8_128 ? 4 : 1;
}

int64_t check_attend_cast_bytes(const mmla_attend_desc *d) {
    return d->n_heads * (head_code_bytes(d) + head_scale_count(d) * scale_bytes(d));
}

/* Strides of the packed scales, in words, defaults filled in. */
static int64_t word_stride(const mmla_attend_desc *d, int64_t n_tokens) {
    return d->out_scale_word_stride != 0 ? d->out_scale_word_stride : (n_tokens + 3) / 4 * 4;
}

static int64_t group_stride(const mmla_attend_desc *d, int64_t n_tokens) {
    return d->out_scale_group_stride != 0 ? d->out_scale_group_stride
                                          : 32 * word_stride(d, n_tokens);
}

/* Bytes of out_scale: for the packed form all groups, padding included. */
static int64_t scale_buffer_bytes(const mmla_attend_desc *d, int64_t n_tokens) {
    if (d->out_form == MMLA_OUT_FP8_PERMUTED) {
        return d->n_heads / MMLA_HEADS_PER_GROUP * group_stride(d, n_tokens) * 4;
    }
    return n_tokens * d->n_heads * head_scale_count(d) * scale_bytes(d);
}

check_attend_buffers
check_attend_buffers_create(const mmla_attend_desc *d, int64_t n_tokens, uint8_t poison) {
    check_attend_buffers b = {0};
    b.out = check_buffer_create(n_tokens * d->n_heads * head_code_bytes(d), 32, poison);
    if (d->out_form != MMLA_OUT_BF16) {
        b.out_scale = check_buffer_create(scale_buffer_bytes(d, n_tokens), 4, poison);
    }
    b.lse = check_buffer_create(n_tokens * d->n_heads * 4, 4, poison);
    b.max_logits = check_buffer_create(n_tokens * d->n_heads * 4, 4, poison);
    return b;
}

void check_attend_buffers_destroy(check_attend_buffers *b) {
    check_buffer_destroy(&b->out);
    check_buffer_destroy(&b->out_scale);
    check_buffer_destroy(&b->lse);
    check_buffer_destroy(&b->max_logits);
}

void check_attend_buffers_check(const check_attend_buffers *b,
                                const mmla_attend_desc *d,
                                int64_t n_tokens,
                                uint8_t poison,
                                check_verdict *verdict) {
    if (!check_buffer_is_intact(&b->out) || !check_buffer_is_intact(&b->out_scale) ||
        !check_buffer_is_intact(&b->lse) || !check_buffer_is_intact(&b->max_logits)) {
        check_verdict_fail(verdict, "bytes before or behind a result were written");
    }
    if (d->out_form != MMLA_OUT_FP8_PERMUTED) {
        return;
    }
    const int64_t words = word_stride(d, n_tokens), groups = group_stride(d, n_tokens);
    for (int64_t at = 0; at < b->out_scale.bytes; at++) {
        const int64_t in_group = at / 4 % groups;
        const bool is_padding = in_group >= 32 * words || in_group % words >= n_tokens;
        if (is_padding && b->out_scale.data[at] != poison) {
            check_verdict_fail(verdict, "padding of out_scale was written, at byte %lld",
                               (long long)at);
            return;
        }
    }
}

/* One code's place and its scale's, in the result buffers. */
typedef struct place {
    int64_t code;  /* element of out */
    int64_t scale; /* byte or float of out_scale */
} place;

static place
place_of(const mmla_attend_desc *d, int64_t n_tokens, int64_t t, int64_t h, int64_t x) {
    const int64_t row = (t * d->n_heads + h) * D;
    switch (d->out_form) {
    case MMLA_OUT_FP8_PERMUTED: {
        const int64_t g = h / MMLA_HEADS_PER_GROUP,
                      chunk = x / CHUNK * MMLA_HEADS_PER_GROUP + h % MMLA_HEADS_PER_GROUP;
        const int64_t word =
            g * group_stride(d, n_tokens) + chunk / 4 * word_stride(d, n_tokens) + t;
        return (place){t * d->n_heads * D + g * MMLA_GROUP_DIM + chunk * CHUNK + x % CHUNK,
                       word * 4 + chunk % 4};
    }
    case MMLA_OUT_FP8:
        return (place){row + x, (row + x) / CHUNK};
    case MMLA_OUT_FP8_128:
        return (place){row + x, (row + x) / WIDE_CHUNK};
    default:
        return (place){row + x, 0};
    }
}

static float scale_at(const check_attend_buffers *b, const mmla_attend_desc *d, int64_t at) {
    return d->out_form == MMLA_OUT_FP8_128 ? ((const float *)b->out_scale.data)[at]
                                           : check_ue8m0_to_f32(b->out_scale.data[at]);
}

/* One head of one token: numbers to r->out and r->scale, bytes to *bytes, which moves on. */
static void read_head(check_attend_result *r,
                      const check_attend_buffers *b,
                      const mmla_attend_desc *d,
                      const float *code_values,
                      int64_t t,
                      int64_t h,
                      uint8_t **bytes) {
    const int64_t n_scales = head_scale_count(d), chunk = n_scales > 0 ? D / n_scales : D;
    float *out = r->out + (t * d->n_heads + h) * D;
    for (int64_t x = 0; x < D; x++) {
        const place p = place_of(d, r->n_tokens, t, h, x);
        if (d->out_form == MMLA_OUT_BF16) {
            const uint16_t value = ((const uint16_t *)b->out.data)[p.code];
            out[x] = check_bf16_to_f32(value);
            memcpy(*bytes, &value, 2);
            *bytes += 2;
            continue;
        }
        const float scale = scale_at(b, d, p.scale);
        out[x] = code_values[b->out.data[p.code]] * scale;
        *(*bytes)++ = b->out.data[p.code];
        if (x % chunk == 0) {
            r->scale[(t * d->n_heads + h) * n_scales + x / chunk] = scale * 448.0f;
            memcpy(*bytes, b->out_scale.data + p.scale * scale_bytes(d), (size_t)scale_bytes(d));
            *bytes += scale_bytes(d);
        }
    }
}

/* fp32 results, every NaN as one pattern: its sign and payload are nobody's promise. */
static void put_float(uint8_t **bytes, float x) {
    const uint32_t bits = x != x ? NAN_BITS : check_bits_of_f32(x);
    memcpy(*bytes, &bits, 4);
    *bytes += 4;
}

check_attend_result check_attend_result_create(const check_attend_buffers *b,
                                               const mmla_attend_desc *d,
                                               int64_t n_tokens) {
    const int64_t rows = n_tokens * d->n_heads;
    check_attend_result r = {.n_tokens = n_tokens,
                             .token_bytes = check_attend_cast_bytes(d) + 8 * d->n_heads,
                             .n_scales = d->n_heads * head_scale_count(d)};
    r.bytes = check_alloc(n_tokens * r.token_bytes);
    r.out = check_alloc(rows * D * 4);
    r.scale = check_alloc(n_tokens * r.n_scales * 4);
    r.lse = check_alloc(rows * 4);
    r.max_logits = check_alloc(rows * 4);
    if (rows > 0) {
        memcpy(r.lse, b->lse.data, (size_t)rows * 4);
        memcpy(r.max_logits, b->max_logits.data, (size_t)rows * 4);
    }
    float code_values[256];
    for (int code = 0; code < 256; code++) {
        code_values[code] = check_e4m3_to_f32((uint8_t)code);
    }
    uint8_t *bytes = r.bytes;
    for (int64_t t = 0; t < n_tokens; t++) {
        for (int64_t h = 0; h < d->n_heads; h++) {
            read_head(&r, b, d, code_values, t, h, &bytes);
        }
        for (int64_t h = 0; h < d->n_heads; h++) {
            put_float(&bytes, r.lse[t * d->n_heads + h]);
            put_float(&bytes, r.max_logits[t * d->n_heads + h]);
        }
    }
    return r;
}

void check_attend_result_destroy(check_attend_result *r) {
    free(r->bytes);
    free(r->out);
    free(r->scale);
    free(r->lse);
    free(r->max_logits);
    *r = (check_attend_result){0};
}
