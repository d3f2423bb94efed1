/*
 * Twins in a separate module, as a host loads them beside a program's module: see weir_ptx_twins().
 * softgpu plays both parts: the driver, and the host that binds the twins to the program's
 * variables.
 */
#include "softgpu/driver/forms.h"

#include "base/log.h"
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"

#include <stdlib.h>
#include <string.h>

struct copied {
    void *to;
    const void *from;
    size_t bytes;
};

struct weir_soft_apart {
    struct weir_ptx_module *ptx; /* holds the twins' infos */
    struct weir_ptx_twins twins;
    struct weir_exec_module *exec;
    struct copied *consts;
};

void weir_soft_apart_destroy(struct weir_soft_apart *apart)
{
    if (apart) {
        weir_exec_module_destroy(apart->exec);
        weir_ptx_destroy(apart->ptx);
        free(apart->consts);
        free(apart);
    }
}

static enum weir_status make(struct weir_soft_apart *apart, const struct weir_exec_source *source)
{
    const struct weir_ptx_twin_want want = {.forms = WEIR_PTX_FORM_BIT(weir_soft_forms_which())};
    struct weir_diag diag;
    enum weir_status status = weir_ptx_parse(source->text, source->bytes, 0, NULL, &apart->ptx);

    if (status == WEIR_OK) {
        status = weir_ptx_twins(apart->ptx, &want, 1, &apart->twins);
    }
    for (uint32_t i = 0; status == WEIR_OK && i < apart->twins.n_infos; i++) {
        const struct weir_ptx_twin_info *info = &apart->twins.infos[i];

        weir_log_info("softgpu: form apart kernel=%s form=%s result=%s reason=%s", info->kernel,
                      weir_ptx_form_text(info->form), weir_status_text(info->status), info->reason);
    }
    return status == WEIR_OK ? weir_ptx_check(apart->ptx, &diag) : status;
}

/* Give the twins the addresses of the original module's variables and constants. */
static enum weir_status bind(struct weir_soft_apart *apart, const struct weir_exec_module *original)
{
    const struct weir_ptx_twins *twins = &apart->twins;
    struct weir_exec_global table = {0}, from, to;
    enum weir_status status = WEIR_OK;

    if (twins->n_binds) {
        status = weir_exec_module_global(apart->exec, WEIR_PTX_BINDS_NAME, &table);
    }
    for (uint32_t i = 0; i < twins->n_binds && status == WEIR_OK; i++) {
        status = weir_exec_module_global(original, twins->binds[i], &from);
        if (status == WEIR_OK) {
            ((uint64_t *)(uintptr_t)table.address)[i] = from.address;
        }
    }
    apart->consts = calloc(twins->n_consts + 1u, sizeof(*apart->consts));
    for (uint32_t i = 0; i < twins->n_consts && apart->consts && status == WEIR_OK; i++) {
        status = weir_exec_module_global(original, twins->consts[i], &from);
        if (status == WEIR_OK) {
            status = weir_exec_module_global(apart->exec, twins->consts[i], &to);
        }
        if (status == WEIR_OK) {
            apart->consts[i] = (struct copied){(void *)(uintptr_t)to.address,
                                               (const void *)(uintptr_t)from.address, from.bytes};
        }
    }
    return apart->consts ? status : WEIR_ERR_NO_MEMORY;
}

enum weir_status weir_soft_apart_load(struct weir_exec_device *engine,
                                      const struct weir_exec_source *source,
                                      const struct weir_exec_memory *memory,
                                      const struct weir_exec_module *original,
                                      struct weir_soft_apart **ret_apart)
{
    struct weir_soft_apart *apart = calloc(1, sizeof(*apart));
    struct weir_exec_source twins = {.name = "twins"};
    struct weir_diag diag = {0};
    char *text = NULL;

    if (!apart) {
        return WEIR_ERR_NO_MEMORY;
    }
    enum weir_status status = make(apart, source);

    if (status == WEIR_OK) {
        status = weir_ptx_print_buffer(apart->ptx, &text, &twins.bytes);
    }
    if (status == WEIR_OK) {
        twins.text = text;
        status = weir_exec_module_load(engine, &twins, 1, memory, &diag, &apart->exec);
    }
    if (status == WEIR_OK) {
        status = bind(apart, original);
    }
    free(text);
    if (status != WEIR_OK) {
        weir_log_error("softgpu: no module of twins: %s line=%u %s", weir_status_text(status),
                       diag.line, diag.message);
        weir_soft_apart_destroy(apart);
        return status;
    }
    *ret_apart = apart;
    return WEIR_OK;
}

const struct weir_exec_kernel *weir_soft_apart_twin(struct weir_soft_apart *apart,
                                                    const char *kernel, uint32_t *ret_dynamic)
{
    for (uint32_t i = 0; i < apart->twins.n_infos; i++) {
        const struct weir_ptx_twin_info *info = &apart->twins.infos[i];

        if (info->name && strcmp(info->kernel, kernel) == 0) {
            *ret_dynamic = info->dynamic_shared_bytes;
            return weir_exec_module_kernel(apart->exec, info->name);
        }
    }
    return NULL;
}

void weir_soft_apart_copy_consts(struct weir_soft_apart *apart)
{
    for (uint32_t i = 0; i < apart->twins.n_consts; i++) {
        memcpy(apart->consts[i].to, apart->consts[i].from, apart->consts[i].bytes);
    }
}
