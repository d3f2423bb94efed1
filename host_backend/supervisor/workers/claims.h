/*
 * Which GPUs this host serves, so that another host does not serve them too (claims.c).
 *
 * All functions: @thread main
 */
#pragma once

#include "base/status.h"
#include "host_backend/supervisor/state/supervisor.h"
#include <sys/types.h>

/* The host that has a GPU. */
struct weir_claim_holder {
    pid_t pid; /* 0: it lives in another pid namespace */
    uid_t uid;
    char run_dir[256]; /* the host's own answer; "": none came */
};

/**
 * Claim a GPU until weir_claims_release(), or the end of this process.
 *
 * @param ret_holder  pid -1: nobody had the GPU. Else its holder, also with WEIR_OK: a host of root
 *                    ignores a holder that is not root's.
 * @return WEIR_OK, also if this host has claimed it already
 * @return WEIR_ERR_EXISTS   another host serves it.
 * @return WEIR_ERR_TOO_BIG  more GPUs than there is room for.
 * @return WEIR_ERR_IO       no socket could be made.
 */
enum weir_status weir_claims_take(struct weir_claims *claims, const char *uuid,
                                  struct weir_claim_holder *ret_holder) WEIR_MUST_CHECK;

/** Take over the last supervisor's claims. */
void weir_claims_adopt(struct weir_supervisor *sup);
void weir_claims_release(struct weir_claims *claims);
