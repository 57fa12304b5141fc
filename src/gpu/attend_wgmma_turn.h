/* attend_wgmma_turn.h - turning a 4 x 4 square of 16-bit elements among four threads, in two
 * exchanges: shared by host and device, so that it is tested without a GPU.
 *
 * Thread u has elements h[0 .. 3] in two words, the lower half first, and wants element u of
 * threads 0 to 3, in that order. It keeps one word and sends the other to thread u ^ 2, gets `far`
 * from there, then sends turn_near to thread u ^ 1 and gets turn_end's `near`. Which bytes go where
 * depends on u alone, so a thread finds it once, as selectors of byte permutations: an instruction
 * for each word.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_TURN_H
#define MMLA_GPU_ATTEND_WGMMA_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/inline.h"

typedef struct attend_wgmma_turn {
    uint32_t a, b;
} attend_wgmma_turn;

/* What a thread does in every turn. A digit of a selector, the lowest first, is the number of a byte
 * of two words, 0 to 3 of the first. */
typedef struct attend_wgmma_turner {
    bool keeps_first;   /* h[0 .. 1] */
    uint32_t own, near; /* of the kept word and `far`: what stays, and what is sent to u ^ 1 */
    uint32_t a, b;      /* of what stayed and `near`: the results */
} attend_wgmma_turner;

/* The bytes of x and y that a selector names. */
MMLA_INLINE uint32_t attend_wgmma_pick(uint32_t x, uint32_t y, uint32_t selector) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(x, y, selector);
#else
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t picked = 0;
    for (int32_t i = 0; i < 4; i++) {
        picked |= (uint32_t)(both >> 8 * (selector >> 4 * i & 7) & 0xFF) << 8 * i;
    }
    return picked;
#endif
}

MMLA_INLINE attend_wgmma_turner attend_wgmma_turner_get(int32_t u) {
    /* The lower halves of the first word and of the second; or of the second and the first. */
    const uint32_t low = 0x5410, low_swapped = 0x1054, to_high = 0x2222;
    const bool first = u < 2, even = u % 2 == 0;
    /* The kept word is of the thread with the lower number of u and u ^ 2 if that is u. */
    const uint32_t in_order = first ? low : low_swapped;
    const attend_wgmma_turner t = {
        first,
        in_order + (even ? 0 : to_high),
        in_order + (even ? to_high : 0),
        even ? low : low_swapped,
        (even ? low : low_swapped) + to_high,
    };
    return t;
}

MMLA_INLINE uint32_t attend_wgmma_turn_kept(const attend_wgmma_turner *t,
                                            uint32_t h01,
                                            uint32_t h23) {
    return t->keeps_first ? h01 : h23;
}

MMLA_INLINE uint32_t attend_wgmma_turn_far(const attend_wgmma_turner *t,
                                           uint32_t h01,
                                           uint32_t h23) {
    return t->keeps_first ? h23 : h01;
}

MMLA_INLINE uint32_t attend_wgmma_turn_near(const attend_wgmma_turner *t,
                                            uint32_t kept,
                                            uint32_t far) {
    return attend_wgmma_pick(kept, far, t->near);
}

/* Elements of threads 0 and 1 in a, of 2 and 3 in b. */
MMLA_INLINE attend_wgmma_turn attend_wgmma_turn_end(const attend_wgmma_turner *t,
                                                    uint32_t kept,
                                                    uint32_t far,
                                                    uint32_t near) {
    const uint32_t own = attend_wgmma_pick(kept, far, t->own);
    const attend_wgmma_turn end = {attend_wgmma_pick(own, near, t->a),
                                   attend_wgmma_pick(own, near, t->b)};
    return end;
}

/* Which of four chunks thread u of a head takes the scale of, and which thread takes that of chunk
 * u. */
MMLA_INLINE int32_t attend_wgmma_chunk_of(int32_t u) {
    return u % 2 * 2 + u / 2;
}

#endif
