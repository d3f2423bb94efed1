/* Private to host_backend/worker/rebuild. */
#ifndef WEIR_HOST_BACKEND_WORKER_REBUILD_PRIVATE_H
#define WEIR_HOST_BACKEND_WORKER_REBUILD_PRIVATE_H

#include "host_backend/worker/rebuild/box.h"
#include "host_backend/worker/rebuild/rebuild.h"
#include "host_backend/worker/state/session.h"

/* How many entries the parts of the box have that are memory. */
struct weir_box_counts {
    uint32_t chunks, allocs, spaces, maps, handles;
    uint64_t next_reference; /* the last one that was given for a grant */
};

/*
 * A box's bytes begin with this. Images, memory, records and times of events follow, each of them
 * as leave.c and memory.c write it.
 */
struct weir_box_head {
    uint32_t version;        /* WEIR_LINK_VERSION of the worker that the session has left */
    uint32_t sent, received; /* of its channel */
    uint32_t devices_used, n_images, n_records, n_times;
    uint64_t segment_bytes, window_base;
    struct weir_box_counts memory;
    struct weir_session_carried about;
};

/** Why no other worker can have the session's memory. @return static; NULL: one can */
const char *weir_rebuild_memory_why(struct weir_session *session);
/** Put the session's memory into a box. @thread owner */
void weir_rebuild_memory_put(struct weir_session *session, struct weir_box *box,
                             struct weir_box_counts *ret_counts);
/** Make the memory of a box the session's. @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (the box
 * is damaged), the driver's, CUDA_ERROR_ALREADY_MAPPED @thread owner */
CUresult weir_rebuild_memory_get(struct weir_session *session, struct weir_box *box,
                                 const struct weir_box_counts *counts);

/** Why the session stays in its worker, or has to. @return static; NULL: it can be moved */
const char *weir_rebuild_why(struct weir_session *session);
/** Has the session nothing under way, neither on the GPU nor here? */
bool weir_rebuild_is_quiet(struct weir_session *session);

#endif
