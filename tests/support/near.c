#include "support/near.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

struct near near_init(const char *what, double absolute, double relative) {
    return (struct near){.what = what, .absolute = absolute, .relative = relative};
}

void near_check(struct near *near, int64_t idx, double got, double want) {
    near->n++;
    if ((isnan(got) && isnan(want)) || got == want) {
        return;
    }
    const double allowed = fmax(near->absolute, near->relative * fabs(want));
    const double used = fabs(got - want) / allowed;
    if (!(used <= 1.0) || isinf(want)) { /* NaN fails too */
        fail_msg("%s[%lld]: got %.9g, want %.9g, allowed difference %.3g", near->what,
                 (long long)idx, got, want, allowed);
    }
    if (used > near->worst) {
        near->worst = used;
    }
}

void near_report(const struct near *near) {
    printf("%s: %lld values, worst %.2f of the tolerance\n", near->what, (long long)near->n,
           near->worst);
}
