/* parallel.c - OpenMP where it was found; else threads of our own, which the thread sanitizer can
 * follow (it cannot see into libgomp), started and joined by every call. */
#include "base/parallel.h"

#if defined(_OPENMP)

#include <omp.h>

void mmla_parallel_for(int32_t n_threads, int64_t n_units, mmla_unit_fn fn, void *job) {
    if (n_threads > n_units) {
        n_threads = (int32_t)n_units;
    }
    if (n_threads <= 1) {
        for (int64_t unit = 0; unit < n_units; unit++) {
            fn(job, unit, 0);
        }
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(n_threads)
    for (int64_t unit = 0; unit < n_units; unit++) {
        fn(job, unit, omp_get_thread_num());
    }
}

#else

#include <pthread.h>
#include <stdatomic.h>

struct team {
    mmla_unit_fn fn;
    void *job;
    int64_t n_units;
    atomic_llong next;
};

struct member {
    struct team *team;
    int32_t thread;
};

static void *member_run(void *arg) {
    const struct member *me = arg;
    struct team *team = me->team;
    for (;;) {
        const long long unit = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed);
        if (unit >= team->n_units) {
            return NULL;
        }
        team->fn(team->job, unit, me->thread);
    }
}

void mmla_parallel_for(int32_t n_threads, int64_t n_units, mmla_unit_fn fn, void *job) {
    if (n_threads > n_units) {
        n_threads = (int32_t)n_units;
    }
    if (n_threads > MMLA_PARALLEL_MAX) {
        n_threads = MMLA_PARALLEL_MAX;
    }
    struct team team = {.fn = fn, .job = job, .n_units = n_units};
    struct member members[MMLA_PARALLEL_MAX];
    pthread_t ids[MMLA_PARALLEL_MAX];
    int32_t started = 1;
    for (; started < n_threads; started++) {
        members[started] = (struct member){&team, started};
        if (pthread_create(&ids[started], NULL, member_run, &members[started]) != 0) {
            break; /* fewer threads do the same work */
        }
    }
    members[0] = (struct member){&team, 0};
    member_run(&members[0]);
    for (int32_t i = 1; i < started; i++) {
        pthread_join(ids[i], NULL);
    }
}

#endif
