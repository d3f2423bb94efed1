/*
 * The regions of virtual machines, as the worker serves them (docs/design/kvm.md).
 *
 * The supervisor made the region and hands it over; a thread each looks into its mailboxes when the
 * guest rings, wakes sessions, and finds out which of the guest's processes have died. The worker
 * alone allots units of the region. Internally locked.
 */
#ifndef WEIR_HOST_BACKEND_WORKER_REGION_H
#define WEIR_HOST_BACKEND_WORKER_REGION_H

#include "base/status.h"
#include "host_backend/config/link.h"
#include "proto/transport/transport.h"
#include "proto/wire/accept.h"
#include <stdbool.h>
#include <stdint.h>

struct weir_region_end;
struct weir_region_mail;
struct weir_worker;

/**
 * Serve a region.
 *
 * @param fd       its memory; taken.
 * @param bell_fd  an eventfd that the guest rings; taken; -1: none, the thread looks by itself.
 * @thread main
 */
void weir_region_attach(struct weir_worker *worker, const struct weir_link_region *about, int fd,
                        int bell_fd);

/** The virtual machine is gone: its sessions end. @thread main */
void weir_region_detach(struct weir_worker *worker, uint64_t id);

/**
 * The worker is about to end: say so in all regions, before the first session ends. Guests see it
 * at once, and not by a beat that stands still; nothing else changes.
 * @thread main
 */
void weir_regions_leave(struct weir_worker *worker);

/** At the worker's end, when no session is left. @thread main */
void weir_regions_finish(struct weir_worker *worker);

/**
 * Answer a Hello: a slot, a segment in the region, the Welcome in the mailbox.
 *
 * @param mail     taken.
 * @param ret_end  the session's part in the region; lives until the transport is destroyed.
 * @return WEIR_OK, WEIR_ERR_QUOTA (no slot or no room in the region), WEIR_ERR_CLOSED,
 *         WEIR_ERR_NO_MEMORY; on failure the guest has been told
 * @thread the session's
 */
enum weir_status weir_region_welcome(struct weir_region_mail *mail,
                                     const struct weir_welcome_params *params, bool monitor,
                                     struct weir_transport **ret_transport,
                                     struct weir_region_end **ret_end) WEIR_MUST_CHECK;

/** Say no. Takes mail. @thread any */
void weir_region_refuse(struct weir_region_mail *mail, enum weir_status reason, int32_t result,
                        const char *message);

/**
 * Take units of the region for a session: they read as zero.
 *
 * @param bytes       rounded up to units.
 * @param ret_fd      the region's file; borrowed.
 * @param ret_offset  where they begin in the region: the guest's offset.
 * @return WEIR_OK, WEIR_ERR_QUOTA
 * @thread any
 */
enum weir_status weir_region_take(struct weir_region_end *end, uint64_t bytes, int *ret_fd,
                                  uint64_t *ret_offset) WEIR_MUST_CHECK;

/** Where in the region's file an offset in the region lies. @thread any */
uint64_t weir_region_file_offset(const struct weir_region_end *end, uint64_t offset);

/** May its pages go away under a mapping, so that the bus guard must have each? @thread any */
bool weir_region_end_is_loose(const struct weir_region_end *end);

/** Give them back; what a session gives after weir_region_end_closing() stays the guest's. */
void weir_region_give(struct weir_region_end *end, uint64_t offset, uint64_t bytes);

/**
 * The session is being taken apart. A guest's process that lives on keeps what it has mapped, its
 * own registered pages among them, until it ends.
 * @thread the session's
 */
void weir_region_end_closing(struct weir_region_end *end);

#endif
