#include "host_backend/worker/code/jit.h"

#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 64u

bool weir_jit_ptxas_options(const struct weir_jit_options *options,
                            struct weir_compile_options *ret_options)
{
    bool all = true;

    *ret_options = (struct weir_compile_options){.level = -1};
    for (uint32_t i = 0; i < options->n; i++) {
        unsigned value = (unsigned)(uintptr_t)options->values[i];

        switch ((int)options->ids[i]) {
        case CU_JIT_MAX_REGISTERS:
            ret_options->max_registers = value;
            break;
        case CU_JIT_OPTIMIZATION_LEVEL:
            ret_options->level = value > 4 ? 4 : (int)value;
            break;
        case CU_JIT_LOG_VERBOSE:
            ret_options->verbose = value != 0;
            break;
        case CU_JIT_TARGET_FROM_CUCONTEXT:
        case CU_JIT_FALLBACK_STRATEGY:
        case CU_JIT_CACHE_MODE:
        case CU_JIT_GENERATE_LINE_INFO:
            break;
        default:
            all = false;
        }
    }
    return all;
}

/* ---------------------------------------------------------------- the driver */

static CUresult link_text(const struct weir_driver *d, CUlinkState state, const char *text,
                          size_t text_bytes, struct weir_compile_result *result)
{
    void *image;
    size_t bytes;
    WEIR_TRY(d->cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, text_bytes + 1,
                                 "input", 0, NULL, NULL));
    WEIR_TRY(d->cuLinkComplete(state, &image, &bytes));
    result->image = malloc(bytes + 1);
    if (result->image) {
        memcpy(result->image, image, bytes); /* the linker frees this memory with its state */
        result->image[bytes] = 0;
        result->bytes = bytes;
    }
    return CUDA_SUCCESS;
}

enum weir_status weir_jit_by_driver(const struct weir_driver *driver, const char *text,
                                    size_t text_bytes, const struct weir_jit_options *options,
                                    struct weir_compile_result *ret_result)
{
    CUjit_option ids[OPTIONS_MAX + 2];
    void *values[OPTIONS_MAX + 2];
    uint32_t n = WEIR_MIN(options->n, OPTIONS_MAX);
    CUlinkState state;

    *ret_result = (struct weir_compile_result){.image = NULL};
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = options->ids[i];
        values[i] = options->values[i];
    }
    ids[n] = CU_JIT_ERROR_LOG_BUFFER;
    values[n++] = ret_result->log;
    ids[n] = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    values[n++] = (void *)(uintptr_t)(sizeof ret_result->log - 1);
    CUresult result = driver->cuLinkCreate_v2(n, ids, values, &state);
    if (result == CUDA_SUCCESS) {
        result = link_text(driver, state, text, text_bytes, ret_result);
        (void)driver->cuLinkDestroy(state);
    }
    if (result != CUDA_SUCCESS) {
        if (ret_result->log[0] == 0) {
            snprintf(ret_result->log, sizeof ret_result->log, "the driver's linker gave %d",
                     (int)result);
        }
        return WEIR_ERR_DRIVER;
    }
    return ret_result->image ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

/* ---------------------------------------------------------------- either */

static void first_line(const char *log, char *why)
{
    snprintf(why, WEIR_JIT_WHY_BYTES, "%.*s", (int)strcspn(log, "\n"), log);
}

/* WEIR_ERR_UNSUPPORTED: ptxas cannot do it, but the driver can. */
static enum weir_status by_ptxas(const struct weir_jit_params *p,
                                 const struct weir_compile_job *job,
                                 struct weir_compile_result *result, char *why)
{
    enum weir_compile_end end = weir_compiler_run(p->compiler, job, result);

    if (end == WEIR_COMPILE_DONE) {
        return WEIR_OK;
    }
    if (weir_compile_is_stopped(end)) {
        snprintf(why, WEIR_JIT_WHY_BYTES, "%s", weir_compile_end_text(end));
        return WEIR_ERR_DRIVER;
    }
    if (end == WEIR_COMPILE_REFUSED) {
        first_line(result->log, why);
        weir_log_debug("compiler: ptxas refused, the driver compiles why=\"%s\"", why);
    }
    return WEIR_ERR_UNSUPPORTED;
}

enum weir_status weir_jit(const struct weir_jit_params *params, uint8_t **ret_image,
                          size_t *ret_bytes, char *why)
{
    struct weir_compile_job job = params->job;
    enum weir_status status = WEIR_ERR_UNSUPPORTED;
    struct weir_compile_result *result = malloc(sizeof *result);

    why[0] = 0;
    WEIR_FAIL_IF(!result, WEIR_ERR_NO_MEMORY);
    if (weir_jit_ptxas_options(&params->options, &job.options)) {
        status = by_ptxas(params, &job, result, why);
    }
    if (status == WEIR_ERR_UNSUPPORTED) {
        status =
            weir_jit_by_driver(params->driver, job.text, job.text_bytes, &params->options, result);
        if (status == WEIR_ERR_DRIVER) {
            first_line(result->log, why);
        }
    }
    if (status == WEIR_OK) {
        *ret_image = result->image;
        *ret_bytes = result->bytes;
    }
    free(result);
    return status;
}
