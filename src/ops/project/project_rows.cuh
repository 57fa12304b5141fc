/* project_rows.cuh - what project's kernels share: rows of a tile with their scales, and the rows that
 * matrix instructions cannot serve.
 *
 * Of a tile, rows 0 .. M - 1 are rows of weight and the next N are tokens. state[row] says what is
 * wrong with one:
 *
 *     ODD     a scale byte outside the plain ones, over codes that are not all zero
 *     NAN     a scale byte 255 or a code that is NaN
 *
 * Such a row goes through the matrix instructions with finite numbers of no meaning, which meet no
 * other row's sums. Afterwards its results are NaN or, for ODD, are computed one by one from the
 * codes. Which of the two ways a result takes depends on its own row and token alone.
 */
#ifndef MMLA_OPS_PROJECT_ROWS_CUH
#define MMLA_OPS_PROJECT_ROWS_CUH

#include "ops/project/project_cuda.h"

enum { PROJECT_ODD = 1, PROJECT_NAN = 2 };

#define PROJECT_ALL_LANES 0xFFFFFFFFu
#define PROJECT_DEVICE static __device__ __forceinline__

/* A row of a tile: its 4096 codes, and its scale bytes, four of them every word_stride bytes. */
typedef struct project_row {
    const uint8_t *codes;
    const uint8_t *scales;
    int64_t word_stride;
    bool in_words;
    bool exists; /* false past the end of the rank or of the tokens: nothing may be read */
} project_row;

PROJECT_DEVICE project_row project_row_get(const mmla_project_params *p,
                                           const mmla_project_tile *tile,
                                           int32_t row,
                                           const int32_t n_weight) {
    project_row r;
    if (row < n_weight) {
        const int64_t at = (int64_t)tile->g * p->rank + tile->row + row;
        r.codes = p->weight + at * MMLA_PROJECT_DIM;
        r.scales = p->weight_scale + at * MMLA_PROJECT_SCALES;
        r.word_stride = 4;
        r.in_words = p->weight_scale_in_words;
        r.exists = row < tile->n_rows;
    } else {
        const int64_t token = tile->token + (row - n_weight);
        const mmla_project_scale_strides s = p->x_scale_strides;
        r.codes = p->x + (token * p->n_groups + tile->g) * MMLA_PROJECT_DIM;
        r.scales = p->x_scale + token * s.token + tile->g * s.group;
        r.word_stride = s.word;
        r.in_words = p->x_scale_in_words;
        r.exists = row - n_weight < tile->n_tokens;
    }
    return r;
}

/* Four bytes at any address as a word. */
PROJECT_DEVICE uint32_t project_bytes_load(const uint8_t *at) {
    return __ldg(at) | (uint32_t)__ldg(at + 1) << 8 | (uint32_t)__ldg(at + 2) << 16 |
           (uint32_t)__ldg(at + 3) << 24;
}

/* Scale bytes 4 * word .. + 3 of a row; of one that does not exist any plain byte. */
PROJECT_DEVICE uint32_t project_scales_load(const project_row *r, int32_t word) {
    const uint8_t *at = r->scales + word * r->word_stride;
    if (!r->exists) {
        return MMLA_PROJECT_PLAIN_LOW * 0x01010101u;
    }
    if (r->in_words) {
        return __ldg((const uint32_t *)at);
    }
    return project_bytes_load(at);
}

/* Whether all 32 codes of a group are +-0, whose scale then does not matter. */
static __device__ __noinline__ bool project_group_is_zero(const uint8_t *codes) {
    const uint4 *at = (const uint4 *)codes;
    const uint4 a = __ldg(at), b = __ldg(at + 1);
    const uint32_t any = a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w;
    return (any & 0x7F7F7F7Fu) == 0;
}

/* What is wrong with a row for its scale bytes of one word. */
PROJECT_DEVICE int32_t project_scales_state(const project_row *r, int32_t word, uint32_t bytes) {
    int32_t state = 0;
#pragma unroll
    for (int32_t i = 0; i < 4; i++) {
        const uint32_t byte = bytes >> 8 * i & 0xFFu;
        if (!mmla_project_scale_is_plain(byte)) {
            if (byte == MMLA_UE8M0_NAN) {
                state |= PROJECT_NAN;
            } else if (!project_group_is_zero(r->codes + (4 * word + i) * MMLA_PROJECT_GROUP)) {
                state |= PROJECT_ODD;
            }
        }
    }
    return state;
}

/* The block's tile, of n_weight rows and n_tokens tokens. */
PROJECT_DEVICE mmla_project_tile project_tile_of_block(const mmla_project_params *p,
                                                       const int32_t n_weight,
                                                       const int32_t n_tokens) {
    return mmla_project_tile_get(blockIdx.x, p->n_tokens, p->rank, n_tokens, n_weight);
}

/* The two functions below are rare, so they are calls and find their tile themselves: one that they
 * were given would have to lie in memory. */

/* Marks the rows that hold a NaN code. Called by all threads; a barrier must follow. */
static __device__ __noinline__ void project_nan_codes_find(const mmla_project_params *p,
                                                           int32_t n_weight,
                                                           int32_t n_tokens,
                                                           int32_t *state) {
    const mmla_project_tile tile = project_tile_of_block(p, n_weight, n_tokens);
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x / MMLA_PROJECT_WARP;
    for (int32_t row = warp; row < n_weight + n_tokens; row += MMLA_PROJECT_WARPS) {
        const project_row r = project_row_get(p, &tile, row, n_weight);
        uint32_t found = 0;
        for (int32_t i = lane; i < MMLA_PROJECT_DIM / 16 && r.exists; i += MMLA_PROJECT_WARP) {
            const uint4 codes = __ldg((const uint4 *)r.codes + i);
            found = mmla_project_probe(found, codes.x);
            found = mmla_project_probe(found, codes.y);
            found = mmla_project_probe(found, codes.z);
            found = mmla_project_probe(found, codes.w);
        }
        if (__any_sync(PROJECT_ALL_LANES, (found & MMLA_PROJECT_PROBE) != 0) && lane == 0) {
            state[row] |= PROJECT_NAN;
        }
    }
}

/* One result from its codes and scale bytes, by a warp: lane l takes groups l, l + 32, .. in turn,
 * then lanes are added in pairs. */
PROJECT_DEVICE float project_sum_any(const project_row *w, const project_row *x) {
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    float acc = 0.0f;
    for (int32_t group = lane; group < MMLA_PROJECT_SCALES; group += MMLA_PROJECT_WARP) {
        const uint32_t *w_codes = (const uint32_t *)(w->codes + group * MMLA_PROJECT_GROUP);
        const uint32_t *x_codes = (const uint32_t *)(x->codes + group * MMLA_PROJECT_GROUP);
        float sum = 0.0f;
        for (int32_t i = 0; i < MMLA_PROJECT_GROUP / 4; i++) {
            sum = mmla_project_dot_word(sum, __ldg(x_codes + i), __ldg(w_codes + i));
        }
        acc = mmla_project_scale_add(acc, sum,
                                     project_scales_load(x, group / 4) >> 8 * (group % 4) & 0xFFu,
                                     project_scales_load(w, group / 4) >> 8 * (group % 4) & 0xFFu);
    }
    for (int32_t apart = MMLA_PROJECT_WARP / 2; apart > 0; apart /= 2) {
        acc += __shfl_xor_sync(PROJECT_ALL_LANES, acc, apart);
    }
    return acc;
}

/* Place in z of a row and a token of a tile. */
PROJECT_DEVICE int64_t project_z_index(const mmla_project_params *p,
                                       const mmla_project_tile *tile,
                                       int32_t row,
                                       int32_t token) {
    return ((tile->token + token) * p->n_groups + tile->g) * p->rank + tile->row + row;
}

/* Stores every result of the tile whose row or token is marked. Called by all threads. */
static __device__ __noinline__ void project_marked_store(const mmla_project_params *p,
                                                         int32_t n_weight,
                                                         int32_t n_tokens,
                                                         const int32_t *state) {
    const mmla_project_tile tile = project_tile_of_block(p, n_weight, n_tokens);
    const int32_t lane = threadIdx.x % MMLA_PROJECT_WARP;
    const int32_t warp = threadIdx.x / MMLA_PROJECT_WARP;
    for (int32_t token = 0; token < tile.n_tokens; token++) {
        const project_row x = project_row_get(p, &tile, n_weight + token, n_weight);
        for (int32_t row = warp; row < tile.n_rows; row += MMLA_PROJECT_WARPS) {
            const int32_t wrong = state[row] | state[n_weight + token];
            if (wrong == 0) {
                continue;
            }
            uint16_t z = MMLA_BF16_NAN;
            if ((wrong & PROJECT_NAN) == 0) {
                const project_row w = project_row_get(p, &tile, row, n_weight);
                z = mmla_bf16_from_f32(project_sum_any(&w, &x));
            }
            if (lane == 0) {
                p->z[project_z_index(p, &tile, row, token)] = z;
            }
        }
    }
}

#endif
