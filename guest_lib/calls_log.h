/*
 * The call log, WEIR_TRACE=file: every call, a line each.
 *
 * Lines are collected in a buffer and written when it is full or 0.1 s old, at exit, and when a
 * call fails with an error after which a program is likely to end. A forked child of such a process
 * writes to a file of its own if the name holds "%p" (the process's number), line by line;
 * otherwise it writes nothing.
 *
 * Source: docs/design/stats.md
 */
#pragma once

#include "proto/cuda_abi.h"
#include "proto/symbols.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define WEIR_CALLS_LOG_LINE_BYTES 2048 /* longer lines are cut off */

/* A growing line in fixed room. */
struct weir_calls_log_line {
    char *text;
    size_t used;
    size_t room;
};

/** Does the environment ask for a call log that can be written? Opens the file. @thread any */
bool weir_calls_log_wanted(void);

struct weir_calls_thread;

/** A timed call begins: tell a profiler. @param words as weir_calls_log_add(). @thread any */
void weir_calls_log_begin(struct weir_calls_thread *mine, enum weir_symbol symbol,
                          const uint64_t *words);

/**
 * Print the call for which weir_calls_end() has just returned true, and tell a profiler of it.
 *
 * @param words  one for each argument, in order, as in proto/calls_log_table.h.
 * @thread any
 */
void weir_calls_log_add(enum weir_symbol symbol, CUresult result, const uint64_t *words);

/** The process ends: write all lines. @thread any */
void weir_calls_log_finish(void);

/** Append formatted text to the line; text that does not fit is left out. @thread any: the caller's
 * line */
void weir_calls_log_put(struct weir_calls_log_line *line, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/**
 * Append "name=value, .." of a call's arguments.
 *
 * Outputs of a call, and structs, are read only if it succeeded.
 *
 * @thread any
 */
void weir_calls_log_put_args(struct weir_calls_log_line *line, enum weir_symbol symbol,
                             CUresult result, const uint64_t *words);

struct weir_calls_log_item;

/** The bytes of an argument that is passed by value. @thread any */
size_t weir_calls_log_value_bytes(const struct weir_calls_log_item *item);

/** The bits of a float argument, as a word. @thread any */
static inline uint64_t weir_calls_log_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
