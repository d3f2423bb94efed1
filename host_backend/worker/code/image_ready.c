/*
 * Prepares the code that the driver gets of an image: checked, chosen for the device, and cached.
 *
 * An image has one result per device generation and kind of load. A refusal is cached, too, so a
 * tenant that sends a bad image repeatedly costs no more than the first time.
 */
#include "host_backend/worker/code/image_ready.h"

#include "host_backend/worker/code/image_closed.h"
#include "host_backend/worker/code/image_globals.h"
#include <stdlib.h>

#define WRAPPER_MAGIC 0x466243b1u

/* A wrapper as nvcc lays it out: version 2 lists more fatbins to be linked at load. */
struct wrapper {
    uint32_t magic, version;
    const void *data;
    const void *const *more;
};

struct weir_image_code {
    struct weir_image_code *next;
    uint32_t sm;
    bool is_bundle;
    enum weir_status verdict;
    struct weir_image_facts facts;
    const void *given;       /* what the driver gets: copies, the wrapper, or the image */
    struct wrapper *wrapper; /* a bundle's wrapper with its list behind it; owned */
    uint8_t **copies;        /* owned; NULL for a part of which the image's own bytes are used */
    uint32_t n_copies;
    uint64_t bytes;  /* size of all copies */
    uint64_t budget; /* bytes to which all parts together may still be unpacked */
};

static void destroy_code(struct weir_image_code *code)
{
    for (uint32_t i = 0; i < code->n_copies; i++) {
        free(code->copies[i]);
    }
    weir_closed_kernels_destroy(code->facts.closed);
    free(code->copies);
    free(code->wrapper);
    free(code);
}

void weir_image_codes_destroy(struct weir_image_code *codes)
{
    for (struct weir_image_code *code; (code = WEIR_POP(codes));) {
        destroy_code(code);
    }
}

/* Prepare part number i; *ret_given is its copy or its own bytes. The driver links the parts of a
 * bundle, so none of them has closed kernels. */
static enum weir_status select_part(struct weir_image_code *code, uint32_t i, const uint8_t *data,
                                    uint64_t bytes, const void **ret_given)
{
    struct weir_image_facts facts;
    WEIR_TRY(weir_fatbin_select(data, bytes, code->sm, &code->budget, &code->copies[i], &facts));
    const uint8_t *copy = code->copies[i];
    code->facts.uses_printf |= facts.uses_printf;
    code->facts.may_assert |= facts.may_assert;
    code->facts.leaves_addresses |= facts.leaves_addresses;
    code->facts.has_unknown_globals |= facts.has_unknown_globals;
    code->facts.global_bytes = weir_globals_sum(code->facts.global_bytes, facts.global_bytes);
    code->bytes += copy ? weir_fatbin_bytes(copy) : 0;
    if (code->is_bundle) {
        weir_closed_kernels_destroy(facts.closed);
    } else {
        code->facts.closed = facts.closed;
    }
    *ret_given = copy ? copy : data;
    return WEIR_OK;
}

/* Make a version-2 wrapper and its list for the parts of a bundle, in one block. */
static enum weir_status ready_bundle(struct weir_image_code *code,
                                     const struct weir_host_image *image)
{
    struct weir_bundle_part *parts;
    const void **list;
    uint32_t n;
    enum weir_status status = weir_bundle_check(image->data, image->bytes, &parts, &n);

    if (status != WEIR_OK) {
        return status;
    }
    code->copies = calloc(n, sizeof *code->copies);
    code->wrapper = calloc(1, sizeof *code->wrapper + n * sizeof *list);
    if (!code->copies || !code->wrapper) {
        status = WEIR_ERR_NO_MEMORY;
        goto out;
    }
    code->n_copies = n;
    list = (const void **)(code->wrapper + 1);
    *code->wrapper = (struct wrapper){WRAPPER_MAGIC, 2, NULL, list};
    for (uint32_t i = 0; i < n && status == WEIR_OK; i++) {
        status = select_part(code, i, image->data + parts[i].offset, parts[i].bytes,
                             i == 0 ? &code->wrapper->data : &list[i - 1]);
    }
    code->given = code->wrapper;
out:
    free(parts);
    return status;
}

static enum weir_status ready_plain(struct weir_image_code *code,
                                    const struct weir_host_image *image)
{
    enum weir_image_form form;

    if (weir_fatbin_begins(image->data, image->bytes)) {
        code->copies = calloc(1, sizeof *code->copies);
        WEIR_FAIL_IF(!code->copies, WEIR_ERR_NO_MEMORY);
        code->n_copies = 1;
        return select_part(code, 0, image->data, image->bytes, &code->given);
    }
    enum weir_status status = weir_image_check(image->data, image->bytes, &form);
    code->given = image->data;
    if (status == WEIR_OK) {
        code->facts = weir_image_facts(image->data, image->bytes, form);
    }
    return status;
}

static struct weir_image_code *find_locked(struct weir_host_image *image, bool is_bundle,
                                           uint32_t sm)
{
    struct weir_image_code *code = image->codes;

    while (code && (code->is_bundle != is_bundle || code->sm != sm)) {
        code = code->next;
    }
    return code;
}

/* Prepare an image and charge the copies that it keeps. A failure for lack of memory may succeed
 * the next time, so it is not cached. */
static enum weir_status make_locked(struct weir_host_image_store *store,
                                    struct weir_host_image *image, bool is_bundle, uint32_t sm,
                                    struct weir_image_code **ret_code)
{
    struct weir_image_code *code = calloc(1, sizeof *code);

    WEIR_FAIL_IF(!code, WEIR_ERR_NO_MEMORY);
    code->sm = sm;
    code->budget = WEIR_UNPACK_MAX_BYTES;
    code->is_bundle = is_bundle;
    code->verdict = is_bundle ? ready_bundle(code, image) : ready_plain(code, image);
    code->bytes += weir_closed_kernels_bytes(code->facts.closed);
    enum weir_status status = code->verdict == WEIR_ERR_NO_MEMORY
                                  ? WEIR_ERR_NO_MEMORY
                                  : weir_image_reserve(store, code->bytes);
    if (status != WEIR_OK) {
        destroy_code(code);
        return status;
    }
    weir_image_grew(store, image, code->bytes);
    code->next = image->codes;
    image->codes = *ret_code = code;
    return WEIR_OK;
}

enum weir_status weir_image_ready(struct weir_host_image_store *store,
                                  struct weir_host_image *image, bool is_bundle, uint32_t sm,
                                  const void **ret_code, struct weir_image_facts *ret_facts)
{
    enum weir_status status = WEIR_OK;

    pthread_mutex_lock(&image->lock);
    struct weir_image_code *code = find_locked(image, is_bundle, sm);
    if (!code) {
        status = make_locked(store, image, is_bundle, sm, &code);
    }
    pthread_mutex_unlock(&image->lock);
    if (status != WEIR_OK) {
        return status;
    }
    if (code->verdict == WEIR_OK) {
        *ret_code = code->given;
        *ret_facts = code->facts;
    }
    return code->verdict;
}
