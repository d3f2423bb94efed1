/* Finds the functions of a kernel that must change for a twin, and copies them. */
#include "ptx/twin/editor.h"

#include <stdlib.h>
#include <string.h>

bool weir_ptx_sreg_is_index(uint16_t sreg)
{
    /* Without a cluster launch the cluster's index and count are the block's. */
    return sreg == WEIR_PTX_SREG_CTAID || sreg == WEIR_PTX_SREG_NCTAID ||
           sreg == WEIR_PTX_SREG_CLUSTERID || sreg == WEIR_PTX_SREG_NCLUSTERID;
}

bool weir_ptx_inst_reads_index(const struct weir_ptx_inst *inst)
{
    return WEIR_ANY(i, inst->n_operands,
                    inst->operands[i].kind == WEIR_PTX_OPERAND_SREG &&
                        weir_ptx_sreg_is_index(inst->operands[i].sreg));
}

bool weir_ptx_func_has(const struct weir_ptx_func *func,
                       bool (*is)(const struct weir_ptx_inst *inst))
{
    return WEIR_ANY(i, func->n_insts, is(&func->insts[i]));
}

/* Bits of marks[func->id]. */
#define POINTED 1u /* the function can be reached through a pointer */
#define WANTED  2u /* the function must change, or calls one that must */

static struct weir_ptx_func *target(struct weir_ptx_func *func)
{
    return func->is_alias && func->alias_of ? func->alias_of : func;
}

static void mark_operand(uint8_t *marks, const struct weir_ptx_operand *op)
{
    if (op->kind == WEIR_PTX_OPERAND_FUNC) {
        marks[target(op->func)->id] |= POINTED;
    }
    if (op->kind == WEIR_PTX_OPERAND_TABLE && op->table->kind == WEIR_PTX_TABLE_CALL) {
        for (uint32_t i = 0; i < op->table->n; i++) {
            marks[target(op->table->funcs[i])->id] |= POINTED;
        }
    }
    for (uint32_t i = 0; i < op->n_elems; i++) {
        mark_operand(marks, &op->elems[i]);
    }
}

static void mark_vars(uint8_t *marks, struct weir_ptx_var *const *vars, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < vars[i]->n_inits; j++) {
            if (vars[i]->inits[j].kind == WEIR_PTX_INIT_FUNC) {
                marks[target(vars[i]->inits[j].func)->id] |= POINTED;
            }
        }
    }
}

static void mark_addresses(uint8_t *marks, const struct weir_ptx_func *func)
{
    mark_vars(marks, func->vars, func->n_vars);
    for (uint32_t i = 0; i < func->n_insts; i++) {
        const struct weir_ptx_inst *inst = &func->insts[i];

        for (uint32_t j = 0; j < inst->n_operands; j++) {
            if (inst->op != WEIR_PTX_OP_CALL || j != 1) {
                mark_operand(marks, &inst->operands[j]);
            }
        }
    }
}

static struct weir_ptx_func *callee(const struct weir_ptx_inst *inst)
{
    return inst->op == WEIR_PTX_OP_CALL && inst->operands[1].kind == WEIR_PTX_OPERAND_FUNC
               ? target(inst->operands[1].func)
               : NULL;
}

/* Pass one mark from callers to callees (down), the other from callees to callers, until nothing
 * changes. */
static void spread(const struct weir_ptx_module *module, uint8_t *marks)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < module->n_funcs; i++) {
            const struct weir_ptx_func *func = module->funcs[i];

            for (uint32_t j = 0; j < func->n_insts; j++) {
                const struct weir_ptx_func *to = callee(&func->insts[j]);

                if (to && (marks[func->id] & POINTED & ~marks[to->id])) {
                    marks[to->id] |= POINTED;
                    changed = true;
                }
                if (to && (marks[to->id] & WANTED & ~marks[func->id])) {
                    marks[func->id] |= WANTED;
                    changed = true;
                }
            }
        }
    }
}

static void redirect(struct weir_ptx_func *func)
{
    for (uint32_t i = 0; i < func->n_insts; i++) {
        struct weir_ptx_func *to = callee(&func->insts[i]);

        if (to && to->user) {
            func->insts[i].operands[1].func = to->user;
        }
    }
}

static enum weir_status copy_one(struct weir_ptx_twin *twin, struct weir_ptx_func *func)
{
    const char *name = weir_ptx_pass_text(twin->module, "%s$%s", func->name, twin->entry->name);
    struct weir_ptx_func *copy;

    WEIR_FAIL_IF(!name, WEIR_ERR_NO_MEMORY);
    WEIR_TRY(weir_ptx_clone(twin->module, func, name, &copy));
    func->user = copy;
    twin->funcs[twin->n_funcs++] = copy;
    return WEIR_OK;
}

/* Compute POINTED and WANTED for every function of the module; NULL: out of memory. */
static uint8_t *mark_all(const struct weir_ptx_module *module,
                         bool (*is)(const struct weir_ptx_inst *inst))
{
    uint8_t *marks = calloc(module->n_funcs + 1u, 1);

    WEIR_FAIL_IF(!marks, NULL);
    mark_vars(marks, module->vars, module->n_vars);
    for (uint32_t i = 0; i < module->n_funcs; i++) {
        mark_addresses(marks, module->funcs[i]);
        marks[i] |= weir_ptx_func_has(module->funcs[i], is) ? WANTED : 0;
    }
    spread(module, marks);
    return marks;
}

enum weir_status weir_ptx_pointed_has(struct weir_ptx_module *module,
                                      const struct weir_ptx_kernel *kernel,
                                      bool (*is)(const struct weir_ptx_inst *inst), bool *ret_has)
{
    *ret_has = false;
    if (kernel->n_funcs <= 1) {
        return WEIR_OK; /* no need to examine the whole module */
    }
    uint8_t *marks = mark_all(module, is);

    WEIR_FAIL_IF(!marks, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 1; i < kernel->n_funcs; i++) {
        *ret_has |=
            (marks[kernel->funcs[i]->id] & POINTED) && weir_ptx_func_has(kernel->funcs[i], is);
    }
    free(marks);
    return WEIR_OK;
}

enum weir_status weir_ptx_copy_reached(struct weir_ptx_twin *twin,
                                       bool (*is)(const struct weir_ptx_inst *inst))
{
    struct weir_ptx_module *module = twin->module;
    enum weir_status status = WEIR_OK;

    if (twin->kernel->n_funcs <= 1) {
        return WEIR_OK;
    }
    uint8_t *marks = mark_all(module, is);

    twin->funcs = weir_ptx_alloc(module, (twin->kernel->n_funcs + 1u) * sizeof(*twin->funcs));
    if (!marks || !twin->funcs) {
        free(marks);
        return WEIR_ERR_NO_MEMORY;
    }
    for (uint32_t i = 1; i < twin->kernel->n_funcs && status == WEIR_OK; i++) {
        struct weir_ptx_func *func = module->funcs[twin->kernel->funcs[i]->id];

        if ((marks[func->id] & (WANTED | POINTED)) == WANTED) {
            status = copy_one(twin, func);
        } else if (marks[func->id] & WANTED) {
            twin->funcs[twin->n_funcs++] = func;
            twin->in_place = true;
        }
    }
    for (uint32_t i = 0; i < twin->n_funcs && status == WEIR_OK; i++) {
        redirect(twin->funcs[i]);
    }
    redirect(twin->entry);
    for (uint32_t i = 0; i < module->n_funcs; i++) {
        module->funcs[i]->user = NULL;
    }
    free(marks);
    return status;
}
