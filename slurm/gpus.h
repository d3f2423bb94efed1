/*
 * Lists of GPUs as Slurm and Weir write them: "0,2", by number, with commas and no blanks. This
 * code needs neither Slurm nor the host.
 */
#pragma once

#include <stdbool.h>

#define WEIR_GPUS_BYTES 256 /* largest list, with the NUL */

/** Does the list name at least one GPU, and none of them twice? @thread any */
bool weir_gpus_ok(const char *list);

/** Do two lists name the same GPUs, in any order? @thread any */
bool weir_gpus_same(const char *a, const char *b);

/**
 * CUDA_VISIBLE_DEVICES of a program whose devices are those of a list and are counted from 0: the
 * positions in that list of the devices that it may use; all positions if none of these is in it.
 * @param used  the devices that it may use; NULL: all.
 * @thread any
 */
void weir_gpus_visible(const char *list, const char *used, char ret_list[WEIR_GPUS_BYTES]);
