/*
 * Makes a twin: checks whether it is allowed, copies the entry and the functions that must change,
 * adds one more parameter, and then applies the passes of the form, in the order of passes.def.
 */
#include "ptx/twin/editor.h"
#include "ptx/warp.h"

#include <string.h>

static enum weir_status refuse(struct weir_ptx_twin_info *info, enum weir_status status,
                               const char *reason)
{
    snprintf(info->reason, sizeof(info->reason), "%s", reason);
    info->status = status;
    return status;
}

/* Decide whether warp-wide instructions need votes: a warp's threads may end at different times. */
static enum weir_status choose_votes(struct weir_ptx_twin *twin)
{
    const char *why = NULL;
    bool pointed = false;

    if (twin->form != WEIR_PTX_FORM_PERSISTENT ||
        !weir_ptx_kernel_has(twin->kernel, WEIR_PTX_FACT_EARLY_EXIT_WARP)) {
        return WEIR_OK;
    }
    enum weir_status status = weir_ptx_warp_exits(twin->kernel, &twin->warp_votes, &why);

    if (status == WEIR_OK && twin->warp_votes) {
        status =
            weir_ptx_pointed_has(twin->module, twin->kernel, weir_ptx_inst_is_warp_sync, &pointed);
    }
    if (status != WEIR_OK) {
        return status;
    }
    if (!why && pointed) {
        why = "a thread may end before its warp exchanges values in a function called through a "
              "pointer";
    }
    return why ? refuse(twin->info, WEIR_ERR_UNSUPPORTED, why) : WEIR_OK;
}

static bool has_exchange(const struct weir_ptx_inst *inst)
{
    return weir_ptx_inst_loads_index(inst) || weir_ptx_inst_is_warp_sync(inst);
}

/* Functions that have such an instruction must be copied. */
static bool (*must_change(const struct weir_ptx_twin *twin))(const struct weir_ptx_inst *inst)
{
    return twin->warp_votes ? has_exchange : weir_ptx_inst_loads_index;
}

/* Does the source text use a name that twins need? Objects of other twins have no line. */
static bool has_our_names(const struct weir_ptx_module *module, const struct weir_ptx_func *entry)
{
    static const char *const names[] = {WEIR_PTX_TASK_NAME, WEIR_PTX_INDEX_NAME,
                                        WEIR_PTX_DYNAMIC_NAME, WEIR_PTX_BINDS_NAME};

    if (WEIR_ANY(i, entry->n_params, strcmp(entry->params[i]->name, WEIR_PTX_ARGS_NAME) == 0)) {
        return true;
    }
    for (size_t i = 0; i < WEIR_COUNT(names); i++) {
        const struct weir_ptx_var *var = weir_ptx_find_var(module, names[i]);
        const struct weir_ptx_func *func = weir_ptx_find_func(module, names[i]);

        if ((var && var->line) || func) {
            return true;
        }
    }
    return weir_ptx_find_func(module, WEIR_PTX_FINISH_NAME) != NULL;
}

static enum weir_status admit(struct weir_ptx_twin *twin, struct weir_ptx_func *entry)
{
    const struct weir_ptx_kernel *kernel = twin->kernel;
    uint64_t bytes = ((entry->params_size_bytes + 7) & ~7ull) + sizeof(struct weir_ptx_form_args);

    WEIR_FAIL_IF(
        !weir_ptx_kernel_admits(kernel, twin->form),
        refuse(twin->info, WEIR_ERR_UNSUPPORTED, weir_ptx_kernel_why_not(kernel, twin->form)));
    WEIR_FAIL_IF(twin->module->address_size != 64,
                 refuse(twin->info, WEIR_ERR_UNSUPPORTED, "addresses have 32 bits"));
    WEIR_FAIL_IF(twin->module->version_major < 6,
                 refuse(twin->info, WEIR_ERR_UNSUPPORTED,
                        "its PTX version is older than the barriers that a twin needs (6.0)"));
    WEIR_FAIL_IF(has_our_names(twin->module, entry),
                 refuse(twin->info, WEIR_ERR_EXISTS, "the module has a name that twins use"));
    WEIR_FAIL_IF(bytes > kernel->params_max_bytes,
                 refuse(twin->info, WEIR_ERR_TOO_BIG, "no room for one more parameter"));
    WEIR_FAIL_IF(!weir_ptx_slot_has_room(twin->module, kernel),
                 refuse(twin->info, WEIR_ERR_UNSUPPORTED,
                        "it reads the size of its shared memory, which would change"));
    twin->slot_dynamic = weir_ptx_slot_is_dynamic(twin->module, kernel);
    return choose_votes(twin);
}

static enum weir_status make_entry(struct weir_ptx_twin *twin, struct weir_ptx_func *entry)
{
    struct weir_ptx_module *module = twin->module;
    const char *name =
        weir_ptx_pass_text(module, "%s$%s", entry->name, weir_ptx_form_text(twin->form));

    WEIR_FAIL_IF(!name, WEIR_ERR_NO_MEMORY);
    WEIR_FAIL_IF(weir_ptx_find_func(module, name) || weir_ptx_find_var(module, name),
                 refuse(twin->info, WEIR_ERR_EXISTS, "the module has a function of that name"));
    WEIR_TRY(weir_ptx_clone(module, entry, name, &twin->entry));
    WEIR_TRY(weir_ptx_add_args(module, twin->entry, &twin->args));
    WEIR_TRY(weir_ptx_slot_make(twin, WEIR_PTX_TASK_NAME, WEIR_PTX_TASK_BYTES, &twin->task));
    return weir_ptx_copy_reached(twin, must_change(twin));
}

/* What a twin adds to the limit on its module's memory. */
#define TWIN_BYTES          ((size_t)256 << 10)
#define TWIN_BYTES_PER_INST ((size_t)4 << 10)
#define MAX_MODULE_BYTES    ((size_t)2 << 30)

static void allow_memory(struct weir_ptx_module *module, const struct weir_ptx_kernel *kernel)
{
    size_t more = TWIN_BYTES + TWIN_BYTES_PER_INST * kernel->n_insts;
    size_t *cap = &module->arena.cap_bytes;

    if (*cap < MAX_MODULE_BYTES) {
        *cap += more < MAX_MODULE_BYTES - *cap ? more : MAX_MODULE_BYTES - *cap;
    }
}

enum weir_status weir_ptx_twin(struct weir_ptx_module *module, const struct weir_ptx_kernel *kernel,
                               enum weir_ptx_form form, struct weir_ptx_twin_info *ret_info)
{
    struct weir_ptx_func *entry = module->funcs[kernel->entry->id];
    struct weir_ptx_twin twin = {
        .module = module, .kernel = kernel, .form = form, .info = ret_info, .tail = WEIR_PTX_NONE};

    *ret_info = (struct weir_ptx_twin_info){
        .kernel = entry->name,
        .form = form,
    };
    WEIR_FAIL_IF(form == WEIR_PTX_FORM_ORIGINAL || form >= WEIR_PTX_FORM_COUNT,
                 refuse(ret_info, WEIR_ERR_INVALID, "no form that has a twin"));
    allow_memory(module, kernel);
    memset(twin.virtuals, 0xff, sizeof(twin.virtuals)); /* WEIR_PTX_NONE */
    enum weir_status status = admit(&twin, entry);

    WEIR_THEN(status, make_entry(&twin, entry));
    WEIR_THEN(status, weir_ptx_passes_run(&twin));
    ret_info->status = status;
    if (status == WEIR_OK) {
        ret_info->name = twin.entry->name;
        ret_info->args_offset = (uint32_t)twin.args->offset_bytes;
        ret_info->param_bytes = (uint32_t)twin.entry->params_size_bytes;
    } else if (!ret_info->reason[0]) {
        snprintf(ret_info->reason, sizeof(ret_info->reason), "%s", weir_status_text(status));
    }
    return status;
}
