/*
 * Runs ptxas: each job has a folder of its own for its input and a process of its own (process.h).
 */
#include "host_backend/compiler/compiler.h"

#include "base/log.h"
#include "host_backend/compiler/process.h"
#include "host_backend/config/program_path.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (UINT64_C(512) << 20) /* the most bytes that ptxas may write */

/* ---------------------------------------------------------------- which */

/* Find ptxas. @return false: there is none. */
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
        weir_log_warn("compiler: no such program, the driver compiles path=%s", wanted);
        return false;
    }
    return true;
}

static const struct weir_compiler none = WEIR_COMPILER_NONE;

void weir_compiler_open(const char *wanted, struct weir_compiler *ret_compiler)
{
    struct weir_compiler *c = ret_compiler;
    char path[256];
    struct stat info;

    *c = none;
    if (strcmp(wanted, "driver") == 0 || !find_ptxas(wanted, path, sizeof path) ||
        stat(path, &info) != 0) {
        return;
    }
    weir_compiler_process_start(path, &c->process);
    if (weir_compiler_is_there(c)) {
        snprintf(c->id, sizeof c->id, "%s %lld %lld", path, (long long)info.st_size,
                 (long long)info.st_mtime);
    }
}

void weir_compiler_close(struct weir_compiler *compiler)
{
    weir_compiler_process_stop(&compiler->process);
    *compiler = none;
}

/* ---------------------------------------------------------------- a job */

struct files {
    struct weir_compiler_job job;
    char in[300], out[300], log[300];
};

static bool prepare(struct files *f, const struct weir_compile_job *p)
{
    struct weir_compiler_job *job = &f->job;
    const struct weir_compile_options *o = &p->options;

    snprintf(job->arch, sizeof job->arch, "-arch=sm_%u", p->sm);
    if (p->sm_suffix != 0) {
        snprintf(job->arch, sizeof job->arch, "-arch=sm_%u%c", p->sm, p->sm_suffix);
    }
    if (o->max_registers != 0) {
        snprintf(job->registers, sizeof job->registers, "%u", o->max_registers);
    }
    if (o->level >= 0) {
        snprintf(job->level, sizeof job->level, "-O%d", WEIR_MIN(o->level, 4));
    }
    job->relocatable = o->relocatable;
    job->verbose = o->verbose;
    job->limits = p->limits;
    snprintf(job->folder, sizeof job->folder, "%s/ptxas.XXXXXX",
             p->tmp_dir[0] != 0 ? p->tmp_dir : "/tmp");
    if (!mkdtemp(job->folder)) {
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

    WEIR_FAIL_IF(!file, false);
    bool good = fwrite(text, 1, bytes, file) == bytes;
    return fclose(file) == 0 && good;
}

static bool read_image(const char *path, struct weir_compile_result *result)
{
    FILE *file = fopen(path, "re");
    struct stat info;
    bool good = false;

    WEIR_FAIL_IF(!file, false);
    if (fstat(fileno(file), &info) == 0 && info.st_size > 0 &&
        (uint64_t)info.st_size <= FILE_BYTES) {
        uint8_t *bytes = malloc((size_t)info.st_size + 1);

        good = bytes && fread(bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size;
        if (good) {
            bytes[info.st_size] = 0;
            result->image = bytes;
            result->bytes = (size_t)info.st_size;
        } else {
            free(bytes);
        }
    }
    (void)fclose(file);
    return good;
}

/* Read ptxas' log. Its lines then read "ptxas input, line 4; ..", as the driver's do. */
static void read_log(const struct files *f, struct weir_compile_result *result)
{
    FILE *file = fopen(f->log, "re");
    size_t n, name = strlen(f->in);
    char *at;

    if (!file) {
        return;
    }
    n = fread(result->log, 1, sizeof result->log - 1, file);
    result->log[n] = 0;
    (void)fclose(file);
    while ((at = strstr(result->log, f->in))) {
        memmove(at + strlen("input"), at + name, strlen(at + name) + 1);
        memcpy(at, "input", strlen("input"));
    }
}

/* Did ptxas run out of memory? It then exits and reports an error of the PTX text. */
static bool ran_out(const char *log)
{
    return strstr(log, "Memory allocation failure") || strstr(log, "out of memory") ||
           strstr(log, "std::bad_alloc");
}

enum weir_compile_end weir_compiler_run(const struct weir_compiler *compiler,
                                        const struct weir_compile_job *job,
                                        struct weir_compile_result *ret_result)
{
    struct files *f = calloc(1, sizeof *f);
    enum weir_compile_end end = WEIR_COMPILE_NOT_DONE;

    *ret_result = (struct weir_compile_result){.image = NULL};
    if (!f) {
        return end;
    }
    if (weir_compiler_is_there(compiler) && prepare(f, job) &&
        write_file(f->in, job->text, job->text_bytes)) {
        end = weir_compiler_process_run(&compiler->process, &f->job, job->give_up, job->user);
        read_log(f, ret_result);
        if (end == WEIR_COMPILE_DONE && !read_image(f->out, ret_result)) {
            end = WEIR_COMPILE_REFUSED;
        } else if (end == WEIR_COMPILE_REFUSED && ran_out(ret_result->log)) {
            end = WEIR_COMPILE_MEMORY;
        }
    }
    clean(f);
    free(f);
    return end;
}

const char *weir_compile_end_text(enum weir_compile_end end)
{
    static const char *const texts[] = {
        [WEIR_COMPILE_DONE] = "it is compiled",
        [WEIR_COMPILE_REFUSED] = "ptxas refused the text",
        [WEIR_COMPILE_MEMORY] = "it needed more memory than compile_memory",
        [WEIR_COMPILE_TIME] = "it needed more time than compile_s",
        [WEIR_COMPILE_SIZE] = "its code is too large",
        [WEIR_COMPILE_CRASHED] = "the compiler crashed",
        [WEIR_COMPILE_GIVEN_UP] = "the program is gone",
        [WEIR_COMPILE_NOT_DONE] = "the compiler cannot run",
    };
    return texts[end];
}
