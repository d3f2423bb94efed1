/* systemd's readiness protocol: one datagram to $NOTIFY_SOCKET. */
#ifndef WEIR_HOST_BACKEND_CONFIG_NOTIFY_H
#define WEIR_HOST_BACKEND_CONFIG_NOTIFY_H

/** Send a state to the service manager, if there is one; failures are ignored. @thread any */
void weir_notify(const char *state);

#endif
