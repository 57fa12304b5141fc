/* chain_portable.c - the four steps by number. */
#include "ops/chain/chain.h"

mmla_status mmla_chain_portable(const mmla_attend_problem *p,
                                const mmla_chain_layout *layout,
                                mmla_chain_step step,
                                const mmla_attend_args *args,
                                void *workspace,
                                void *stream) {
    (void)stream;
    uint16_t *o = mmla_chain_o(layout, workspace);
    switch (step) {
    case MMLA_CHAIN_ROPE_Q:
        mmla_chain_rope_q(p, args, mmla_chain_q(layout, workspace));
        return mmla_attend_report_positions(p, args); /* once; the later steps only carry NaN */
    case MMLA_CHAIN_ATTEND:
        mmla_chain_attend(p, layout, args, workspace);
        return MMLA_OK;
    case MMLA_CHAIN_UNROPE:
        mmla_chain_unrope(p, args, o);
        return MMLA_OK;
    case MMLA_CHAIN_QUANTISE:
        mmla_chain_quantise(p, args, o);
        return MMLA_OK;
    }
    return MMLA_E_VALUE;
}
