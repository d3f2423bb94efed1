/*
 * The process that executes ptxas for a worker, which may execute nothing itself.
 *
 * It is forked before the worker gives up its system calls (host_backend/confine/) and ends with
 * it. It executes only this one program, in a new process for each job.
 */
#pragma once

#include "host_backend/compiler/compiler.h"

/* What to compile, and how. Texts end in a NUL; "": the option is not given. */
struct weir_compiler_job {
    char folder[280]; /* absolute path; contains in.ptx, and gets out.cubin and log */
    char arch[24];    /* "-arch=sm_90" */
    char level[8];    /* "-O2" */
    char registers[16];
    uint8_t relocatable, verbose; /* 0 or 1 */
    struct weir_compile_limits limits;
};

/**
 * Fork the process.
 *
 * @param program      the path of ptxas, borrowed.
 * @param ret_process  always written.
 * @thread the only one of its process
 */
void weir_compiler_process_start(const char *program, struct weir_compiler_process *ret_process);
/** End the process and its running jobs. @thread owner, while nobody is in .._run() */
void weir_compiler_process_stop(struct weir_compiler_process *process);

/**
 * Do a job, and wait for its end. ptxas is killed if the caller gives up.
 *
 * @param give_up  asked every 20 ms; NULL: the caller never gives up.
 * @return how it ended; WEIR_COMPILE_NOT_DONE if the process does not answer
 * @thread any
 */
enum weir_compile_end weir_compiler_process_run(const struct weir_compiler_process *process,
                                                const struct weir_compiler_job *job,
                                                bool (*give_up)(void *user), void *user);
