/*
 * A session's reservations and mappings as plain numbers, without CUDA. The checks of cuMemMap,
 * cuMemUnmap and cuMemSetAccess are here. Owner thread only.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_VMM_SPACES_MAX 4096
#define WEIR_VMM_MAPS_MAX   131072 /* 256 GiB in pieces of 2 MiB */

struct weir_vmm_alloc;

/* A reservation. */
struct weir_vmm_space {
    uint64_t base, bytes;
    uint64_t room; /* addresses taken from the area: more than bytes for some alignments */
    bool held;     /* the worker holds the addresses itself, for memory of the host (vmm_host.c) */
};

struct weir_session_vmm_map {
    uint64_t base, bytes;
    struct weir_vmm_alloc *alloc; /* a reference */
    uint32_t access;              /* CUmemAccess_flags */
};

/* Both sorted by base and without overlaps; a zeroed book is empty. */
struct weir_vmm_book {
    struct weir_vmm_space *spaces; /* owned */
    size_t n_spaces, spaces_room;
    struct weir_session_vmm_map *maps; /* owned */
    size_t n_maps, maps_room;
    size_t n_read_only; /* maps that allow only reading */
};

/** Add a reservation. WEIR_ERR_EXISTS (overlap), WEIR_ERR_QUOTA (too many), WEIR_ERR_NO_MEMORY */
enum weir_status weir_vmm_space_add(struct weir_vmm_book *book,
                                    struct weir_vmm_space space) WEIR_MUST_CHECK;

/**
 * Remove the reservation that begins at base.
 * @return WEIR_OK, WEIR_ERR_NOT_FOUND, WEIR_ERR_EXISTS (something is mapped in it)
 */
enum weir_status weir_vmm_space_remove(struct weir_vmm_book *book, uint64_t base,
                                       struct weir_vmm_space *ret_space) WEIR_MUST_CHECK;

/** The reservation that the range lies in; NULL: none. Valid until the book's spaces change. */
struct weir_vmm_space *weir_vmm_space_of(const struct weir_vmm_book *book, uint64_t base,
                                         uint64_t bytes);
/** Is nothing mapped in it? */
bool weir_vmm_space_is_empty(const struct weir_vmm_book *book, const struct weir_vmm_space *space);

/**
 * Add a mapping; it must lie in one reservation and overlap no other mapping.
 * @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_QUOTA, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_vmm_map_add(struct weir_vmm_book *book,
                                  struct weir_session_vmm_map map) WEIR_MUST_CHECK;

/** Find the mappings that together make up exactly the range: gives the index of the first; returns
 * their number, or 0. */
size_t weir_vmm_maps_of(const struct weir_vmm_book *book, uint64_t base, uint64_t bytes,
                        size_t *ret_first);

/** Remove n mappings from the first on. */
void weir_vmm_maps_remove(struct weir_vmm_book *book, size_t first, size_t n);

/** Change a mapping's access. */
void weir_vmm_map_set_access(struct weir_vmm_book *book, size_t at, uint32_t access);

/** Does the range touch memory that may only be read? */
bool weir_vmm_touches_read_only(const struct weir_vmm_book *book, uint64_t base, uint64_t bytes);

/** Free the arrays. */
void weir_vmm_book_finish(struct weir_vmm_book *book);
