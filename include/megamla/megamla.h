/* megamla.h - the whole library.
 *
 * How to use it:
 *
 * 1. Create a context for a device (context.h). It stands for what would otherwise be global.
 * 2. For each operation describe shapes, strides and options in a desc, and create a plan. Creation
 *    checks every field and says what is wrong; it also chooses the implementation. Zero is the
 *    default of every field it is legal for, so designated initialisers keep descs short.
 * 3. Ask the plan for its workspace size, provide that much memory, and run as often as you like
 *    with any lengths and contents up to the plan's maxima. Running allocates nothing and is legal
 *    while a graph is captured. Plans may be shared between threads; workspaces may not.
 * 4. Every function returns MMLA_OK or says what happened; the library never prints or exits.
 *
 * A decode step of one layer, in order: mmla_list_run (once per step: WINDOW, COMPRESSED),
 * mmla_kv_insert_run (this layer's window cache, and compressed cache where the layer writes one),
 * mmla_attend_run, mmla_project_run. examples/ has them as programs.
 */
#ifndef MEGAMLA_MEGAMLA_H
#define MEGAMLA_MEGAMLA_H

#include <megamla/attend.h>
#include <megamla/chain.h>
#include <megamla/context.h>
#include <megamla/kv.h>
#include <megamla/layout.h>
#include <megamla/list.h>
#include <megamla/prefill.h>
#include <megamla/project.h>
#include <megamla/rope.h>
#include <megamla/status.h>
#include <megamla/version.h>
#include <megamla/weights.h>

#endif
