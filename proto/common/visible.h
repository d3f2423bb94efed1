/* CUDA_VISIBLE_DEVICES: which devices a program sees, and in which order. */
#pragma once

#include "proto/cuda_abi.h"

/**
 * Read the list as NVIDIA's driver does.
 *
 * Items are ordinals, or beginnings of UUIDs ("GPU-..."); the first one decides which. Only the
 * leading digits of an ordinal count ("0abc" is 0). The list ends at the first item that names no
 * device, or is of the other kind. If the list names a device twice, no device is visible.
 *
 * @param list       the variable's value.
 * @param uuids      of all devices.
 * @param n          1 .. 32
 * @param ret_order  room for n; the visible devices.
 * @return the number of visible devices
 * @thread any
 * @source PyTorch's torch/cuda/__init__.py (_parse_visible_devices), whose authors compared it with
 *         driver 525.60.13; it wants the whole "GPU-" in capitals.
 */
int weir_visible_order(const char *list, const CUuuid *uuids, int n, int *ret_order);
