/* lists_cuda.c - which kernel builds which list, on how many blocks. One launch a call, of a size
 * that depends on the number of tokens alone, so it can be captured and replayed. */
#include "base/checked.h"
#include "ops/lists/lists_cuda.h"

/* A kernel, and how many tokens a block of how many threads serves. */
struct choice {
    const void *kernel;
    int32_t threads;
    int32_t tokens;
};

static struct choice choice_of(const mmla_lists_problem *p) {
#define KERNEL(name) (const void *)mmla_lists_##name
    static const struct rows {
        const void *narrow, *wide;
    } rows[MMLA_LIST_KINDS] = {
        [MMLA_LIST_WINDOW] = {KERNEL(window_narrow), KERNEL(window_wide)},
        [MMLA_LIST_DRAFT] = {KERNEL(draft_narrow), KERNEL(draft_wide)},
        [MMLA_LIST_COMPRESSED] = {KERNEL(compressed_narrow), KERNEL(compressed_wide)},
        [MMLA_LIST_COMBINED] = {KERNEL(combined_narrow), KERNEL(combined_wide)},
    };
    enum {
        NARROW_THREADS = MMLA_LISTS_NARROW_WARPS * MMLA_LISTS_WARP,
        WIDE_THREADS = MMLA_LISTS_WIDE_WARPS * MMLA_LISTS_WARP
    };
    const mmla_list_kind kind = p->desc.kind;
    switch (kind) {
    case MMLA_LIST_COMPRESSED_SLOTS:
        return (struct choice){KERNEL(compressed_slots), MMLA_LISTS_SLOT_THREADS,
                               MMLA_LISTS_SLOT_THREADS};
    case MMLA_LIST_RING_SLOTS:
        return (struct choice){KERNEL(ring_slots), MMLA_LISTS_SLOT_THREADS,
                               MMLA_LISTS_SLOT_THREADS};
    case MMLA_LIST_IMAGE_SPANS:
        return (struct choice){KERNEL(image_spans), NARROW_THREADS, MMLA_LISTS_NARROW_WARPS};
    default:
        return p->desc.width <= MMLA_LISTS_NARROW_WIDTH
                   ? (struct choice){rows[kind].narrow, NARROW_THREADS, MMLA_LISTS_NARROW_WARPS}
                   : (struct choice){rows[kind].wide, WIDE_THREADS, 1};
    }
#undef KERNEL
}

mmla_status mmla_lists_cuda_prepare(void *problem, mmla_error *err) {
    const mmla_lists_problem *p = problem;
    return mmla_gpu_kernel_load(&p->gpu, choice_of(p).kernel, 0, err);
}

mmla_status mmla_lists_cuda(const mmla_lists_problem *p, const mmla_list_args *args, void *stream) {
    const struct choice choice = choice_of(p);
    mmla_lists_params params = {*p, *args};
    params.args.error = NULL;
    const mmla_gpu_launch launch = {
        .kernel = choice.kernel,
        /* n_tokens is at most 2^31 - 1, and so is what a grid may have */
        .grid = {(uint32_t)((args->n_tokens + choice.tokens - 1) / choice.tokens), 1, 1},
        .block = (uint32_t)choice.threads,
        .early = args->overlap != 0, /* all kernels wait for the launch before at their end */
    };
    return mmla_gpu_launch_run(&p->gpu, &launch, &params, stream, args->error);
}
