/* Starts weir-libvirt, which follows libvirt's domains, and handles its messages (libvirt.c).
 * Private to the supervisor. */
#pragma once

#include "container/libvirt_message.h"
#include "host_backend/supervisor/state/supervisor.h"

/* Why libvirt's domains are not followed if weir-libvirt is not installed. */
#define WEIR_SUP_NO_LIBVIRT "this installation has no weir-libvirt (a package of its own)"

/** Start weir-libvirt, if weir.toml names a libvirt and it does not run, or report that this extra
 * fails. */
void weir_sup_libvirt_open(struct weir_supervisor *sup);
/** Handle a message. @param message  any bytes; changed */
void weir_sup_libvirt_message(struct weir_supervisor *sup, struct weir_libvirt_message *message);
/** Apply the domains' settings again, since tenants were added or reloaded. */
void weir_sup_libvirt_again(struct weir_supervisor *sup);
/** Check whether weir-libvirt has died (SIGCHLD). */
void weir_sup_libvirt_reap(struct weir_supervisor *sup);
/** Restart weir-libvirt when that is due. */
void weir_sup_libvirt_tick(struct weir_supervisor *sup, uint64_t now_ns);
/** Watch the link of weir-libvirt, and wake the loop when a restart is due. */
void weir_sup_libvirt_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
void weir_sup_libvirt_close(struct weir_supervisor *sup);
