/*
 * Kernel forms: from a module to the same module with twins of its kernels that can be cut, stopped
 * and resumed. The forms and what each promises are in docs/design/passes.md.
 */
#ifndef WEIR_PTX_PASS_PASS_H
#define WEIR_PTX_PASS_PASS_H

#include "base/status.h"
#include "ptx/analysis.h"
#include "ptx/pass/control_block.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_PTX_FORM_BIT(form) (1u << (form))

/* How a twin came out. */
struct weir_ptx_twin_info {
    const char *name;        /* of the twin, in the module; NULL when the kernel was refused */
    enum weir_status status; /* WEIR_OK, or why there is none */
    char reason[160];        /* one sentence for a refused one */
    uint32_t args_offset;    /* of struct weir_ptx_form_args in the twin's parameter block */
    uint32_t barriers;       /* block-wide barriers that the pass added on the way of one block */
    bool unified_exit;       /* persistent: barriers wait for threads that have left, too */
};

/**
 * Give a kernel a twin of a form, in the same module, so that they share its variables.
 *
 * The twin's name is <kernel>$<form>; its parameters are the kernel's and struct
 * weir_ptx_form_args. Functions that the kernel calls are copied where they had to change.
 * Functions that can be called through a pointer cannot be copied; they are changed in place, and
 * so, then, are the other kernels of the module that may call them: each stores its block index
 * where those functions look for it. Their results stay the same.
 *
 * What the forms promise, and what the launcher must keep to: docs/design/passes.md.
 *
 * @param module    changed; left as it was when the kernel is refused.
 * @param kernel    of an analysis of this module, made with WEIR_PTX_ASSUME_OWN_POINTERS before its
 *                  first twin; twins leave its facts true.
 * @param form      not ORIGINAL.
 * @param ret_info  filled in any case; its name lives as long as the module.
 * @return WEIR_OK
 * @return WEIR_ERR_UNSUPPORTED  the kernel does not admit the form: see ret_info->reason.
 * @return WEIR_ERR_EXISTS       it has that twin, or the module has something of its name.
 * @return WEIR_ERR_TOO_BIG      no room for one more parameter.
 * @return WEIR_ERR_NO_MEMORY    the module may hold parts of a twin: destroy it.
 * @thread owner
 */
enum weir_status weir_ptx_twin(struct weir_ptx_module *module,
                               const struct weir_ptx_kernel *kernel, enum weir_ptx_form form,
                               struct weir_ptx_twin_info *ret_info) WEIR_MUST_CHECK;

/**
 * Take the kernels out of a module that are not twins.
 *
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread owner
 */
enum weir_status weir_ptx_keep_twins(struct weir_ptx_module *module) WEIR_MUST_CHECK;

/** Row of passes.def for printing: false past the last. @thread any */
bool weir_ptx_pass_row(uint32_t index, const char **ret_name, const char **ret_summary,
                       uint32_t *ret_forms);

#endif
