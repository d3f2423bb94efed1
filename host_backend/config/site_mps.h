/* Finds out whether the machine has an MPS daemon that is not one of the host's. */
#pragma once

#include <stdbool.h>

/**
 * Would a program that this process starts now, or this process, become a client of MPS? The daemon
 * has its socket in the folder that the environment names, or in the usual one.
 * @thread any
 */
bool weir_site_mps_is_there(void);
