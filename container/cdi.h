/*
 * A CDI specification (Container Device Interface): the file from which container engines learn
 * what `--device weir.dev/gpu=NAME` means.
 *
 * Source: the CDI specification, versions 0.3.0 to 0.5.0; docs/design/containers.md
 */
#pragma once

#include "container/edits.h"
#include <stdio.h>

#define WEIR_CDI_KIND         "weir.dev/gpu"
#define WEIR_CDI_DEFAULT_PATH "/var/run/cdi/weir.json"

struct weir_cdi_spec {
    const struct weir_container_edits *common; /* edits for all devices; borrowed */
    const char *run_dir;                       /* the host's run directory; borrowed */
    const char *const *tenants; /* tenants, each of which becomes a device; borrowed */
    size_t n_tenants;
    const char *hook; /* path of weir-oci-hook; borrowed; NULL: no hook and no share on demand */
};

/* Devices without a tenant's name: a share on demand, and all GPUs (tenant WEIR_CDI_ALL_IS). */
#define WEIR_CDI_NEW    "new"
#define WEIR_CDI_ALL    "all"
#define WEIR_CDI_ALL_IS "default"

/** The tenant whom device "all" stands for; NULL: there is no such device. */
const char *weir_cdi_all(const struct weir_cdi_spec *spec);

/** Can a tenant of this name be a CDI device? It must begin and end with a letter or digit. */
bool weir_cdi_name_ok(const char *tenant);

/**
 * Write a specification as JSON: a device for each tenant, "all" and "new". Tenants whose names CDI
 * does not take are left out.
 *
 * The version is the lowest that the fields need, since engines refuse files that are newer than
 * they are.
 *
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  no device is left: CDI wants one at least.
 * @return WEIR_ERR_INVALID    run_dir is relative, or a path has control characters.
 * @return WEIR_ERR_TOO_BIG, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_cdi_write(FILE *out, const struct weir_cdi_spec *spec) WEIR_MUST_CHECK;

/**
 * Put a specification in place of the file at path, at once: engines watch the folder and must
 * never read half a file. A missing folder is made (0755). On failure the old file stays; without
 * any device the file is removed.
 *
 * @param path  ends in ".json".
 * @return WEIR_OK; WEIR_ERR_DENIED, WEIR_ERR_IO; as weir_cdi_write()
 * @thread any; one at a time for a path
 */
enum weir_status weir_cdi_store(const char *path, const struct weir_cdi_spec *spec) WEIR_MUST_CHECK;
