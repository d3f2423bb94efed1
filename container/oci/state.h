/*
 * Reads what a share on demand needs from the two files that describe a container to a hook: the
 * OCI runtime's state, and the container's config.json.
 *
 * Source: the OCI runtime specification 1.0.2, "State" and "Configuration"
 */
#pragma once

#include "base/status.h"
#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#define WEIR_OCI_HOOK       "weir-oci-hook" /* name of the hook's program (cdi.c) */
#define WEIR_OCI_ANNOTATION "weir.dev/"
#define WEIR_OCI_WISHES_MAX 16
#define WEIR_OCI_WISH_BYTES 160

struct weir_oci_container {
    char id[256];
    pid_t pid; /* pid of its first process, as the engine sees it */
    char bundle[PATH_MAX];
    char root[PATH_MAX]; /* folder of its files; absolute */
    /* Requests as "KEY=VALUE", each key once. */
    char wishes[WEIR_OCI_WISHES_MAX][WEIR_OCI_WISH_BYTES];
    size_t n_wishes;
};

/**
 * Read the state: id, pid, bundle and annotations.
 *
 * @param ret_container  written wholly, on success.
 * @param ret_diag       filled on failure.
 * @return WEIR_OK, WEIR_ERR_SYNTAX (no JSON), WEIR_ERR_INVALID (something is missing, too long or
 *         misspelt)
 * @thread any
 */
enum weir_status weir_oci_state_read(const char *text, size_t bytes,
                                     struct weir_oci_container *ret_container,
                                     struct weir_diag *ret_diag) WEIR_MUST_CHECK;

/**
 * Read config.json: root, and of the environment the variables that ask for a share
 * (host_backend/config/request_names.h). Empty ones count as not set.
 *
 * @param container  of weir_oci_state_read().
 * @return as weir_oci_state_read(); WEIR_ERR_INVALID also for a misspelt variable, for one that
 *         contradicts an annotation, and where the container has two devices of Weir's
 * @thread any
 */
enum weir_status weir_oci_config_read(const char *text, size_t bytes,
                                      struct weir_oci_container *container,
                                      struct weir_diag *ret_diag) WEIR_MUST_CHECK;
