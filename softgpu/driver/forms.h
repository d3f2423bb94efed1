/*
 * Runs kernels in another form, to test the PTX passes. With WEIR_SOFTGPU_FORM=slice, ticket or
 * persistent every module gets twins of its kernels when it is loaded, and every launch of a kernel
 * that admits the form runs the twin. The twin is cut at random places, stopped and resumed, with
 * random SMs, block limits and task sizes, chosen from WEIR_SOFTGPU_FORM_SEED. The program must not
 * notice. WEIR_SOFTGPU_FORM_APART=1 loads the twins as a module of their own. Nothing else of
 * softgpu knows about forms.
 */
#ifndef WEIR_SOFTGPU_DRIVER_FORMS_H
#define WEIR_SOFTGPU_DRIVER_FORMS_H

#include "base/status.h"
#include "ptx/analysis.h"
#include "softgpu/exec/exec.h"
#include <stdbool.h>

struct weir_soft_apart; /* a module of twins beside a program's module; immutable once loaded */

/** Whether WEIR_SOFTGPU_FORM names a form. @thread any */
bool weir_soft_forms_on(void);

/** The form it names; ORIGINAL for none. @thread any */
enum weir_ptx_form weir_soft_forms_which(void);

/** What WEIR_SOFTGPU_ORDER_SEED says of the next launch's order of blocks; 0: nothing.
 * @thread any */
uint64_t weir_soft_forms_order_seed(void);

/** Are the twins of a module with this number of texts loaded separately? @thread any */
bool weir_soft_forms_are_apart(uint32_t n_sources);

/**
 * The text of a module with twins of its kernels.
 *
 * @param source    borrowed.
 * @param ret_text  gives the text; NULL when there is nothing to change.
 * @param ret_len   its length in bytes.
 * @thread any
 */
void weir_soft_forms_rewrite(const struct weir_exec_source *source, char **ret_text,
                             size_t *ret_len);

/** Whether a kernel of a module is a twin, which programs must not see. @thread any */
bool weir_soft_forms_is_twin(const struct weir_exec_kernel *kernel);

/**
 * Run a launch, by the twin of its kernel where there is one.
 *
 * @param module  of the launch's kernel.
 * @param apart   the module of its twins; NULL: they are in its own.
 * @return as weir_exec_run()
 * @thread any
 */
enum weir_status weir_soft_forms_run(struct weir_exec_device *engine,
                                     const struct weir_exec_module *module,
                                     struct weir_soft_apart *apart,
                                     const struct weir_exec_launch *launch,
                                     struct weir_exec_fault *ret_fault) WEIR_MUST_CHECK;

/**
 * Make and load the module of twins of a module that is loaded.
 *
 * @param ret_apart  gives it; weir_soft_apart_destroy() before the original goes.
 * @thread any
 */
enum weir_status weir_soft_apart_load(struct weir_exec_device *engine,
                                      const struct weir_exec_source *source,
                                      const struct weir_exec_memory *memory,
                                      const struct weir_exec_module *original,
                                      struct weir_soft_apart **ret_apart) WEIR_MUST_CHECK;

/** Accepts NULL. No launch may be under way. @thread any */
void weir_soft_apart_destroy(struct weir_soft_apart *apart);

/** The twin of a kernel, or NULL; and the dynamic shared memory it needs more. @thread any */
const struct weir_exec_kernel *weir_soft_apart_twin(struct weir_soft_apart *apart,
                                                    const char *kernel, uint32_t *ret_dynamic);

/** Make the twins' constants equal to the original's. @thread any */
void weir_soft_apart_copy_consts(struct weir_soft_apart *apart);

#endif
