/*
 * The shapes of carried functions: how a prototype's arguments become an operation's.
 *
 * A call travels as up to three numbers and a block of data (nvml_call in proto/api/ops.toml). The
 * block is what the function reads and writes: outputs in the order of the prototype, without
 * padding; a structure as it lies in memory; a text of the buffer's length.
 *
 *   shape     prototype after the function's name                      numbers     block
 *   U .. UUUU (device, u32 *out ..)                                                u32 each
 *   Q         (device, u64 *out)                                                   u64
 *   QL        (device, u64 *out, unsigned long *out)                               u64 u64
 *   I_U       (device, u32, u32 *out)                                  1           u32
 *   II_U      (device, u32, u32, u32 *out)                             2           u32
 *   II_UU     (device, u32, u32, u32 *out, u32 *out)                   2           u32 u32
 *   II_Q      (device, u32, u32, u64 *out)                             2           u64
 *   III_Q     (device, u32, u32, u32, u64 *out)                        3           u64
 *   D_U       (device, device, u32 *out)                              its place   u32
 *   T         (device, char *, u32 length)                             length      text
 *   I_T       (device, u32, char *, u32 length)                        1, length   text
 *   T0        (device, char *) of a fixed length                                   text
 *   S         (device, struct *) of a fixed size                                   the structure
 *   I_S, II_S (device, u32 .., struct *)                               1, 2        the structure
 *   V         (device, struct *) that begins with its size and version             the structure
 *   VV        (device, struct *, struct *) of that kind and of one size            both
 *   N_U       (device, u32 *count, u32 *array)                         room        count, array
 *   I_N_U     (device, u32, u32 *count, u32 *array)                    1, room     count, array
 *   I_N_Q     (device, u32, u32 *count, u64 *array)                    1, room     count, array
 *   NU        (device, u32 *array, u32 bytes)                          bytes       array
 *   SYS_..    the same without a device; SYS_VT (struct *, u32 length)
 *   FIELD     one field of nvmlDeviceGetFieldValues                    id, scope   the structure
 */
#pragma once

#include "proto/nvml/abi.h"

enum weir_nvml_shape {
    WEIR_NVML_U,
    WEIR_NVML_UU,
    WEIR_NVML_UUU,
    WEIR_NVML_UUUU,
    WEIR_NVML_Q,
    WEIR_NVML_QL,
    WEIR_NVML_I_U,
    WEIR_NVML_II_U,
    WEIR_NVML_II_UU,
    WEIR_NVML_II_Q,
    WEIR_NVML_III_Q,
    WEIR_NVML_D_U,
    WEIR_NVML_T,
    WEIR_NVML_I_T,
    WEIR_NVML_T0,
    WEIR_NVML_S,
    WEIR_NVML_I_S,
    WEIR_NVML_II_S,
    WEIR_NVML_V,
    WEIR_NVML_VV,
    WEIR_NVML_N_U,
    WEIR_NVML_I_N_U,
    WEIR_NVML_I_N_Q,
    WEIR_NVML_NU,
    WEIR_NVML_SYS_T,
    WEIR_NVML_SYS_S,
    WEIR_NVML_SYS_V,
    WEIR_NVML_SYS_VT,
    WEIR_NVML_FIELD,
    WEIR_NVML_SHAPE_COUNT
};

enum weir_nvml_keep { WEIR_NVML_STATIC, WEIR_NVML_LIVE };

#define WEIR_NVML_ARGUMENTS     3
#define WEIR_NVML_TEXT_MAX      1024 /* longer buffers are offered with this size */
#define WEIR_NVML_ARRAY_MAX     1024 /* entries; longer arrays are offered with this size */
#define WEIR_NVML_DATA_MAX      16384
#define WEIR_NVML_VERSIONED_MAX 4096
