/*
 * Kinds of programs' workers, and how many workers of a kind exist and are needed.
 *
 * All functions: @thread main
 */
#pragma once

#include "base/clock.h"
#include "host_backend/config/config.h"
#include "host_backend/supervisor/workers/programs.h"

struct weir_program_kind {
    const char *devices;   /* borrowed for a turn of the loop */
    uint32_t connections;  /* CUDA_DEVICE_MAX_CONNECTIONS; 0: as the driver chooses */
    uint32_t sm_share_pct; /* percent of the SMs that its contexts have; 0: all */
    bool native;           /* the worker never runs under MPS */
    bool is_alone;         /* native only since its program is alone on the GPU */
};

/** The kind that a pending program wants. */
struct weir_program_kind weir_program_kind_wanted(const struct weir_supervisor *sup,
                                                  const struct weir_sup_pending *pending);
/* A program without work for so long leaves others alone. */
#define WEIR_ALONE_NS (5 * WEIR_NS_PER_S)

/** Has the worker a program? */
bool weir_program_is_served(const struct weir_sup_worker *worker);
/** Does its program work, or did it within this time? */
bool weir_program_works(const struct weir_sup_worker *worker, uint64_t within_ns);
/** Is the program, or the one that is to come, the only one that works on its GPUs?
 * @param worker  of the program, or -1 @param within_ns  as of weir_program_works() */
bool weir_program_is_only(const struct weir_supervisor *sup, const char *devices, int worker,
                          uint64_t within_ns);
/** The kind that the program of a worker wants now. */
struct weir_program_kind weir_program_kind_now(const struct weir_supervisor *sup, int worker);
/** Find a free worker of the kind that was the tenant's before, or else a spare; -1: none. */
int weir_sup_program_free_worker(const struct weir_supervisor *sup,
                                 const struct weir_sup_pending *pending,
                                 const struct weir_program_kind *wanted);
/** Start a worker of the kind, unless as many start as programs wait for one. */
void weir_sup_program_start(struct weir_supervisor *sup, const struct weir_program_kind *kind,
                            uint64_t now_ns);
/** The kind of a worker of programs. */
struct weir_program_kind weir_program_kind_of(const struct weir_sup_worker *worker);
bool weir_program_kind_is_same_but_share(const struct weir_program_kind *a,
                                         const struct weir_program_kind *b);
bool weir_program_kind_is_same(const struct weir_program_kind *a,
                               const struct weir_program_kind *b);

/** Is this a worker of programs that runs or starts, and was not told to end? */
bool weir_program_worker_is_there(const struct weir_sup_worker *worker);
/** The number of workers of this kind that start or are ready, and have no tenant. */
uint32_t weir_program_n_unassigned(const struct weir_supervisor *sup,
                                   const struct weir_program_kind *kind);
/** The number of programs that wait for one of this kind. */
uint32_t weir_program_n_waiting(const struct weir_supervisor *sup,
                                const struct weir_program_kind *kind);

/** Does a program wait for one of the worker's kind? */
bool weir_program_is_waited_for(const struct weir_supervisor *sup,
                                const struct weir_sup_worker *worker);

/* The kinds of spares that tenants need. There are few: most tenants have the same list of devices,
 * and nothing else differs. */
struct weir_spare_kinds {
    uint32_t n;
    struct weir_program_kind of[WEIR_CONFIG_TENANTS_MAX + 1]; /* one for nobody */
};

void weir_spare_kinds_find(const struct weir_supervisor *sup, struct weir_spare_kinds *kinds);
