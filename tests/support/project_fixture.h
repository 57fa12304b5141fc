/* project_fixture.h - a call of project with everything it needs, on the CPU or on GPU 0.
 *
 * Buffers have the least alignment that the header asks for. Every byte that is not an operand, the
 * padding words of x_scale above all, is 0xFF: a NaN if it is read.
 */
#ifndef TESTS_SUPPORT_PROJECT_FIXTURE_H
#define TESTS_SUPPORT_PROJECT_FIXTURE_H

#include <stdint.h>

#include "ops/project/project.h"
#include "support/guard.h"

typedef struct project_fixture {
    mmla_context *ctx; /* of the CPU */
    mmla_project_desc desc;
    int32_t rank;
    test_buffer x, x_scale, weight, weight_scale, z;
    mmla_project_args args;
} project_fixture;

project_fixture project_fixture_create(mmla_project_desc desc, int64_t n_tokens, int32_t n_threads);

/* The same with every array aligned to 16 bytes, as an engine's are. */
project_fixture
project_fixture_create_aligned(mmla_project_desc desc, int64_t n_tokens, int32_t n_threads);
void project_fixture_destroy(project_fixture *f);

/* Random codes but NaN; scale bytes from x_low .. x_high and w_low .. w_high. */
void project_fixture_fill(
    project_fixture *f, uint64_t seed, int x_low, int x_high, int w_low, int w_high);

/* Scale i of 32 columns of token t and group g; the codes of both; the same of row n of a weight; a
 * result. */
uint8_t *project_x_scale_at(const project_fixture *f, int64_t t, int64_t g, int64_t i);
uint8_t *project_x_at(const project_fixture *f, int64_t t, int64_t g);
uint8_t *project_weight_at(const project_fixture *f, int64_t g, int64_t n);
uint8_t *project_weight_scale_at(const project_fixture *f, int64_t g, int64_t n);
uint16_t project_z_at(const project_fixture *f, int64_t t, int64_t g, int64_t n);

/* How many implementations GPU 0 has, and their names; one with a wide weight counts as one more. */
size_t project_n_on_gpu(void);
const char *project_on_gpu(size_t idx);

/* Whether a name is that of an implementation with a wide weight, whose bits follow the number of tokens. */
bool project_is_wide(const char *name);

/* Name idx of all implementations, those of GPU 0 first; NULL behind the last. */
const char *project_implementation(const project_fixture *f, size_t idx);

/* Runs one implementation into poisoned z; no guard byte may change. On a GPU it has copies of the
 * arrays. */
void project_fixture_run(project_fixture *f, const char *name);

#endif
