/* project_wide_few_join.cuh - how the sums of all parts of K become results, in project_wide_few.cu.
 */
#ifndef MMLA_OPS_PROJECT_WIDE_FEW_JOIN_CUH
#define MMLA_OPS_PROJECT_WIDE_FEW_JOIN_CUH

#include "ops/project/project_wide_few_math.cuh"
#include "ops/project/project_wide_store.cuh"

enum {
    FOURS_APART = GROUP * 16, /* bytes from a thread's four sums to its next four */
    CHUNK = 8                 /* rows of a result's chunk, 16 bytes */
};

/* Of the rows whose sums a warpgroup adds, those of a thread. */
DEVICE constexpr int32_t share_of(const few_shape k) {
    return k.rows / 2 / parts_of(k);
}

/* Where a warpgroup leaves sums for that of the same tokens and part `part`, whose thread of the same place finds them: it
 * is the `after`th behind that one. */
DEVICE uint32_t
left_at(const few_smem *smem, const few_place *at, int32_t part, int32_t after, const few_shape k) {
    const int32_t group = at->group - at->part + part;
    const int32_t place = group * (parts_of(k) - 1) + after - 1;
    return smem->left + (uint32_t)(place * (share_of(k) / 4) * FOURS_APART +
                                   (int32_t)(threadIdx.x % GROUP) * 16);
}

/* A thread's sums of its part of K become those of the CTA, of its warpgroup's share of the rows. Returns whether any
 * thread asks. */
DEVICE bool sums_join(const few_smem *smem,
                      const few_place *at,
                      const float *sums,
                      float *own,
                      bool asks,
                      const few_shape k) {
#pragma unroll
    for (int32_t part = 0; part < parts_of(k); part++) {
        const float *s = sums + part * share_of(k);
        if (part == at->part) {
#pragma unroll
            for (int32_t i = 0; i < share_of(k); i++) {
                own[i] = s[i];
            }
        } else {
            const uint32_t to =
                left_at(smem, at, part, (at->part - part + parts_of(k)) % parts_of(k), k);
#pragma unroll
            for (int32_t i = 0; i < share_of(k); i += 4) {
                gpu_smem_store16(to + (uint32_t)(i / 4 * FOURS_APART),
                                 make_uint4(__float_as_uint(s[i]), __float_as_uint(s[i + 1]),
                                            __float_as_uint(s[i + 2]), __float_as_uint(s[i + 3])));
            }
        }
    }
    const bool any = gpu_warps_sync_any(BAR_MATH, MATH_THREADS, asks);
#pragma unroll
    for (int32_t after = 1; after < parts_of(k); after++) {
        const uint32_t from = left_at(smem, at, at->part, after, k);
#pragma unroll
        for (int32_t i = 0; i < share_of(k); i += 4) {
            const uint4 four = gpu_smem_load16(from + (uint32_t)(i / 4 * FOURS_APART));
            own[i] += __uint_as_float(four.x);
            own[i + 1] += __uint_as_float(four.y);
            own[i + 2] += __uint_as_float(four.z);
            own[i + 3] += __uint_as_float(four.w);
        }
    }
    return any;
}

/* The thread's share of the CTA's sums to the CTAs that store their tokens, with those's marks. A barrier of the cluster
 * must follow. */
DEVICE void sums_send(const mmla_project_few_params *p,
                      const few_smem *smem,
                      const few_place *at,
                      const float *own,
                      const few_shape k) {
    const int32_t share_log2 = tokens_log2_of(k) - p->splits_log2, lane = threadIdx.x % QUAD;
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        const int32_t token = at->token + 8 * half, owner = token >> share_log2;
        const int32_t place = (split_get(p) << share_log2) + token - (owner << share_log2);
        const uint32_t to = gpu_cluster_address(smem->sums + (uint32_t)(place * sum_bytes_of(k)),
                                                cta_get(p, owner, sharer_get(p)));
#pragma unroll
        for (int32_t i = 0; i < share_of(k) / 4; i++) {
            const int32_t row = at->part * (k.rows / parts_of(k)) + i * CHUNK + lane * 2;
            gpu_cluster_store2(to + (uint32_t)row * 4,
                               make_float2(own[4 * i + 2 * half], own[4 * i + 2 * half + 1]));
        }
        if (at->part == 0 && lane == 0) {
            int32_t mark = 0;
#pragma unroll
            for (int32_t part = 0; part < parts_of(k); part++) {
                mark |= smem->token_marks[part * k.tokens + token];
            }
            gpu_cluster_store(to + (uint32_t)k.rows * 4, mark);
        }
    }
}

/* Results of the thread's share of the CTA's sums, which are those of all K, to z, two at once; none is odd. */
DEVICE void pairs_store(const mmla_project_few_params *p,
                        const few_smem *smem,
                        const mmla_project_tile *tile,
                        const few_place *at,
                        const float *own,
                        const few_shape k) {
    const int32_t first = at->part * (k.rows / parts_of(k)) + (int32_t)threadIdx.x % QUAD * 2;
#pragma unroll
    for (int32_t half = 0; half < HALVES; half++) {
        const int32_t token = at->token + 8 * half;
        uint16_t *z = p->p.z + project_z_index(&p->p, tile, first, token);
#pragma unroll
        for (int32_t i = 0; i < share_of(k) / 4; i++) {
            const float2 w = *(const float2 *)(smem->factors + first + i * CHUNK);
            if (token < tile->n_tokens && first + i * CHUNK < tile->n_rows) {
                *(uint32_t *)(z + i * CHUNK) = gpu_bf16x2_from_f32x2(
                    own[4 * i + 2 * half] * w.x, own[4 * i + 2 * half + 1] * w.y);
            }
        }
    }
}

/* A chunk of results of a token that the CTA stores: sums of all parts of K. */
typedef struct few_chunk {
    float sum[CHUNK];
    int32_t mark; /* of the token in any part */
} few_chunk;

DEVICE few_chunk chunk_load(const mmla_project_few_params *p,
                            const few_smem *smem,
                            int32_t place,
                            int32_t row,
                            const few_shape k) {
    uint32_t from = smem->sums + (uint32_t)(place * sum_bytes_of(k));
    few_chunk c;
    c.mark = 0;
#pragma unroll
    for (int32_t i = 0; i < CHUNK; i++) {
        c.sum[i] = -0.0f; /* which leaves a sum as it is, -0 too, as pairs_store does */
    }
#pragma unroll 1
    for (int32_t split = 0; split >> p->splits_log2 == 0; split++) {
        const uint4 a = gpu_smem_load16(from + (uint32_t)row * 4);
        const uint4 b = gpu_smem_load16(from + (uint32_t)row * 4 + 16);
        const uint32_t words[CHUNK] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        c.mark |= (int32_t)gpu_smem_load4(from + (uint32_t)k.rows * 4);
        from += (uint32_t)sum_bytes_of(k) << (tokens_log2_of(k) - p->splits_log2);
#pragma unroll
        for (int32_t i = 0; i < CHUNK; i++) {
            c.sum[i] += __uint_as_float(words[i]);
        }
    }
    return c;
}

/* Results that lanes of a warp have left out, in a chunk each, one by one; by all lanes. */
DEVICE void odd_store(const mmla_project_few_params *p,
                      const few_smem *smem,
                      const mmla_project_tile *tile,
                      bool is_odd,
                      int32_t token,
                      int32_t row,
                      int32_t token_mark,
                      const few_shape k) {
    uint32_t odd = __ballot_sync(PROJECT_ALL_LANES, is_odd);
#pragma unroll 1
    for (; odd != 0; odd &= odd - 1) {
        const int32_t lane = __ffs((int)odd) - 1;
        const int32_t its_token = __shfl_sync(PROJECT_ALL_LANES, token, lane);
        const int32_t its_row = __shfl_sync(PROJECT_ALL_LANES, row, lane);
        const int32_t its_mark = __shfl_sync(PROJECT_ALL_LANES, token_mark, lane);
#pragma unroll 1
        for (int32_t i = its_row; i < its_row + CHUNK; i++) {
            if ((smem->row_marks[i] | its_mark) != 0) {
                project_wg_odd_store(&p->p, tile, i, its_token, k.rows);
            }
        }
    }
}

/* Results of the CTA's share of the tokens: sums of all parts of K, added in order, times factors of rows, to z. A thread
 * has a chunk of every so manyth token. */
DEVICE void few_store(const mmla_project_few_params *p,
                      const few_smem *smem,
                      const mmla_project_tile *tile,
                      bool some_row_odd,
                      const few_shape k) {
    const int32_t chunks = k.rows / CHUNK, share_log2 = tokens_log2_of(k) - p->splits_log2;
    const int32_t first = split_get(p) << share_log2;
    const int32_t row = (int32_t)threadIdx.x % chunks * CHUNK;
    const int32_t stride = p->p.n_groups * p->p.rank;
    uint16_t *z = p->p.z + project_z_index(&p->p, tile, row, first);
    float w[CHUNK];
#pragma unroll
    for (int32_t i = 0; i < CHUNK; i++) {
        w[i] = smem->factors[row + i];
    }
#pragma unroll 1
    for (int32_t place = (int32_t)threadIdx.x / chunks; place >> share_log2 == 0;
         place += MATH_THREADS / chunks) {
        const few_chunk c = chunk_load(p, smem, place, row, k);
        const bool exists = first + place < tile->n_tokens && row < tile->n_rows;
        const bool is_odd = exists && (some_row_odd || c.mark != 0);
        if (exists) {
            const uint4 eight = make_uint4(gpu_bf16x2_from_f32x2(c.sum[0] * w[0], c.sum[1] * w[1]),
                                           gpu_bf16x2_from_f32x2(c.sum[2] * w[2], c.sum[3] * w[3]),
                                           gpu_bf16x2_from_f32x2(c.sum[4] * w[4], c.sum[5] * w[5]),
                                           gpu_bf16x2_from_f32x2(c.sum[6] * w[6], c.sum[7] * w[7]));
            project_wide_eight_store(&p->p, z + place * stride, smem->row_marks + row, c.mark,
                                     is_odd, eight);
        }
        __syncwarp();
        odd_store(p, smem, tile, is_odd, first + place, row, c.mark, k);
    }
}

#endif
