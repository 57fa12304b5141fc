/* list_pointers.h - where the pointers to arrays lie in mmla_list_args, for test_mirror_move. */
#ifndef MMLA_TESTS_LIST_POINTERS_H
#define MMLA_TESTS_LIST_POINTERS_H

#include <stddef.h>

#include <megamla/list.h>

static const size_t test_list_pointers[] = {
#define POINTER(name) offsetof(mmla_list_args, name)
    POINTER(query_start), POINTER(seq_lens), POINTER(gather_lens), POINTER(block_table),
    POINTER(ring_blocks), POINTER(request),  POINTER(topk),        POINTER(positions),
    POINTER(slots),       POINTER(valid),    POINTER(left),        POINTER(right),
    POINTER(span_start),  POINTER(spans),    POINTER(list),        POINTER(lens),
    POINTER(out_slots),   POINTER(out_left), POINTER(out_right),   POINTER(n_faults),
#undef POINTER
};
#define TEST_LIST_POINTERS (sizeof test_list_pointers / sizeof test_list_pointers[0])

#endif
