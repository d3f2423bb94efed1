/*
 * What is added to a container so that unmodified images use a tenant: a few mounts and variables.
 *
 * The CDI specification (cdi.h) and docker's arguments (docker_args.h) are both written from this
 * list, so the two ways cannot differ. No LD_PRELOAD, no LD_LIBRARY_PATH, no device node: bind
 * mounts and environment only. A hook makes a share on demand, and refuses a second device (cdi.c).
 *
 * Source: docs/design/containers.md
 */
#pragma once

#include "base/status.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define WEIR_CONTAINER_MOUNTS_MAX 16
#define WEIR_CONTAINER_ENV_MAX    4

/* Folder where the guest library looks for its host if no variable names one. */
#define WEIR_CONTAINER_RUN_DIR "/run/weir"
/* Name of the socket in that folder, and in the tenant's folder on the host. */
#define WEIR_CONTAINER_SOCKET "default.sock"
/* The tenants' folders in the host's run directory. */
#define WEIR_CONTAINER_FOLDER "containers"
/* Holds a folder for each user, with a folder for each of that user's tenants. The tenant's entry
 * in WEIR_CONTAINER_FOLDER is a link to it. */
#define WEIR_CONTAINER_USERS "users"
/* Folders of shares on demand. A container has the empty folder "none" until it gets a share. */
#define WEIR_CONTAINER_SHARES "shares"

#define WEIR_CONTAINER_NVIDIA_SMI "/usr/bin/nvidia-smi"

struct weir_container_mount {
    char source[PATH_MAX]; /* absolute path on the host */
    const char *target;    /* path in the container; static */
};

/* A value type; 64 KiB, so not for small stacks. */
struct weir_container_edits {
    struct weir_container_mount mounts[WEIR_CONTAINER_MOUNTS_MAX]; /* all of them read-only */
    size_t n_mounts;
    const char *env[WEIR_CONTAINER_ENV_MAX]; /* "NAME=VALUE", static */
    size_t n_env;
};

/**
 * What containers of every tenant get: the guest's libraries, in each place where a distribution's
 * loader looks, and the environment.
 *
 * @param guest_lib   folder of the guest's libcuda.so.1; links are followed. libnvidia-ml.so.1 is
 *                    added if it lies there.
 * @param nvidia_smi  path of a program nvidia-smi on the host, or NULL; added if it exists.
 * @param ret_edits   written only on success.
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  no libcuda.so.1 there.
 * @return WEIR_ERR_TOO_BIG    a path is too long.
 * @thread any
 */
enum weir_status
weir_container_edits_common(const char *guest_lib, const char *nvidia_smi,
                            struct weir_container_edits *ret_edits) WEIR_MUST_CHECK;

/**
 * What containers of one tenant get beside that: the folder with the tenant's socket.
 *
 * The folder and not the socket is mounted, so that a container outlives a restart of the host: a
 * new socket appears in the same folder, while a mounted file would stay the old one.
 *
 * @param run_dir  the host's, absolute.
 * @return WEIR_OK, WEIR_ERR_INVALID (run_dir is relative), WEIR_ERR_TOO_BIG
 * @thread any
 */
enum weir_status
weir_container_edits_tenant(const char *run_dir, const char *tenant,
                            struct weir_container_edits *ret_edits) WEIR_MUST_CHECK;

/**
 * What a container gets beside that for a share on demand: an empty folder, over which
 * weir-oci-hook (container/oci) mounts the share's.
 * @return as weir_container_edits_tenant()
 * @thread any
 */
enum weir_status weir_container_edits_new(const char *run_dir,
                                          struct weir_container_edits *ret_edits) WEIR_MUST_CHECK;

/** A tenant's folder on the host. @return WEIR_OK, WEIR_ERR_TOO_BIG @thread any */
enum weir_status weir_container_folder(const char *run_dir, const char *tenant, char *ret_path,
                                       size_t bytes) WEIR_MUST_CHECK;
