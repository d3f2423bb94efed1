/* systemd's readiness protocol: one datagram to $NOTIFY_SOCKET. */
#pragma once

/** Send a state to the service manager, if there is one; failures are ignored. @thread any */
void weir_notify(const char *state);
