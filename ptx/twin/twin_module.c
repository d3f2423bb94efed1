/*
 * Makes a module of twins: makes the requested twins, removes everything that they do not use, and
 * binds the variables that must stay the original's.
 *
 * .shared variables belong to each block and stay unchanged. .const variables are copied, because a
 * kernel's constants are in the memory of its module. Their initialisers are removed, because the
 * loader copies the contents, and an initialiser may hold addresses of the original.
 */
#include "ptx/twin/editor.h"

#include <string.h>

#define MAX_CONST_BYTES 65536u /* limit of a module (PTX ISA, state spaces) */

/* Returns why an admitted kernel cannot have twins in another module; NULL: it can. */
static const char *why_not_apart(const struct weir_ptx_kernel *kernel)
{
    if (weir_ptx_kernel_has(kernel, WEIR_PTX_FACT_INDIRECT_CALL)) {
        return "a pointer may lead to a function of the original module, which may need more "
               "registers than the twin has";
    }
    for (uint32_t i = 0; i < kernel->n_funcs; i++) {
        if (weir_ptx_func_has_static(kernel->funcs[i])) {
            return "a variable declared in a body has no name that the driver would find";
        }
    }
    return NULL;
}

static const struct weir_ptx_twin_want *want_for(const struct weir_ptx_twin_want *wants, uint32_t n,
                                                 const char *kernel)
{
    uint32_t at = WEIR_FIRST(i, n, !wants[i].kernel || strcmp(wants[i].kernel, kernel) == 0);
    return at < n ? &wants[at] : NULL;
}

static void limit_regs(struct weir_ptx_perf *perf, uint32_t max_regs)
{
    if (max_regs && !(perf->has_maxnreg && perf->maxnreg <= max_regs)) {
        perf->has_maxnreg = true;
        perf->maxnreg = max_regs;
        perf->has_minnctapersm = false; /* the two exclude each other */
    }
}

static enum weir_status make_one(struct weir_ptx_module *module,
                                 const struct weir_ptx_kernel *kernel, enum weir_ptx_form form,
                                 uint32_t max_regs, struct weir_ptx_twin_info *info)
{
    const char *why = why_not_apart(kernel);

    if (why && weir_ptx_kernel_admits(kernel, form)) {
        *info = (struct weir_ptx_twin_info){
            .kernel = kernel->entry->name, .form = form, .status = WEIR_ERR_UNSUPPORTED};
        snprintf(info->reason, sizeof(info->reason), "%s", why);
        return WEIR_OK;
    }
    enum weir_status status = weir_ptx_twin(module, kernel, form, info);

    if (status == WEIR_OK) {
        limit_regs(&weir_ptx_find_func(module, info->name)->perf, max_regs);
    }
    return status == WEIR_ERR_NO_MEMORY || status == WEIR_ERR_INTERNAL ? status : WEIR_OK;
}

/*
 * Bound on the time for hostile texts: instructions that are examined for all twins of a module. A
 * twin of a kernel that calls functions examines the whole module.
 */
#define MAX_VISITS (1ull << 30)

static uint64_t visits_of(const struct weir_ptx_module *module,
                          const struct weir_ptx_kernel *kernel)
{
    uint64_t n = 0;

    for (uint32_t i = 0; kernel->n_funcs > 1 && i < module->n_funcs; i++) {
        n += module->funcs[i]->n_insts + 1u;
    }
    return n;
}

static enum weir_status make_all(struct weir_ptx_module *module,
                                 const struct weir_ptx_analysis *analysis,
                                 const struct weir_ptx_twin_want *wants, uint32_t n_wants,
                                 struct weir_ptx_twins *twins)
{
    enum weir_status status = WEIR_OK;
    uint64_t visits = 0;

    twins->infos = weir_ptx_alloc(
        module, (analysis->n_kernels * (uint64_t)WEIR_PTX_FORM_COUNT + 1) * sizeof(*twins->infos));
    WEIR_FAIL_IF(!twins->infos, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < analysis->n_kernels; i++) {
        const struct weir_ptx_kernel *kernel = &analysis->kernels[i];
        const struct weir_ptx_twin_want *want = want_for(wants, n_wants, kernel->entry->name);

        for (int form = WEIR_PTX_FORM_TICKET; want && form < WEIR_PTX_FORM_COUNT; form++) {
            struct weir_ptx_twin_info *info = &twins->infos[twins->n_infos];

            if (want->forms & WEIR_PTX_FORM_BIT(form) && status == WEIR_OK) {
                visits += visits_of(module, kernel);
                status = visits > MAX_VISITS ? WEIR_ERR_TOO_BIG
                                             : make_one(module, kernel, (enum weir_ptx_form)form,
                                                        want->max_regs, info);
                twins->n_infos++;
                twins->n_made += info->name != NULL;
            }
        }
    }
    return status;
}

static bool has_kernel(const struct weir_ptx_analysis *analysis, const char *name)
{
    return !name || weir_ptx_analysis_find(analysis, name);
}

static enum weir_status analyze_and_make(struct weir_ptx_module *module,
                                         const struct weir_ptx_twin_want *wants, uint32_t n_wants,
                                         struct weir_ptx_twins *twins)
{
    struct weir_ptx_analysis *analysis;
    WEIR_TRY(weir_ptx_analyze(module, WEIR_PTX_ASSUME_OWN_POINTERS, &analysis));
    enum weir_status status = WEIR_OK;
    for (uint32_t i = 0; i < n_wants && status == WEIR_OK; i++) {
        status = has_kernel(analysis, wants[i].kernel) ? WEIR_OK : WEIR_ERR_NOT_FOUND;
    }
    WEIR_THEN(status, make_all(module, analysis, wants, n_wants, twins));
    weir_ptx_analysis_destroy(analysis);
    return status;
}

/* Add .entry weir$finish: it sets finished if next has reached total, and end allowed that. */
static enum weir_status add_finish(struct weir_ptx_module *module)
{
    struct weir_ptx_twin twin = {.module = module};
    struct weir_ptx_edit edit;
    struct weir_ptx_func *func = weir_ptx_add_entry(module, WEIR_PTX_FINISH_NAME);

    WEIR_FAIL_IF(!func || weir_ptx_add_args(module, func, &twin.args) != WEIR_OK,
                 WEIR_ERR_NO_MEMORY);
    weir_ptx_edit_begin(&edit, &twin, func);
    weir_ptx_edit_text(
        &edit,
        ".reg .pred %%p;\n.reg .b32 %%n, %%t, %%e;\n.reg .b64 %%c;\n"
        "ld.param.b64 %%c, [" WEIR_PTX_ARGS_NAME "];\n"
        "ld.param.b32 %%t, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "ld.param.b32 %%e, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "ld.volatile.global.u32 %%n, [%%c+%zu];\n"
        "min.u32 %%n, %%n, %%e;\n"
        "setp.lt.u32 %%p, %%n, %%t;\n@%%p bra END;\n"
        "membar.sys;\nmov.b32 %%n, 1;\n"
        "st.volatile.global.b32 [%%c+%zu], %%n;\nEND:\nret;\n",
        offsetof(struct weir_ptx_form_args, total), offsetof(struct weir_ptx_form_args, end),
        offsetof(struct weir_ptx_control, next), offsetof(struct weir_ptx_control, finished));
    return weir_ptx_edit_finish(&edit);
}

static bool has_ticket(const struct weir_ptx_twins *twins)
{
    return WEIR_ANY(i, twins->n_infos,
                    twins->infos[i].form == WEIR_PTX_FORM_TICKET && twins->infos[i].name);
}

/* Give the module its own copies of constants, empty until the loader fills them. */
static enum weir_status copy_consts(struct weir_ptx_module *module, struct weir_ptx_twins *twins)
{
    const char **names = weir_ptx_alloc(module, (module->n_vars + 1u) * sizeof(char *));
    uint64_t bytes = 0;

    WEIR_FAIL_IF(!names, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < module->n_vars; i++) {
        struct weir_ptx_var *var = module->vars[i];

        if (var->space != WEIR_PTX_SPACE_CONST) {
            continue;
        }
        if (strcmp(var->name, WEIR_PTX_BINDS_NAME) != 0) {
            names[twins->n_consts++] = var->name;
        }
        bytes += var->size_bytes + var->align;
    }
    weir_ptx_define_consts(module);
    twins->consts = names;
    return bytes > MAX_CONST_BYTES ? WEIR_ERR_TOO_BIG : WEIR_OK;
}

enum weir_status weir_ptx_twins(struct weir_ptx_module *module,
                                const struct weir_ptx_twin_want *wants, uint32_t n_wants,
                                struct weir_ptx_twins *ret_twins)
{
    struct weir_ptx_twins twins = {.infos = NULL};
    WEIR_TRY(analyze_and_make(module, wants, n_wants, &twins));
    if (has_ticket(&twins)) {
        WEIR_TRY(add_finish(module));
    }
    WEIR_TRY(weir_ptx_strip(module));
    WEIR_TRY(weir_ptx_bind(module, &twins.binds, &twins.n_binds));
    weir_ptx_drop_globals(module);
    WEIR_TRY(copy_consts(module, &twins));
    *ret_twins = twins;
    return WEIR_OK;
}
