/*
 * The inside of a session: tables of its objects, by the guest's handles and by the driver's. Only
 * the files behind session/objects.h use it.
 */
#pragma once

#include "base/id_table.h"
#include "host_backend/worker/state/native_map.h"

#define WEIR_KIND_SLOTS 32 /* handle kinds are 1 .. 31 (proto/wire/kinds.def) */

struct weir_host_ctx;
struct weir_object;

/* Owner thread only. */
struct weir_handles {
    struct weir_id_table *tables[WEIR_KIND_SLOTS];
    struct weir_native_map natives;
    struct weir_host_ctx *contexts;
    struct weir_object *kept; /* the guest destroyed it, but graphs name it (session/objects.c) */
    uint32_t n_kept;
    uint64_t graphs_gone; /* number of graphs and captures that have been destroyed */
};
