/*
 * A session's segment for handlers: the staging arena and the completion words. Owner thread only,
 * unless a function says otherwise.
 */
#pragma once

#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_session;

/* ---- the arena */

/** @return this process's address of [offset, offset + bytes) of the arena; NULL: not inside the
 * arena. */
uint8_t *weir_session_arena(const struct weir_session *session, uint64_t offset, uint64_t bytes);

/**
 * Get the GPU's address of a block of the arena; registers the part that it lies in.
 * @return CUDA_SUCCESS
 * @return CUDA_ERROR_INVALID_VALUE  empty, outside of the arena, or in more than one part.
 * @return an error of the driver: this part could not be registered; the next use tries again.
 */
CUresult weir_session_arena_dptr(struct weir_session *session, uint64_t offset, uint64_t bytes,
                                 CUdeviceptr *ret_dptr);

/**
 * Register the words with the driver; the arena's parts follow when they are used.
 * @return CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, or an error of the driver
 */
CUresult weir_session_register(struct weir_session *session);

/** Unregister both; the GPU has no work with the segment any more. */
void weir_session_unregister(struct weir_session *session);

/** Show the guest a value of the header's `managed`. @thread any */
void weir_session_show_managed(struct weir_session *session, uint32_t value);

/* ---- words: written by the GPU behind a stream's work, read by the guest */

/** May the guest name this completion word? Word 0 is "none". */
bool weir_session_word_ok(const struct weir_session *session, uint32_t word);

/** Make the GPU write a completion word in stream order; does nothing for word 0. */
CUresult weir_session_word_write(struct weir_session *session, CUstream stream, uint32_t word,
                                 uint32_t value);

/** The value of a word for which weir_session_word_ok() holds. @thread any */
uint32_t weir_session_word(const struct weir_session *session, uint32_t word);

/**
 * Answer the current operation later, when a word has reached a value.
 * @return false: too many answers wait.
 */
bool weir_session_word_wait(struct weir_session *session, uint32_t word, uint32_t value);

/**
 * Answer the calls whose words have been written. For places where the thread waits long.
 * @return whether some are left
 */
bool weir_session_answer_waits(struct weir_session *session);

/** Was the GPU asked to write a word that it has not written yet? */
bool weir_session_words_open(struct weir_session *session);
