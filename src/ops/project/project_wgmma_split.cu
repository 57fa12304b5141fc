/* project_wgmma_split.cu - the projection of few tokens on Hopper: warpgroups share K, of one CTA and of a
 * cluster.
 *
 * PROBLEM    z[t][n] = sum over k of x[t][k] * w[n][k], e4m3 with a power of two per 32 elements of
 *            either side; 4096 columns, G such products.                (project.h has the shapes)
 *
 * BOUND      A row of weight: 4096 + 128 bytes, read once for every N tokens. G = 8, rank 1024: 34.6 MB,
 *            7.6 us at the 4.55 TB/s that an H200 was seen to read. Of 64 tokens, 128 CTAs read 0.26 MB
 *            more each from L2, in all as much as of weight; conversion 6 instructions for 4 codes of either,
 *            3.4 us of 132 multiprocessors; products 32 cycles of the matrix units each 16 columns,
 *            4.6 us.
 *
 * MOVEMENT   w (memory) --ld 16 B--> codes (registers) --convert--> a (registers) --wgmma--> sums
 *            x (L2) --ld 16 B--> codes (registers) --convert--> stage (smem, fp16) --wgmma--> sums
 *            sums of 512 columns * factors --> smem [token][row] fp32, of all CTAs of the cluster
 *                                          --add 8 segments in order (distributed smem)--> z
 *
 * TILES      A cluster has 64 rows x N = 8, 16, 32 or 64 tokens. Its warpgroups, four of one CTA or of each of two,
 *            or one of each of eight, take the 8 segments of K: one each, or two when there are 4 in all.
 *            A round of tokens is 4096 codes: 64 columns of 64 tokens, or all 512 of 8.
 *
 * ROLES      all warpgroups alike, each for itself until the end; its 128 threads convert two units of a
 *            round of tokens each, and their own rows of weight
 *
 * BUDGET     smem   of a warpgroup: 3 * 8 KB stages, 2,560 scales and factors; with two segments 272 N of
 *                   sums; N 64, 4 warpgroups with two segments: 178,704 B
 *            asked for   of a warpgroup 4 KB for each step of weight ahead, 8 steps for N 8 and 16, 4 for
 *                   more: four warpgroups a multiprocessor have 64 to 128 KB
 *            regs   128 a thread, so that there are four warpgroups a multiprocessor
 *
 * BARRIERS   bar 1 + i of warpgroup i: its scales are there; a round is there, and nobody multiplies from
 *            the stage before the last (which the next round takes: three stages); its products are all
 *            done. Of the CTA, or the cluster: before sums are added, and of a cluster before it ends.
 *
 * NUMERICS   project_wgmma_map.h. The same bits as project_wgmma_block.cu: a product with two powers of two
 *            is exact, so adding it is what the fused multiply-add there does.
 *
 * LIMITS     Code for 9.0a. 4 or 8 warpgroups a cluster. Any rank that is a multiple of 8, any number
 *            of tokens; operands aligned to 16 bytes.
 */
#include "gpu/barrier.cuh"
#include "gpu/cluster.cuh"
#include "ops/project/project_wgmma.cuh"
#include "ops/project/project_wgmma_cuda.h"

enum {
    ROWS = MMLA_PROJECT_WG_ROWS,
    N_MAX = MMLA_PROJECT_WG_SPLIT_TOKENS_MAX,
    GROUP = MMLA_PROJECT_WG_THREADS,
    GROUPS_MAX = MMLA_PROJECT_WG_SPLIT_GROUPS_MAX,
    STAGES = MMLA_PROJECT_WG_SPLIT_STAGES,
    STAGE_BYTES = MMLA_PROJECT_WG_SPLIT_STAGE_BYTES,
    TABLE_BYTES = MMLA_PROJECT_WG_SPLIT_TABLE_BYTES,
    PITCH = MMLA_PROJECT_WG_SUM_PITCH,
    STEPS = MMLA_PROJECT_SEGMENT_STEPS,
    ROUND_UNITS = STAGE_BYTES / (2 * MMLA_PROJECT_UNIT), /* units of tokens of a round */
    OWN_UNITS = ROUND_UNITS / GROUP,                     /* and a thread's */
    AHEAD_MAX = 8
};

static_assert(OWN_UNITS == 2, "as the page above says");
static_assert(MMLA_PROJECT_WG_SPLIT_SMEM(64, 4, 2) == 178704, "as the page above says");
static_assert(N_MAX * PITCH * 4 <= STAGES * STAGE_BYTES, "sums fit where tokens were");
static_assert(ROWS + N_MAX <= GROUP, "a thread has one row's scales");

#define DEVICE static __device__ __forceinline__

/* What a warpgroup is and has. */
typedef struct team {
    int32_t thread;     /* in the warpgroup */
    int32_t bar;        /* its barrier */
    int32_t first;      /* its first segment */
    int32_t stride;     /* to the next: the number of warpgroups in the cluster */
    int32_t n_turns;    /* segments */
    uint8_t *exponents; /* [ROWS + N][16] */
    float *factors;     /* [ROWS + N] */
    float *sums;        /* of its segments but the last, [N][PITCH] each */
    float *last_sums;   /* where its stages are */
    uint32_t stages;
} team;

/* Places in shared memory, the same in all CTAs of a cluster: first the stages of all warpgroups. */
typedef struct split_smem {
    int32_t n_groups, n_turns;
    int32_t sums_off, tables_off, state_off, any_off; /* bytes */
} split_smem;

DEVICE split_smem split_smem_get(const int32_t n) {
    split_smem s;
    s.n_groups = blockDim.x / GROUP;
    s.n_turns = MMLA_PROJECT_SEGMENTS / (s.n_groups * gpu_cluster_size());
    s.sums_off = s.n_groups * STAGES * STAGE_BYTES;
    s.tables_off = s.sums_off + s.n_groups * (s.n_turns - 1) * n * PITCH * 4;
    s.state_off = s.tables_off + s.n_groups * TABLE_BYTES;
    s.any_off = s.state_off + GROUP * (int32_t)sizeof(int32_t);
    return s;
}

/* Byte offset of the sums of turn `turn` of a CTA's warpgroup. */
DEVICE int32_t sums_off(const split_smem *s, int32_t group, int32_t turn, const int32_t n) {
    return turn == s->n_turns - 1 ? group * STAGES * STAGE_BYTES
                                  : s->sums_off + (group * (s->n_turns - 1) + turn) * n * PITCH * 4;
}

/* ---- Weight and tokens of a warpgroup ---------------------------------------------------------- */

/* Steps ahead that weight is loaded, for a tile of n tokens. */
DEVICE constexpr int32_t ahead_of(const int32_t n) {
    return n <= 16 ? 8 : 4;
}

/* A thread's unit of its two rows, at column 0. */
typedef struct weight_rows {
    const uint8_t *at;
    bool has_row, has_row_8;
} weight_rows;

DEVICE weight_rows weight_rows_get(const mmla_project_params *p, const mmla_project_tile *tile) {
    const int32_t thread = threadIdx.x % GROUP, row = mmla_project_wg_row(thread);
    weight_rows w;
    w.at = p->weight + ((int64_t)tile->g * p->rank + tile->row + row) * MMLA_PROJECT_DIM +
           mmla_project_wg_unit(thread) * MMLA_PROJECT_UNIT;
    w.has_row = row < tile->n_rows;
    w.has_row_8 = row + 8 < tile->n_rows;
    return w;
}

DEVICE void
weight_load(const weight_rows *w, uint4 codes[2], int32_t segment, int32_t step, bool exists) {
    const uint8_t *at = w->at + segment * MMLA_PROJECT_SEGMENT + step * MMLA_PROJECT_STEP;
    codes[0] = gpu_load16_or_zero_stream(at, exists && w->has_row);
    codes[1] = gpu_load16_or_zero_stream(at + 8 * MMLA_PROJECT_DIM, exists && w->has_row_8);
}

/* Of a thread's unit i of a round: its token, and its step within the round. The unit of its step is the
 * thread's (mmla_project_wg_unit). */
DEVICE int32_t round_token(int32_t thread, const int32_t i, const int32_t n) {
    return (thread + i * GROUP) / MMLA_PROJECT_STEP_UNITS % n;
}
DEVICE int32_t round_step(int32_t thread, const int32_t i, const int32_t n) {
    return (thread + i * GROUP) / (MMLA_PROJECT_STEP_UNITS * n);
}

/* A thread's first unit at column 0, how far from it the second is, and whether they exist. */
typedef struct token_units {
    const uint8_t *at;
    int64_t apart;
    bool has[OWN_UNITS];
} token_units;

DEVICE token_units token_units_get(const mmla_project_params *p,
                                   const mmla_project_tile *tile,
                                   const int32_t n) {
    const int32_t thread = threadIdx.x % GROUP;
    const int64_t token_bytes = (int64_t)p->n_groups * MMLA_PROJECT_DIM;
    token_units x;
    x.at = p->x + (tile->token + round_token(thread, 0, n)) * token_bytes +
           tile->g * (int64_t)MMLA_PROJECT_DIM + round_step(thread, 0, n) * MMLA_PROJECT_STEP +
           mmla_project_wg_unit(thread) * MMLA_PROJECT_UNIT;
    x.apart = n > GROUP / MMLA_PROJECT_STEP_UNITS
                  ? GROUP / MMLA_PROJECT_STEP_UNITS * token_bytes
                  : GROUP / (MMLA_PROJECT_STEP_UNITS * n) * MMLA_PROJECT_STEP;
    for (int32_t i = 0; i < OWN_UNITS; i++) {
        x.has[i] = round_token(thread, i, n) < tile->n_tokens;
    }
    return x;
}

DEVICE void tokens_load(
    const token_units *x, uint4 codes[OWN_UNITS], int32_t segment, int32_t step, bool exists) {
    const uint8_t *at = x->at + segment * MMLA_PROJECT_SEGMENT + step * MMLA_PROJECT_STEP;
#pragma unroll
    for (int32_t i = 0; i < OWN_UNITS; i++) {
        codes[i] = gpu_load16_or_zero(at + i * x->apart, exists && x->has[i]);
    }
}

DEVICE void tokens_convert(const team *t,
                           const uint4 codes[OWN_UNITS],
                           uint32_t stage,
                           int32_t first_step,
                           const int32_t n) {
    const int32_t unit = mmla_project_wg_unit(t->thread);
    uint32_t exponent[OWN_UNITS];
#pragma unroll
    for (int32_t i = 0; i < OWN_UNITS; i++) {
        const int32_t step = first_step + round_step(t->thread, i, n);
        exponent[i] = t->exponents[(ROWS + round_token(t->thread, i, n)) * MMLA_PROJECT_WG_SCALES +
                                   2 * step + unit / 2];
    }
#pragma unroll
    for (int32_t i = 0; i < OWN_UNITS; i++) {
        const int32_t token = round_token(t->thread, i, n);
        const uint32_t tile =
            stage + (uint32_t)(round_step(t->thread, i, n) * n * MMLA_PROJECT_WG_ROW_BYTES);
        /* A tile begins at a multiple of 128 bytes, so the swizzle may be applied to addresses. */
        const uint32_t first = tile + (uint32_t)mmla_project_wg_pair_off(token, unit, 0);
        uint32_t pairs[MMLA_PROJECT_WG_PAIRS];
        project_wg_convert(pairs, codes[i], exponent[i]);
#pragma unroll
        for (int32_t pair = 0; pair < MMLA_PROJECT_WG_PAIRS; pair++) {
            gpu_smem_store4(first ^ (uint32_t)pair * 16, pairs[pair]);
        }
    }
}

/* Scales and factors of a segment. A row that is odd is told to the CTA; where, is found anew, because
 * there are no registers to keep it in. */
DEVICE void scales_fill(const mmla_project_params *p,
                        const mmla_project_tile *tile,
                        const team *t,
                        int32_t segment,
                        uint8_t *shared,
                        const int32_t n) {
    const int32_t row = t->thread;
    if (row < ROWS + n) {
        const project_row r = project_row_get(p, tile, row, ROWS);
        uint32_t bytes[MMLA_PROJECT_WG_SCALES / 4];
        project_wg_scales_load(bytes, &r, segment);
        const mmla_project_wg_segment s = project_wg_segment_of(bytes, &r, segment);
        *(uint4 *)(t->exponents + row * MMLA_PROJECT_WG_SCALES) =
            make_uint4(s.exponents[0], s.exponents[1], s.exponents[2], s.exponents[3]);
        t->factors[row] = s.factor;
        if (s.is_odd) {
            const split_smem smem = split_smem_get(n);
            atomicOr((int32_t *)(shared + smem.state_off) + row, PROJECT_ODD);
            *(int32_t *)(shared + smem.any_off) = 1;
        }
    }
}

/* Sums of a segment times its factors, to shared memory. */
DEVICE void sums_leave(const team *t, const float *sums, float *to, const int32_t n) {
    const int32_t row = mmla_project_wg_row(t->thread);
    const float w[2] = {t->factors[row], t->factors[row + 8]};
    float product[N_MAX / 2];
#pragma unroll
    for (int32_t i = 0; i < n / 2; i += 2) {
        const int32_t token = mmla_project_wg_sum_token(t->thread, i);
        const float2 x = *(const float2 *)(t->factors + ROWS + token);
        product[i] = sums[i] * (w[i / 2 % 2] * x.x);
        product[i + 1] = sums[i + 1] * (w[i / 2 % 2] * x.y);
    }
    gpu_warps_sync(t->bar, GROUP); /* nobody multiplies, or reads factors, any more */
#pragma unroll
    for (int32_t i = 0; i < n / 2; i++) {
        to[mmla_project_wg_sum_token(t->thread, i) * PITCH +
           mmla_project_wg_sum_row(t->thread, i)] = product[i];
    }
}

/* A warpgroup's segments, one after the other. */
DEVICE void split_multiply(const mmla_project_params *p,
                           const mmla_project_tile *tile,
                           const team *t,
                           uint8_t *shared,
                           const int32_t n) {
    const int32_t ahead = ahead_of(n), round_steps = N_MAX / n, n_rounds = STEPS / round_steps;
    const weight_rows rows = weight_rows_get(p, tile);
    const token_units tokens = token_units_get(p, tile, n);
    uint4 w_codes[AHEAD_MAX][2], x_codes[OWN_UNITS];
    project_wg_step a[2];
#pragma unroll
    for (int32_t step = 0; step < ahead; step++) {
        weight_load(&rows, w_codes[step], t->first, step, true);
    }
    tokens_load(&tokens, x_codes, t->first, 0, true);

    uint32_t stage = 0; /* of the round */
#pragma unroll 1
    for (int32_t turn = 0; turn < t->n_turns; turn++) {
        const int32_t segment = t->first + turn * t->stride, next = segment + t->stride;
        const bool is_last = turn == t->n_turns - 1;
        scales_fill(p, tile, t, segment, shared, n);
        gpu_warps_sync(t->bar, GROUP);
        const uint8_t *exponents = t->exponents +
                                   mmla_project_wg_row(t->thread) * MMLA_PROJECT_WG_SCALES +
                                   mmla_project_wg_unit(t->thread) / 2;
        float sums[N_MAX / 2];
#pragma unroll
        for (int32_t round = 0; round < n_rounds; round++) {
            const uint32_t at = t->stages + stage * STAGE_BYTES;
            tokens_convert(t, x_codes, at, round * round_steps, n);
            if (round < n_rounds - 1) {
                tokens_load(&tokens, x_codes, segment, (round + 1) * round_steps, true);
            } else {
                tokens_load(&tokens, x_codes, next, 0, !is_last);
            }
            gpu_fence_async();
            gpu_wgmma_wait_but_newest(); /* the round before the last is done, for this warp */
            gpu_warps_sync(t->bar, GROUP);
#pragma unroll
            for (int32_t i = 0; i < round_steps; i++) {
                const int32_t step = round * round_steps + i;
                gpu_wgmma_wait_but_newest(); /* so are the registers of the step before the last */
                project_wg_step_convert(&a[step % 2], w_codes[step % ahead], exponents[2 * step],
                                        exponents[8 * MMLA_PROJECT_WG_SCALES + 2 * step]);
                project_wg_step_multiply(
                    sums, &a[step % 2],
                    gpu_wgmma_tile(at + (uint32_t)(i * n * MMLA_PROJECT_WG_ROW_BYTES)), step == 0,
                    n);
                if (step + ahead < STEPS) {
                    weight_load(&rows, w_codes[step % ahead], segment, step + ahead, true);
                } else {
                    weight_load(&rows, w_codes[step % ahead], next, step + ahead - STEPS, !is_last);
                }
            }
            stage = stage == STAGES - 1 ? 0 : stage + 1;
        }
        gpu_wgmma_wait_all();
        gpu_wgmma_use(sums, n / 2);
        sums_leave(t, sums, is_last ? t->last_sums : t->sums + turn * n * PITCH, n);
    }
}

/* ---- The end ----------------------------------------------------------------------------------- */

/* Whether rows or tokens are odd in any CTA of the cluster. */
DEVICE int32_t cluster_or(const int32_t *word) {
    int32_t all = 0;
#pragma unroll
    for (int32_t i = 0; i < MMLA_PROJECT_SEGMENTS; i++) { /* all at once: of some CTAs more often */
        all |= gpu_cluster_load(
            gpu_cluster_address(gpu_smem_address(word), (uint32_t)(i % gpu_cluster_size())));
    }
    return all;
}

/* Adds the segments of the CTA's share of the results, four rows at a time, and stores them, but what
 * `state` marks. */
DEVICE void results_store(const mmla_project_params *p,
                          const mmla_project_tile *tile,
                          const split_smem *s,
                          uint32_t shared,
                          const int32_t *state,
                          bool some_odd,
                          const int32_t n) {
    const int32_t stride = s->n_groups * gpu_cluster_size(); /* warpgroups of the cluster */
#pragma unroll 1
    for (int32_t e = gpu_cluster_rank() * blockDim.x + threadIdx.x; e < n * (ROWS / 4);
         e += gpu_cluster_size() * blockDim.x) {
        const int32_t token = e / (ROWS / 4), row = e % (ROWS / 4) * 4;
        if (row >= tile->n_rows ||
            token >= tile->n_tokens) { /* the number of rows is a multiple of 8 */
            continue;
        }
        float4 part[MMLA_PROJECT_SEGMENTS];
#pragma unroll
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            const int32_t group = segment % stride; /* among the cluster's */
            const int32_t off = sums_off(s, group % s->n_groups, segment / stride, n) +
                                (token * PITCH + row) * (int32_t)sizeof(float);
            part[segment] =
                gpu_cluster_load4(gpu_cluster_address(shared + (uint32_t)off, group / s->n_groups));
        }
        float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int32_t segment = 0; segment < MMLA_PROJECT_SEGMENTS; segment++) {
            sum.x += part[segment].x;
            sum.y += part[segment].y;
            sum.z += part[segment].z;
            sum.w += part[segment].w;
        }
        const uint2 four = {gpu_bf16x2_from_f32x2(sum.x, sum.y),
                            gpu_bf16x2_from_f32x2(sum.z, sum.w)};
        uint16_t *z = p->z + project_z_index(p, tile, row, token);
        if (p->z_in_chunks && !some_odd) {
            *(uint2 *)z = four;
            continue;
        }
        const uint32_t words[2] = {four.x, four.y};
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            if (!some_odd ||
                (cluster_or(state + row + i) | cluster_or(state + ROWS + token)) == 0) {
                z[i] = (uint16_t)(words[i / 2] >> 16 * (i % 2));
            }
        }
    }
}

/* Results of rows that are odd, or whose token is, shared out to the warps of the cluster. */
DEVICE void
odd_store(const mmla_project_params *p, const mmla_project_tile *tile, const int32_t *state) {
    const int32_t n_warps = gpu_cluster_size() * blockDim.x / MMLA_PROJECT_WARP;
    const int32_t n = tile->n_rows < ROWS ? tile->n_rows : ROWS;
#pragma unroll 1
    for (int32_t e = (gpu_cluster_rank() * blockDim.x + threadIdx.x) / MMLA_PROJECT_WARP;
         e < tile->n_tokens * n; e += n_warps) {
        const int32_t row = e % n, token = e / n;
        if ((cluster_or(state + row) | cluster_or(state + ROWS + token)) == 0) {
            continue;
        }
        project_wg_odd_store(p, tile, row, token, ROWS);
    }
}

DEVICE void split_body(const mmla_project_params *p, uint8_t *shared, const int32_t n) {
    const split_smem s = split_smem_get(n);
    const mmla_project_tile tile =
        mmla_project_wg_tile_get(gpu_cluster_number(), p->n_tokens, p->rank, n, ROWS);
    /* One for all lanes, so that descriptors are made in uniform registers. */
    const int32_t group = (int32_t)__shfl_sync(PROJECT_ALL_LANES, threadIdx.x / GROUP, 0);
    int32_t *state = (int32_t *)(shared + s.state_off), *any = (int32_t *)(shared + s.any_off);
    team t;
    t.thread = threadIdx.x % GROUP;
    t.bar = 1 + group;
    t.first = gpu_cluster_rank() * s.n_groups + group;
    t.stride = s.n_groups * gpu_cluster_size();
    t.n_turns = s.n_turns;
    t.exponents = shared + s.tables_off + group * TABLE_BYTES;
    t.factors = (float *)(t.exponents + GROUP * MMLA_PROJECT_WG_SCALES);
    t.sums = (float *)(shared + sums_off(&s, group, 0, n));
    t.last_sums = (float *)(shared + sums_off(&s, group, s.n_turns - 1, n));
    t.stages = gpu_smem_address(shared) + (uint32_t)(group * STAGES * STAGE_BYTES);
    if (threadIdx.x < GROUP) {
        state[threadIdx.x] = 0;
        *any = 0;
    }
    __syncthreads();
    split_multiply(p, &tile, &t, shared, n);

    if (gpu_cluster_size() > 1) {
        gpu_cluster_sync();
    } else {
        __syncthreads();
    }
    const bool some_odd = cluster_or(any) != 0;
    results_store(p, &tile, &s, gpu_smem_address(shared), state, some_odd, n);
    if (some_odd) {
        odd_store(p, &tile, state);
    }
    if (gpu_cluster_size() > 1) { /* another CTA may still read from this one */
        gpu_cluster_sync();
    }
}

/* Elsewhere an empty kernel, which is never launched. */
#define KERNEL(tokens)                                                           \
    MMLA_KERNEL_BOUNDS(project_wgmma_split_sm90a_n##tokens, mmla_project_params, \
                       GROUPS_MAX *GROUP, 1) {                                   \
        if (!GPU_HAS_WGMMA) {                                                    \
            return;                                                              \
        }                                                                        \
        extern __shared__ __align__(1024) uint8_t project_wgmma_split_shared[];  \
        split_body(&p, project_wgmma_split_shared, tokens);                      \
    }
MMLA_PROJECT_WG_SPLIT_KERNELS(KERNEL)
