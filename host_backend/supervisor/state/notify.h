/* systemd's readiness protocol: one datagram to $NOTIFY_SOCKET. */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_STATE_NOTIFY_H
#define WEIR_HOST_BACKEND_SUPERVISOR_STATE_NOTIFY_H

/** Tell the service manager, if there is one; failure is of no consequence. @thread any */
void weir_notify(const char *state);

#endif
