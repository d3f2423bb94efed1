/* Which variables the kernels of a module reach: see variables.h. */
#include "host_backend/worker/code/variables.h"

#include "base/grow.h"
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/code/image_globals.h"
#include "ptx/addresses.h"
#include "ptx/ptx.h"
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- PTX */

static enum weir_status add(struct weir_variables *v, uint32_t *room,
                            const struct weir_ptx_var *var)
{
    char *name = strdup(var->name);

    if (!name || !WEIR_GROW(v->of, v->n, *room)) {
        free(name);
        return WEIR_ERR_NO_MEMORY;
    }
    v->of[v->n++] = (struct weir_variable){.name = name, .bytes = var->size_bytes};
    v->bytes += var->size_bytes;
    return WEIR_OK;
}

/* List what kernels reach. Constants are only read by them. */
static enum weir_status list(struct weir_variables *v, const struct weir_ptx_module *module,
                             const bool *reached)
{
    enum weir_status status = WEIR_OK;
    uint32_t room = 0;

    for (uint32_t i = 0; i < module->n_vars && status == WEIR_OK; i++) {
        const struct weir_ptx_var *var = module->vars[i];

        if (!reached[i] || var->space != WEIR_PTX_SPACE_GLOBAL) {
            continue;
        }
        if (var->managed) {
            v->why = "managed variables";
        } else if (var->size_bytes == 0) {
            v->why = "variables without a size";
        } else {
            status = add(v, &room, var);
        }
    }
    return status;
}

static enum weir_status read_ptx(struct weir_variables *v, const char *text, size_t bytes)
{
    struct weir_ptx_module *module;
    enum weir_status status = weir_ptx_parse(text, bytes, WEIR_PTX_DROP_DEBUG, NULL, &module);
    bool *reached, leaves;

    if (status != WEIR_OK) {
        v->why = "variables of PTX that cannot be read";
        return status == WEIR_ERR_NO_MEMORY ? status : WEIR_OK;
    }
    reached = calloc(module->n_vars + (size_t)1, sizeof *reached);
    status = reached ? weir_ptx_addresses(module, reached, &leaves) : WEIR_ERR_NO_MEMORY;
    if (status == WEIR_OK && leaves) {
        v->why = "addresses of variables that kernels may have stored";
    } else if (status == WEIR_OK) {
        status = list(v, module, reached);
    }
    free(reached);
    weir_ptx_destroy(module);
    return status;
}

/* ---------------------------------------------------------------- images */

static enum weir_status read_image(struct weir_variables *v, const struct weir_host_module *m,
                                   uint32_t sm, bool real)
{
    const struct weir_host_image *image = m->image;
    struct weir_image_ptx_want want = {.sm = sm, .code_runs = real, .max_bytes = UINT64_MAX};
    enum weir_image_form form;
    enum weir_status status;
    char *text;
    size_t n;

    if (m->o.charged_bytes == 0) { /* softgpu's own files may have some that nobody has counted */
        v->why = !real && weir_image_check(image->data, image->bytes, &form) == WEIR_OK &&
                         form == WEIR_IMAGE_SOFT_LINKED
                     ? "variables of linked code"
                     : NULL;
        return WEIR_OK;
    }
    if (m->is_bundle) {
        v->why = "variables of linked code";
        return WEIR_OK;
    }
    status = weir_image_ptx(image->data, image->bytes, &want, &text, &n);
    if (status == WEIR_OK) {
        status = read_ptx(v, text, n);
        free(text);
        return status;
    }
    if (status == WEIR_ERR_NO_MEMORY) {
        return status;
    }
    if (!real || !weir_image_all_codes(image->data, image->bytes, sm, weir_elf_has_only_strings)) {
        v->why = "variables of machine code without PTX";
    }
    return WEIR_OK;
}

enum weir_status weir_variables_find(const struct weir_host_module *module, uint32_t sm, bool real,
                                     struct weir_variables **ret_variables)
{
    struct weir_variables *v = calloc(1, sizeof *v);
    enum weir_status status = v ? read_image(v, module, sm, real) : WEIR_ERR_NO_MEMORY;

    if (status != WEIR_OK) {
        weir_variables_destroy(v);
        return status;
    }
    *ret_variables = v;
    return WEIR_OK;
}

enum weir_status weir_variables_take_room(struct weir_variables *v, struct weir_account *account)
{
    if (v->data) {
        return WEIR_OK;
    }
    if (!weir_account_charge(account, WEIR_ACCOUNT_HOST_MEMORY, v->bytes)) {
        return WEIR_ERR_QUOTA;
    }
    v->data = malloc(v->bytes);
    if (!v->data) {
        weir_account_release(account, WEIR_ACCOUNT_HOST_MEMORY, v->bytes);
        return WEIR_ERR_NO_MEMORY;
    }
    v->account = account;
    return WEIR_OK;
}

void weir_variables_destroy(struct weir_variables *v)
{
    if (!v) {
        return;
    }
    if (v->data) {
        weir_account_release(v->account, WEIR_ACCOUNT_HOST_MEMORY, v->bytes);
    }
    for (uint32_t i = 0; i < v->n; i++) {
        free(v->of[i].name);
    }
    free(v->data);
    free(v->of);
    free(v);
}
