/*
 * Kernels in another form, for tests of the passes: with WEIR_SOFTGPU_FORM=slice, ticket or
 * persistent every module gets twins of its kernels when it is loaded, and every launch of a kernel
 * that admits the form runs its twin instead: cut at random places, stopped and resumed, on random
 * ranges of SMs, with random quotas and task sizes, from WEIR_SOFTGPU_FORM_SEED. The program must
 * not be able to tell. Nothing else of softgpu knows about forms.
 */
#ifndef WEIR_SOFTGPU_DRIVER_FORMS_H
#define WEIR_SOFTGPU_DRIVER_FORMS_H

#include "base/status.h"
#include "softgpu/exec/exec.h"
#include <stdbool.h>

/** Whether WEIR_SOFTGPU_FORM names a form. @thread any */
bool weir_soft_forms_on(void);

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
 * @return as weir_exec_run()
 * @thread any
 */
enum weir_status weir_soft_forms_run(struct weir_exec_device *engine,
                                     const struct weir_exec_module *module,
                                     const struct weir_exec_launch *launch,
                                     struct weir_exec_fault *ret_fault) WEIR_MUST_CHECK;

#endif
