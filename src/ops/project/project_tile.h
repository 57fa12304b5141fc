/* project_tile.h - block sizes of project_body.inc, and the workspace that follows from them. */
#ifndef MMLA_OPS_PROJECT_TILE_H
#define MMLA_OPS_PROJECT_TILE_H

#include <assert.h>

#include "ops/project/project.h"

/* A unit of work is MMLA_PROJECT_BLOCK_ROWS rows of weight by up to MMLA_PROJECT_BLOCK_TOKENS
 * tokens. Its numbers, in the order of the workspace:
 *
 *     x      the tokens' values, as many columns as fit            stays in the second-level cache
 *     w      4 rows by MMLA_PROJECT_PIECE columns of weight        stays in the first-level cache
 *     sums   one vector of partial sums for each (row, token)
 */
enum {
    MMLA_PROJECT_BLOCK_ROWS = 64,
    MMLA_PROJECT_BLOCK_TOKENS = 48,
    MMLA_PROJECT_PIECE = 512,
    MMLA_PROJECT_TILE_ROWS_MAX = 4,
    MMLA_PROJECT_LANES_MAX = 16,

    MMLA_PROJECT_X_FLOATS = 32768, /* 4096 columns of 8 tokens, 512 of 64 */
    MMLA_PROJECT_W_FLOATS = MMLA_PROJECT_TILE_ROWS_MAX * MMLA_PROJECT_PIECE,
    MMLA_PROJECT_SUM_FLOATS =
        MMLA_PROJECT_BLOCK_ROWS * MMLA_PROJECT_BLOCK_TOKENS * MMLA_PROJECT_LANES_MAX,
    MMLA_PROJECT_TILE_BYTES =
        4 * (MMLA_PROJECT_X_FLOATS + MMLA_PROJECT_W_FLOATS + MMLA_PROJECT_SUM_FLOATS)
};

static_assert(MMLA_PROJECT_BLOCK_TOKENS * MMLA_PROJECT_PIECE <= MMLA_PROJECT_X_FLOATS,
              "a full block holds at least one piece of every token");
static_assert(MMLA_PROJECT_BLOCK_ROWS % MMLA_PROJECT_RANK_MULTIPLE == 0 &&
                  MMLA_PROJECT_RANK_MULTIPLE % MMLA_PROJECT_TILE_ROWS_MAX == 0,
              "every block is whole tiles");
static_assert(MMLA_PROJECT_TILE_BYTES % 64 == 0 && MMLA_PROJECT_TILE_BYTES <= 1 << 20,
              "at most 1 MiB a thread");

#endif
