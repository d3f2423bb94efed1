/*
 * The process that executes ptxas for a worker, which may execute nothing itself.
 *
 * It is forked before the worker gives up its system calls (host_backend/confine/) and ends with
 * it. It knows one program, and executes it for each job in a process of its own.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_TWINS_PTXAS_H
#define WEIR_HOST_BACKEND_WORKER_TWINS_PTXAS_H

#include <stdbool.h>
#include <sys/types.h>

/* What is compiled, and how. Texts end in a NUL; "": the option is not given. */
struct weir_ptxas_job {
    char folder[280]; /* absolute; has in.ptx, and gets out.cubin and log */
    char arch[24];    /* "-arch=sm_90" */
    char level[8];    /* "-O2" */
    char registers[16];
};

/* The process, as its worker knows it. */
struct weir_ptxas {
    int socket_fd; /* -1: there is no process */
    pid_t pid;
};

/**
 * Fork the process.
 *
 * @param program     the path of ptxas, borrowed.
 * @param ret_ptxas   always written.
 * @thread the only one of its process
 */
void weir_ptxas_start(const char *program, struct weir_ptxas *ret_ptxas);
/** End it; what it compiles is given up. @thread owner, while nobody is in weir_ptxas_run() */
void weir_ptxas_stop(struct weir_ptxas *ptxas);

/**
 * Compile, for as long as that takes; at most two minutes.
 *
 * @param ret_good  did ptxas say that it has written out.cubin? Written if it ran.
 * @return whether it ran
 * @thread any
 */
bool weir_ptxas_run(const struct weir_ptxas *ptxas, const struct weir_ptxas_job *job,
                    bool *ret_good);

#endif
