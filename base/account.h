/*
 * What somebody has of things that are limited, and how much of each it may have.
 *
 * One row for each thing that is counted. To count another one, add its row to enum
 * weir_account_item, set its limit, and charge and release it where it is taken and given back.
 */
#ifndef WEIR_BASE_ACCOUNT_H
#define WEIR_BASE_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum weir_account_item {
    WEIR_ACCOUNT_DEVICE_MEMORY, /* bytes on all devices together */
    WEIR_ACCOUNT_PINNED_MEMORY, /* bytes of host memory that devices reach */
    WEIR_ACCOUNT_COUNT,
};

/* Zeroed: nothing is used, and nothing may be. Internally locked (lock-free). */
struct weir_account {
    atomic_uint_fast64_t limit[WEIR_ACCOUNT_COUNT];
    atomic_uint_fast64_t used[WEIR_ACCOUNT_COUNT];
};

/**
 * Set how much of an item the account may have. A limit below what is used takes nothing away:
 * charging fails until less is used.
 *
 * @param limit  in the item's unit; UINT64_MAX: as much as there is.
 * @thread any
 */
void weir_account_limit_set(struct weir_account *account, enum weir_account_item item,
                            uint64_t limit);

/**
 * Count something, unless that would go over the limit. Exact also where several threads charge.
 *
 * @param amount  in the item's unit.
 * @return false: over the limit; nothing is counted.
 * @thread any
 */
bool weir_account_charge(struct weir_account *account, enum weir_account_item item,
                         uint64_t amount);

/** Something that was charged is given back. @thread any */
void weir_account_release(struct weir_account *account, enum weir_account_item item,
                          uint64_t amount);

/** How much of an item is used, and its limit. @thread any */
uint64_t weir_account_used(const struct weir_account *account, enum weir_account_item item);
uint64_t weir_account_limit(const struct weir_account *account, enum weir_account_item item);

/** How much more may be charged; 0 where more than the limit is used. @thread any */
uint64_t weir_account_left(const struct weir_account *account, enum weir_account_item item);

#endif
