/*
 * Kernel forms: twins of kernels that can be cut, stopped, moved and resumed. docs/design/passes.md
 * has the guarantees of the forms, and the duties of a launcher.
 *
 * There are two ways. weir_ptx_twins() turns a module into one that only has twins, to be loaded
 * beside the original, which does not change. weir_ptx_twin() adds a twin to the module itself, for
 * a caller that loads only that module.
 */
#pragma once

#include "base/status.h"
#include "ptx/analysis.h"
#include "ptx/twin/control_block.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_PTX_FORM_BIT(form) (1u << (form))
#define WEIR_PTX_FORM_TWINS                                                                        \
    (WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_TICKET) | WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT))

/* In a module of twins: 64-bit addresses of the original's variables, in .const. */
#define WEIR_PTX_BINDS_NAME "weir$binds"

/*
 * In a module of twins with a ticket form: .entry weir$finish(struct weir_ptx_form_args). Launched
 * with one thread behind a ticket twin, it sets `finished` if all blocks have begun.
 */
#define WEIR_PTX_FINISH_NAME "weir$finish"

/* The result of making a twin. Texts live as long as the module. */
struct weir_ptx_twin_info {
    const char *kernel; /* the original's name */
    enum weir_ptx_form form;
    const char *name;        /* name of the twin in the module; NULL: it was refused */
    enum weir_status status; /* WEIR_OK, or why there is no twin */
    char reason[160];        /* one sentence that says why it was refused */
    uint32_t args_offset;    /* offset of struct weir_ptx_form_args in the parameter block */
    uint32_t param_bytes;    /* size of the twin's parameter block */
    /* How much more static shared memory than the kernel the twin has; alignment may add more. */
    uint32_t static_shared_bytes;
    uint32_t dynamic_shared_bytes; /* add this to each launch's size, and to the attribute
                                      MAX_DYNAMIC_SHARED_SIZE_BYTES; the kernel's own size must
                                      be rounded up to 16 before */
    uint32_t barriers; /* block-wide barriers that the form adds for one block of a task of one */
};

/* A request for twins of a kernel. */
struct weir_ptx_twin_want {
    const char *kernel; /* NULL: every kernel of the module */
    uint32_t forms;     /* WEIR_PTX_FORM_BIT of each requested form; refused ones are reported */
    uint32_t max_regs;  /* 0, or the .maxnreg that replaces .minnctapersm in the twins */
};

/* The result of weir_ptx_twins(). It lives in the module. */
struct weir_ptx_twins {
    struct weir_ptx_twin_info *infos; /* one for each kernel and form requested, in source order */
    uint32_t n_infos;
    uint32_t n_made; /* number of infos that were not refused; 0: the module is empty */
    /* Names of variables of the original whose addresses the loader writes into
     * WEIR_PTX_BINDS_NAME, in this order. Without any, the module has no such variable. */
    const char *const *binds;
    uint32_t n_binds;
    /* Names of .const variables that the module copies. The loader keeps the copies' contents equal
     * to the originals'; the copies have no initialisers. */
    const char *const *consts;
    uint32_t n_consts;
};

/**
 * Turn a module into one that only has twins of its kernels.
 *
 * Variables in .global space are those of the original (pass bind). A kernel that calls through
 * pointers is refused: a pointer may be one of the original, whose functions may need more
 * registers than the twin has. So are the kernels that weir_ptx_analyze() refuses.
 *
 * @param module     changed; of no other use afterwards, also on failure.
 * @param wants      one per kernel; of two for one kernel, the first counts.
 * @param n_wants    1 or more.
 * @param ret_twins  filled on success.
 * @return WEIR_OK               also when every twin was refused.
 * @return WEIR_ERR_NOT_FOUND    a kernel that the module does not have.
 * @return WEIR_ERR_TOO_BIG      too much for the analysis, or for .const.
 * @return WEIR_ERR_NO_MEMORY
 * @thread owner
 */
enum weir_status weir_ptx_twins(struct weir_ptx_module *module,
                                const struct weir_ptx_twin_want *wants, uint32_t n_wants,
                                struct weir_ptx_twins *ret_twins) WEIR_MUST_CHECK;

/**
 * Give a kernel a twin of a form, in the same module, so that they share its variables.
 *
 * The twin's name is <kernel>$<form>; its parameters are the kernel's and struct
 * weir_ptx_form_args. Functions that the kernel calls are copied where they had to change.
 * Functions that can be called through a pointer cannot be copied; they are changed in place, and
 * so, then, are the other kernels of the module that may call them: each stores its block index
 * where those functions look for it. Their results stay the same.
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
enum weir_status weir_ptx_twin(struct weir_ptx_module *module, const struct weir_ptx_kernel *kernel,
                               enum weir_ptx_form form,
                               struct weir_ptx_twin_info *ret_info) WEIR_MUST_CHECK;
