/* attend_wgmma_turn.h - turning a 4 x 4 square of 16-bit elements among four threads, in two
 * exchanges: shared by host and device, so that it is tested without a GPU.
 *
 * Thread u has elements h[0 .. 3] in two words, the lower half first, and wants element u of
 * threads 0 to 3, in that order. It sends turn_far to thread u ^ 2 and gets turn_begin's `far` from
 * there, then sends turn_near to thread u ^ 1 and gets turn_end's `near`.
 */
#ifndef MMLA_GPU_ATTEND_WGMMA_TURN_H
#define MMLA_GPU_ATTEND_WGMMA_TURN_H

#include <stdint.h>

#include "base/inline.h"

typedef struct attend_wgmma_turn {
    uint32_t a, b;
} attend_wgmma_turn;

MMLA_INLINE uint32_t attend_wgmma_turn_low(uint32_t a, uint32_t b) {
    return (a & 0xFFFFu) | b << 16;
}

MMLA_INLINE uint32_t attend_wgmma_turn_high(uint32_t a, uint32_t b) {
    return a >> 16 | (b & 0xFFFF0000u);
}

MMLA_INLINE uint32_t attend_wgmma_turn_far(int32_t u, uint32_t h01, uint32_t h23) {
    return u < 2 ? h23 : h01;
}

/* a of the thread of the two that has the lower number, b of the other. */
MMLA_INLINE attend_wgmma_turn attend_wgmma_turn_begin(int32_t u,
                                                      uint32_t h01,
                                                      uint32_t h23,
                                                      uint32_t far) {
    const attend_wgmma_turn t = {u < 2 ? h01 : far, u < 2 ? far : h23};
    return t;
}

MMLA_INLINE uint32_t attend_wgmma_turn_near(int32_t u, attend_wgmma_turn t) {
    return u % 2 == 0 ? attend_wgmma_turn_high(t.a, t.b) : attend_wgmma_turn_low(t.a, t.b);
}

/* Elements of threads 0 and 1 in a, of 2 and 3 in b. */
MMLA_INLINE attend_wgmma_turn attend_wgmma_turn_end(int32_t u, attend_wgmma_turn t, uint32_t near) {
    const uint32_t own =
        u % 2 == 0 ? attend_wgmma_turn_low(t.a, t.b) : attend_wgmma_turn_high(t.a, t.b);
    const uint32_t even = u % 2 == 0 ? own : near, odd = u % 2 == 0 ? near : own;
    const attend_wgmma_turn end = {attend_wgmma_turn_low(even, odd),
                                   attend_wgmma_turn_high(even, odd)};
    return end;
}

/* Which of four chunks thread u of a head takes the scale of, and which thread takes that of chunk
 * u. */
MMLA_INLINE int32_t attend_wgmma_chunk_of(int32_t u) {
    return u % 2 * 2 + u / 2;
}

#endif
