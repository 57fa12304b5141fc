/* gather_walk.h - checks of kv_gather over every format and every implementation, and the calls that
 * several test programs make.
 */
#ifndef MMLA_TESTS_GATHER_WALK_H
#define MMLA_TESTS_GATHER_WALK_H

#include "support/gather_fixture.h"

/* Of gather_fixture_create's shapes. */
enum { GATHER_TABLE = 4, GATHER_PAGE = 5, GATHER_ROWS = 24, GATHER_OFFSET = 2 };

typedef void (*gather_change_fn)(gather_fixture *f);
typedef void (*gather_check_fn)(gather_fixture *f, const char *implementation);

/* check with every format and every implementation. shape changes the description before memory is
 * allocated, content the inputs before check; both may be NULL. */
void gather_walk(uint64_t seed,
                 gather_change_fn shape,
                 gather_change_fn content,
                 gather_check_fn check);

/* The slot that position pos of request r means. */
int64_t gather_walk_slot(gather_fixture *f, int64_t r, int64_t pos);

void gather_walk_set_lens(gather_fixture *f, int64_t r, int32_t seq, int32_t gather);

/* Request r holds its positions first .. first + n - 1 from the call's offset on, and nothing else. */
void gather_walk_assert_rows(gather_fixture *f, int64_t r, int64_t first, int64_t n);

/* Lengths of a whole table, from the middle of a page, and of one row; and what a call writes for
 * them, with gather_lens and without. */
void gather_walk_various_lens(gather_fixture *f);
void gather_walk_check_last_rows(gather_fixture *f, const char *implementation);
void gather_walk_check_whole_sequences(gather_fixture *f, const char *implementation);

/* Room for four rows, and lengths of which the last two have more. */
void gather_walk_offset_20(gather_fixture *f);
void gather_walk_lens_beyond_the_room(gather_fixture *f);

#endif
