/* Guests arriving at the worker: handshake, session, end, each on a thread of its own. */
#pragma once

#include "host_backend/config/link.h"
#include "proto/wire/accept.h"

struct weir_guests;
struct weir_worker;

/** Serve a connection that the supervisor accepted. fd is taken. @thread main */
void weir_guest_arrived(struct weir_worker *worker, const struct weir_link_guest *guest, int fd);

struct weir_region_mail;
struct weir_hello;

/**
 * Serve a Hello that came through a virtual machine's region. mail is taken, and hello with it.
 * @param guest  its tenant, and QEMU's pid.
 * @thread a region's
 */
void weir_guest_wrote(struct weir_worker *worker, const struct weir_link_guest *guest,
                      struct weir_region_mail *mail, const struct weir_hello *hello);

/**
 * Do all of the worker's guests share a segment with it? There they can read its last messages
 * after its end.
 * @thread any, without the worker's lock
 */
bool weir_guests_keep_segments(struct weir_worker *worker);

/**
 * Have all programs of the worker ended, so that it only runs work that they have left behind?
 * @thread any, without the worker's lock
 */
bool weir_guests_only_orphans(struct weir_worker *worker);

/**
 * If there is no guest, accept none any more: a new one gets the answer to come again.
 * @return whether there is no guest @thread main
 */
bool weir_guests_close(struct weir_worker *worker);

/** A descriptor that becomes readable when guests have ended without a message; -1: there is none.
 * @thread any */
int weir_guests_gone_fd(const struct weir_worker *worker);
/** Wake the sessions of guests that have ended. @thread main, without the worker's lock */
void weir_guests_look(struct weir_worker *worker);

/** Make a worker's list of guests. NULL: out of memory. @thread main */
struct weir_guests *weir_guests_create(void);

/**
 * Open the tcp endpoint, if one is configured.
 * @param tcp_fd  the supervisor's listener for remote guests, taken; -1: there is none.
 * @thread main
 */
enum weir_status weir_guests_listen(struct weir_worker *worker, int tcp_fd) WEIR_MUST_CHECK;

/** Close the endpoint; every session must have ended. @thread main */
void weir_guests_destroy(struct weir_guests *guests);
