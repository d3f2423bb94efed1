/*
 * Handles: index + generation, never a pointer of the process that owns the object.
 *
 * A handle is 64 bits: kind 8 | origin 1 | generation 15 | index 24 | tag 16 (0x57E0), so that it
 * is never NULL, never one of CUDA's small constants (streams 1 and 2), and a wild value is
 * refused. The guest names most objects itself (origin 0) so that creating them needs no answer;
 * the host names those that it finds (nodes of a captured graph: origin 1). Both sides keep a table
 * per kind.
 *
 * The table maps handles to void pointers. Look-up is lock-free and may race with insertion; the
 * caller keeps the object alive. Capacity is fixed at creation, memory is committed as it is used.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef uint64_t weir_handle;

#define WEIR_HANDLE_TAG        0x57E0u
#define WEIR_HANDLE_INDEX_BITS 24
#define WEIR_HANDLE_MAX_INDEX  ((1u << WEIR_HANDLE_INDEX_BITS) - 1)

static inline weir_handle weir_handle_make(uint8_t kind, bool origin_host, uint16_t generation,
                                           uint32_t index)
{
    return (uint64_t)kind << 56 | (uint64_t)origin_host << 55 |
           (uint64_t)(generation & 0x7fff) << 40 | (uint64_t)(index & WEIR_HANDLE_MAX_INDEX) << 16 |
           WEIR_HANDLE_TAG;
}
static inline uint8_t weir_handle_kind(weir_handle handle)
{
    return (uint8_t)(handle >> 56);
}
static inline bool weir_handle_origin_host(weir_handle handle)
{
    return handle >> 55 & 1;
}
static inline uint16_t weir_handle_generation(weir_handle handle)
{
    return (uint16_t)(handle >> 40 & 0x7fff);
}
static inline uint32_t weir_handle_index(weir_handle handle)
{
    return (uint32_t)(handle >> 16 & WEIR_HANDLE_MAX_INDEX);
}

struct weir_id_table;

/**
 * Make a table.
 *
 * @param kind         the kind byte of every handle in it, 1 .. 255.
 * @param origin_host  the origin bit of handles that weir_id_table_add() makes.
 * @param capacity     most live objects of each origin, 1 .. WEIR_HANDLE_MAX_INDEX.
 * @param ret_table    gives the table.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_id_table_create(uint8_t kind, bool origin_host, uint32_t capacity,
                                      struct weir_id_table **ret_table) WEIR_MUST_CHECK;

/** Free the table, not the objects. Accepts NULL. @thread owner, no other call under way */
void weir_id_table_destroy(struct weir_id_table *table);

/**
 * Name an object: take a free index of this side's origin.
 *
 * @param table       internally locked.
 * @param object      not NULL; borrowed by the table.
 * @param ret_handle  the new handle.
 * @return WEIR_OK, WEIR_ERR_QUOTA (table full), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_id_table_add(struct weir_id_table *table, void *object,
                                   weir_handle *ret_handle) WEIR_MUST_CHECK;

/**
 * Add an object under a handle that the peer chose.
 *
 * @param handle  any bits: kind, tag, origin (must be the other side's) and range are checked.
 * @return WEIR_OK
 * @return WEIR_ERR_INVALID  not a handle of this table.
 * @return WEIR_ERR_EXISTS   the index is in use.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_id_table_put(struct weir_id_table *table, weir_handle handle,
                                   void *object) WEIR_MUST_CHECK;

/**
 * Add an object under a handle that another table of this side has chosen, with all that is not
 * used by then to follow.
 *
 * @return as weir_id_table_put()
 * @thread any
 */
enum weir_status weir_id_table_put_own(struct weir_id_table *table, weir_handle handle,
                                       void *object) WEIR_MUST_CHECK;

/** Find the object of a handle; NULL: it is not live in this table. @thread any */
void *weir_id_table_get(const struct weir_id_table *table, weir_handle handle);

/** Remove a handle; returns the object or NULL. Its generation is not reused soon. @thread any */
void *weir_id_table_remove(struct weir_id_table *table, weir_handle handle);

/** Number of live objects. @thread any */
uint32_t weir_id_table_count(const struct weir_id_table *table);

/**
 * Visit every live object in index order; fn may remove the one it is given.
 * @thread any; fn is called with no lock held
 */
typedef void (*weir_id_table_visit_fn)(weir_handle handle, void *object, void *user);
void weir_id_table_visit(struct weir_id_table *table, weir_id_table_visit_fn fn, void *user);
