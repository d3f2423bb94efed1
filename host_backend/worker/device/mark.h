/*
 * Marks show the host how far a stream has got, without a driver call.
 *
 * A marked stream has a word in pinned memory, to which the GPU writes ascending numbers, each
 * after the work before it in the stream. The host checks it with one load. If the GPU cannot write
 * words, a mark is an event, and the host checks it with a driver call.
 *
 * Each device has a struct weir_marks. Words are handed out under a lock; only the thread of a
 * word's stream chooses its numbers. Checking needs no lock.
 *
 * Source: docs/design/scheduling.md
 */
#pragma once

#include "base/status.h"
#include "host_backend/gate/gate.h"
#include "proto/cuda_abi.h"
#include "proto/driver_table.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct weir_marks;

/* The word of a stream into which the device writes its marks; zeroed: the stream has none yet. */
struct weir_mark_word {
    uint32_t *word;
    CUdeviceptr dptr;
    uint32_t next;
    void *page; /* the page that holds the word */
    /* Counts of kernels and graphs, for weir_mark_kernels_pending(). The stream's thread writes
     * them. */
    atomic_uint given; /* number of kernels and graphs that the stream got */
    atomic_uint value; /* the first mark behind the last kernel or graph that has a mark */
    atomic_uint ahead; /* number of kernels and graphs before the mark in value */
    /* Kernels that cannot be stopped, for weir_mark_originals_pending(). Only the stream's thread
     * uses them. */
    uint32_t original;       /* number (as in given) of the last such kernel; 0: none */
    uint32_t original_value; /* the first mark behind that kernel */
};

/**
 * @param words  the GPU can write words (cuStreamWriteValue32 works).
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_DRIVER
 * @thread any with the device's context
 */
enum weir_status weir_marks_create(const struct weir_driver *driver, bool words,
                                   struct weir_marks **ret_marks) WEIR_MUST_CHECK;

/** Have a page of words ready before the first mark. @thread any with the context */
void weir_marks_prepare(struct weir_marks *marks);

/** No mark may be pending. Accepts NULL. @thread any with the context */
void weir_marks_destroy(struct weir_marks *marks);

/**
 * Put a mark behind all work of a stream.
 *
 * @param word      the stream's; gets one at its first mark.
 * @param ret_mark  for weir_gate_batch_close().
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_OUT_OF_MEMORY, or an error of the driver: there is no mark.
 * @thread the stream's, with the context; not while it is under capture
 */
CUresult weir_mark_stream(struct weir_marks *marks, struct weir_mark_word *word, CUstream stream,
                          struct weir_gate_mark *ret_mark);

/**
 * Has the stream reached a mark that is an event? After an error of the device: yes.
 * @thread any with the context
 */
bool weir_mark_event_reached(const struct weir_marks *marks, CUevent event);

/** Give back the event of a mark that is not needed any more. @thread any */
void weir_mark_event_put(struct weir_marks *marks, CUevent event);

/**
 * Count a kernel or graph that goes to the stream (1), or that did not go there after all (-1).
 * @thread the stream's
 */
void weir_mark_kernel_given(struct weir_mark_word *word, int n);

/** The kernel that was counted last cannot be stopped: it is no run. @thread the stream's */
void weir_mark_original_given(struct weir_mark_word *word);

/** Like weir_mark_kernels_pending(), for kernels that cannot be stopped. @thread the stream's */
bool weir_mark_originals_pending(const struct weir_mark_word *word);

/** May the stream have kernels that have not ended? Kernels without a mark, or whose mark is an
 * event, count as not ended. @thread any, while the word lives */
bool weir_mark_kernels_pending(const struct weir_mark_word *word);

/** The stream is destroyed; its work may still run. Accepts a zeroed word. @thread the stream's */
void weir_mark_word_put(struct weir_marks *marks, struct weir_mark_word *word);
