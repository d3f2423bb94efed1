/*
 * The API's linker. It accepts PTX in any container, and returns softgpu's own image: the texts one
 * after another, which the module loader links.
 */
#include "softgpu/driver/driver.h"

#include <stdlib.h>
#include <string.h>

#define LINKED_MAGIC        0x4B4E4C57u /* as in fatbin.c */
#define LINKED_HEADER_BYTES 16u

struct weir_soft_link {
    struct weir_soft_object object;
    struct weir_soft_image image;
    struct weir_soft_jit jit;
    void **values; /* the program's option values, to report log sizes into; borrowed */
    char *output;
};

static void link_release(void *object)
{
    struct weir_soft_link *link = object;
    weir_soft_image_finish(&link->image);
    free(link->output);
}

CUresult weir_soft_cuLinkCreate_v2(unsigned int n_options, CUjit_option *options, void **values,
                                   CUlinkState *ret)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_ctx *ctx;
    struct weir_soft_jit jit;
    WEIR_FAIL_IF(!ret, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_soft_jit_parse(n_options, options, values, &jit));
    WEIR_TRY(weir_soft_ctx_current(&ctx));
    struct weir_soft_link *link =
        weir_soft_object_new(WEIR_SOFT_LINK, sizeof(*link), ctx, link_release);
    WEIR_FAIL_IF(!link, CUDA_ERROR_OUT_OF_MEMORY);
    link->jit = jit;
    link->values = values;
    *ret = (CUlinkState)link;
    return CUDA_SUCCESS;
}

static CUresult add(struct weir_soft_link *link, CUjitInputType type, const void *data,
                    size_t bytes)
{
    struct weir_soft_log log = {{0}};
    bool elf = bytes >= 4 && memcmp(data, "\177ELF", 4) == 0;
    if (type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_OBJECT || type == CU_JIT_INPUT_LIBRARY) {
        return elf || type == CU_JIT_INPUT_LIBRARY ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                   : CUDA_ERROR_INVALID_IMAGE;
    }
    WEIR_FAIL_IF(type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY,
                 CUDA_ERROR_INVALID_VALUE);
    uint32_t before = link->image.n_sources;
    CUresult result = weir_soft_image_read_sized(
        data, bytes, link->object.ctx->device->compute_capability, &link->image, &log);
    if (result == CUDA_SUCCESS && link->image.n_sources == before) {
        result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (result == CUDA_ERROR_INVALID_IMAGE && type == CU_JIT_INPUT_PTX) {
        result = CUDA_ERROR_INVALID_PTX;
    }
    if (result != CUDA_SUCCESS) {
        weir_soft_jit_report(&link->jit, link->values, &log);
    }
    return result;
}

CUresult weir_soft_cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data,
                                    size_t bytes, const char *name, unsigned int n_options,
                                    CUjit_option *options, void **values)
{
    WEIR_SOFT_LOCKED();
    (void)name;
    struct weir_soft_jit jit;
    struct weir_soft_link *link = weir_soft_object_find(WEIR_SOFT_LINK, state);
    WEIR_FAIL_IF(!data || bytes == 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!link || link->output, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_soft_jit_parse(n_options, options, values, &jit));
    return add(link, type, data, bytes);
}

CUresult weir_soft_cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                                    unsigned int n_options, CUjit_option *options, void **values)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_jit jit;
    struct weir_soft_link *link = weir_soft_object_find(WEIR_SOFT_LINK, state);
    char *data;
    size_t bytes;
    WEIR_FAIL_IF(!path, CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!link || link->output, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_soft_jit_parse(n_options, options, values, &jit));
    WEIR_TRY(weir_soft_file_read(path, &data, &bytes));
    CUresult result = add(link, type, data, bytes);
    free(data);
    return result;
}

static char *serialize(const struct weir_soft_image *image, size_t *ret_bytes)
{
    uint64_t bytes = LINKED_HEADER_BYTES;
    for (uint32_t i = 0; i < image->n_sources; i++) {
        bytes += 8 + image->sources[i].bytes;
    }
    char *out = malloc(bytes);
    WEIR_FAIL_IF(!out, NULL);
    uint32_t magic = LINKED_MAGIC;
    memcpy(out, &magic, 4);
    memcpy(out + 4, &image->n_sources, 4);
    memcpy(out + 8, &bytes, 8);
    char *at = out + LINKED_HEADER_BYTES;
    for (uint32_t i = 0; i < image->n_sources; i++) {
        uint64_t text_bytes = image->sources[i].bytes;
        memcpy(at, &text_bytes, 8);
        memcpy(at + 8, image->sources[i].text, text_bytes);
        at += 8 + text_bytes;
    }
    *ret_bytes = bytes;
    return out;
}

CUresult weir_soft_cuLinkComplete(CUlinkState state, void **ret, size_t *ret_bytes)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_link *link = weir_soft_object_find(WEIR_SOFT_LINK, state);
    struct weir_soft_log log = {{0}};
    struct weir_soft_module *module;
    WEIR_FAIL_IF(!link || link->output, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(!ret || link->image.n_sources == 0, CUDA_ERROR_INVALID_VALUE);
    /* Link once now, so that this call reports the errors. */
    CUresult result = weir_soft_module_load(link->object.ctx, &link->image, &log, &module);
    weir_soft_jit_report(&link->jit, link->values, &log);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    weir_soft_module_drop(module);
    size_t bytes;
    link->output = serialize(&link->image, &bytes);
    WEIR_FAIL_IF(!link->output, CUDA_ERROR_OUT_OF_MEMORY);
    *ret = link->output;
    WEIR_GIVE(ret_bytes, bytes);
    return CUDA_SUCCESS;
}

CUresult weir_soft_cuLinkDestroy(CUlinkState state)
{
    WEIR_SOFT_LOCKED();
    struct weir_soft_link *link = weir_soft_object_find(WEIR_SOFT_LINK, state);
    WEIR_FAIL_IF(!link, CUDA_ERROR_INVALID_HANDLE);
    weir_soft_object_retire(link);
    return CUDA_SUCCESS;
}
