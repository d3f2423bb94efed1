/*
 * Waiting that ends: every wait has a deadline, after which the process is of no more use (a kernel
 * may hold the GPU for ever) and says so by weir_forms_is_stuck().
 */
#pragma once

#include "tests/bench/forms/cuda.h"

#include <stdint.h>

/* Words of host memory that the device can read and write, a cache line each. */
enum weir_forms_word {
    WEIR_FORMS_WORD_GATE,  /* streams wait for it to reach a number */
    WEIR_FORMS_WORD_DONE,  /* written behind the kernel under measurement */
    WEIR_FORMS_WORD_OTHER, /* written behind the other kernel */
    WEIR_FORMS_WORD_TOLD,  /* what the kernel watch sees */
    WEIR_FORMS_WORD_QUIT,  /* ends the kernel watch */
    WEIR_FORMS_WORD_COUNT
};

/** Make the words; limit_s is the deadline of each wait. */
bool weir_forms_wait_init(double limit_s);

/** Nanoseconds of the monotonic clock. */
uint64_t weir_forms_now_ns(void);

uint32_t weir_forms_word_get(enum weir_forms_word word);
void weir_forms_word_set(enum weir_forms_word word, uint32_t value);
CUdeviceptr weir_forms_word_device(enum weir_forms_word word);

/** Let a stream write a word when it comes there. */
bool weir_forms_word_write(CUstream stream, enum weir_forms_word word, uint32_t value);

/** Spin until (word & mask) is value; errors of the stream end it, too. */
bool weir_forms_wait_word(enum weir_forms_word word, uint32_t mask, uint32_t value,
                          CUstream stream);

/** The longest time of the last weir_forms_wait_word() in which this thread did not look: it was
 * not running then, or asked for the stream's state. */
uint64_t weir_forms_wait_gap_ns(void);

/** Spin until all work of a stream is done. */
bool weir_forms_wait_stream(CUstream stream);

/** Spin until an event has happened. */
bool weir_forms_wait_event(CUevent event);

/** Spin for a while. */
void weir_forms_pause_ns(uint64_t ns);

/** Whether a wait ran out. */
bool weir_forms_is_stuck(void);
