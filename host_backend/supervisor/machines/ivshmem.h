/*
 * The supervisor as ivshmem server: QEMU connects to <run_dir>/vm/<tenant>.sock and gets the
 * tenant's region, a bell to ring, and nothing else (docs/design/kvm.md).
 *
 * The socket identifies the tenant: whoever may connect to it acts as the tenant, as with the
 * tenants' own sockets. Owner thread only. Private to host_backend/supervisor.
 */
#pragma once

#include "base/status.h"
#include "host_backend/supervisor/state/supervisor.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_VMS_MAX        64         /* machines that are connected at a time */
#define WEIR_VM_MEMORY_NAME "weir-vm-" /* name of the memfd; the tenant's name follows */

/* A connected QEMU. */
struct weir_sup_vm {
    uint64_t id; /* 0: this slot is free */
    int fd;      /* a connection, or a pidfd: it becomes readable when the machine ends */
    int region_fd;
    int bell_fd;  /* eventfd: the guest rings, the worker listens */
    int guest_fd; /* eventfd for the guest's own vector, which QEMU expects; never used */
    pid_t pid;
    uint32_t tenant; /* slot of the tenant */
    uint64_t offset; /* offset of the region in its file */
    uint64_t bytes;
    bool nvdimm;  /* the region is in the tenant's file (nvdimm.c): fd is a pidfd, no bell */
    bool adopted; /* taken over after a restart: fd is a pidfd */
};

/** Let only root and QEMU's user, or the tenant's own user, open a file. Errors go to the log. */
void weir_sup_give_to_qemu(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                           const char *path);
/** Is the user there that the configuration names for QEMU? If only now, give him what is his. */
void weir_sup_vm_user_follow(struct weir_supervisor *sup);
/** When a process started, in ticks since the machine's boot; 0: there is no such process. */
unsigned long long weir_sup_process_started(int pid);
/** Begin without machines. @return false: no memory */
bool weir_sup_machines_open(struct weir_supervisor *sup);
/** Forget all machines and close their sockets. */
void weir_sup_machines_close(struct weir_supervisor *sup);
/** Listen for a tenant's virtual machines, unless the path of its socket would be too long. */
void weir_sup_vm_listen(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Listen again if somebody has removed the socket's file; machines that are there stay. */
void weir_sup_vm_renew(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Stop listening and hang up on the tenant's machines. */
void weir_sup_vm_close(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Accept a QEMU that connects. */
void weir_sup_vm_accept(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Watch for QEMUs that connect, and for messages of connected ones. */
void weir_sup_vms_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/**
 * Enter a machine and take its descriptors. A machine with an NVDIMM is written to the note before
 * it is served, so that the next host finds it even if this one is killed at once.
 * @return false: there are too many
 */
bool weir_sup_vm_enter(struct weir_supervisor *sup, const struct weir_sup_vm *vm);
/** Take over the last supervisor's machines. */
void weir_sup_vms_take_over(struct weir_supervisor *sup);
/** Does the host serve the machine of this process for the tenant? */
bool weir_sup_vm_is_there(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                          pid_t pid);
/** Write a tenant's machines to a file, for the next host. */
void weir_sup_vms_note(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);
/** Take over the machines that the last host has noted. */
void weir_sup_vms_adopt(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Send a tenant's machines to its new worker. */
void weir_sup_vms_follow(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);
/** Send a newly started worker the regions of its tenants. */
void weir_sup_vms_tell(struct weir_supervisor *sup, int worker);
/** Remove the sockets' folder, when the host stops. */
void weir_sup_vms_finish(struct weir_supervisor *sup);
/** A worker has died: mark that in the regions of its machines, so that guests see it. */
void weir_sup_vms_orphan(struct weir_supervisor *sup, int worker);
