/*
 * Which variables of a module its functions reach, and whether they can leave an address of one
 * behind them: such an address means something in the context alone in which the module was loaded.
 */
#pragma once

#include "base/status.h"
#include "ptx/ir.h"

/**
 * Follow the addresses of variables and functions through the registers of each function.
 *
 * An address is left behind if it, or anything computed from it, may be stored, passed to a
 * function or returned by one. vprintf and __assertfail may have it. Where a variable begins with
 * an address, it counts as left behind, too. Errs on that side alone.
 *
 * @param module       with the variables that it declares: those of other texts count as well.
 * @param ret_reached  module->n_vars of them: is the variable named in a function?
 * @param ret_leaves   gives the answer.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_addresses(const struct weir_ptx_module *module, bool *ret_reached,
                                    bool *ret_leaves) WEIR_MUST_CHECK;
