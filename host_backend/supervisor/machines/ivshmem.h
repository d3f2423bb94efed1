/*
 * The supervisor as ivshmem server: QEMU connects to <run_dir>/vm/<tenant>.sock and gets the
 * tenant's region, a bell to ring, and nothing else (docs/design/kvm.md).
 *
 * The socket is the identity: who may connect to it is the tenant, as with the tenants' own
 * sockets. Owner thread only. Private to host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_IVSHMEM_H
#define WEIR_HOST_BACKEND_SUPERVISOR_MACHINES_IVSHMEM_H

#include "base/status.h"
#include "host_backend/supervisor/state/supervisor.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_VMS_MAX        64         /* connected at a time */
#define WEIR_VM_MEMORY_NAME "weir-vm-" /* of the memfd; the tenant's name follows */

/* A connected QEMU. */
struct weir_sup_vm {
    uint64_t id; /* 0: this slot is free */
    int fd;      /* its end tells that the machine is gone: a connection, or a pidfd */
    int region_fd;
    int bell_fd;  /* the guest rings, the worker listens */
    int guest_fd; /* QEMU wants an eventfd for the guest's own vector; nobody rings it */
    pid_t pid;
    uint32_t tenant; /* slot */
    uint64_t offset; /* of the region in its file */
    uint64_t bytes;
    bool
        nvdimm; /* the region is in the tenant's file (nvdimm.c): fd is a pidfd, there is no bell */
    bool adopted; /* found again after a restart: fd is a pidfd */
};

/**
 * Listen on a unix socket that is for root and QEMU's user, or the tenant's own, alone.
 * @return WEIR_OK, WEIR_ERR_EXISTS, WEIR_ERR_DENIED, WEIR_ERR_IO
 */
enum weir_status weir_sup_listen_for_qemu(const struct weir_supervisor *sup,
                                          const struct weir_sup_tenant *tenant, const char *path,
                                          int *ret_fd) WEIR_MUST_CHECK;
/** A file that is for root and QEMU's user, or the tenant's own, alone. Complains in the log. */
void weir_sup_give_to_qemu(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                           const char *path);
/** When a process started, in ticks since the machine's boot; 0: there is none. */
unsigned long long weir_sup_process_started(int pid);
/** Nothing is known of machines yet. @return false: no memory */
bool weir_sup_machines_open(struct weir_supervisor *sup);
/** Forget all. The machines' sockets are closed. */
void weir_sup_machines_close(struct weir_supervisor *sup);
/** Listen for a tenant's virtual machines; a tenant whose path is too long has none. */
void weir_sup_vm_listen(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Stop listening and hang up on the tenant's machines. */
void weir_sup_vm_close(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** A QEMU connects. */
void weir_sup_vm_accept(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Watch for QEMUs that connect, and for what comes from those that are there. */
void weir_sup_vms_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/**
 * Enter a machine with its descriptors, which are taken. One with an NVDIMM is noted before it is
 * served: a host that is killed at once afterwards has a successor that knows it.
 * @return false: there are too many
 */
bool weir_sup_vm_enter(struct weir_supervisor *sup, const struct weir_sup_vm *vm);
/** Note a tenant's machines, for the host after this one. */
void weir_sup_vms_note(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);
/** Find the machines that the host before this one has noted. */
void weir_sup_vms_adopt(struct weir_supervisor *sup, struct weir_sup_tenant *tenant);
/** Tell a tenant's worker, which is a new one for it, of its machines. */
void weir_sup_vms_follow(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant);
/** Tell a worker that has started of the regions of its tenants. */
void weir_sup_vms_tell(struct weir_supervisor *sup, int worker);
/** Remove the sockets' folder, when the host stops. */
void weir_sup_vms_finish(struct weir_supervisor *sup);
/** A worker has died: guests are to see it. */
void weir_sup_vms_orphan(struct weir_supervisor *sup, int worker);

#endif
