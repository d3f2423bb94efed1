/*
 * NVIDIA's ptxas as a compiler for the PTX texts of guests. It runs in a process of its own, with
 * limits, and confined as the worker is (docs/design/confinement.md).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_COMPILE_LOG_BYTES 4096u

/* The process that executes ptxas, as its worker knows it. */
struct weir_compiler_process {
    int socket_fd; /* -1: there is no process */
    pid_t pid;
};

/* Immutable while the compiler is open. */
struct weir_compiler {
    struct weir_compiler_process process;
    char id[320]; /* distinguishes results of different compilers in caches */
};

#define WEIR_COMPILER_NONE                                                                         \
    {                                                                                              \
        .process.socket_fd = -1, .id = "driver"                                                    \
    }

struct weir_compile_limits {
    uint64_t memory_bytes; /* resident memory */
    uint32_t cpu_s, all_s; /* limits of processor time and of elapsed time; 0: no limit */
    uint32_t nice;
};

/* The options of a program that ptxas understands. */
struct weir_compile_options {
    uint32_t max_registers; /* 0: ptxas' choice */
    int level;              /* 0 .. 4; -1: ptxas' choice */
    bool relocatable;       /* the result will be linked with others */
    bool verbose;           /* the log gets the resources that kernels use */
};

/* All members are borrowed for the call. */
struct weir_compile_job {
    const char *tmp_dir; /* folder for ptxas' files; "": /tmp */
    const char *text;    /* the PTX text; ends in a NUL */
    size_t text_bytes;
    uint32_t sm;    /* compute capability of the GPU, times ten */
    char sm_suffix; /* suffix of the text's target, or 0 */
    struct weir_compile_options options;
    struct weir_compile_limits limits;
    bool (*give_up)(void *user); /* asked every 20 ms during the compilation; NULL: never */
    void *user;
};

enum weir_compile_end {
    WEIR_COMPILE_DONE,
    WEIR_COMPILE_REFUSED, /* ptxas does not take the text; the log says why */
    WEIR_COMPILE_MEMORY,  /* stopped because it used too much memory */
    WEIR_COMPILE_TIME,    /* .. of time .. */
    WEIR_COMPILE_SIZE,    /* stopped because it wrote too much */
    WEIR_COMPILE_CRASHED, /* ptxas was ended by a signal that Weir did not send */
    WEIR_COMPILE_GIVEN_UP,
    WEIR_COMPILE_NOT_DONE, /* no process, no space for files, or no memory in the worker */
};

struct weir_compile_result {
    uint8_t *image; /* made by malloc, for the caller; after DONE a NUL follows it */
    size_t bytes;
    char log[WEIR_COMPILE_LOG_BYTES]; /* output of ptxas */
};

/**
 * Choose the compiler, and start the process that executes it.
 *
 * @param wanted  path of ptxas; "auto": looked for on PATH and in /usr/local/cuda; "driver": none.
 * @thread the only one of its process, unless wanted is "driver"
 */
void weir_compiler_open(const char *wanted, struct weir_compiler *ret_compiler);

/** Close the compiler: from now on the driver compiles. @thread owner, while nobody compiles */
void weir_compiler_close(struct weir_compiler *compiler);

/** Is there a compiler's process? @thread any */
static inline bool weir_compiler_is_there(const struct weir_compiler *compiler)
{
    return compiler->process.socket_fd >= 0;
}

/**
 * Compile.
 * @param ret_result  always written.
 * @thread one that may wait for as long as the limits allow
 */
enum weir_compile_end weir_compiler_run(const struct weir_compiler *compiler,
                                        const struct weir_compile_job *job,
                                        struct weir_compile_result *ret_result);

/**
 * Was the compilation stopped by a limit, a crash or its program's end? The driver contains the
 * same compiler and would fail in the same way, so it does not get such a text.
 */
static inline bool weir_compile_is_stopped(enum weir_compile_end end)
{
    return end != WEIR_COMPILE_DONE && end != WEIR_COMPILE_REFUSED && end != WEIR_COMPILE_NOT_DONE;
}

/** A message for the program: why its text was not compiled ("it needed more memory than .."). */
const char *weir_compile_end_text(enum weir_compile_end end);
