/* check_list_define.h - what each index builder must write, straight from the formulas of list.h.
 */
#ifndef APP_CHECK_CHECK_LIST_DEFINE_H
#define APP_CHECK_CHECK_LIST_DEFINE_H

#include <stdint.h>

#include <megamla/megamla.h>

/* Fills the outputs of args (list and lens, out_slots, or out_left and out_right) for d, whose
 * strides are not 0. query_start and span_start must rise as they should. */
void check_list_define(const mmla_list_desc *d, const mmla_list_args *args);

#endif
