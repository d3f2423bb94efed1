/* Which variables the kernels of a module reach: see variables.h. */
#include "host_backend/worker/code/variables.h"

#include "base/grow.h"
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/code/image_globals.h"
#include "ptx/addresses.h"
#include "ptx/ptx.h"
#include <stdlib.h>
#include <string.h>

#define SOFT_LINKED_HEADER 16u /* softgpu/driver/link.c */

/* The variables that are being listed. */
struct list {
    struct weir_variables *v;
    uint32_t room;
    uint32_t n_before; /* variables of parts that came before, with which this one is linked */
    bool has_code;     /* there is machine code that runs */
    enum weir_status status;
};

static struct weir_variable *find(struct weir_variable *of, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(of[i].name, name) == 0) {
            return &of[i];
        }
    }
    return NULL;
}

static bool add(const char *text, uint64_t bytes, void *user)
{
    struct list *list = user;
    struct weir_variables *v = list->v;
    char *name;

    if (find(v->of, list->n_before, text)) { /* the driver would find one of them by the name */
        v->why = "variables of one name in linked code";
        return true;
    }
    name = strdup(text);
    if (!name || !WEIR_GROW(v->of, v->n, list->room)) {
        free(name);
        list->status = WEIR_ERR_NO_MEMORY;
        return false;
    }
    v->of[v->n++] = (struct weir_variable){.name = name, .bytes = bytes};
    v->bytes += bytes;
    return true;
}

/* ---------------------------------------------------------------- PTX */

/* List what kernels reach, or everything if somebody may know an address. Constants are only read
 * by them. */
static void list_ptx(struct list *list, const struct weir_ptx_module *module, const bool *reached)
{
    struct weir_variables *v = list->v;

    for (uint32_t i = 0; i < module->n_vars && list->status == WEIR_OK; i++) {
        const struct weir_ptx_var *var = module->vars[i];

        if ((!reached[i] && !v->fixed) || var->space != WEIR_PTX_SPACE_GLOBAL ||
            var->linkage == WEIR_PTX_LINKAGE_EXTERN) {
            continue;
        }
        if (var->managed) {
            v->why = "managed variables";
        } else if (var->size_bytes == 0) {
            v->why = "variables without a size";
        } else {
            (void)add(var->name, var->size_bytes, list);
        }
    }
}

static void read_ptx(struct list *list, const char *text, size_t bytes)
{
    struct weir_ptx_module *module;
    bool *reached, leaves = false;

    list->status = weir_ptx_parse(text, bytes, WEIR_PTX_DROP_DEBUG, NULL, &module);
    if (list->status != WEIR_OK) {
        list->v->why = "variables of PTX that cannot be read";
        list->status = list->status == WEIR_ERR_NO_MEMORY ? WEIR_ERR_NO_MEMORY : WEIR_OK;
        return;
    }
    reached = calloc(module->n_vars + (size_t)1, sizeof *reached);
    list->status = reached ? weir_ptx_addresses(module, reached, &leaves) : WEIR_ERR_NO_MEMORY;
    if (list->status == WEIR_OK) {
        list->v->fixed |= leaves;
        list_ptx(list, module, reached);
    }
    free(reached);
    weir_ptx_destroy(module);
}

/* ---------------------------------------------------------------- what was asked for */

enum weir_status weir_variables_ask(struct weir_host_module *m,
                                    const struct weir_variable *variable, const char *text,
                                    bool *ret_first)
{
    char *name;

    *ret_first = !find(m->asked, m->n_asked, text);
    if (!*ret_first) {
        return WEIR_OK;
    }
    name = strdup(text);
    if (!name || !WEIR_GROW(m->asked, m->n_asked, m->asked_room)) {
        free(name);
        return WEIR_ERR_NO_MEMORY;
    }
    m->asked[m->n_asked] = *variable;
    m->asked[m->n_asked++].name = name;
    weir_variables_destroy(m->variables); /* they are more now */
    m->variables = NULL;
    return WEIR_OK;
}

void weir_variables_forget(struct weir_host_module *m)
{
    weir_variables_destroy(m->variables);
    for (uint32_t i = 0; i < m->n_asked; i++) {
        free(m->asked[i].name);
    }
    free(m->asked);
    m->variables = NULL;
    m->asked = NULL;
    m->n_asked = m->asked_room = 0;
}

/* What the program has asked for it may have written, constants, too. */
static void list_asked(struct list *list, const struct weir_host_module *m)
{
    for (uint32_t i = 0; i < m->n_asked && list->status == WEIR_OK; i++) {
        if (m->asked[i].managed) {
            list->v->why = "managed variables";
        } else if (m->asked[i].bytes != 0 && !find(list->v->of, list->v->n, m->asked[i].name)) {
            (void)add(m->asked[i].name, m->asked[i].bytes, list);
        }
    }
}

/* ---------------------------------------------------------------- images */

static bool list_code(const uint8_t *code, uint64_t bytes, void *user)
{
    ((struct list *)user)->has_code = true;
    return weir_elf_visit_globals(code, bytes, add, user);
}

/* One of several texts that are linked. */
static bool list_text(const char *text, size_t bytes, void *user)
{
    struct list *list = user;

    list->n_before = list->v->n;
    read_ptx(list, text, bytes);
    return list->status == WEIR_OK;
}

/* @param data  PTX, a fatbin or a cubin. */
static void read_part(struct list *list, const uint8_t *data, uint64_t bytes, uint32_t sm,
                      bool real)
{
    struct weir_image_ptx_want want = {.sm = sm, .code_runs = real, .max_bytes = UINT64_MAX};
    char *text;
    bool good;
    size_t n;

    list->n_before = list->v->n;
    list->has_code = false;
    list->status = weir_image_ptx(data, bytes, &want, &text, &n);
    if (list->status == WEIR_OK) {
        read_ptx(list, text, n);
        free(text);
        return;
    }
    if (list->status == WEIR_ERR_NO_MEMORY) {
        return;
    }
    list->status = WEIR_OK;
    list->v->fixed = true;
    good = !real || weir_image_all_codes(data, bytes, sm, list_code, list);
    if (good && !list->has_code && weir_fatbin_begins(data, bytes)) {
        good = weir_fatbin_all_texts(data, sm, list_text, list);
    }
    if (!good && list->status == WEIR_OK) {
        list->v->why = "variables of machine code that hold addresses";
    }
}

/* Parts that the driver links as it loads them. An address of a variable may pass from one to
 * another. */
static void read_bundle(struct list *list, const struct weir_host_image *image, uint32_t sm,
                        bool real)
{
    struct weir_bundle_part *parts;
    uint32_t n;

    list->v->fixed = true;
    list->status = weir_bundle_check(image->data, image->bytes, &parts, &n);
    if (list->status != WEIR_OK) {
        return;
    }
    for (uint32_t i = 0; i < n && list->status == WEIR_OK && !list->v->why; i++) {
        read_part(list, image->data + parts[i].offset, parts[i].bytes, sm, real);
    }
    free(parts);
}

/* The same of a file of softgpu's linker: a header, and texts behind their lengths. */
static void read_soft_linked(struct list *list, const struct weir_host_image *image)
{
    const uint8_t *at = image->data + SOFT_LINKED_HEADER, *end = image->data + image->bytes;
    uint64_t bytes;

    list->v->fixed = true;
    while ((size_t)(end - at) >= sizeof bytes && list->status == WEIR_OK && !list->v->why) {
        memcpy(&bytes, at, sizeof bytes);
        at += sizeof bytes;
        if (bytes > (size_t)(end - at)) {
            list->v->why = "variables of linked code that cannot be read";
            return;
        }
        (void)list_text((const char *)at, bytes, list);
        at += bytes;
    }
}

static void read_image(struct list *list, const struct weir_host_module *m, uint32_t sm, bool real)
{
    const struct weir_host_image *image = m->image;
    enum weir_image_form form;

    if (m->is_bundle) {
        read_bundle(list, image, sm, real);
    } else if (!real && weir_image_check(image->data, image->bytes, &form) == WEIR_OK &&
               form == WEIR_IMAGE_SOFT_LINKED) {
        read_soft_linked(list, image); /* nobody has counted its variables' bytes */
    } else if (m->o.charged_bytes != 0) {
        read_part(list, image->data, image->bytes, sm, real);
    }
    if (m->o.charged_bytes != 0 && list->v->fixed && list->v->n == 0 && !list->v->why) {
        list->v->why = "variables without a name";
    }
}

enum weir_status weir_variables_find(const struct weir_host_module *module, uint32_t sm, bool real,
                                     struct weir_variables **ret_variables)
{
    struct list list = {.v = calloc(1, sizeof *list.v)};

    if (!list.v) {
        return WEIR_ERR_NO_MEMORY;
    }
    list.v->fixed = module->n_asked != 0;
    read_image(&list, module, sm, real);
    list_asked(&list, module);
    if (list.status != WEIR_OK) {
        weir_variables_destroy(list.v);
        return list.status;
    }
    *ret_variables = list.v;
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
