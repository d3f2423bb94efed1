/* What the environment and the host say about devices and about this program. */
#ifndef WEIR_GUEST_LIB_VISIBLE_H
#define WEIR_GUEST_LIB_VISIBLE_H

#include "guest_lib/state.h"
#include "proto/wire/control.h"

#define WEIR_PROGRAM_BYTES 256

/**
 * Fill the devices that the program sees.
 *
 * As NVIDIA's driver reads CUDA_VISIBLE_DEVICES: ordinals or UUID prefixes ("GPU-..."), separated
 * by commas; the first that is no device ends the list; a device named twice leaves none.
 *
 * @param welcome     the host's devices, in its order.
 * @param list        the variable's value, or NULL for all.
 * @param devices     WEIR_GUEST_MAX_DEVICES of them; filled in the list's order.
 * @param co_located  memory can be shared with the host: managed memory is possible.
 * @param passes_fds  so can descriptors: memory can be exported to other processes.
 * @return how many.
 * @thread any
 */
int weir_visible_devices(const struct weir_welcome *welcome, const char *list,
                         struct weir_guest_device *devices, bool co_located, bool passes_fds);

/** The program's short name, from /proc. @thread any */
void weir_program_name(char ret_name[WEIR_PROGRAM_BYTES]);

#endif
