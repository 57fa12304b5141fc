/* client.c - the smallest client of an installed megamla; compiled as C and as C++. */
#include <megamla/megamla.h>
#include <stdio.h>

int main(void) {
    mmla_context *ctx;
    mmla_error err;
    if (mmla_context_create(NULL, &ctx, &err) != MMLA_OK) {
        return fprintf(stderr, "%s\n", err.message), 1;
    }
    printf("megamla %s, %d implementations\n", mmla_version_string(),
           (int)mmla_implementation_count(ctx));
    mmla_context_destroy(ctx);
    return mmla_version() != MMLA_VERSION_HEX;
}
