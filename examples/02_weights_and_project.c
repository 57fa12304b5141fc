/* 02_weights_and_project.c - permute wo_a once, then feed it the fused call's FP8 result.
 *
 * The result is projected twice: from the permuted form with the permuted weight, as an engine does
 * it, and from the standard form with the weight as it is stored. Both must give the same z but for
 * the order of summation. q is taken through the fused order as well.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <megamla/megamla.h>

enum { T = 3, H = 16, G = H / MMLA_HEADS_PER_GROUP, RANK = 64, KEYS = 100, D = MMLA_LATENT_DIM };

static mmla_error err; /* every call below reports into it */

static void check(mmla_status status, const char *what) {
    if (status != MMLA_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, mmla_status_name(status), err.message);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

static uint32_t random_bits(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* n bf16 of about -1 .. 1. */
static uint16_t *made_up_rows(size_t n) {
    uint16_t *rows = allocate(n * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        const float x = (float)random_bits() * 0x1p-23f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        rows[i] = (uint16_t)(bits >> 16);
    }
    return rows;
}

static float to_float(uint16_t code) {
    const uint32_t bits = (uint32_t)code << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void run_weights(mmla_context *ctx, mmla_weights_desc desc, mmla_weights_args args) {
    mmla_weights_plan *plan;
    args.error = &err;
    CHECK(mmla_weights_plan_create(ctx, &desc, &plan, &err));
    CHECK(mmla_weights_run(plan, &args, NULL, NULL));
    mmla_weights_plan_destroy(plan);
}

/* Attention over bf16 rows, in any output form; each token sees all rows. */
static void
run_attend(mmla_context *ctx, mmla_out_form form, mmla_q_layout layout, mmla_attend_args args) {
    const mmla_attend_desc desc = {.kind = MMLA_ATTEND_ROWS,
                                   .n_heads = H,
                                   .max_tokens = T,
                                   .scale = 1.0f / sqrtf(D),
                                   .q_layout = layout,
                                   .rope_positions = T,
                                   .out_form = form,
                                   .list_width = KEYS,
                                   .max_rows = KEYS};
    mmla_attend_plan *plan;
    CHECK(mmla_attend_plan_create(ctx, &desc, &plan, &err));
    void *workspace = allocate(mmla_attend_workspace_bytes(plan));
    CHECK(mmla_attend_run(plan, &args, workspace, NULL));
    free(workspace);
    mmla_attend_plan_destroy(plan);
}

static void run_project(mmla_context *ctx, mmla_scale_layout layout, mmla_project_args args) {
    const mmla_project_desc desc = {
        .n_groups = G, .max_tokens = T, .rank = RANK, .x_scale_layout = layout};
    mmla_project_plan *plan;
    CHECK(mmla_project_plan_create(ctx, &desc, &plan, &err));
    void *workspace = allocate(mmla_project_workspace_bytes(plan));
    CHECK(mmla_project_run(plan, &args, workspace, NULL));
    free(workspace);
    mmla_project_plan_destroy(plan);
}

int main(void) {
    mmla_context *ctx;
    CHECK(mmla_context_create(NULL, &ctx, &err));

    /* At load: the block scales of wo_a to one scale row a weight row, then the permutation. */
    enum { ROWS = G * RANK, COLS = MMLA_GROUP_DIM, SCALES = COLS / MMLA_OUT_CHUNK_DIM };
    uint8_t *weight = allocate(ROWS * COLS), *permuted = allocate(ROWS * COLS);
    uint8_t *block_scale = allocate(ROWS / 32 * SCALES), *scale = allocate(ROWS * SCALES);
    uint8_t *permuted_scale = allocate(ROWS * SCALES);
    for (int i = 0; i < ROWS * COLS; i++) {
        weight[i] = (uint8_t)(random_bits() % 0x38 | (random_bits() & 1) << 7); /* e4m3 below 1 */
    }
    for (int i = 0; i < ROWS / 32 * SCALES; i++) {
        block_scale[i] = (uint8_t)(119 + random_bits() % 3); /* about 2^-7 */
    }
    run_weights(ctx, (mmla_weights_desc){MMLA_WEIGHTS_EXPAND_SCALES, 0, ROWS, 0, SCALES},
                (mmla_weights_args){.scale_in = block_scale, .scale_out = scale});
    run_weights(ctx, (mmla_weights_desc){MMLA_WEIGHTS_PERMUTE_WO_A, 0, ROWS, 0, 0},
                (mmla_weights_args){
                    .in = weight, .out = permuted, .scale_in = scale, .scale_out = permuted_scale});

    /* q as a permuted wq_b would emit it. */
    uint16_t *q = made_up_rows(T * H * D), *q_fused = allocate(sizeof *q_fused * T * H * D);
    run_weights(ctx, (mmla_weights_desc){MMLA_WEIGHTS_Q_TO_FUSED, H, T, 0, 0},
                (mmla_weights_args){.in = q, .out = q_fused});

    /* Attention, twice: permuted with packed scales, and standard with plain ones. */
    static float cos_sin[T * MMLA_ROPE_DIM], sink[H];
    static int32_t list[T * KEYS], positions[T];
    mmla_rope_desc rope;
    CHECK(mmla_rope_desc_for_ratio(1, &rope, &err));
    CHECK(mmla_rope_table_fill(&rope, 0, T, cos_sin, &err));
    for (int i = 0; i < T * KEYS; i++) {
        list[i] = i % KEYS;
        positions[i / KEYS] = i / KEYS;
    }
    uint16_t *kv = made_up_rows(KEYS * D);
    enum { PACKED_WORDS = G * 32 * ((T + 3) / 4 * 4) };
    uint8_t *out = allocate(T * H * D), *out_standard = allocate(T * H * D);
    int32_t *out_scale = allocate(PACKED_WORDS * sizeof *out_scale);
    uint8_t *standard_scale = allocate(T * G * SCALES);
    mmla_attend_args args = {.n_tokens = T,
                             .q = q_fused,
                             .positions = positions,
                             .cos_sin = cos_sin,
                             .sink = sink,
                             .list = list,
                             .kv = kv,
                             .n_rows = KEYS,
                             .out = out,
                             .out_scale = out_scale,
                             .error = &err};
    run_attend(ctx, MMLA_OUT_FP8_PERMUTED, MMLA_Q_FUSED, args);
    args.q = q;
    args.out = out_standard;
    args.out_scale = standard_scale;
    run_attend(ctx, MMLA_OUT_FP8, MMLA_Q_STANDARD, args);

    /* The grouped projection of both. */
    uint16_t *z = allocate(sizeof *z * T * ROWS), *z_standard = allocate(sizeof *z * T * ROWS);
    run_project(ctx, MMLA_SCALE_PACKED,
                (mmla_project_args){.n_tokens = T,
                                    .x = out,
                                    .x_scale = out_scale,
                                    .weight = permuted,
                                    .weight_scale = permuted_scale,
                                    .z = z,
                                    .error = &err});
    run_project(ctx, MMLA_SCALE_BYTES,
                (mmla_project_args){.n_tokens = T,
                                    .x = out_standard,
                                    .x_scale = standard_scale,
                                    .weight = weight,
                                    .weight_scale = scale,
                                    .z = z_standard,
                                    .error = &err});

    float worst = 0.0f, largest = 0.0f;
    for (int i = 0; i < T * ROWS; i++) {
        const float difference = fabsf(to_float(z[i]) - to_float(z_standard[i]));
        worst = difference > worst ? difference : worst;
        largest = fabsf(to_float(z[i])) > largest ? fabsf(to_float(z[i])) : largest;
    }
    printf("z[0] = %.5f %.5f %.5f ...\n", to_float(z[0]), to_float(z[1]), to_float(z[2]));
    printf("permuted against standard: largest difference %.2g of %.2g\n", worst, largest);

    void *const all[] = {weight, permuted, block_scale,  scale,     permuted_scale, q, q_fused,
                         kv,     out,      out_standard, out_scale, standard_scale, z, z_standard};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    mmla_context_destroy(ctx);
    return worst <= 0.01f * largest ? 0 : 1;
}
