/*
 * The transports of a virtual machine's guest, ivshmem and devdax: shm's rings in a region
 * (region.h) that host and guest share. Private to proto/.
 *
 * Over ivshmem the guest wakes the host by its doorbell, a 32-bit store into BAR 0 that reaches the
 * host as an eventfd; over devdax the host polls. The guest cannot be woken, since it gets no
 * interrupts without a kernel module. So it polls, with sleeps that are short compared with the
 * time waited. A thread of the guest increments its slot's heartbeat, since the host would not
 * learn otherwise that the guest's process was killed.
 *
 * Source: docs/design/kvm.md
 */
#pragma once

#include "base/status.h"
#include "proto/transport/region.h"
#include "proto/transport/segment.h"
#include "proto/transport/transport.h"
#include <stdbool.h>

/* The guest's view of its VM's region. Immutable once open. */
struct weir_region {
    enum weir_transport_id id; /* DEVDAX for a character device, otherwise IVSHMEM */
    int fd;
    uint64_t bytes;
    void *control;           /* the first WEIR_REGION_CONTROL_BYTES of the region */
    void *bell_page;         /* BAR 0; NULL: the host polls instead */
    volatile uint32_t *bell; /* the doorbell register in BAR 0 */
};

/**
 * Open the region behind a path.
 *
 * @param path        "resource2" of a PCI device in sysfs (its "resource0" is the doorbell, its
 *                    "enable" is written where the device is not enabled), a dax device, or any
 *                    file that is a region.
 * @param ret_region  close it with weir_region_close().
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  no such file.
 * @return WEIR_ERR_DENIED     no permission (resource files are root's unless udev says otherwise;
 *                             a kernel in lockdown lets nobody map them).
 * @return WEIR_ERR_PEER       the file is no region, or one of another version.
 * @return WEIR_ERR_NO_MEMORY, WEIR_ERR_IO
 * @thread any; errno is preserved
 */
enum weir_status weir_region_open(const char *path, struct weir_region *ret_region) WEIR_MUST_CHECK;

/** Undo weir_region_open(). Accepts a closed one. @thread any */
void weir_region_close(struct weir_region *region);

/** Ring the host's bell. @thread any */
void weir_region_ring(const struct weir_region *region);

/**
 * The guest's end of a session.
 *
 * @param region         taken on success.
 * @param slot           the session's, below WEIR_REGION_SLOTS.
 * @param session        its number.
 * @param epoch          of the worker that welcomed it.
 * @param view           its segment, mapped; taken on success.
 * @param ret_transport  the end.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ivshmem_guest(const struct weir_region *region, uint32_t slot,
                                    uint64_t session, uint64_t epoch,
                                    const struct weir_segment_view *view,
                                    struct weir_transport **ret_transport) WEIR_MUST_CHECK;

/* What the host's end requires from the code that owns the region. */
struct weir_ivshmem_owner {
    bool (*gone)(void *user);  /* tests whether the guest's process has ended; it is cheap; any
                                  thread may call it */
    void (*close)(void *user); /* called when the end is being destroyed and its mapping is gone */
    void *user;
};

/**
 * The host's end of a session.
 *
 * @param id      IVSHMEM or DEVDAX.
 * @param view    its segment, mapped; taken on success.
 * @param owner  copied; its functions are called until the end is destroyed.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ivshmem_host(enum weir_transport_id id, const struct weir_segment_view *view,
                                   const struct weir_ivshmem_owner *owner,
                                   struct weir_transport **ret_transport) WEIR_MUST_CHECK;
