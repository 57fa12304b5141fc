/* binding_attend.h - what every call of attention is given, whatever its keys come from. */
#ifndef MEGAMLA_PYTHON_BINDING_ATTEND_H
#define MEGAMLA_PYTHON_BINDING_ATTEND_H

#include "python/src/binding_call.h"

/* attend_read - the arguments before AT_SHARED_END (binding_places.h), but for those of call_run and
 * the implementation. */
void attend_read(call *c, mmla_attend_desc *desc, mmla_attend_args *args);

/* attend_read_caches - the arguments from there to AT_CACHES_END. Whether there is a compressed cache. */
bool attend_read_caches(call *c, mmla_attend_desc *desc, mmla_attend_args *args);

#endif
