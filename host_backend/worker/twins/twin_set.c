/*
 * A set as bytes: {magic, kernels, binds, constants, bytes of the image}, then the kernels (name,
 * and for each form name, args_offset, param_bytes, dynamic_shared_bytes), the names of binds and
 * constants, the image. A text is its length, its characters and a NUL; length 0 is none. Numbers
 * are 32 bits in the machine's order: a cache does not travel.
 */
#include "host_backend/worker/twins/twin_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SET_MAGIC  0x34544657u /* "WFT4" */
#define TAIL_BYTES 64u         /* NUL bytes behind the set, as behind every image */

/* ---------------------------------------------------------------- writing */

static void put_u32(FILE *out, uint32_t value)
{
    (void)fwrite(&value, sizeof value, 1, out);
}

static void put_text(FILE *out, const char *text)
{
    size_t n = text ? strlen(text) : 0;

    put_u32(out, (uint32_t)n);
    (void)fwrite(n != 0 ? text : "", 1, n + 1, out);
}

static int by_kernel(const void *a, const void *b)
{
    const struct weir_ptx_twin_info *const *x = a, *const *y = b;
    int order = strcmp((*x)->kernel, (*y)->kernel);

    return order != 0 ? order : (int)(*x)->form - (int)(*y)->form;
}

/* Count the kernels that have a twin. infos are sorted, so those of one kernel are adjacent. */
static uint32_t count_kernels(const struct weir_ptx_twin_info *const *infos, uint32_t n)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        count += i == 0 || strcmp(infos[i]->kernel, infos[i - 1]->kernel) != 0;
    }
    return count;
}

static void put_kernels(FILE *out, const struct weir_ptx_twin_info *const *infos, uint32_t n)
{
    for (uint32_t i = 0; i < n;) {
        const char *kernel = infos[i]->kernel;

        put_text(out, kernel);
        for (uint32_t form = 0; form < WEIR_PTX_FORM_COUNT; form++) {
            static const struct weir_ptx_twin_info none;
            bool is =
                i < n && (uint32_t)infos[i]->form == form && strcmp(infos[i]->kernel, kernel) == 0;
            const struct weir_ptx_twin_info *info = is ? infos[i] : &none;

            put_text(out, info->name);
            put_u32(out, info->args_offset);
            put_u32(out, info->param_bytes);
            put_u32(out, info->dynamic_shared_bytes);
            i += is;
        }
    }
}

enum weir_status weir_forms_set_encode(const struct weir_ptx_twins *twins, const uint8_t *image,
                                       size_t image_bytes, uint8_t **ret_bytes, size_t *ret_n_bytes)
{
    const struct weir_ptx_twin_info **made = calloc(twins->n_infos + 1u, sizeof *made);
    char *bytes = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&bytes, &n_bytes);
    uint32_t n = 0;

    if (!made || !out) {
        free(made);
        if (out) {
            (void)fclose(out);
            free(bytes);
        }
        return WEIR_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < twins->n_infos; i++) {
        if (twins->infos[i].name) {
            made[n++] = &twins->infos[i];
        }
    }
    qsort(made, n, sizeof(const struct weir_ptx_twin_info *), by_kernel);
    put_u32(out, SET_MAGIC);
    put_u32(out, count_kernels(made, n));
    put_u32(out, twins->n_binds);
    put_u32(out, twins->n_consts);
    put_u32(out, (uint32_t)image_bytes);
    put_kernels(out, made, n);
    for (uint32_t i = 0; i < twins->n_binds; i++) {
        put_text(out, twins->binds[i]);
    }
    for (uint32_t i = 0; i < twins->n_consts; i++) {
        put_text(out, twins->consts[i]);
    }
    (void)fwrite(image ? image : (const uint8_t *)"", 1, image_bytes, out);
    bool good = ferror(out) == 0;
    good = fclose(out) == 0 && good;
    free(made);
    if (!good) {
        free(bytes);
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_bytes = (uint8_t *)bytes;
    *ret_n_bytes = n_bytes;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- reading */

struct reader {
    const uint8_t *at, *end;
    bool good;
};

static uint32_t get_u32(struct reader *r)
{
    uint32_t value = 0;

    if ((size_t)(r->end - r->at) < sizeof value) {
        r->good = false;
        return 0;
    }
    memcpy(&value, r->at, sizeof value);
    r->at += sizeof value;
    return value;
}

static const char *get_text(struct reader *r)
{
    uint32_t n = get_u32(r);
    const char *text = (const char *)r->at;

    if (!r->good || (size_t)(r->end - r->at) <= n || strnlen(text, n + (size_t)1) != n) {
        r->good = false;
        return NULL;
    }
    r->at += n + (size_t)1;
    return n != 0 ? text : NULL;
}

static void get_kernels(struct reader *r, struct weir_forms_set *set)
{
    for (uint32_t i = 0; i < set->n_kernels && r->good; i++) {
        struct weir_forms_kernel_info *kernel = &set->kernels[i];

        kernel->name = get_text(r);
        r->good = r->good && kernel->name && (i == 0 || strcmp(kernel[-1].name, kernel->name) < 0);
        for (uint32_t form = 0; form < WEIR_PTX_FORM_COUNT; form++) {
            struct weir_forms_twin *twin = &kernel->twins[form];

            twin->name = get_text(r);
            twin->args_offset = get_u32(r);
            twin->param_bytes = get_u32(r);
            twin->dynamic_shared_bytes = get_u32(r);
            r->good = r->good && (!twin->name ||
                                  (uint64_t)twin->args_offset + sizeof(struct weir_ptx_form_args) <=
                                      twin->param_bytes);
        }
    }
}

static void get_names(struct reader *r, const char **names, uint32_t n)
{
    for (uint32_t i = 0; i < n && r->good; i++) {
        names[i] = get_text(r);
        r->good = r->good && names[i];
    }
}

static enum weir_status decode(struct weir_forms_set *set)
{
    struct reader r = {set->bytes, set->bytes + set->n_bytes, true};
    bool magic = get_u32(&r) == SET_MAGIC;
    uint64_t most = set->n_bytes / 5; /* a text takes at least five bytes */

    set->n_kernels = get_u32(&r);
    set->n_binds = get_u32(&r);
    set->n_consts = get_u32(&r);
    set->image_bytes = get_u32(&r);
    if (!magic || !r.good || set->n_kernels > most || set->n_binds > most || set->n_consts > most) {
        return WEIR_ERR_INVALID;
    }
    set->kernels = calloc(set->n_kernels + (size_t)1, sizeof *set->kernels);
    set->binds = calloc(set->n_binds + (size_t)1, sizeof *set->binds);
    set->consts = calloc(set->n_consts + (size_t)1, sizeof *set->consts);
    WEIR_FAIL_IF(!set->kernels || !set->binds || !set->consts, WEIR_ERR_NO_MEMORY);
    get_kernels(&r, set);
    get_names(&r, set->binds, set->n_binds);
    get_names(&r, set->consts, set->n_consts);
    if (!r.good || (size_t)(r.end - r.at) != set->image_bytes ||
        (set->n_kernels != 0) != (set->image_bytes != 0)) {
        return WEIR_ERR_INVALID;
    }
    set->image = set->image_bytes != 0 ? r.at : NULL;
    return WEIR_OK;
}

enum weir_status weir_forms_set_decode(uint8_t *bytes, size_t n_bytes,
                                       struct weir_forms_set **ret_set)
{
    struct weir_forms_set *set = calloc(1, sizeof *set);
    uint8_t *longer = set ? realloc(bytes, n_bytes + TAIL_BYTES) : NULL;

    if (!longer) {
        free(set);
        free(bytes);
        return WEIR_ERR_NO_MEMORY;
    }
    memset(longer + n_bytes, 0, TAIL_BYTES);
    set->bytes = longer;
    set->n_bytes = n_bytes;
    enum weir_status status = decode(set);
    if (status != WEIR_OK) {
        weir_forms_set_destroy(set);
        return status;
    }
    *ret_set = set;
    return WEIR_OK;
}

void weir_forms_set_destroy(struct weir_forms_set *set)
{
    if (set) {
        free(set->kernels);
        free(set->binds);
        free(set->consts);
        free(set->bytes);
        free(set);
    }
}

static int by_name(const void *name, const void *kernel)
{
    return strcmp(name, ((const struct weir_forms_kernel_info *)kernel)->name);
}

const struct weir_forms_kernel_info *weir_forms_set_find(const struct weir_forms_set *set,
                                                         const char *name)
{
    return bsearch(name, set->kernels, set->n_kernels, sizeof *set->kernels, by_name);
}
