/*
 * Contexts of GPUs and workers of programs, which are divided among holders (users.h): see
 * docs/design/workers.md, "When no more contexts can be made".
 *
 * All functions: @thread main
 */
#pragma once

#include "base/status.h"
#include "host_backend/supervisor/state/users.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_GPU_NAME_BYTES 48
#define WEIR_DIVISIONS_MAX  64 /* enough for the GPUs of a host, or of its lists */

/* How many contexts of a GPU, or how many workers, each holder has. */
struct weir_sup_division {
    char gpu[WEIR_GPU_NAME_BYTES]; /* a GPU's name in lists of devices; "": counts all workers */
    uint64_t total;
    uint64_t used[WEIR_HOLDERS_MAX];
};

/* Counts for one turn of the loop, filled on demand. Zeroed at its beginning. */
struct weir_sup_contexts {
    uint32_t n;
    struct weir_sup_division of[WEIR_DIVISIONS_MAX];
};

/**
 * May a program of the tenant have a worker of its own, with a context on each of its devices? A
 * worker that serves nobody does not count, since it can end.
 * @param c        the counts of this turn; changed.
 * @param ret_why  static; written if it may not.
 * @return WEIR_OK
 * @return WEIR_ERR_QUOTA  its holder has its part, and the rest is reserved for others.
 * @return WEIR_ERR_FULL   others have all contexts or workers.
 */
enum weir_status weir_sup_contexts_ask(const struct weir_supervisor *sup,
                                       struct weir_sup_contexts *c,
                                       const struct weir_sup_tenant *tenant,
                                       const char **ret_why) WEIR_MUST_CHECK;
/** Count a worker that weir_sup_contexts_ask() has allowed and that is assigned or started. */
void weir_sup_contexts_take(const struct weir_supervisor *sup, struct weir_sup_contexts *c,
                            const struct weir_sup_tenant *tenant);
/** Has the first of these GPUs as many contexts as fit, including those of idle workers? */
bool weir_sup_contexts_are_full(const struct weir_supervisor *sup, const char *devices);
/** Are there as many programs' workers as allowed, including idle ones? */
bool weir_sup_places_are_full(const struct weir_supervisor *sup);
