/* check_cache.c - NaN first, then records through the public insert. */
#include "app/check/check_cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/check/check_num.h"

enum { TABLE_ROWS = 16, FAR_BYTES_LOG2 = 31 };

void check_row_fill(uint16_t *row, int dims, bool amplified, check_rng *rng) {
    /* Most rows are of ordinary size; some are small enough to meet the floor of a scale. */
    const float size =
        check_rng_chance(rng, 0.15) ? ldexpf(1.0f, -(int)check_rng_below(rng, 18)) : 1.0f;
    for (int d = 0; d < dims; d++) {
        const float amplifier =
            amplified && check_rng_chance(rng, 0.02) ? (float)CHECK_KEY_AMPLIFIER : 1.0f;
        row[d] = check_bf16_of_f32(check_rng_normal(rng) * size * amplifier);
    }
}

check_buffer check_cos_sin_create(int64_t positions, check_rng *rng) {
    check_buffer b = check_buffer_create(positions * 64 * (int64_t)sizeof(float), 4, 0xFF);
    float *table = (float *)b.data;
    for (int64_t p = 0; p < positions; p++) {
        for (int i = 0; i < 32; i++) {
            const double angle = 6.283185307179586 * check_rng_uniform(rng);
            table[p * 64 + i] = (float)cos(angle);
            table[p * 64 + 32 + i] = (float)sin(angle);
        }
    }
    return b;
}

static int64_t stride_of(check_stride stride, const mmla_cache_desc *desc, check_rng *rng) {
    const int64_t records = desc->page_tokens * mmla_kv_record_bytes(desc->format);
    const int64_t exact = (records + 15) / 16 * 16;
    switch (stride) {
    case CHECK_STRIDE_EXACT:
        return exact;
    case CHECK_STRIDE_ODD:
        return exact + 16 * (1 + check_rng_below(rng, 97));
    case CHECK_STRIDE_MILLION:
        return exact + (1 << 20);
    case CHECK_STRIDE_FAR: /* the last page begins at (n_pages - 1) strides */
        return exact + ((((int64_t)1 << FAR_BYTES_LOG2) / (desc->n_pages - 1)) / 16 + 1) * 16;
    default:
        return 0;
    }
}

static bool is_used(const check_cache *c, int64_t slot) {
    return ((c->is_used[slot / 8] >> (slot % 8)) & 1) != 0;
}

/* Draws which slots get a record: the last one always, none of page 0 when there are others. */
static void draw_slots(check_cache *c, int64_t n_records, check_rng *rng) {
    const int64_t first = c->desc.n_pages > 1 ? c->desc.page_tokens : 0;
    const int64_t free_slots = c->n_slots - first;
    /* A quarter stays NaN, so that lists can name such slots where they must not be read. */
    const int64_t most = free_slots - free_slots / 4;
    n_records = n_records < most ? n_records : most;
    c->used = check_alloc((n_records + 1) * (int64_t)sizeof *c->used);
    for (int64_t tries = 0; c->n_used < n_records && tries < 20 * n_records; tries++) {
        const int64_t slot =
            c->n_used == 0 ? c->n_slots - 1 : first + check_rng_below(rng, free_slots);
        if (!is_used(c, slot)) {
            c->is_used[slot / 8] = (uint8_t)(c->is_used[slot / 8] | (1 << (slot % 8)));
            c->used[c->n_used++] = (int32_t)slot;
        }
    }
}

static void insert_records(mmla_context *ctx, check_cache *c, bool amplified, check_rng *rng) {
    const int dims = mmla_kv_dims(c->desc.format);
    mmla_kv_insert_desc desc = {.cache = c->desc,
                                .max_tokens = c->n_used,
                                .rope_positions = TABLE_ROWS,
                                .scale_floor = (mmla_scale_floor)check_rng_below(rng, 2),
                                .implementation = "reference"};
    check_buffer table = check_cos_sin_create(TABLE_ROWS, rng);
    check_buffer rows = check_buffer_create(c->n_used * dims * 2, 16, 0xFF);
    int64_t *positions = check_alloc(c->n_used * 8), *slots = check_alloc(c->n_used * 8);
    for (int64_t t = 0; t < c->n_used; t++) {
        check_row_fill((uint16_t *)rows.data + t * dims, dims, amplified, rng);
        positions[t] = check_rng_below(rng, TABLE_ROWS);
        slots[t] = c->used[t];
    }
    mmla_error err = {0};
    mmla_kv_insert_plan *plan;
    mmla_status status = mmla_kv_insert_plan_create(ctx, &desc, &plan, &err);
    if (status == MMLA_OK) {
        mmla_kv_insert_args args = {.n_rows = c->n_used,
                                    .n_slots = c->n_used,
                                    .rows = (const uint16_t *)rows.data,
                                    .positions = positions,
                                    .slots = slots,
                                    .cos_sin = (const float *)table.data,
                                    .cache = c->memory.data,
                                    .error = &err};
        status = mmla_kv_insert_run(plan, &args, NULL, NULL);
    }
    mmla_kv_insert_plan_destroy(plan);
    free(slots);
    free(positions);
    check_buffer_destroy(&rows);
    check_buffer_destroy(&table);
    if (status != MMLA_OK) { /* no case can be drawn without records */
        fprintf(stderr, "megamla: writing the records of a case failed: %s\n", err.message);
        exit(1);
    }
}

/* The pages that hold a record. */
static void list_parts(check_cache *c) {
    const int64_t page_tokens = c->desc.page_tokens;
    const int64_t bytes = page_tokens * mmla_kv_record_bytes(c->desc.format);
    c->parts = check_alloc((c->n_used + 1) * (int64_t)sizeof *c->parts); /* no more than records */
    for (int64_t page = 0; page < c->desc.n_pages; page++) {
        int64_t record = 0;
        while (record < page_tokens && !is_used(c, page * page_tokens + record)) {
            record++;
        }
        if (record < page_tokens) {
            c->parts[c->n_parts++] = (device_part){page * check_cache_stride_bytes(c), bytes};
        }
    }
}

check_cache check_cache_create(mmla_context *ctx,
                               mmla_kv_format format,
                               int32_t page_tokens,
                               int64_t n_pages,
                               check_stride stride,
                               int64_t n_records,
                               bool amplified,
                               check_rng *rng) {
    check_cache c = {.desc = {.format = format, .page_tokens = page_tokens, .n_pages = n_pages},
                     .n_slots = n_pages * page_tokens};
    c.desc.page_stride_bytes = stride_of(stride, &c.desc, rng);
    const int64_t bytes = n_pages * check_cache_stride_bytes(&c);
    /* Alignment is exactly the 16 bytes that are promised. */
    c.memory = bytes > (8 << 20) ? check_buffer_create_sparse(bytes)
                                 : check_buffer_create(bytes, 16, 0xFF);
    c.is_used = check_alloc(c.n_slots / 8 + 1);
    memset(c.is_used, 0, (size_t)(c.n_slots / 8 + 1));
    draw_slots(&c, n_records, rng);
    if (c.n_used > 0) {
        insert_records(ctx, &c, amplified, rng);
    }
    list_parts(&c);
    return c;
}

void check_cache_destroy(check_cache *c) {
    if (c->memory.data != NULL) {
        check_buffer_destroy(&c->memory);
    }
    free(c->used);
    free(c->is_used);
    free(c->parts);
    *c = (check_cache){0};
}

int32_t check_cache_unused_slot(const check_cache *c, check_rng *rng) {
    for (int tries = 0; tries < 100 && c->n_slots > 0; tries++) {
        const int64_t slot = check_rng_below(rng, c->n_slots);
        if (!is_used(c, slot)) {
            return (int32_t)slot;
        }
    }
    return -1;
}

int64_t check_cache_stride_bytes(const check_cache *c) {
    return c->desc.page_stride_bytes != 0 ? c->desc.page_stride_bytes
                                          : mmla_kv_page_bytes(c->desc.format, c->desc.page_tokens);
}

device_sparse check_cache_sparse(const check_cache *c) {
    return c->memory.is_mapped
               ? (device_sparse){.host = c->memory.data, .parts = c->parts, .n_parts = c->n_parts}
               : (device_sparse){0};
}
