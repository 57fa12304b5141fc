/* binding_state.h - what the Python package keeps between calls: contexts, plans, workspaces.
 *
 * One state belongs to one load of the package. The functions that Python calls each hold a
 * reference to it, so it goes when the last of them goes. It is the caller of megamla's API that
 * the library asks for: it owns a context for every device that was used, a plan for every shape
 * that was seen, and workspaces on the host.
 */
#ifndef MEGAMLA_PYTHON_BINDING_STATE_H
#define MEGAMLA_PYTHON_BINDING_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <megamla/megamla.h>

/* How plans of one operation are made. The first three take and give what the public functions of
 * that operation do, with the types left out. */
typedef struct plan_kind {
    size_t desc_bytes;
    mmla_status (*create)(mmla_context *ctx, const void *desc, void **plan, mmla_error *err);
    void (*destroy)(void *plan);
    size_t (*workspace_bytes)(const void *plan);
} plan_kind;

/* A plan that somebody uses, or that is kept for the next call of its shape. */
typedef struct plan_entry {
    void *plan;
    size_t workspace_bytes;
    /* Of the state alone. */
    const plan_kind *kind;
    const mmla_context *ctx;
    void *desc;
    uint64_t hash;
    uint64_t last_use;
    int32_t users;
    int32_t listed; /* not 0 while it can be found */
} plan_entry;

typedef struct workspace {
    void *memory; /* 64-byte aligned */
    size_t bytes;
    struct workspace *next;
} workspace;

typedef struct binding_state binding_state;

binding_state *state_create(void); /* NULL: out of memory. The caller holds one reference. */
void state_retain(binding_state *state);
void state_release(void *state); /* takes void *, because it is a deleter of functions */

/* state_context - the context of a device, opened when it is first asked for. */
mmla_status
state_context(binding_state *state, mmla_device device, mmla_context **ctx, mmla_error *err);

/* Threads of a call on the CPU; 0: every core. Takes effect with the next call. */
void state_set_threads(binding_state *state, int32_t n_threads);

/* What one call borrows from the state: a plan, and host memory nobody else uses. */
typedef struct loan {
    plan_entry *entry;
    workspace *host; /* NULL unless it was asked for and the plan has a use for it */
} loan;

/* loan_take - a plan for desc on a device, an old one when there is one, and on the CPU with
 * wants_memory its workspace; loan_return gives both back.
 *
 * desc is compared byte by byte, so it is set to 0 before its fields are. Its implementation, the
 * only pointer in it, is constant memory of the library. At most PLANS_KEPT plans are kept, those
 * used last. One lock a side: this stands in every call. */
mmla_status loan_take(binding_state *state,
                      const plan_kind *kind,
                      mmla_device device,
                      const void *desc,
                      bool wants_memory,
                      loan *lent,
                      mmla_error *err);
void loan_return(binding_state *state, const loan *lent);

/* Plans that are kept now, and how often one was created; for tests and for the curious. */
void plan_counts(binding_state *state, int64_t *kept, int64_t *created);

#endif
