/*
 * Translates a function's IR to internal code, for one kernel.
 *
 * Pass 1 gives every register a row, every immediate a row of the constant pool and every variable
 * of the body a place; pass 2 emits instructions and records where each IR instruction begins (most
 * IR instructions become one; addresses of frame variables and volatile special registers need one
 * more); pass 3 turns label ids into pointers. An IR instruction that is not supported becomes one
 * that faults, and the function's `unsupported` names the first.
 *
 * How operands and memory forms are resolved is in decode_operand.c, the forms of each opcode in
 * decode_op.c.
 */
#include "softgpu/exec/decode.h"

#include "base/thread.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Room behind the last row of a frame and of a constant pool. PTX lets some instructions name a
 * register narrower than the operand, so even the widest access at the last row must stay inside.
 */
#define SLACK_BYTES 512u

/* Print the instruction as in its source, for messages. */
static void describe(const struct weir_ptx_inst *ir, char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, "%s", weir_ptx_op_info(ir->op)->name);
    for (uint32_t m = 0; m < ir->n_mods && n < bytes; m++) {
        if (ir->mods[m] == WEIR_PTX_MOD_SHAPE) {
            n += (size_t)snprintf(text + n, bytes - n, ir->shape.k != 0 ? ".m%un%uk%u" : ".m%un%u",
                                  ir->shape.m, ir->shape.n, ir->shape.k);
        } else {
            n += (size_t)snprintf(text + n, bytes - n, ".%s", weir_ptx_mod_text(ir->mods[m]));
        }
    }
}

static bool place_registers(struct weir_x_decoder *x)
{
    const struct weir_ptx_func *f = x->func->ir;
    x->regs = calloc((size_t)f->n_regs + 1, sizeof *x->regs);
    x->starts = calloc((size_t)f->n_insts + 1, sizeof *x->starts);
    WEIR_FAIL_IF(!x->regs || !x->starts, false);
    uint32_t preds = 0;
    for (uint32_t r = 0; r < f->n_regs; r++) {
        preds += f->regs[r].bits == 1;
    }
    /* Predicates first, 8 bytes each; then rows. */
    uint32_t at_pred = 0;
    uint32_t at = (preds * 8 + 63u) & ~63u;
    for (uint32_t r = 0; r < f->n_regs; r++) {
        uint32_t bits = f->regs[r].bits;
        if (bits == 1) {
            x->regs[r] = at_pred;
            at_pred += 8;
        } else {
            x->regs[r] = at;
            at += bits <= 32 ? 128 : bits <= 64 ? 256 : 512;
            x->func->n_regs32 += bits <= 32 ? 1 : bits / 32;
        }
    }
    x->func->frame_bytes = at;
    return true;
}

static uint32_t place_var(const struct weir_ptx_var *var, uint32_t at, uint32_t *ret_place)
{
    *ret_place = weir_x_align(at, var->align == 0 ? 1 : var->align);
    return weir_x_align(*ret_place + var->size_bytes, 1);
}

/* Place parameters, results and the body's .local and .param variables in the frame. */
static bool place_variables(struct weir_x_decoder *x)
{
    const struct weir_ptx_func *f = x->func->ir;
    x->places = calloc((size_t)f->n_vars + 1, sizeof *x->places);
    x->param_places = calloc((size_t)f->n_params + f->n_returns + 1, sizeof *x->param_places);
    WEIR_FAIL_IF(!x->places || !x->param_places, false);
    uint32_t at = 0;
    if (!f->is_entry) {
        at = weir_x_place_params(f, x->param_places);
    }
    x->func->param_bytes = at;
    for (uint32_t v = 0; v < f->n_vars; v++) {
        uint8_t space = f->vars[v]->space;
        if (space == WEIR_PTX_SPACE_LOCAL || space == WEIR_PTX_SPACE_PARAM) {
            at = place_var(f->vars[v], at, &x->places[v]);
        }
    }
    x->func->local_bytes = (at + 15u) & ~15u;
    return true;
}

uint32_t weir_x_place_params(const struct weir_ptx_func *f, uint32_t *places)
{
    uint32_t at = 0;
    for (uint32_t p = 0; p < f->n_params; p++) {
        if (f->params[p]->reg == WEIR_PTX_NONE) {
            at = place_var(f->params[p], at, &places[p]);
        }
    }
    for (uint32_t p = 0; p < f->n_returns; p++) {
        if (f->returns[p]->reg == WEIR_PTX_NONE) {
            at = place_var(f->returns[p], at, &places[f->n_params + p]);
        }
    }
    return at;
}

/* Must the instruction itself split the group when only some lanes run it? */
static bool splits(uint16_t op)
{
    uint32_t flags = weir_ptx_op_info(op)->flags;
    return (flags & (WEIR_PTX_OPF_CONTROL | WEIR_PTX_OPF_BARRIER | WEIR_PTX_OPF_CONVERGENT)) != 0 ||
           op == WEIR_PTX_OP_NANOSLEEP || op == WEIR_PTX_OP_TRAP || op == WEIR_PTX_OP_BRKPT;
}

static void guard(struct weir_x_decoder *x, uint32_t first)
{
    const struct weir_ptx_inst *ir = x->ir;
    for (uint32_t k = first; k < x->func->n_code; k++) {
        struct weir_x_inst *i = &x->func->code[k];
        i->guard = x->regs[ir->guard];
        i->guard_flip = ir->guard_negated ? UINT32_MAX : 0;
        i->inner = i->fn;
        if (i->fn == weir_x_exec_bra) {
            i->fn = weir_x_exec_bra_guarded;
        } else {
            i->fn = splits(ir->op) && k + 1 == x->func->n_code ? weir_x_exec_guarded_split
                                                               : weir_x_exec_guarded;
        }
    }
}

/* Replace what was emitted for an IR instruction by a fault that names the instruction. */
static void refuse(struct weir_x_decoder *x, uint32_t first)
{
    char what[120];
    char text[240];
    describe(x->ir, what, sizeof what);
    snprintf(text, sizeof text, "%s (line %u)%s%s", what, x->ir->line,
             x->reason[0] != '\0' ? ": " : "", x->reason);
    char *kept = weir_x_decode_alloc(x, strlen(text) + 1);
    x->func->n_code = first;
    struct weir_x_inst *i = weir_x_emit(x);
    i->fn = weir_x_exec_unsupported;
    i->ext = kept ? strcpy(kept, text) : "unsupported instruction";
    if (!x->func->unsupported) {
        x->func->unsupported = kept;
    }
}

static void decode_inst(struct weir_x_decoder *x, const struct weir_ptx_inst *ir)
{
    uint32_t first = x->func->n_code;
    x->ir = ir;
    x->failed = false;
    x->reason[0] = '\0';
    if (!weir_x_decode_op(x) || x->failed) {
        refuse(x, first);
    }
    if (ir->guard != WEIR_PTX_NONE) {
        guard(x, first);
    }
}

static void link_labels(struct weir_x_decoder *x)
{
    const struct weir_ptx_func *f = x->func->ir;
    struct weir_x_inst *code = x->func->code;
    for (uint32_t k = 0; k < x->func->n_code; k++) {
        struct weir_x_inst *i = &code[k];
        if (i->fn == weir_x_exec_bra || i->inner == weir_x_exec_bra) {
            i->target = &code[x->starts[f->labels[i->imm].inst]];
        } else if (i->fn == weir_x_exec_brx || i->inner == weir_x_exec_brx) {
            const struct weir_ptx_table *from = i->ext;
            struct weir_x_table *table =
                weir_x_decode_alloc(x, sizeof *table + from->n * sizeof table->targets[0]);
            if (!table) {
                return;
            }
            table->n = from->n;
            for (uint32_t t = 0; t < from->n; t++) {
                table->targets[t] = &code[x->starts[f->labels[from->labels[t]].inst]];
            }
            i->ext = table;
        }
    }
}

static bool keep_constants(struct weir_x_decoder *x)
{
    size_t bytes = (((size_t)x->consts_bytes + 63) & ~(size_t)63) + SLACK_BYTES;
    x->func->consts_bytes = x->consts_bytes;
    x->func->consts = aligned_alloc(64, bytes);
    WEIR_FAIL_IF(!x->func->consts, false);
    memset(x->func->consts, 0, bytes);
    for (uint32_t c = 0; c < x->n_consts; c++) {
        const struct weir_x_const *k = &x->consts[c];
        for (uint32_t l = 0; l < WEIR_X_LANES; l++) {
            if (k->wide) {
                ((weir_x_u64 *)(x->func->consts + k->at))[l] = k->bits;
            } else {
                ((weir_x_u32 *)(x->func->consts + k->at))[l] = (uint32_t)k->bits;
            }
        }
    }
    return true;
}

static void decode_body(struct weir_x_decoder *x)
{
    const struct weir_ptx_func *f = x->func->ir;
    for (uint32_t k = 0; k < f->n_insts; k++) {
        x->starts[k] = x->func->n_code;
        decode_inst(x, &f->insts[k]);
    }
    x->starts[f->n_insts] = x->func->n_code;
    x->ir = NULL;
}

/* Falling off the end is a return. */
static void end_body(struct weir_x_decoder *x)
{
    weir_x_emit(x)->fn = weir_x_exec_ret;
}

static struct weir_x_func *decode_func(struct weir_exec_kernel *kernel,
                                       const struct weir_ptx_func *ir)
{
    struct weir_x_func *func = calloc(1, sizeof *func);
    WEIR_FAIL_IF(!func, NULL);
    func->name = ir->name;
    func->ir = ir;
    struct weir_x_func **end = &kernel->funcs;
    while (*end) {
        end = &(*end)->next;
    }
    *end = func; /* the kernel frees the function, even after a failure here */
    kernel->n_funcs++;
    kernel->nesting++;
    struct weir_x_decoder x = {.kernel = kernel, .func = func};
    bool ok = place_registers(&x) && place_variables(&x);
    if (ok && func->local_bytes > WEIR_X_MAX_LOCAL_BYTES) {
        func->local_bytes = 0;
        func->unsupported = "too much local memory";
    }
    if (ok) {
        if (!func->unsupported) {
            decode_body(&x);
        }
        end_body(&x);
        link_labels(&x);
        ok = !x.no_memory && keep_constants(&x);
    }
    func->frame_bytes = ((func->frame_bytes + 63u) & ~63u) + SLACK_BYTES;
    kernel->nesting--;
    free(x.regs);
    free(x.starts);
    free(x.places);
    free(x.param_places);
    free(x.consts);
    return ok ? func : NULL;
}

struct weir_x_func *weir_x_func_for(struct weir_exec_kernel *kernel, const struct weir_ptx_func *ir)
{
    for (struct weir_x_func *f = kernel->funcs; f; f = f->next) {
        if (f->ir == ir) {
            return f;
        }
    }
    return decode_func(kernel, ir);
}

/* Find the most local bytes of a chain of calls from this function; mark recursion. */
static uint64_t measure_stack(struct weir_x_func *func)
{
    if (func->visiting) {
        func->recursive = true;
        return 0;
    }
    if (func->deepest != 0) {
        return func->deepest;
    }
    func->visiting = true;
    uint64_t deepest = 0;
    for (uint32_t c = 0; c < func->n_callees; c++) {
        uint64_t below = measure_stack(func->callees[c]) + 16;
        deepest = WEIR_MAX(below, deepest);
        func->recursive = func->recursive || func->callees[c]->recursive;
        func->uses_alloca_below = func->uses_alloca_below || func->callees[c]->uses_alloca_below ||
                                  func->callees[c]->uses_alloca;
        func->calls_indirect = func->calls_indirect || func->callees[c]->calls_indirect;
    }
    func->visiting = false;
    func->deepest = deepest + func->local_bytes + 16;
    return func->deepest;
}

/* Local bytes per thread if recursion or function pointers make the need unknown. */
#define OPEN_STACK_BYTES 65536u

/* All functions decoded so far are reached by direct calls, the entry first. */
static const char *first_unsupported(const struct weir_exec_kernel *kernel)
{
    const struct weir_x_func *f = WEIR_LINKED(each, kernel->funcs, each->unsupported);
    return !f ? NULL : f->unsupported;
}

static bool decode_pointed_to(struct weir_exec_kernel *kernel)
{
    struct weir_exec_module *module = kernel->module;
    for (uint32_t k = 0; k < module->n_functions; k++) {
        if (!module->address_taken[k]) {
            continue;
        }
        kernel->by_id[k] = weir_x_func_for(kernel, module->functions[k]);
        WEIR_FAIL_IF(!kernel->by_id[k], false);
        measure_stack(kernel->by_id[k]);
    }
    return true;
}

/* Estimate the registers that ptxas would use from the number of virtual registers. */
static uint32_t estimate_registers(const struct weir_x_func *entry)
{
    uint32_t n = 12 + entry->n_regs32 / 4;
    n = (n + 7u) & ~7u;
    const struct weir_ptx_perf *perf = &entry->ir->perf;
    if (perf->has_maxnreg && n > perf->maxnreg) {
        n = perf->maxnreg;
    }
    uint32_t threads =
        perf->n_maxntid != 0 ? perf->maxntid[0] * perf->maxntid[1] * perf->maxntid[2] : 1024;
    uint32_t limit = threads == 0 ? 255 : 65536u / threads & ~7u;
    n = WEIR_MIN(n, limit);
    return n < 16 ? 16 : WEIR_MIN(n, 255);
}

#define MAX_PARAM_BYTES 32764u

static enum weir_status decode_locked(struct weir_exec_kernel *kernel)
{
    struct weir_exec_module *module = kernel->module;
    kernel->by_id = calloc((size_t)module->n_functions + 1, sizeof *kernel->by_id);
    WEIR_FAIL_IF(!kernel->by_id, WEIR_ERR_NO_MEMORY);
    WEIR_FAIL_IF(!weir_x_place_shared(kernel), WEIR_ERR_NO_MEMORY);
    kernel->entry = weir_x_func_for(kernel, kernel->ir);
    WEIR_FAIL_IF(!kernel->entry, WEIR_ERR_NO_MEMORY);
    kernel->stack_bytes = measure_stack(kernel->entry);
    const char *unsupported = first_unsupported(kernel);
    WEIR_FAIL_IF(kernel->entry->calls_indirect && !decode_pointed_to(kernel), WEIR_ERR_NO_MEMORY);
    struct weir_exec_kernel_info *info = &kernel->info;
    info->local_bytes = kernel->entry->local_bytes == 0 && kernel->stack_bytes <= 16
                            ? 0
                            : (uint32_t)kernel->stack_bytes;
    if (kernel->entry->calls_indirect || kernel->entry->recursive || kernel->entry->uses_alloca ||
        kernel->entry->uses_alloca_below) {
        kernel->stack_bytes += OPEN_STACK_BYTES;
    }
    info->static_shared_bytes = kernel->static_shared_bytes;
    info->registers = estimate_registers(kernel->entry);
    info->unsupported = kernel->ir->params_size_bytes > MAX_PARAM_BYTES
                            ? "more than 32764 bytes of parameters"
                            : unsupported;
    for (const struct weir_x_func *f = kernel->funcs; f; f = f->next) {
        info->uses_printf = info->uses_printf || f->uses_printf;
        info->launches = info->launches || f->launches;
    }
    return WEIR_OK;
}

enum weir_status weir_x_kernel_decode(struct weir_exec_kernel *kernel)
{
    WEIR_LOCKED(&kernel->lock);
    enum weir_status status = WEIR_OK;
    if (!kernel->decoded) {
        status = decode_locked(kernel);
        if (status != WEIR_OK) {
            weir_x_kernel_release(kernel);
        }
        kernel->decoded = status == WEIR_OK;
    }
    return status;
}

const struct weir_exec_kernel_info *weir_exec_kernel_info(const struct weir_exec_kernel *kernel)
{
    struct weir_exec_kernel *mutable_kernel = (struct weir_exec_kernel *)(uintptr_t)kernel;
    if (weir_x_kernel_decode(mutable_kernel) != WEIR_OK) {
        mutable_kernel->info.unsupported = "no memory to decode it";
    }
    return &kernel->info;
}
