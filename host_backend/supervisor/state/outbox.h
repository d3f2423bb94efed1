/*
 * Messages to a process of the host that wait for room in its link. The supervisor never waits for
 * room: all tenants would wait with it.
 */
#pragma once

#include "host_backend/config/link.h"
#include <stdbool.h>
#include <stdint.h>

/* The most messages: a worker may be sent all tenants, with two messages each. */
#define WEIR_OUTBOX_MAX 2048

/* Owner thread only; all zero: empty. */
struct weir_outbox {
    struct weir_outbox_item *first, *last;
    uint32_t n;
    uint64_t due_ns; /* when to give up the link if nothing could be sent; valid with n != 0 */
};

/**
 * Send a message at once, or when there is room and all earlier messages were sent.
 *
 * @param link  a SOCK_SEQPACKET socket; borrowed.
 * @param fd    goes with it; borrowed; -1: none.
 * @return WEIR_OK, WEIR_ERR_CLOSED, WEIR_ERR_IO
 * @return WEIR_ERR_AGAIN      too many messages wait, or one has waited too long: the other end
 *                             does not read.
 * @return WEIR_ERR_NO_MEMORY  the message would have to wait, and there is no memory or descriptor
 *                             for that.
 */
enum weir_status weir_outbox_send(struct weir_outbox *box, int link,
                                  const struct weir_link_message *message, int fd) WEIR_MUST_CHECK;

/**
 * Send as many waiting messages as there is room for.
 * @return as weir_outbox_send(); WEIR_OK: some may still wait
 */
enum weir_status weir_outbox_flush(struct weir_outbox *box, int link,
                                   uint64_t now_ns) WEIR_MUST_CHECK;

/** When to give up the link; WEIR_FOREVER: no message waits. */
uint64_t weir_outbox_due_ns(const struct weir_outbox *box);
/** The events to poll the link for. */
short weir_outbox_events(const struct weir_outbox *box);
/** Drop the waiting messages, and close their descriptors. */
void weir_outbox_clear(struct weir_outbox *box);
