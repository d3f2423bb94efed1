/*
 * The worker's side of virtual machines' regions (docs/design/kvm.md).
 *
 * The supervisor made the region and hands it over. A thread for each region checks its mailboxes
 * when the guest rings, wakes sessions, and finds out which of the guest's processes have ended. A
 * session's part of a region is in memory/region.h. Internally locked.
 */
#pragma once

#include "base/status.h"
#include "host_backend/config/link.h"
#include "proto/transport/transport.h"
#include "proto/wire/accept.h"
#include <stdbool.h>
#include <stdint.h>

struct region;
struct weir_region_end;
struct weir_region_mail;
struct weir_worker;

/**
 * Serve a region.
 *
 * @param fd       its memory; taken.
 * @param bell_fd  an eventfd that the guest writes; taken; -1: none, the thread polls.
 * @thread main
 */
void weir_region_attach(struct weir_worker *worker, const struct weir_link_region *about, int fd,
                        int bell_fd);

/** The virtual machine is gone: its sessions end. @thread main */
void weir_region_detach(struct weir_worker *worker, uint64_t id);

/**
 * The worker is about to end: write that to all regions, before the first session ends. So guests
 * see it at once, and need not wait for the heartbeat to stop.
 * @thread main
 */
void weir_regions_leave(struct weir_worker *worker);

/** Call at the worker's end, when no session is left. @thread main */
void weir_regions_finish(struct weir_worker *worker);

/**
 * Answer a Hello: a slot, a segment in the region, the Welcome in the mailbox.
 *
 * @param mail     taken.
 * @param ret_end  the session's part in the region; lives until the transport is destroyed.
 * @return WEIR_OK, WEIR_ERR_QUOTA (no slot or no room in the region), WEIR_ERR_CLOSED,
 *         WEIR_ERR_NO_MEMORY; on failure the guest was informed
 * @thread the session's
 */
enum weir_status weir_region_welcome(struct weir_region_mail *mail,
                                     const struct weir_welcome_params *params, bool monitor,
                                     struct weir_transport **ret_transport,
                                     struct weir_region_end **ret_end) WEIR_MUST_CHECK;

/** Refuse a Hello. Takes mail. @thread any */
void weir_region_refuse(struct weir_region_mail *mail, enum weir_status reason, int32_t result,
                        const char *message);

/* ---- between regions.c and region_mail.c */

/** End the slots of processes that have ended; all: all processes, since the guest's kernel is
 * gone. */
void weir_region_look_at_slots(struct region *region, bool all);

/** Handle new Hellos, and mailboxes that were left unfinished. @thread the region's */
void weir_region_look_at_mail(struct region *region);
