/* Private to host_backend/worker/rebuild. */
#pragma once

#include "host_backend/worker/rebuild/box.h"
#include "host_backend/worker/rebuild/rebuild.h"
#include "host_backend/worker/state/session.h"

/* How many entries the parts of the box have that are memory. */
struct weir_box_counts {
    uint32_t chunks, registered, allocs, spaces, maps, handles;
    uint64_t next_reference; /* the last one that was given for a grant */
};

/*
 * A box's bytes begin with this. Images, memory, records, variables, arrays and times of events
 * follow, each of them as leave.c and the files of their names write it.
 */
struct weir_box_head {
    uint32_t version;        /* WEIR_LINK_VERSION of the worker that the session has left */
    uint32_t sent, received; /* of its channel */
    uint32_t devices_used, n_images, n_records, n_variables, n_arrays, n_times;
    uint32_t waits; /* 1: the session can go on in its worker if it cannot be made again */
    uint32_t unused;
    uint64_t segment_bytes, window_base;
    uint64_t captures; /* the largest id of a capture that the program was told */
    struct weir_box_counts memory;
    struct weir_session_carried about;
};

/** Another worker has been charged with the session's memory: release it here without that.
 * @thread owner */
void weir_rebuild_memory_is_lent(struct weir_session *session);
/** Why no other worker can have the session's memory. @return static; NULL: one can */
const char *weir_rebuild_memory_why(struct weir_session *session);
/** Put the session's memory into a box. @param ret_charged  what all of it is charged with @thread
 * owner */
void weir_rebuild_memory_put(struct weir_session *session, struct weir_box *box,
                             struct weir_box_counts *ret_counts, struct weir_amounts *ret_charged);
/** Make the memory of a box the session's. @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (the box
 * is damaged), the driver's, CUDA_ERROR_ALREADY_MAPPED @thread owner */
CUresult weir_rebuild_memory_get(struct weir_session *session, struct weir_box *box,
                                 const struct weir_box_counts *counts);

/** Copy the contents of the session's variables, if kernels may have changed them since it was last
 * done. @return why that cannot be; static; NULL: it was done */
const char *weir_rebuild_variables_save(struct weir_session *session);
/** Why no other worker can have the session's variables as they were last saved. @return static;
 * NULL: one can */
const char *weir_rebuild_variables_why(struct weir_session *session);
/** Must variables get the same addresses there, since their addresses may be in memory? */
bool weir_rebuild_variables_fixed(struct weir_session *session);
/** Put the saved contents into a box. @param ret_n  how many modules have some @thread owner */
void weir_rebuild_variables_put(struct weir_session *session, struct weir_box *box,
                                uint32_t *ret_n);
/** Write the next contents of a box to the variables of its module. @return CUDA_SUCCESS,
 * CUDA_ERROR_INVALID_VALUE (the box is damaged), CUDA_ERROR_OUT_OF_MEMORY, the driver's
 * @thread owner */
CUresult weir_rebuild_variables_get(struct weir_session *session, struct weir_box *box);

/** Copy what is in the session's arrays, as far as it may have changed since it was last done.
 * @param begin_ns  when saving began. @return why that cannot be; static; NULL: it was done */
const char *weir_rebuild_arrays_save(struct weir_session *session, uint64_t begin_ns);
/** Why no other worker can have the arrays as last saved. @return static; NULL: one can */
const char *weir_rebuild_arrays_why(struct weir_session *session);
/** Has the session texture or surface objects, which must get the same numbers there? */
bool weir_rebuild_textures_any(struct weir_session *session);
/** Put the saved contents into a box. @param ret_n  how many arrays have some
 * @param charged  what they are charged with is added @thread owner */
void weir_rebuild_arrays_put(struct weir_session *session, struct weir_box *box, uint32_t *ret_n,
                             struct weir_amounts *charged);
/** As weir_rebuild_memory_is_lent(). @thread owner */
void weir_rebuild_arrays_are_lent(struct weir_session *session);
/** Copy the next contents of a box to their array. @param number  place among them in the box
 * @return as weir_rebuild_variables_get() @thread owner */
CUresult weir_rebuild_arrays_get(struct weir_session *session, struct weir_box *box,
                                 uint32_t number);

/** Ask the driver, while that is possible, for all that another worker would need. The session is
 * quiet. @return why it stays; static; NULL: it can be moved until its next record */
const char *weir_rebuild_prepare(struct weir_session *session);
/** Why the session stays in its worker, or has to. @return static; NULL: it can be moved */
const char *weir_rebuild_why(struct weir_session *session);
/** Has the session nothing under way, neither on the GPU nor here? */
bool weir_rebuild_is_quiet(struct weir_session *session);
