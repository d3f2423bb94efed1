/*
 * ptxas gets a folder of its own with its input, and runs in a process of its own (ptxas.h). What
 * it does not take, or has no option for, the driver compiles here.
 */
#include "host_backend/worker/twins/compile.h"
#include "host_backend/config/program_path.h"

#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (UINT64_C(512) << 20) /* of what ptxas may write */
#define WHY_BYTES  200
#define LOG_BYTES  4096

/* ---------------------------------------------------------------- which */

/* false: there is none. */
static bool find_ptxas(const char *wanted, char *path, size_t bytes)
{
    if (strcmp(wanted, "auto") == 0) {
        if (weir_program_find("ptxas", path, bytes)) {
            return true;
        }
        snprintf(path, bytes, "/usr/local/cuda/bin/ptxas");
        return weir_is_program(path);
    }
    snprintf(path, bytes, "%s", wanted);
    if (!weir_is_program(path)) {
        weir_log_warn("forms: no such compiler, the driver compiles path=%s", wanted);
        return false;
    }
    return true;
}

static const struct weir_forms_compiler by_the_driver = {.id = "driver", .ptxas.socket_fd = -1};

void weir_forms_compiler_open(const char *wanted, struct weir_forms_compiler *ret_compiler)
{
    struct weir_forms_compiler *c = ret_compiler;
    char path[256];
    struct stat info;

    *c = by_the_driver;
    if (strcmp(wanted, "driver") == 0 || !find_ptxas(wanted, path, sizeof path) ||
        stat(path, &info) != 0) {
        return;
    }
    weir_ptxas_start(path, &c->ptxas);
    if (c->ptxas.socket_fd >= 0) {
        snprintf(c->id, sizeof c->id, "%s %lld %lld", path, (long long)info.st_size,
                 (long long)info.st_mtime);
    }
}

void weir_forms_compiler_close(struct weir_forms_compiler *compiler)
{
    weir_ptxas_stop(&compiler->ptxas);
    *compiler = by_the_driver;
}

/* ---------------------------------------------------------------- a job of ptxas */

struct files {
    struct weir_ptxas_job job;
    char in[300], out[300], log[300];
};

/* Only options that mean the same to ptxas; false: there is another. */
static bool add_options(struct weir_ptxas_job *job, const struct weir_forms_options *options)
{
    for (uint32_t i = 0; i < options->n; i++) {
        unsigned value = (unsigned)(uintptr_t)options->values[i];

        switch ((int)options->ids[i]) {
        case CU_JIT_MAX_REGISTERS:
            snprintf(job->registers, sizeof job->registers, "%u", value);
            break;
        case CU_JIT_OPTIMIZATION_LEVEL:
            snprintf(job->level, sizeof job->level, "-O%u", value > 4 ? 4 : value);
            break;
        case CU_JIT_TARGET_FROM_CUCONTEXT:
        case CU_JIT_FALLBACK_STRATEGY:
        case CU_JIT_LOG_VERBOSE:
        case CU_JIT_CACHE_MODE:
        case CU_JIT_GENERATE_LINE_INFO:
            break;
        default:
            return false;
        }
    }
    return true;
}

static bool prepare(struct files *f, const struct weir_forms_compile_params *p)
{
    struct weir_ptxas_job *job = &f->job;

    snprintf(job->arch, sizeof job->arch, "-arch=sm_%u", p->sm);
    if (p->sm_suffix != 0) {
        snprintf(job->arch, sizeof job->arch, "-arch=sm_%u%c", p->sm, p->sm_suffix);
    }
    if (!add_options(job, &p->options)) {
        return false;
    }
    snprintf(job->folder, sizeof job->folder, "%s/ptxas.XXXXXX",
             p->tmp_dir[0] != 0 ? p->tmp_dir : "/tmp");
    if (mkdtemp(job->folder) == NULL) {
        job->folder[0] = 0;
        return false;
    }
    snprintf(f->in, sizeof f->in, "%s/in.ptx", job->folder);
    snprintf(f->out, sizeof f->out, "%s/out.cubin", job->folder);
    snprintf(f->log, sizeof f->log, "%s/log", job->folder);
    return true;
}

static void clean(struct files *f)
{
    if (f->job.folder[0] != 0) {
        (void)unlink(f->in);
        (void)unlink(f->out);
        (void)unlink(f->log);
        (void)rmdir(f->job.folder);
    }
}

static bool write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wxe");
    bool good;

    if (file == NULL) {
        return false;
    }
    good = fwrite(text, 1, bytes, file) == bytes;
    return fclose(file) == 0 && good;
}

static bool read_file(const char *path, uint64_t max_bytes, uint8_t **ret_bytes, size_t *ret_n)
{
    FILE *file = fopen(path, "re");
    struct stat info;
    bool good = false;

    if (file == NULL) {
        return false;
    }
    if (fstat(fileno(file), &info) == 0 && info.st_size > 0 &&
        (uint64_t)info.st_size <= max_bytes) {
        *ret_bytes = malloc((size_t)info.st_size + 1);
        good = *ret_bytes != NULL &&
               fread(*ret_bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size;
        if (!good) {
            free(*ret_bytes);
        } else {
            (*ret_bytes)[info.st_size] = 0;
            *ret_n = (size_t)info.st_size;
        }
    }
    (void)fclose(file);
    return good;
}

static void say_why(struct files *f, char *why)
{
    uint8_t *log;
    size_t n;

    snprintf(why, WHY_BYTES, "ptxas failed");
    if (read_file(f->log, LOG_BYTES, &log, &n)) {
        snprintf(why, WHY_BYTES, "%.*s", (int)strcspn((char *)log, "\n"), (char *)log);
        free(log);
    }
}

/* WEIR_ERR_UNSUPPORTED: not for ptxas. */
static enum weir_status by_ptxas(const struct weir_forms_compile_params *p, uint8_t **ret_image,
                                 size_t *ret_bytes, char *why)
{
    struct files *f = calloc(1, sizeof *f);
    enum weir_status status = WEIR_ERR_UNSUPPORTED;
    bool good = false;

    if (f == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    if (prepare(f, p) && write_file(f->in, p->text, p->text_bytes) &&
        weir_ptxas_run(&p->compiler->ptxas, &f->job, &good)) {
        status =
            good && read_file(f->out, FILE_BYTES, ret_image, ret_bytes) ? WEIR_OK : WEIR_ERR_DRIVER;
        if (status != WEIR_OK) {
            say_why(f, why);
        }
    }
    clean(f);
    free(f);
    return status;
}

/* ---------------------------------------------------------------- the driver */

static enum weir_status by_driver(const struct weir_forms_compile_params *p, uint8_t **ret_image,
                                  size_t *ret_bytes, char *why)
{
    const struct weir_driver *d = p->driver;
    char log[LOG_BYTES] = "";
    CUjit_option ids[72];
    void *values[72];
    uint32_t n = p->options.n < 64 ? p->options.n : 64;
    CUlinkState state;
    void *image;
    size_t bytes;
    CUresult result;

    for (uint32_t i = 0; i < n; i++) {
        ids[i] = p->options.ids[i];
        values[i] = p->options.values[i];
    }
    ids[n] = CU_JIT_ERROR_LOG_BUFFER;
    values[n++] = log;
    ids[n] = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    values[n++] = (void *)(uintptr_t)(sizeof log - 1);
    result = d->cuLinkCreate_v2(n, ids, values, &state);
    if (result != CUDA_SUCCESS) {
        snprintf(why, WHY_BYTES, "cuLinkCreate gave %d", (int)result);
        return WEIR_ERR_DRIVER;
    }
    result = d->cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)p->text,
                                 p->text_bytes + 1, "twins", 0, NULL, NULL);
    if (result == CUDA_SUCCESS) {
        result = d->cuLinkComplete(state, &image, &bytes);
    }
    if (result == CUDA_SUCCESS) {
        *ret_image = malloc(bytes + 1);
        if (*ret_image != NULL) {
            memcpy(*ret_image, image, bytes); /* the linker's memory goes with its state */
            *ret_bytes = bytes;
        }
    } else {
        snprintf(why, WHY_BYTES, "%d %.*s", (int)result, (int)strcspn(log, "\n"), log);
    }
    (void)d->cuLinkDestroy(state);
    if (result != CUDA_SUCCESS) {
        return WEIR_ERR_DRIVER;
    }
    return *ret_image != NULL ? WEIR_OK : WEIR_ERR_NO_MEMORY;
}

enum weir_status weir_forms_compile(const struct weir_forms_compile_params *params,
                                    uint8_t **ret_image, size_t *ret_bytes, char *why)
{
    why[0] = 0;
    if (params->compiler->ptxas.socket_fd >= 0) {
        enum weir_status status = by_ptxas(params, ret_image, ret_bytes, why);

        if (status == WEIR_OK || status == WEIR_ERR_NO_MEMORY) {
            return status;
        }
        if (why[0] != 0) {
            weir_log_debug("forms: ptxas refused, the driver compiles why=\"%s\"", why);
        }
    }
    return by_driver(params, ret_image, ret_bytes, why);
}
