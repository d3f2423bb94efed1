/*
 * The supervisor's side of NVDIMMs: a file for each tenant, which the tenant's virtual machine has
 * as an NVDIMM and its guest as /dev/dax0.0 (docs/design/kvm.md).
 *
 * Owner thread only. Private to host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_NVDIMM_H
#define WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_NVDIMM_H

#include "host_backend/supervisor/state/supervisor.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** Make a tenant's file, or find the machine that has it. Logs why if it cannot. */
void weir_sup_nvdimm_open(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Close a tenant's file. If a machine has it, the file stays for the next host. */
void weir_sup_nvdimm_close(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** The tenant's machine has ended: give the next one a new empty file. */
void weir_sup_nvdimm_gone(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Watch who opens files, and wake the loop when a look is due. */
void weir_sup_nvdimm_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Look for openers of files, and retry files that had no room, where that is due. */
void weir_sup_nvdimm_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Remove the files' folder, when the host stops. */
void weir_sup_nvdimms_finish(struct weir_supervisor *sup);

/* nvdimm_holder.c */

/**
 * A process that has a file open and mapped for writing, other than this one, its workers and
 * another host's.
 * @param ret_pid_fd  a descriptor of that process: the caller closes it
 * @return its number; 0: there is none
 */
pid_t weir_sup_holder_of(const struct weir_supervisor *sup, int fd, int *ret_pid_fd);

#endif
