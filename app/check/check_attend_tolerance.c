#include "app/check/check_attend_tolerance.h"

#include <string.h>

/* The name says so: on the CPU of one, on a GPU of all, because its matrix units take bf16. A test
 * holds the names of the library against this. */
double check_attend_probability_error(const char *implementation, double largest_key) {
    const char *end = strstr(implementation, "bf16");
    return end != NULL && end[4] == '\0' ? 0x1p-9 * largest_key : 0.0;
}

check_tolerance check_attend_out_tolerance(const char *implementation, double largest_key) {
    return (check_tolerance){.abs = 1.1e-3,
                             .rel = 1.01 / 8,
                             .cosine = 1e-3,
                             .add = check_attend_probability_error(implementation, largest_key)};
}

check_tolerance check_attend_lse_tolerance(void) {
    return (check_tolerance){.abs = 1e-5, .rel = 4.01 / 65536};
}
