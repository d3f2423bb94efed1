/* cuLink*: inputs are stored with the host like images; the result is fetched once, at
 * completion. */
#include "guest_lib/image.h"
#include "guest_lib/module.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

#include <stdlib.h>
#include <string.h>

struct link {
    uint64_t handle;
    struct weir_jit_wire jit; /* log buffers, which the program keeps until completion */
    void *cubin;              /* output of cuLinkComplete; lives as long as the link */
};

static struct link *link_get(CUlinkState state)
{
    return weir_guest_object_get(WEIR_KIND_LINK, state);
}

static void link_free(struct link *link)
{
    weir_guest_object_remove(WEIR_KIND_LINK, link->handle);
    free(link->cubin);
    free(link);
}

CUresult weir_guest_cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options,
                                    void **optionValues, CUlinkState *stateOut)
{
    WEIR_FAIL_IF(!stateOut, CUDA_ERROR_INVALID_VALUE);
    struct link *link = calloc(1, sizeof(*link));
    WEIR_FAIL_IF(!link, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = weir_jit_read(
        &(struct weir_guest_jit_options){numOptions, options, optionValues}, &link->jit);
    WEIR_THEN(result, weir_guest_object_add(WEIR_KIND_LINK, link, &link->handle));
    if (result != CUDA_SUCCESS) {
        free(link);
        return result;
    }
    const struct weir_op_link_create_in in = {
        .l = link->handle,
        .option_ids = link->jit.ids,
        .n_option_ids = link->jit.count,
        .option_values = link->jit.values,
        .n_option_values = link->jit.count,
    };
    result = weir_call_link_create(weir_guest_channel(), &in, NULL);
    if (result != CUDA_SUCCESS) {
        link_free(link);
        return result;
    }
    *stateOut = (CUlinkState)(uintptr_t)link->handle;
    return CUDA_SUCCESS;
}

static CUresult add_stored(struct link *link, CUjitInputType type,
                           const struct weir_guest_image *image, const char *name)
{
    struct weir_op_link_add_in in = {
        .l = link->handle, .type = (uint32_t)type, .bytes = image->bytes, .name = name ? name : ""};
    memcpy(in.hash, image->hash.bytes, sizeof(in.hash));
    struct weir_op_link_add_out out;
    WEIR_TRY(weir_call_link_add(weir_guest_channel(), &in, &out));
    weir_jit_write_logs(&link->jit, out.info_log, out.error_log);
    return (CUresult)out.result;
}

CUresult weir_guest_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data,
                                     size_t size, const char *name, unsigned int numOptions,
                                     CUjit_option *options, void **optionValues)
{
    struct link *link = link_get(state);
    struct weir_guest_image image;
    struct weir_jit_wire jit;
    WEIR_FAIL_IF(!link, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!data || !size || (unsigned int)type >= CU_JIT_NUM_INPUT_TYPES,
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(
        weir_jit_read(&(struct weir_guest_jit_options){numOptions, options, optionValues}, &jit));
    WEIR_TRY(weir_guest_image_store_bytes(data, size, &image));
    return add_stored(link, type, &image, name);
}

CUresult weir_guest_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                                     unsigned int numOptions, CUjit_option *options,
                                     void **optionValues)
{
    struct link *link = link_get(state);
    struct weir_guest_image image;
    struct weir_jit_wire jit;
    WEIR_FAIL_IF(!link, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!path, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(
        weir_jit_read(&(struct weir_guest_jit_options){numOptions, options, optionValues}, &jit));
    WEIR_TRY(weir_guest_image_store_file(path, &image));
    return add_stored(link, type, &image, path);
}

CUresult weir_guest_cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct link *link = link_get(state);
    WEIR_FAIL_IF(!link, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!cubinOut, CUDA_ERROR_INVALID_VALUE);
    struct weir_op_link_complete_out out;
    const struct weir_op_link_complete_in in = {.l = link->handle};
    WEIR_TRY(weir_call_link_complete(weir_guest_channel(), &in, &out));
    weir_jit_write_logs(&link->jit, out.info_log, out.error_log);
    if (out.result != CUDA_SUCCESS) {
        return (CUresult)out.result;
    }
    struct weir_hash hash;
    const uint64_t bytes = out.bytes;
    memcpy(hash.bytes, out.hash, sizeof(hash.bytes));
    void *cubin;
    WEIR_TRY(weir_guest_image_fetch(&hash, bytes, &cubin));
    free(link->cubin);
    link->cubin = cubin;
    *cubinOut = cubin;
    WEIR_GIVE(sizeOut, bytes);
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuLinkDestroy(CUlinkState state)
{
    struct link *link = link_get(state);
    WEIR_FAIL_IF(!link, CUDA_ERROR_INVALID_HANDLE);
    const struct weir_op_link_destroy_in in = {.l = link->handle};
    CUresult result = weir_post_link_destroy(weir_guest_channel(), &in);
    link_free(link);
    return result;
}
