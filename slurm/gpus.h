/*
 * Lists of GPUs as Slurm and Weir write them: "0,2", by number, with commas and no blanks. Knows
 * nothing of either.
 */
#ifndef WEIR_SLURM_GPUS_H
#define WEIR_SLURM_GPUS_H

#include <stdbool.h>

#define WEIR_GPUS_BYTES 256 /* of a list */

/** Is it a list of one at least, without one that is named twice? @thread any */
bool weir_gpus_ok(const char *list);

/** Do two lists name the same, in whatever order? @thread any */
bool weir_gpus_same(const char *a, const char *b);

/**
 * CUDA_VISIBLE_DEVICES of a program whose devices are those of a list and are counted from 0: where
 * those that it may use stand there. All of them if none does.
 * @param used  NULL: all.
 * @thread any
 */
void weir_gpus_visible(const char *list, const char *used, char ret_list[WEIR_GPUS_BYTES]);

#endif
