/*
 * The inside of a session: the memory that it may name, and why. Everybody else uses
 * memory/memory.h and memory/vmm.h.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_MEMORY_HOLDINGS_H
#define WEIR_HOST_BACKEND_WORKER_MEMORY_HOLDINGS_H

#include "base/account.h"
#include "host_backend/worker/memory/ranges.h"
#include "host_backend/worker/memory/vmm_book.h"
#include "host_backend/worker/state/session.h"

struct weir_host_chunk;

/* A reference to a chunk. */
struct weir_grant {
    struct weir_grant *next;
    struct weir_host_chunk *chunk;
    uint64_t reference;   /* mem_return's or ipc_close's name for it */
    bool opened;          /* by ipc_open */
    uint64_t base, bytes; /* what of the chunk this session may touch */
};

/* Memory of the guest's own that the GPU may use. */
struct weir_registration {
    uint64_t device; /* where it is mapped here, and what the GPU uses; 0: nowhere yet */
    uint64_t bytes;
    struct weir_amounts charged;
    uint64_t room;  /* taken of the window */
    bool in_region; /* the pages are a part of the virtual machine's region, from here: */
    uint64_t region_offset;
    bool in_window; /* device lies in the window's host half */
    bool pinned;    /* the driver has it: the GPU reaches it */
    bool guarded;   /* the guest can take its pages away (state/bus_guard.h) */
    bool read_only; /* for the GPU */
};

/* Owner thread only. */
struct weir_holdings {
    struct weir_range_set ranges; /* that it may name */
    struct weir_vmm_book vmm;     /* also the owner of its mappings' ranges */
    struct weir_grant *grants;
    uint32_t n_grants;
    uint64_t next_reference;
    struct weir_range_set registered; /* at device addresses; owners are struct weir_registration */
    uint32_t n_read_only;             /* of them */
};

/** Give up a grant or a registration; the guest's or the session's end. @thread owner */
void weir_grant_drop(struct weir_session *session, struct weir_grant *grant);
void weir_registration_drop(struct weir_session *session, struct weir_registration *registration);

#endif
