/* The devices and limits that the program sees, from the environment and the host. */
#pragma once

#include "guest_lib/state.h"
#include "proto/wire/control.h"

#define WEIR_PROGRAM_BYTES 256

/**
 * Fill the devices that the program sees.
 *
 * CUDA_VISIBLE_DEVICES is read as by NVIDIA's driver: ordinals or UUID prefixes ("GPU-..."),
 * separated by commas. The first item that names no device ends the list. If a device is named
 * twice, no device is visible.
 *
 * @param welcome     the host's devices, in its order.
 * @param list        the variable's value, or NULL for all.
 * @param devices     WEIR_GUEST_MAX_DEVICES of them; filled in the list's order.
 * @param co_located  memory can be shared with the host, so managed memory is possible.
 * @param passes_fds  descriptors can be passed, so memory can be exported to other processes.
 * @return the number of visible devices.
 * @thread any
 */
int weir_visible_devices(const struct weir_welcome *welcome, const char *list,
                         struct weir_guest_device *devices, bool co_located, bool passes_fds);

/** The program's short name, from /proc. @thread any */
void weir_program_name(char ret_name[WEIR_PROGRAM_BYTES]);
