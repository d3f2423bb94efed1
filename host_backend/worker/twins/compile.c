/*
 * ptxas gets a folder of its own with its input, and limits on processor time, wall time, memory
 * and the size of what it writes: the text is a guest's. Its process is started by posix_spawn,
 * which copies no page tables, and has none of the worker's descriptors.
 */
#include "host_backend/worker/twins/compile.h"
#include "host_backend/config/program_path.h"

#include "base/clock.h"
#include "base/log.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILD_LIMIT_NS   (120 * WEIR_NS_PER_S)
#define CHILD_MEMORY     (UINT64_C(8) << 30)
#define CHILD_FILE_BYTES (UINT64_C(512) << 20)
#define CHILD_NICE       10
#define ARGS_MAX         10
#define WHY_BYTES        200
#define LOG_BYTES        4096

/* ---------------------------------------------------------------- which */

void weir_forms_compiler_find(const char *wanted, bool real,
                              struct weir_forms_compiler *ret_compiler)
{
    struct weir_forms_compiler *c = ret_compiler;
    struct stat info;
    bool found = false;

    *c = (struct weir_forms_compiler){.id = "driver"};
    if (!real || strcmp(wanted, "driver") == 0) {
        return;
    }
    if (strcmp(wanted, "auto") == 0) {
        found = weir_program_find("ptxas", c->ptxas, sizeof c->ptxas);
        if (!found) {
            snprintf(c->ptxas, sizeof c->ptxas, "/usr/local/cuda/bin/ptxas");
            found = weir_is_program(c->ptxas);
        }
    } else {
        snprintf(c->ptxas, sizeof c->ptxas, "%s", wanted);
        found = weir_is_program(wanted);
        if (!found) {
            weir_log_warn("forms: no such compiler, the driver compiles path=%s", wanted);
        }
    }
    if (!found || stat(c->ptxas, &info) != 0) {
        c->ptxas[0] = 0;
        return;
    }
    snprintf(c->id, sizeof c->id, "%s %lld %lld", c->ptxas, (long long)info.st_size,
             (long long)info.st_mtime);
}

/* ---------------------------------------------------------------- the child */

struct child {
    char dir[280];
    char in[300], out[300], log[300];
    char arch[24], level[8], regs[16];
    const char *args[ARGS_MAX + 1];
};

/* Only options that mean the same to ptxas; false: there is another. */
static bool add_options(struct child *c, uint32_t *n, const struct weir_forms_options *options)
{
    for (uint32_t i = 0; i < options->n; i++) {
        unsigned value = (unsigned)(uintptr_t)options->values[i];

        switch ((int)options->ids[i]) {
        case CU_JIT_MAX_REGISTERS:
            snprintf(c->regs, sizeof c->regs, "%u", value);
            c->args[(*n)++] = "-maxrregcount";
            c->args[(*n)++] = c->regs;
            break;
        case CU_JIT_OPTIMIZATION_LEVEL:
            snprintf(c->level, sizeof c->level, "-O%u", value > 4 ? 4 : value);
            c->args[(*n)++] = c->level;
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
        if (*n > ARGS_MAX - 5) {
            return false; /* given several times */
        }
    }
    return true;
}

static bool prepare(struct child *c, const struct weir_forms_compile_params *p)
{
    uint32_t n = 0;

    snprintf(c->arch, sizeof c->arch, "-arch=sm_%u", p->sm);
    if (p->sm_suffix != 0) {
        snprintf(c->arch, sizeof c->arch, "-arch=sm_%u%c", p->sm, p->sm_suffix);
    }
    c->args[n++] = p->compiler->ptxas;
    c->args[n++] = c->arch;
    if (!add_options(c, &n, &p->options)) {
        return false;
    }
    c->args[n++] = c->in;
    c->args[n++] = "-o";
    c->args[n++] = c->out;
    c->args[n] = NULL;
    snprintf(c->dir, sizeof c->dir, "%s/ptxas.XXXXXX", p->tmp_dir[0] != 0 ? p->tmp_dir : "/tmp");
    if (mkdtemp(c->dir) == NULL) {
        c->dir[0] = 0;
        return false;
    }
    snprintf(c->in, sizeof c->in, "%s/in.ptx", c->dir);
    snprintf(c->out, sizeof c->out, "%s/out.cubin", c->dir);
    snprintf(c->log, sizeof c->log, "%s/log", c->dir);
    return true;
}

static void clean(struct child *c)
{
    if (c->dir[0] != 0) {
        (void)unlink(c->in);
        (void)unlink(c->out);
        (void)unlink(c->log);
        (void)rmdir(c->dir);
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

static bool spawn(struct child *c, pid_t *ret_pid)
{
    static char *const environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    int result;

    if (posix_spawn_file_actions_init(&actions) != 0) {
        return false;
    }
    if (posix_spawnattr_init(&attr) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return false;
    }
    sigemptyset(&none);
    result = posix_spawnattr_setsigmask(&attr, &none) |
             posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP) |
             posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) |
             posix_spawn_file_actions_addopen(&actions, 1, c->log, O_WRONLY | O_CREAT, 0600) |
             posix_spawn_file_actions_adddup2(&actions, 1, 2) |
             posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (result == 0) {
        result = posix_spawn(ret_pid, c->args[0], &actions, &attr,
                             (char *const *)(uintptr_t)c->args, environment);
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return result == 0;
}

static void limit(pid_t pid)
{
    struct rlimit cpu = {CHILD_LIMIT_NS / WEIR_NS_PER_S, CHILD_LIMIT_NS / WEIR_NS_PER_S};
    struct rlimit memory = {CHILD_MEMORY, CHILD_MEMORY},
                  file = {CHILD_FILE_BYTES, CHILD_FILE_BYTES};

    (void)prlimit(pid, RLIMIT_CPU, &cpu, NULL);
    (void)prlimit(pid, RLIMIT_AS, &memory, NULL);
    (void)prlimit(pid, RLIMIT_FSIZE, &file, NULL);
    (void)setpriority(PRIO_PROCESS, (id_t)pid, CHILD_NICE);
}

/* Did it end well? Killed when its time is over, with what it started. */
static bool wait_for(pid_t pid)
{
    uint64_t end_ns = weir_clock_now_ns() + CHILD_LIMIT_NS;
    struct timespec pause = {0, 2 * 1000 * 1000};
    int status = 0;

    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        if (got < 0) {
            return false;
        }
        if (weir_clock_now_ns() >= end_ns) {
            (void)kill(-pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            return false;
        }
        nanosleep(&pause, NULL);
    }
}

static void say_why(struct child *c, char *why)
{
    uint8_t *log;
    size_t n;

    snprintf(why, WHY_BYTES, "ptxas failed");
    if (read_file(c->log, LOG_BYTES, &log, &n)) {
        snprintf(why, WHY_BYTES, "%.*s", (int)strcspn((char *)log, "\n"), (char *)log);
        free(log);
    }
}

/* WEIR_ERR_UNSUPPORTED: not for ptxas. */
static enum weir_status by_ptxas(const struct weir_forms_compile_params *p, uint8_t **ret_image,
                                 size_t *ret_bytes, char *why)
{
    struct child *c = calloc(1, sizeof *c);
    enum weir_status status = WEIR_ERR_UNSUPPORTED;
    pid_t pid;

    if (c == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    if (prepare(c, p) && write_file(c->in, p->text, p->text_bytes) && spawn(c, &pid)) {
        limit(pid);
        status = wait_for(pid) && read_file(c->out, CHILD_FILE_BYTES, ret_image, ret_bytes)
                     ? WEIR_OK
                     : WEIR_ERR_DRIVER;
        if (status != WEIR_OK) {
            say_why(c, why);
        }
    }
    clean(c);
    free(c);
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
    if (params->compiler->ptxas[0] != 0) {
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
