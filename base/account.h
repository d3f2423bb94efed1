/*
 * Counts how much of each limited item a user has, and limits it.
 *
 * One row for each thing that is counted. To count another one, add its row to enum
 * weir_account_item, set its limit, and charge and release it where it is taken and given back.
 *
 * All accounts share some items, such as a process's descriptors. For these a *pool* guarantees
 * each account an equal share, whatever the others use; all shares together are half of the total.
 * The other half goes to the first that asks. A *supply* divides an item in this way for a caller
 * that counts all users itself, and whose number of users changes.
 *
 * A user may have several processes. Then the account of each process also charges a *page* of
 * memory that all of them share, and the limits apply to the page. The page records what each
 * process has, so that a survivor can give it back. Memory that several processes use, or no
 * process at the moment, has a place of its own: it is *kept*. For the machine's memory the page
 * also contains the amount that is *granted* now; the process that divides the machine among all
 * pages writes it. An account asks that process when it needs more.
 */
#pragma once

#include "base/programs.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_ACCOUNT_DEVICES 16 /* at most; whoever names devices by number checks that */

enum weir_account_item {
    WEIR_ACCOUNT_DEVICE_MEMORY, /* bytes on all devices together */
    WEIR_ACCOUNT_PINNED_MEMORY, /* bytes of host memory that devices can access */
    WEIR_ACCOUNT_DESCRIPTORS,   /* a process's descriptors, apart from those of connections */
    WEIR_ACCOUNT_MAPPINGS,      /* mappings in a process's address space, for memory of the host */
    WEIR_ACCOUNT_BUS_GUARDS,    /* places in a process's table of pages that may vanish */
    WEIR_ACCOUNT_HOST_MEMORY,   /* bytes of a process's own memory, such as images */
    WEIR_ACCOUNT_SESSIONS,      /* sessions of programs that use the GPU */
    WEIR_ACCOUNT_MONITORS,      /* connections that only ask, by NVML */
    WEIR_ACCOUNT_OF_DEVICE,     /* bytes on device 0; the items of the other devices follow */
    WEIR_ACCOUNT_COUNT = WEIR_ACCOUNT_OF_DEVICE + WEIR_ACCOUNT_DEVICES,
};

/* An amount of each item. */
struct weir_amounts {
    uint64_t of[WEIR_ACCOUNT_COUNT];
};

/* Zeroed: the pool is empty. Internally locked (lock-free). */
struct weir_account_pool {
    uint64_t share[WEIR_ACCOUNT_COUNT]; /* guaranteed amount of each account; immutable */
    uint64_t limit[WEIR_ACCOUNT_COUNT]; /* how much all may use beyond their shares; immutable */
    atomic_uint_fast64_t used[WEIR_ACCOUNT_COUNT]; /* how much all use beyond their shares */
};

#define WEIR_SUPPLY_NOBODY UINT64_MAX

/* An amount that several users divide; one thread counts it. */
struct weir_supply {
    uint64_t total;       /* in the item's unit */
    uint64_t least;       /* minimum for each user if half of the total, divided by the number of
                             users, is less */
    const uint64_t *used; /* use of each place; borrowed; WEIR_SUPPLY_NOBODY: the place is free */
    uint32_t n;           /* number of places in used */
};

#define WEIR_ACCOUNT_PLACES 512 /* number of places in a page */
/* The place of kept memory, which belongs to no process. */
#define WEIR_ACCOUNT_KEPT (WEIR_ACCOUNT_PLACES - 1)

/* Lies in shared memory. Zeroed: nothing is used. Internally locked (lock-free). */
struct weir_account_page {
    atomic_uint_fast64_t used[WEIR_ACCOUNT_COUNT]; /* total of the items that processes share */
    /* How much each process has. */
    atomic_uint_fast64_t of[WEIR_ACCOUNT_PLACES][WEIR_ACCOUNT_COUNT];
    /* How much is granted now; for items of weir_account_is_divided(). */
    atomic_uint_fast64_t granted[WEIR_ACCOUNT_COUNT];
    /* Number of each process's last request that was answered. */
    atomic_uint answered[WEIR_ACCOUNT_PLACES];
    /* Programs for which processes charge; a process may have several. */
    struct weir_programs programs;
};

/* Zeroed: nothing is used, and every limit is 0. Internally locked (lock-free). */
struct weir_account {
    atomic_uint_fast64_t limit[WEIR_ACCOUNT_COUNT];
    atomic_uint_fast64_t used[WEIR_ACCOUNT_COUNT];
    struct weir_account_pool *pool; /* borrowed; NULL: only the limits apply */
    struct weir_account_page *page; /* borrowed; NULL: no other process shares the account */
    uint32_t place;                 /* this process's place in the page */
    /* Asks the process that divides an item for a larger grant, and waits for the answer. NULL:
     * there is no such process, and grants are ignored. */
    void (*ask)(struct weir_account *account, enum weir_account_item item, uint64_t amount);
};

/**
 * Make a pool that limits nothing.
 * @thread before any account uses it
 */
void weir_account_pool_init(struct weir_account_pool *pool);

/**
 * Divide an item among accounts: a half of it in equal shares, the rest for the first that asks.
 *
 * @param total       in the item's unit.
 * @param n_accounts  1 or more: how many accounts can have this pool at once.
 * @thread before any account uses it
 */
void weir_account_pool_divide(struct weir_account_pool *pool, enum weir_account_item item,
                              uint64_t total, uint32_t n_accounts);

/**
 * Give back all that an ended process had charged, and remove its programs. If it died in the
 * middle of a charge, that amount may stay counted until weir_account_page_clear().
 * @param place  place of the process, below WEIR_ACCOUNT_PLACES.
 * @thread any, but no thread that charges from this place
 */
void weir_account_page_settle(struct weir_account_page *page, uint32_t place);
/** Is a page granted an amount of this item? @thread any */
bool weir_account_is_divided(enum weir_account_item item);
/**
 * Reduce a page's grant to the amount used. Concurrent charges are either undone, or seen by this
 * call.
 * @param granted  the grant, from the caller, who does not trust the page.
 * @return the new grant, which is not larger
 * @thread one at a time
 */
uint64_t weir_account_page_trim(struct weir_account_page *page, enum weir_account_item item,
                                uint64_t granted);
/** No process uses the page: clear everything in it except kept memory. @thread any */
void weir_account_page_clear(struct weir_account_page *page);
/**
 * Turn an amount that a process has charged into a kept one: the end of the process does not give
 * it back. The process then calls weir_account_passed_on().
 * @param place  of the process; not WEIR_ACCOUNT_KEPT.
 * @return false: the process has not charged this much; nothing is changed.
 * @thread any
 */
bool weir_account_page_keep(struct weir_account_page *page, uint32_t place,
                            enum weir_account_item item, uint64_t amount);
/** Give back a kept amount. @thread any */
void weir_account_page_release(struct weir_account_page *page, enum weir_account_item item,
                               uint64_t amount);

/**
 * May a user have more of a supply? Each user is guaranteed a part: half of the supply divided by
 * the number of users, and at least supply->least. The rest goes to the first that asks. If there
 * is not enough for all parts, half of the supply is reserved for users that have less than their
 * part.
 *
 * @param who     the user's place in supply->used.
 * @param amount  in the supply's unit.
 * @thread any; as supply->used
 */
bool weir_supply_allows(const struct weir_supply *supply, uint32_t who, uint64_t amount);

/** The part that each user is guaranteed, if there is enough for all. @thread as
 * weir_supply_allows() */
uint64_t weir_supply_part(const struct weir_supply *supply);

/**
 * Set how much of an item the account may have. If the limit is below the use, nothing is taken
 * away, but charging fails until less is used.
 *
 * @param limit  in the item's unit; UINT64_MAX: as much as there is.
 * @thread any
 */
void weir_account_limit_set(struct weir_account *account, enum weir_account_item item,
                            uint64_t limit);

/**
 * Charge an amount, unless it would exceed the limit or the rest of the pool. Exact even if several
 * threads charge.
 *
 * @param amount  in the item's unit.
 * @return false: there is no more; nothing is counted.
 * @thread any
 */
bool weir_account_charge(struct weir_account *account, enum weir_account_item item,
                         uint64_t amount);

/** Give back an amount that was charged. @thread any */
void weir_account_release(struct weir_account *account, enum weir_account_item item,
                          uint64_t amount);

/** Charge items again that were given back, though they may exceed their limits now. @thread any */
void weir_account_charge_again(struct weir_account *account, const struct weir_amounts *amounts);

/** A charged amount is now kept in the page: this process no longer counts it. @thread any */
void weir_account_passed_on(struct weir_account *account, enum weir_account_item item,
                            uint64_t amount);

/**
 * Charge several items together.
 *
 * @param ret_refused  on failure, the item that is used up.
 * @return false: nothing is counted.
 * @thread any
 */
bool weir_account_charge_all(struct weir_account *account, const struct weir_amounts *amounts,
                             enum weir_account_item *ret_refused);

/** Give back items that were charged together. @thread any */
void weir_account_release_all(struct weir_account *account, const struct weir_amounts *amounts);

/** Is it memory of devices: of all together, or of one? @thread any */
bool weir_account_is_device_memory(enum weir_account_item item);
/** Device memory as it is charged: to the device, and to all together. @thread any */
struct weir_amounts weir_account_device_bytes(uint32_t device, uint64_t bytes);

/** An item's name for people, such as "descriptors". @thread any */
const char *weir_account_item_text(enum weir_account_item item);

/** How much of an item is used in this process, and its limit. @thread any */
uint64_t weir_account_used(const struct weir_account *account, enum weir_account_item item);
uint64_t weir_account_limit(const struct weir_account *account, enum weir_account_item item);

/**
 * How much more this process or another may charge; 0 if the use exceeds the limit.
 * @thread any
 */
uint64_t weir_account_left(const struct weir_account *account, enum weir_account_item item);

/**
 * How much device memory ended programs hold, in this process or another. If a process has no such
 * program, all that it has charged belongs to living ones, even if the table does not say so.
 * @param programs    those of the account, or of its page if it has one.
 * @param besides     how much living programs of this process hold besides the amounts in the
 *                    table.
 * @param max_age_ns  as of weir_programs_look().
 * @thread any
 */
uint64_t weir_account_of_ended(const struct weir_account *account, struct weir_programs *programs,
                               uint64_t besides, uint64_t max_age_ns);
