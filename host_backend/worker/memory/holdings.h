/*
 * The inside of a session: the memory that it may name, and why. Only the files of memory/memory.h
 * and memory/vmm.h use it.
 */
#pragma once

#include "base/account.h"
#include "host_backend/worker/memory/ranges.h"
#include "host_backend/worker/memory/vmm_book.h"
#include "host_backend/worker/state/session.h"

struct weir_away;
struct weir_host_chunk;

/* A reference to a chunk. */
struct weir_grant {
    struct weir_grant *next;
    struct weir_host_chunk *chunk;
    uint64_t reference;   /* the name that mem_return or ipc_close uses */
    bool opened;          /* ipc_open made the grant */
    uint64_t base, bytes; /* the part of the chunk that this session may touch */
};

/* The guest's own memory that the GPU may use. */
struct weir_registration {
    uint64_t device; /* address of the mapping in this process and on the GPU; 0: not mapped yet */
    uint64_t bytes;
    struct weir_amounts charged;
    uint64_t room;  /* bytes taken from the window */
    bool in_region; /* its pages lie in the virtual machine's region */
    uint64_t region_offset;
    bool in_window; /* device lies in the host half of the window */
    bool pinned;    /* registered with the driver, so the GPU reaches the pages */
    bool guarded;   /* the guest can take its pages away (state/bus_guard.h) */
    bool read_only; /* the GPU may only read it */
    int file; /* owned: its pages are there from offset on; -1: another worker cannot get it */
    uint64_t offset;
};

/* Owner thread only. */
struct weir_holdings {
    struct weir_range_set ranges; /* ranges that the session may name */
    struct weir_vmm_book vmm;     /* reservations and mappings; also the owner of their ranges */
    struct weir_grant *grants;
    uint32_t n_grants;
    uint64_t next_reference;
    struct weir_range_set registered; /* by device address; owners: struct weir_registration */
    struct weir_away *away;           /* what is suspended (memory/away.c); NULL: nothing */
    uint32_t n_read_only;             /* how many of the registrations are read-only */
};

/** Drop a grant or a registration, at the guest's request or the session's end. @thread owner */
void weir_grant_drop(struct weir_session *session, struct weir_grant *grant);
void weir_registration_drop(struct weir_session *session, struct weir_registration *registration);
