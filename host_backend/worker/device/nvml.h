/*
 * NVML on the host's side: the real libnvidia-ml.so.1 answers guests' questions, or else the
 * driver's values from the start of the worker do. Private to host_backend. Source:
 * docs/design/nvml.md
 */
#pragma once

#include "base/status.h"
#include "proto/nvml/shapes.h"
#include "proto/ops.h"
#include "proto/wire/control.h"
#include <stdbool.h>
#include <stddef.h>

/* A function that guests may call: a row of proto/nvml/functions.def. */
struct weir_nvml_row {
    const char *name;
    enum weir_nvml_shape shape;
    uint32_t bytes;
    enum weir_nvml_keep keep;
};

/* A guest's question; borrowed for the call. */
struct weir_nvml_question {
    const char *function;
    uint32_t arguments[WEIR_NVML_ARGUMENTS];
    const void *data;
    uint32_t n_data;
    const struct weir_device *peer; /* the device that a row of shape D_U names; NULL: none */
};

/* Room for any answer. The real library writes here, too: with spare room, a wrong size in our
 * table does no harm. */
struct weir_nvml_answer {
    _Alignas(16) uint8_t data[2 * WEIR_NVML_DATA_MAX];
    uint32_t n_data;
};

struct weir_nvml;

/**
 * @param library  "libnvidia-ml.so.1", or another for tests; NULL: there is none. Loaded at the
 *                 first question; borrowed for ever.
 * @param device   the worker's; borrowed.
 * @param ret_nvml gives it.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_nvml_create(const char *library, const struct weir_device *device,
                                  struct weir_nvml **ret_nvml) WEIR_MUST_CHECK;

/** Shut the library down and unload it. Accepts NULL. @thread alone */
void weir_nvml_destroy(struct weir_nvml *nvml);

/**
 * Ask. Nothing in the question is trusted.
 *
 * @param answer  n_data is 0 unless NVML_SUCCESS or NVML_ERROR_INSUFFICIENT_SIZE is returned.
 * @return what the real function returns; NVML_ERROR_FUNCTION_NOT_FOUND for one that is not
 * carried, NVML_ERROR_INVALID_ARGUMENT or _ARGUMENT_VERSION_MISMATCH for data of a wrong size.
 * @thread any; internally locked, blocks as long as the real library does
 */
nvmlReturn_t weir_nvml_ask(struct weir_nvml *nvml, const struct weir_nvml_question *question,
                           struct weir_nvml_answer *answer);

/** Get the free memory of the device. false: NVML does not report it. @thread any; as
 * weir_nvml_ask() */
bool weir_nvml_free_bytes(struct weir_nvml *nvml, uint64_t *ret_bytes);

/** The rows, for tests; ends with a NULL name. */
const struct weir_nvml_row *weir_nvml_rows(void);

/** May a monitor's connection ask for this operation? */
static inline bool weir_nvml_may_ask(enum weir_op op)
{
    return op == WEIR_OP_nvml_call || op == WEIR_OP_nvml_processes || op == WEIR_OP_mem_info ||
           op == WEIR_OP_echo;
}

/**
 * The answer where there is no NVML: from the device's description (nvml_plain.c).
 * @return NVML_SUCCESS, NVML_ERROR_INSUFFICIENT_SIZE, or NVML_ERROR_NOT_SUPPORTED
 */
nvmlReturn_t weir_nvml_plain(const struct weir_device *device, const struct weir_nvml_row *row,
                             const uint32_t *arguments, struct weir_nvml_answer *answer);
