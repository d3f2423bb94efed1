/* Where programs look for a daemon of MPS. */
#ifndef WEIR_HOST_BACKEND_CONFIG_MPS_DAEMON_H
#define WEIR_HOST_BACKEND_CONFIG_MPS_DAEMON_H

#include <stdbool.h>

/**
 * Would a program that this process starts now, or this process, become a client of MPS? The daemon
 * has its socket in the folder that the environment names, or in the usual one.
 * @thread any
 */
bool weir_mps_daemon_is_there(void);

#endif
