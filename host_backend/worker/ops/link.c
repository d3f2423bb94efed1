/* The driver's linker. Its logs and options must live as long as its state, so they are in the
 * object. */
#include "host_backend/worker/code/program_ptx.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/state/tenant.h"

#include "host_backend/worker/code/image_check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct link {
    struct weir_object o;
    struct weir_host_jit_options options;
    unsigned n_own; /* the first n_own options are the guest's */
    char info[WEIR_LOG_BYTES];
    char error[WEIR_LOG_BYTES];
};

CUresult weir_host_link_create(struct weir_session *s, const struct weir_op_link_create_in *in)
{
    struct weir_host_jit_options options;
    struct weir_object *o;
    struct link *link;
    CUlinkState state;

    WEIR_TRY(weir_ops_jit_options(in->option_ids, in->n_option_ids, in->option_values,
                                  in->n_option_values, &options));
    WEIR_TRY(weir_host_object_create(s, WEIR_KIND_LINK, sizeof *link, in->l, NULL, NULL, &o));
    link = (struct link *)o;
    link->options = options;
    link->n_own = options.n;
    weir_ops_jit_logs(&link->options, link->info, link->error);
    CUresult result = s->driver->cuLinkCreate_v2(link->options.n, link->options.ids,
                                                 link->options.values, &state);
    if (result != CUDA_SUCCESS) {
        weir_host_object_forget(s, o);
        return result;
    }
    o->native = state;
    return CUDA_SUCCESS;
}

/* Copy the logs, since the linker continues to write into its own. */
static CUresult copy_logs(struct weir_session *s, const struct link *link, const char **ret_info,
                          const char **ret_error)
{
    char *info = weir_session_alloc(s, WEIR_LOG_BYTES);
    char *error = weir_session_alloc(s, WEIR_LOG_BYTES);

    WEIR_FAIL_IF(!info || !error, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(info, link->info, WEIR_LOG_BYTES - 1);
    memcpy(error, link->error, WEIR_LOG_BYTES - 1);
    *ret_info = info;
    *ret_error = error;
    return CUDA_SUCCESS;
}

/* May the input go to the linker? It gets the sizes of library archives and LTO code, so it checks
 * their form itself. */
static bool input_ok(uint32_t type, const struct weir_host_image *image)
{
    enum weir_image_form form;

    if (type == CU_JIT_INPUT_LIBRARY || type == CU_JIT_INPUT_NVVM) {
        return true;
    }
    if (type > CU_JIT_INPUT_LIBRARY ||
        weir_image_check(image->data, image->bytes, &form) != WEIR_OK) {
        return false;
    }
    switch (type) {
    case CU_JIT_INPUT_PTX:
        return form == WEIR_IMAGE_PTX;
    case CU_JIT_INPUT_FATBINARY:
        return form == WEIR_IMAGE_FATBIN;
    default:
        return form == WEIR_IMAGE_ELF;
    }
}

/* Add an input. If the linker does not accept text that was compiled here, it compiles the text
 * itself. */
static CUresult add(struct weir_session *s, struct link *link, const struct weir_op_link_add_in *in,
                    const struct weir_host_image *image, const struct weir_program_code *code)
{
    CUlinkState state = link->o.native;
    uint64_t bytes = image->bytes;

    if (code->code &&
        s->driver->cuLinkAddData_v2(state, CU_JIT_INPUT_CUBIN, (void *)(uintptr_t)code->code,
                                    code->bytes, in->name, 0, NULL, NULL) == CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    if (in->type == CU_JIT_INPUT_PTX) {
        /* The length of text includes its NUL; every stored image is followed by NULs. */
        bytes = strnlen((const char *)image->data, image->bytes) + 1;
    }
    return s->driver->cuLinkAddData_v2(state, (CUjitInputType)in->type, image->data, bytes,
                                       in->name, 0, NULL, NULL);
}

CUresult weir_host_link_add(struct weir_session *s, const struct weir_op_link_add_in *in,
                            struct weir_op_link_add_out *out)
{
    struct link *link = weir_host_object_get(s, WEIR_KIND_LINK, in->l);
    struct weir_program_code code = {.log = ""};

    WEIR_FAIL_IF(!link, CUDA_ERROR_INVALID_HANDLE);
    weir_ops_image_named(s);
    struct weir_host_image *image = weir_ops_image(s, in->hash, in->bytes);
    WEIR_FAIL_IF(!image, CUDA_ERROR_NOT_FOUND);
    if (!input_ok(in->type, image)) {
        weir_image_put(&s->tenant->images, image);
        return in->type == CU_JIT_INPUT_PTX ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_INVALID_IMAGE;
    }
    if (in->type == CU_JIT_INPUT_PTX || in->type == CU_JIT_INPUT_FATBINARY) {
        const struct weir_jit_options options = {link->options.ids, link->options.values,
                                                 link->n_own};

        weir_program_ptx_compile(s, image, WEIR_PROGRAM_LINKS, &options, &code);
    }
    if (code.refused == CUDA_SUCCESS) {
        out->result = (int32_t)add(s, link, in, image, &code);
    } else {
        out->result = (int32_t)code.refused;
        snprintf(link->error, sizeof link->error, "%s", code.log);
    }
    weir_image_put(&s->tenant->images, image);
    return copy_logs(s, link, &out->info_log, &out->error_log);
}

CUresult weir_host_link_complete(struct weir_session *s, const struct weir_op_link_complete_in *in,
                                 struct weir_op_link_complete_out *out)
{
    struct link *link = weir_host_object_get(s, WEIR_KIND_LINK, in->l);
    struct weir_host_image *image;
    size_t bytes = 0;
    void *cubin = NULL;

    WEIR_FAIL_IF(!link, CUDA_ERROR_INVALID_HANDLE);
    out->result = (int32_t)s->driver->cuLinkComplete(link->o.native, &cubin, &bytes);
    WEIR_TRY(copy_logs(s, link, &out->info_log, &out->error_log));
    if (out->result != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    if (weir_image_reserve(&s->tenant->images, bytes) != WEIR_OK) {
        weir_tenant_refused(s->tenant, WEIR_ACCOUNT_HOST_MEMORY);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint8_t *data = calloc(1, bytes + WEIR_IMAGE_TAIL_BYTES);
    if (!data) {
        weir_image_unreserve(&s->tenant->images, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(data, cubin, bytes);
    struct weir_hash hash = weir_hash_of(data, bytes);
    WEIR_FAIL_IF(weir_image_add(&s->tenant->images, &hash, data, bytes, &image) != WEIR_OK,
                 CUDA_ERROR_OUT_OF_MEMORY);
    weir_image_put(&s->tenant->images, image);
    memcpy(out->hash, hash.bytes, sizeof out->hash);
    out->bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult weir_host_link_destroy(struct weir_session *s, const struct weir_op_link_destroy_in *in)
{
    struct weir_object *o = weir_host_object_get(s, WEIR_KIND_LINK, in->l);

    return o ? weir_host_object_destroy(s, o) : CUDA_ERROR_INVALID_HANDLE;
}
