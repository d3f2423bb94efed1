/*
 * The slot: shared memory of a twin, through which one thread passes the task to the others. It
 * also holds the block index if functions read it.
 *
 * It is two variables of the module, before the kernel's own. This wastes memory if the kernel's
 * are aligned: behind 16 bytes, an array aligned to 1,024 begins at 1,024. So if the module has
 * dynamic shared memory of a larger alignment, or no static room is left, the slot lies at the end
 * of the dynamic memory, and the launcher asks for that much more.
 */
#include "ptx/twin/editor.h"

#define MAX_STATIC_SHARED_BYTES 49152u /* limit of every GPU */

static bool reads_shared_size(const struct weir_ptx_inst *inst)
{
    return WEIR_ANY(i, inst->n_operands,
                    inst->operands[i].kind == WEIR_PTX_OPERAND_SREG &&
                        (inst->operands[i].sreg == WEIR_PTX_SREG_DYNAMIC_SMEM_SIZE ||
                         inst->operands[i].sreg == WEIR_PTX_SREG_TOTAL_SMEM_SIZE ||
                         inst->operands[i].sreg == WEIR_PTX_SREG_AGGR_SMEM_SIZE));
}

/*
 * The alignment applies to all kernels of the module: ptxas aligns the dynamic memory of each, also
 * of those that do not use it (CUDA 13.0).
 */
bool weir_ptx_slot_is_dynamic(const struct weir_ptx_module *module,
                              const struct weir_ptx_kernel *kernel)
{
    if (WEIR_ANY(i, module->n_vars,
                 module->vars[i]->space == WEIR_PTX_SPACE_SHARED && module->vars[i]->unsized &&
                     module->vars[i]->align > WEIR_PTX_SLOT_ALIGN)) {
        return true;
    }
    return kernel->shared_static_bytes + WEIR_PTX_TASK_BYTES + WEIR_PTX_INDEX_BYTES +
               WEIR_PTX_SLOT_ALIGN >
           MAX_STATIC_SHARED_BYTES;
}

bool weir_ptx_slot_has_room(const struct weir_ptx_module *module,
                            const struct weir_ptx_kernel *kernel)
{
    return !weir_ptx_slot_is_dynamic(module, kernel) ||
           !WEIR_ANY(i, kernel->n_funcs, weir_ptx_func_has(kernel->funcs[i], reads_shared_size));
}

enum weir_status weir_ptx_slot_make(struct weir_ptx_twin *twin, const char *name, uint32_t bytes,
                                    struct weir_ptx_var **ret_var)
{
    if (!twin->slot_dynamic) {
        twin->info->static_shared_bytes += bytes;
        return weir_ptx_shared_var(twin->module, name, bytes, ret_var);
    }
    /* Make room for the whole slot: the task is last, so that its place does not depend on the
     * index. */
    twin->info->dynamic_shared_bytes = bytes == WEIR_PTX_TASK_BYTES && !twin->index
                                           ? WEIR_PTX_TASK_BYTES
                                           : WEIR_PTX_TASK_BYTES + WEIR_PTX_INDEX_BYTES;
    return weir_ptx_shared_var(twin->module, WEIR_PTX_DYNAMIC_NAME, 0, ret_var);
}

/* Get the address of the dynamic memory's end less some bytes, in a register of the given name. */
static const char *end_less(struct weir_ptx_edit *edit, const char *reg, uint32_t bytes)
{
    /* Always use the same register, so that paths may meet. */
    if (!weir_ptx_edit_is_bound(edit, reg)) {
        weir_ptx_edit_reg(edit, reg, WEIR_PTX_TYPE_B32);
    }
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%a;\nmov.b32 %s, " WEIR_PTX_DYNAMIC_NAME ";\n"
                       "mov.b32 %%a, %%dynamic_smem_size;\n"
                       "add.u32 %s, %s, %%a;\nsub.u32 %s, %s, %u;\n",
                       reg, reg, reg, reg, reg, bytes);
    return reg;
}

const char *weir_ptx_slot_task(struct weir_ptx_edit *edit)
{
    return edit->twin->slot_dynamic ? end_less(edit, "%wtask", WEIR_PTX_TASK_BYTES)
                                    : WEIR_PTX_TASK_NAME;
}

const char *weir_ptx_slot_index(struct weir_ptx_edit *edit)
{
    return edit->twin->slot_dynamic
               ? end_less(edit, "%windex", WEIR_PTX_TASK_BYTES + WEIR_PTX_INDEX_BYTES)
               : WEIR_PTX_INDEX_NAME;
}
