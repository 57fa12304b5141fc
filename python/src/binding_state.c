#include "python/src/binding_state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    PLANS_KEPT = 256, /* a model has a handful of shapes for each power of two of tokens */
    WORKSPACE_ALIGNMENT = 64
};

typedef struct open_context {
    mmla_device device;
    int32_t n_threads;
    mmla_context *ctx;
    struct open_context *next;
} open_context;

struct binding_state {
    pthread_mutex_t lock; /* over everything below; Python's own lock is not held during calls */
    int32_t references;
    int32_t n_threads;
    open_context *contexts;
    plan_entry *plans[PLANS_KEPT];
    int32_t n_plans;
    uint64_t clock;
    int64_t n_created;
    workspace *idle;
};

binding_state *state_create(void) {
    binding_state *state = calloc(1, sizeof *state);
    if (state != NULL) {
        pthread_mutex_init(&state->lock, NULL);
        state->references = 1;
    }
    return state;
}

void state_retain(binding_state *state) {
    pthread_mutex_lock(&state->lock);
    state->references++;
    pthread_mutex_unlock(&state->lock);
}

static void entry_free(plan_entry *entry) {
    entry->kind->destroy(entry->plan);
    free(entry->desc);
    free(entry);
}

void state_release(void *opaque) {
    binding_state *state = opaque;
    pthread_mutex_lock(&state->lock);
    const int32_t left = --state->references;
    pthread_mutex_unlock(&state->lock);
    if (left > 0) {
        return;
    }
    for (int32_t i = 0; i < state->n_plans; i++) {
        entry_free(state->plans[i]); /* nobody is in a call: calls hold a function */
    }
    while (state->contexts != NULL) {
        open_context *c = state->contexts;
        state->contexts = c->next;
        mmla_context_destroy(c->ctx);
        free(c);
    }
    while (state->idle != NULL) {
        workspace *w = state->idle;
        state->idle = w->next;
        free(w->memory);
        free(w);
    }
    pthread_mutex_destroy(&state->lock);
    free(state);
}

void state_set_threads(binding_state *state, int32_t n_threads) {
    pthread_mutex_lock(&state->lock);
    state->n_threads = n_threads;
    pthread_mutex_unlock(&state->lock);
}

static mmla_status out_of_memory(mmla_error *err) {
    *err = (mmla_error){.status = MMLA_E_MEMORY, .message = "out of memory"};
    return MMLA_E_MEMORY;
}

static mmla_status
find_context(binding_state *state, mmla_device device, mmla_context **ctx, mmla_error *err) {
    const int32_t n_threads = device.kind == MMLA_DEVICE_CPU ? state->n_threads : 0;
    for (open_context *c = state->contexts; c != NULL; c = c->next) {
        if (c->device.kind == device.kind && c->device.index == device.index &&
            c->n_threads == n_threads) {
            *ctx = c->ctx;
            return MMLA_OK;
        }
    }
    open_context *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return out_of_memory(err);
    }
    const mmla_context_options options = {.device = device, .n_threads = n_threads};
    const mmla_status status = mmla_context_create(&options, &c->ctx, err);
    if (status != MMLA_OK) {
        free(c);
        return status;
    }
    c->device = device;
    c->n_threads = n_threads;
    c->next = state->contexts;
    state->contexts = c;
    *ctx = c->ctx;
    return MMLA_OK;
}

mmla_status
state_context(binding_state *state, mmla_device device, mmla_context **ctx, mmla_error *err) {
    pthread_mutex_lock(&state->lock);
    const mmla_status status = find_context(state, device, ctx, err);
    pthread_mutex_unlock(&state->lock);
    return status;
}

/* FNV-1a over words: descs are a few hundred bytes, and this stands in every call. */
static uint64_t hash_words(const void *memory, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    const unsigned char *at = memory;
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29; /* a product alone never carries high bits down */
    }
    for (; bytes > 0; bytes--, at++) {
        hash = (hash ^ *at) * 0x100000001b3u;
    }
    return hash;
}

/* Makes room for one more: what was used longest ago is not found again, and goes with its last
 * user. */
static void drop_oldest(binding_state *state) {
    int32_t oldest = 0;
    for (int32_t i = 1; i < state->n_plans; i++) {
        if (state->plans[i]->last_use < state->plans[oldest]->last_use) {
            oldest = i;
        }
    }
    plan_entry *entry = state->plans[oldest];
    state->plans[oldest] = state->plans[--state->n_plans];
    entry->listed = 0;
    if (entry->users == 0) {
        entry_free(entry);
    }
}

static mmla_status make_entry(const plan_kind *kind,
                              mmla_context *ctx,
                              const void *desc,
                              uint64_t hash,
                              plan_entry **made,
                              mmla_error *err) {
    plan_entry *entry = calloc(1, sizeof *entry);
    void *copy = malloc(kind->desc_bytes);
    if (entry == NULL || copy == NULL) {
        free(entry);
        free(copy);
        return out_of_memory(err);
    }
    const mmla_status status = kind->create(ctx, desc, &entry->plan, err);
    if (status != MMLA_OK) {
        free(entry);
        free(copy);
        return status;
    }
    memcpy(copy, desc, kind->desc_bytes);
    entry->workspace_bytes = kind->workspace_bytes(entry->plan);
    entry->kind = kind;
    entry->ctx = ctx;
    entry->desc = copy;
    entry->hash = hash;
    *made = entry;
    return MMLA_OK;
}

static mmla_status find_plan(binding_state *state,
                             const plan_kind *kind,
                             mmla_context *ctx,
                             const void *desc,
                             uint64_t hash,
                             plan_entry **found,
                             mmla_error *err) {
    for (int32_t i = 0; i < state->n_plans; i++) {
        plan_entry *e = state->plans[i];
        if (e->hash == hash && e->kind == kind && e->ctx == ctx &&
            memcmp(e->desc, desc, kind->desc_bytes) == 0) {
            *found = e;
            return MMLA_OK;
        }
    }
    const mmla_status status = make_entry(kind, ctx, desc, hash, found, err);
    if (status != MMLA_OK) {
        return status;
    }
    if (state->n_plans == PLANS_KEPT) {
        drop_oldest(state);
    }
    (*found)->listed = 1;
    state->plans[state->n_plans++] = *found;
    state->n_created++;
    return MMLA_OK;
}

/* An idle workspace, made larger when it has to be; there are as many as calls were in at once. */
static workspace *find_workspace(binding_state *state, size_t bytes) {
    workspace *w = state->idle;
    if (w != NULL) {
        state->idle = w->next;
    } else if ((w = calloc(1, sizeof *w)) == NULL) {
        return NULL;
    }
    if (w->bytes < bytes) {
        free(w->memory);
        w->bytes = (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
        w->memory = aligned_alloc(WORKSPACE_ALIGNMENT, w->bytes);
        if (w->memory == NULL) {
            free(w);
            return NULL;
        }
    }
    return w;
}

static mmla_status take(binding_state *state,
                        const plan_kind *kind,
                        mmla_device device,
                        const void *desc,
                        uint64_t hash,
                        bool wants_memory,
                        loan *lent,
                        mmla_error *err) {
    mmla_context *ctx;
    plan_entry *entry;
    mmla_status status = find_context(state, device, &ctx, err);
    if (status == MMLA_OK) {
        status = find_plan(state, kind, ctx, desc, hash, &entry, err);
    }
    if (status != MMLA_OK) {
        return status;
    }
    if (wants_memory && device.kind == MMLA_DEVICE_CPU && entry->workspace_bytes > 0) {
        lent->host = find_workspace(state, entry->workspace_bytes);
        if (lent->host == NULL) {
            return out_of_memory(err);
        }
    }
    entry->users++;
    entry->last_use = ++state->clock;
    lent->entry = entry;
    return MMLA_OK;
}

mmla_status loan_take(binding_state *state,
                      const plan_kind *kind,
                      mmla_device device,
                      const void *desc,
                      bool wants_memory,
                      loan *lent,
                      mmla_error *err) {
    const uint64_t hash = hash_words(desc, kind->desc_bytes);
    lent->entry = NULL;
    lent->host = NULL;
    pthread_mutex_lock(&state->lock);
    const mmla_status status = take(state, kind, device, desc, hash, wants_memory, lent, err);
    pthread_mutex_unlock(&state->lock);
    return status;
}

void loan_return(binding_state *state, const loan *lent) {
    pthread_mutex_lock(&state->lock);
    if (lent->host != NULL) {
        lent->host->next = state->idle;
        state->idle = lent->host;
    }
    const int gone = --lent->entry->users == 0 && !lent->entry->listed;
    pthread_mutex_unlock(&state->lock);
    if (gone) {
        entry_free(lent->entry);
    }
}

void plan_counts(binding_state *state, int64_t *kept, int64_t *created) {
    pthread_mutex_lock(&state->lock);
    *kept = state->n_plans;
    *created = state->n_created;
    pthread_mutex_unlock(&state->lock);
}
