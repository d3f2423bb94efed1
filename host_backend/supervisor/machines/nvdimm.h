/*
 * The supervisor's side of NVDIMMs: a file for each tenant, which the tenant's virtual machine has
 * as an NVDIMM and its guest as /dev/dax0.0 (docs/design/kvm.md).
 *
 * Owner thread only. Private to host_backend/supervisor.
 */
#pragma once

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
/** Watch which processes open files, and wake the loop when a check is due. */
void weir_sup_nvdimm_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Do what is due: look for processes that have opened files, and retry files that had no room. */
void weir_sup_nvdimm_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Remove the files' folder, when the host stops. */
void weir_sup_nvdimms_finish(struct weir_supervisor *sup);

/* nvdimm_holder.c */

/**
 * Find a process that has a file open and mapped for writing. Not counted are this process, its
 * workers and those of another host.
 * @param ret_pid_fd a descriptor of that process: the caller closes it
 * @return its number; 0: there is none
 */
pid_t weir_sup_holder_of(const struct weir_supervisor *sup, int fd, int *ret_pid_fd);
