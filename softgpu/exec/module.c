/*
 * Modules: parse, link, place variables, list kernels. Kernels are decoded when first asked about.
 *
 * Linking is by name among the source texts of one load: a declaration gets the definition of
 * another source unless it is private there; a strong definition wins over a weak or common one.
 * The IR's `user` fields hold the result: the address of a variable's definition, or a function's
 * id (from 1), which function pointers contain.
 */
#include "softgpu/exec/internal.h"

#include "ptx/ptx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum weir_x_builtin weir_x_builtin_of(const char *name)
{
    static const struct {
        const char *name;
        enum weir_x_builtin builtin;
    } list[] = {
        {"vprintf", WEIR_X_BUILTIN_VPRINTF},
        {"__assertfail", WEIR_X_BUILTIN_ASSERT},
        {"malloc", WEIR_X_BUILTIN_MALLOC},
        {"free", WEIR_X_BUILTIN_FREE},
    };
    size_t at = WEIR_FIRST(k, WEIR_COUNT(list), strcmp(list[k].name, name) == 0);
    return at < WEIR_COUNT(list) ? list[at].builtin : WEIR_X_BUILTIN_NONE;
}

static int by_name(const void *a, const void *b)
{
    const struct weir_x_symbol *x = a;
    const struct weir_x_symbol *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->rank - y->rank;
}

/* Find the strongest symbol of this name, which is the first. */
static const struct weir_x_symbol *find_symbol(const struct weir_exec_module *module,
                                               const char *name)
{
    uint32_t low = 0;
    uint32_t high = module->n_symbols;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(module->symbols[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < module->n_symbols && strcmp(module->symbols[low].name, name) == 0;
    return found ? &module->symbols[low] : NULL;
}

struct weir_ptx_func *weir_x_func_resolve(const struct weir_exec_module *module,
                                          struct weir_ptx_func *func)
{
    if (func->is_alias && func->alias_of) {
        func = func->alias_of;
    }
    if (func->has_body && func->linkage != WEIR_PTX_LINKAGE_WEAK) {
        return func;
    }
    const struct weir_x_symbol *symbol = find_symbol(module, func->name);
    return symbol && symbol->func && symbol->rank < 3 ? symbol->func : func;
}

const struct weir_ptx_var *weir_x_var_resolve(const struct weir_exec_module *module,
                                              const struct weir_ptx_var *var)
{
    /* Dynamic shared memory is declared extern everywhere and defined nowhere. */
    if (var->linkage == WEIR_PTX_LINKAGE_NONE || var->unsized) {
        return var;
    }
    const struct weir_x_symbol *symbol = find_symbol(module, var->name);
    return symbol && symbol->var ? symbol->var : var;
}

static uint8_t rank_of(uint8_t linkage)
{
    return linkage == WEIR_PTX_LINKAGE_VISIBLE ? 0
           : linkage == WEIR_PTX_LINKAGE_WEAK  ? 1
           : linkage == WEIR_PTX_LINKAGE_COMMON
               ? 2
               : 3; /* only look-ups from outside do not find a private symbol */
}

static bool in_memory(const struct weir_ptx_var *var)
{
    return (var->space == WEIR_PTX_SPACE_GLOBAL || var->space == WEIR_PTX_SPACE_CONST) &&
           var->linkage != WEIR_PTX_LINKAGE_EXTERN;
}

static bool collect_symbols(struct weir_exec_module *module)
{
    size_t room = 1;
    for (uint32_t s = 0; s < module->n_sources; s++) {
        room += module->sources[s]->n_vars + module->sources[s]->n_funcs;
    }
    module->symbols = calloc(room, sizeof *module->symbols);
    module->functions = calloc(room, sizeof(struct weir_ptx_func *));
    module->address_taken = calloc(room, sizeof *module->address_taken);
    module->kernels = calloc(room, sizeof *module->kernels);
    if (!module->symbols || !module->functions || !module->address_taken || !module->kernels) {
        return false;
    }
    for (uint32_t s = 0; s < module->n_sources; s++) {
        struct weir_ptx_module *source = module->sources[s];
        for (uint32_t v = 0; v < source->n_vars; v++) {
            struct weir_ptx_var *var = source->vars[v];
            if (var->linkage != WEIR_PTX_LINKAGE_EXTERN) {
                module->symbols[module->n_symbols++] = (struct weir_x_symbol){
                    .name = var->name, .var = var, .rank = rank_of(var->linkage)};
            }
        }
        for (uint32_t f = 0; f < source->n_funcs; f++) {
            struct weir_ptx_func *func = source->funcs[f];
            if (!func->has_body) {
                continue;
            }
            module->symbols[module->n_symbols++] = (struct weir_x_symbol){
                .name = func->name, .func = func, .rank = rank_of(func->linkage)};
            if (!func->is_entry) {
                module->functions[module->n_functions++] = func;
                func->user = (void *)(uintptr_t)module->n_functions; /* NOLINT: an id from 1 */
            }
        }
    }
    qsort(module->symbols, module->n_symbols, sizeof *module->symbols, by_name);
    return true;
}

static uint64_t place(uint64_t *at, const struct weir_ptx_var *var)
{
    uint64_t align = WEIR_MAX(var->align, 16);
    *at = (*at + align - 1) & ~(align - 1);
    uint64_t offset = *at;
    *at += var->size_bytes;
    return offset;
}

typedef void (*var_fn)(struct weir_exec_module *module, struct weir_ptx_var *var, void *user);

/* Call fn for every variable in memory, at module scope and in bodies; of duplicates only for the
 * strongest. */
static void each_var(struct weir_exec_module *module, var_fn fn, void *user)
{
    for (uint32_t s = 0; s < module->n_sources; s++) {
        struct weir_ptx_module *source = module->sources[s];
        for (uint32_t v = 0; v < source->n_vars; v++) {
            struct weir_ptx_var *var = source->vars[v];
            if (in_memory(var) && weir_x_var_resolve(module, var) == var) {
                fn(module, var, user);
            }
        }
        for (uint32_t f = 0; f < source->n_funcs; f++) {
            for (uint32_t v = 0; v < source->funcs[f]->n_vars; v++) {
                if (in_memory(source->funcs[f]->vars[v])) {
                    fn(module, source->funcs[f]->vars[v], user);
                }
            }
        }
    }
}

struct placing {
    uint64_t at[WEIR_X_STORES];
    uint64_t base[WEIR_X_STORES];
    bool assign;
};

static enum weir_x_store store_of(const struct weir_ptx_var *var)
{
    return var->space == WEIR_PTX_SPACE_CONST ? WEIR_X_STORE_CONST
           : var->managed                     ? WEIR_X_STORE_MANAGED
                                              : WEIR_X_STORE_PLAIN;
}

static void place_var(struct weir_exec_module *module, struct weir_ptx_var *var, void *user)
{
    (void)module;
    struct placing *p = user;
    enum weir_x_store store = store_of(var);
    uint64_t offset = place(&p->at[store], var);
    if (p->assign) {
        var->user = (void *)(uintptr_t)(p->base[store] + offset); /* NOLINT: an address */
    }
}

static uint64_t init_value(struct weir_exec_module *module, const struct weir_ptx_init *init)
{
    uint64_t value = init->bits;
    if (init->kind == WEIR_PTX_INIT_VAR) {
        const struct weir_ptx_var *var = weir_x_var_resolve(module, init->var);
        value = (uintptr_t)var->user + (uint64_t)init->offset;
    } else if (init->kind == WEIR_PTX_INIT_FUNC) {
        const struct weir_ptx_func *func = weir_x_func_resolve(module, init->func);
        uint64_t id = (uintptr_t)func->user;
        if (id != 0) {
            module->address_taken[id - 1] = true;
        }
        value = WEIR_X_FUNC_TAG | id * 16;
    }
    if (init->mask != 0) {
        value = (value & init->mask) >> __builtin_ctzll(init->mask);
    }
    return value;
}

static void initialise(struct weir_exec_module *module, struct weir_ptx_var *var, void *user)
{
    (void)user;
    uint32_t bytes = weir_ptx_type_bytes(var->type);
    char *base = (char *)var->user;
    for (uint32_t k = 0; k < var->n_inits; k++) {
        uint64_t value = init_value(module, &var->inits[k]);
        uint64_t at = var->inits[k].index * bytes;
        if (bytes <= 8 && at <= var->size_bytes && bytes <= var->size_bytes - at) {
            memcpy(base + at, &value, bytes);
        }
    }
}

static enum weir_status place_variables(struct weir_exec_module *module)
{
    struct placing p = {.assign = false};
    each_var(module, place_var, &p);
    for (uint32_t m = 0; m < WEIR_X_STORES; m++) {
        if (p.at[m] == 0) {
            continue;
        }
        enum weir_status status = module->memory.allocate(
            module->memory.user, p.at[m], 512, m == WEIR_X_STORE_MANAGED, &module->storage[m]);
        if (status != WEIR_OK) {
            module->storage[m] = 0;
            return status;
        }
        p.base[m] = module->storage[m];
        module->storage_bytes[m] = p.at[m];
        p.at[m] = 0;
    }
    p.assign = true;
    each_var(module, place_var, &p);
    each_var(module, initialise, NULL);
    return WEIR_OK;
}

/* Check that an operand's symbol is defined; mark functions whose address is taken. */
static enum weir_status check_operand(struct weir_exec_module *module,
                                      const struct weir_ptx_inst *inst, uint32_t position,
                                      struct weir_diag *diag)
{
    const struct weir_ptx_operand *o = &inst->operands[position];
    bool is_var = o->kind == WEIR_PTX_OPERAND_VAR ||
                  (o->kind == WEIR_PTX_OPERAND_MEM && o->base == WEIR_PTX_BASE_VAR);
    if (is_var && o->var->linkage == WEIR_PTX_LINKAGE_EXTERN && !o->var->unsized &&
        weir_x_var_resolve(module, o->var) == o->var) {
        weir_diag_set(diag, inst->line, 0, "undefined variable %s", o->var->name);
        return WEIR_ERR_NOT_FOUND;
    }
    if (o->kind != WEIR_PTX_OPERAND_FUNC) {
        return WEIR_OK;
    }
    const struct weir_ptx_func *func = weir_x_func_resolve(module, o->func);
    bool called = inst->op == WEIR_PTX_OP_CALL && position == 1;
    /* Device-side launches call cuda* functions: only kernels that reach such calls are refused. */
    bool later = called && (weir_x_builtin_of(func->name) != WEIR_X_BUILTIN_NONE ||
                            strncmp(func->name, "cuda", 4) == 0);
    if (!func->has_body && !later) {
        weir_diag_set(diag, inst->line, 0, "undefined function %s", func->name);
        return WEIR_ERR_NOT_FOUND;
    }
    if (!called && func->user) {
        module->address_taken[(uintptr_t)func->user - 1] = true;
    }
    return WEIR_OK;
}

static enum weir_status check_references(struct weir_exec_module *module, struct weir_diag *diag)
{
    for (uint32_t s = 0; s < module->n_sources; s++) {
        for (uint32_t f = 0; f < module->sources[s]->n_funcs; f++) {
            const struct weir_ptx_func *func = module->sources[s]->funcs[f];
            for (uint32_t k = 0; k < func->n_insts; k++) {
                for (uint32_t o = 0; o < func->insts[k].n_operands; o++) {
                    WEIR_TRY(check_operand(module, &func->insts[k], o, diag));
                }
            }
        }
    }
    return WEIR_OK;
}

static uint32_t product(const uint32_t dims[3])
{
    return dims[0] * dims[1] * dims[2];
}

static bool describe_kernel(struct weir_exec_module *module, const struct weir_ptx_module *source,
                            struct weir_ptx_func *func)
{
    struct weir_exec_kernel *kernel = &module->kernels[module->n_kernels];
    kernel->module = module;
    kernel->ir = func;
    kernel->params = calloc((size_t)func->n_params + 1, sizeof *kernel->params);
    WEIR_FAIL_IF(!kernel->params, false);
    pthread_mutex_init(&kernel->lock, NULL);
    module->n_kernels++;
    struct weir_exec_kernel_info *info = &kernel->info;
    for (uint32_t p = 0; p < func->n_params; p++) {
        kernel->params[p].offset = (uint32_t)func->params[p]->offset_bytes;
        kernel->params[p].bytes = (uint32_t)func->params[p]->size_bytes;
    }
    info->name = func->name;
    info->params = kernel->params;
    info->n_params = func->n_params;
    info->param_bytes =
        func->params_size_bytes < UINT32_MAX ? (uint32_t)func->params_size_bytes : UINT32_MAX;
    info->max_threads = 1024;
    if (func->perf.n_reqntid != 0) {
        memcpy(info->required_block, func->perf.reqntid, sizeof info->required_block);
        info->max_threads = product(func->perf.reqntid);
    } else if (func->perf.n_maxntid != 0) {
        info->max_threads = product(func->perf.maxntid);
    }
    if (func->perf.n_reqnctapercluster != 0) {
        memcpy(info->required_cluster, func->perf.reqnctapercluster, sizeof info->required_cluster);
    }
    info->cluster_must_be_set = func->perf.explicitcluster;
    info->ptx_version = source->version_major * 10u + source->version_minor;
    info->target = source->sm;
    for (uint32_t v = 0; v < source->n_vars; v++) {
        if (source->vars[v]->space == WEIR_PTX_SPACE_CONST) {
            info->const_bytes += (uint32_t)source->vars[v]->size_bytes;
        }
    }
    return true;
}

static enum weir_status parse_all(struct weir_exec_module *module,
                                  const struct weir_exec_source *sources, uint32_t n_sources,
                                  struct weir_diag *diag)
{
    for (uint32_t s = 0; s < n_sources; s++) {
        WEIR_TRY(weir_ptx_parse(sources[s].text, sources[s].bytes, WEIR_PTX_DROP_DEBUG, diag,
                                &module->sources[s]));
        module->n_sources++;
        uint32_t target = module->sources[s]->sm;
        if (target > module->device->params.compute_capability) {
            weir_diag_set(diag, 0, 0, "%s is for sm_%u, the device is sm_%u",
                          sources[s].name ? sources[s].name : "the module", target,
                          module->device->params.compute_capability);
            return WEIR_ERR_VERSION;
        }
        if (module->sources[s]->address_size != 64) {
            weir_diag_set(diag, 0, 0, "32-bit addresses");
            return WEIR_ERR_UNSUPPORTED;
        }
    }
    return WEIR_OK;
}

static enum weir_status load(struct weir_exec_module *module, struct weir_diag *diag)
{
    WEIR_FAIL_IF(!collect_symbols(module), WEIR_ERR_NO_MEMORY);
    enum weir_status status = check_references(module, diag);
    WEIR_THEN(status, place_variables(module));
    for (uint32_t s = 0; s < module->n_sources && status == WEIR_OK; s++) {
        for (uint32_t f = 0; f < module->sources[s]->n_funcs; f++) {
            struct weir_ptx_func *func = module->sources[s]->funcs[f];
            if (func->is_entry && func->has_body &&
                !describe_kernel(module, module->sources[s], func)) {
                return WEIR_ERR_NO_MEMORY;
            }
        }
    }
    return status;
}

enum weir_status weir_exec_module_load(struct weir_exec_device *device,
                                       const struct weir_exec_source *sources, uint32_t n_sources,
                                       const struct weir_exec_memory *memory,
                                       struct weir_diag *diag, struct weir_exec_module **ret_module)
{
    WEIR_FAIL_IF(n_sources == 0 || n_sources > 1024, WEIR_ERR_INVALID);
    struct weir_exec_module *module = calloc(1, sizeof *module);
    WEIR_FAIL_IF(!module, WEIR_ERR_NO_MEMORY);
    module->device = device;
    module->memory = *memory;
    module->sources = calloc(n_sources, sizeof(struct weir_ptx_module *));
    enum weir_status status =
        !module->sources ? WEIR_ERR_NO_MEMORY : parse_all(module, sources, n_sources, diag);
    WEIR_THEN(status, load(module, diag));
    if (status != WEIR_OK) {
        weir_exec_module_destroy(module);
        return status;
    }
    *ret_module = module;
    return WEIR_OK;
}

void weir_x_kernel_release(struct weir_exec_kernel *kernel)
{
    for (struct weir_x_func *func; (func = WEIR_POP(kernel->funcs));) {
        while (func->pieces) {
            struct weir_x_piece *piece = func->pieces;
            func->pieces = piece->next;
            free(piece);
        }
        free(func->code);
        free(func->consts);
        free(func->callees);
        free(func);
    }
    free(kernel->by_id);
    free(kernel->shared);
    kernel->by_id = NULL;
    kernel->shared = NULL;
    kernel->n_shared = 0;
    kernel->n_funcs = 0;
    kernel->nesting = 0;
    kernel->entry = NULL;
}

void weir_exec_module_destroy(struct weir_exec_module *module)
{
    if (!module) {
        return;
    }
    for (uint32_t k = 0; k < module->n_kernels; k++) {
        weir_x_kernel_release(&module->kernels[k]);
        pthread_mutex_destroy(&module->kernels[k].lock);
        free(module->kernels[k].params);
    }
    for (uint32_t m = 0; m < WEIR_X_STORES; m++) {
        if (module->storage[m] != 0) {
            module->memory.release(module->memory.user, module->storage[m]);
        }
    }
    for (uint32_t s = 0; s < module->n_sources; s++) {
        weir_ptx_destroy(module->sources[s]);
    }
    free(module->sources);
    free(module->symbols);
    free(module->functions);
    free(module->address_taken);
    free(module->kernels);
    free(module);
}

const struct weir_exec_kernel *weir_exec_module_kernel_at(const struct weir_exec_module *module,
                                                          uint32_t index)
{
    return index < module->n_kernels ? &module->kernels[index] : NULL;
}

const struct weir_exec_kernel *weir_exec_module_kernel(const struct weir_exec_module *module,
                                                       const char *name)
{
    for (uint32_t k = 0; k < module->n_kernels; k++) {
        if (strcmp(module->kernels[k].info.name, name) == 0) {
            return &module->kernels[k];
        }
    }
    return NULL;
}

enum weir_status weir_exec_module_global(const struct weir_exec_module *module, const char *name,
                                         struct weir_exec_global *ret_global)
{
    const struct weir_x_symbol *symbol = find_symbol(module, name);
    if (!symbol || !symbol->var || !in_memory(symbol->var) ||
        weir_ptx_type_class(symbol->var->type) == 'O') {
        return WEIR_ERR_NOT_FOUND;
    }
    ret_global->address = (uintptr_t)symbol->var->user;
    ret_global->bytes = symbol->var->size_bytes;
    ret_global->managed = symbol->var->managed;
    ret_global->constant = symbol->var->space == WEIR_PTX_SPACE_CONST;
    return WEIR_OK;
}
