/* Instructions of a whole warp, and whom their masks name. Private to ptx/. */
#ifndef WEIR_PTX_WARP_H
#define WEIR_PTX_WARP_H

#include "base/status.h"
#include "ptx/ir.h"

/* Owned by whoever asked; weir_ptx_masks_finish() frees it. */
struct weir_ptx_masks {
    uint8_t
        *may_be_all; /* per register: may name threads that have ended; NULL: no mask to ask for */
};

/**
 * Find out which registers of a function only hold masks of threads that were there: results of
 * activemask, ballots and matches, and parts of them.
 *
 * @param func       with a body; borrowed for the call.
 * @param ret_masks  gives them.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_masks_init(const struct weir_ptx_func *func,
                                     struct weir_ptx_masks *ret_masks) WEIR_MUST_CHECK;

/** Free what it holds. @thread owner */
void weir_ptx_masks_finish(struct weir_ptx_masks *masks);

/**
 * Whether an instruction waits for the threads of a mask that may name more than were there when it
 * was made. Matrix instructions are not among them: all threads of the warp must be there.
 * @thread any
 */
bool weir_ptx_may_name_all(const struct weir_ptx_masks *masks, const struct weir_ptx_inst *inst);

#endif
