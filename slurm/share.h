/*
 * Decides how much of a node's GPU a Slurm job gets, from the administrator's arguments in
 * plugstack.conf and the user's options. This code does not depend on Slurm.
 */
#pragma once

#include "base/priority.h"
#include "base/status.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which of a node's GPUs a job may use: those that Slurm gave it, or all. */
enum weir_share_gpus { WEIR_SHARE_GPUS_SLURM, WEIR_SHARE_GPUS_ALL };

/* Where a job's use of the GPU is written in Slurm's records: nowhere, or in its AdminComment. */
enum weir_share_account { WEIR_SHARE_ACCOUNT_NONE, WEIR_SHARE_ACCOUNT_COMMENT };

/* Arguments of the plugin. Sizes in bytes; 0: none was given. */
struct weir_share_rules {
    char run_dir[80];         /* run directory of weir serve; default /run/weir */
    char guest_lib[PATH_MAX]; /* folder of the guest's libcuda.so.1; "": beside the plugin */
    uint32_t max_weight, default_weight; /* default 100 each */
    uint64_t max_mem_bytes, default_mem_bytes;
    uint64_t mem_per_shard_bytes;
    enum weir_priority max_priority; /* default: normal */
    enum weir_share_gpus gpus;
    enum weir_share_account account;
};

enum weir_share_option { WEIR_SHARE_WEIGHT, WEIR_SHARE_MEM, WEIR_SHARE_PRIORITY };
#define WEIR_SHARE_OPTIONS 3

/* What a user asked for. */
struct weir_share_wish {
    bool given[WEIR_SHARE_OPTIONS];
    uint32_t weight;
    uint64_t mem_bytes;
    enum weir_priority priority;
};

/* What a job gets. */
struct weir_share {
    uint64_t mem_bytes; /* 0: all of the device */
    uint32_t weight;
    enum weir_priority priority;
};

/**
 * Read "key=value" arguments. Valid arguments are taken even if another one is wrong.
 *
 * @param ret_rules  always filled.
 * @param ret_diag   the first complaint.
 * @return WEIR_OK, WEIR_ERR_INVALID
 * @thread any
 */
enum weir_status weir_share_rules_read(int argc, const char *const *argv,
                                       struct weir_share_rules *ret_rules,
                                       struct weir_diag *ret_diag) WEIR_MUST_CHECK;

/**
 * Read a size as sbatch's --mem has it: megabytes, or a number with K, M, G or T, of 1024 each
 * ("GB" and "GiB" mean the same).
 *
 * @param ret_bytes  1 .. 2^60.
 * @return WEIR_OK, WEIR_ERR_INVALID
 * @thread any
 */
enum weir_status weir_share_size(const char *text, uint64_t *ret_bytes) WEIR_MUST_CHECK;

/** A size as weir_share_size() reads it, in the largest unit that divides it. */
void weir_share_size_text(uint64_t bytes, char text[24]);

/** Take an option's argument. @return WEIR_OK, WEIR_ERR_INVALID @thread any */
enum weir_status weir_share_wish_take(struct weir_share_wish *wish, enum weir_share_option option,
                                      const char *text, struct weir_diag *ret_diag) WEIR_MUST_CHECK;

/**
 * Is a wish within the rules, as far as can be told where it is made? The number of shards is known
 * only on the node.
 * @return WEIR_OK, WEIR_ERR_INVALID
 * @thread any
 */
enum weir_status weir_share_wish_check(const struct weir_share_wish *wish,
                                       const struct weir_share_rules *rules,
                                       struct weir_diag *ret_diag) WEIR_MUST_CHECK;

/**
 * Compute a job's share of a node. The job asks for something, or holds shards, each of which
 * stands for memory.
 *
 * @param shards  how many shards the job holds on the node; 0: none.
 * @return WEIR_OK, WEIR_ERR_INVALID (more than it may have)
 * @thread any
 */
enum weir_status weir_share_of(const struct weir_share_wish *wish,
                               const struct weir_share_rules *rules, uint32_t shards,
                               struct weir_share *ret_share,
                               struct weir_diag *ret_diag) WEIR_MUST_CHECK;
