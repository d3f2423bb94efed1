/* Reads /proc/self/maps: which memory the process has mapped, and how. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A line of /proc/self/maps. */
struct weir_mapping {
    uint64_t from, to;
    uint64_t offset, inode; /* offset and inode of the mapped file */
    unsigned int major, minor;
    int protection; /* PROT_READ and so on */
    bool shared;
    char path[400]; /* "" if the path is longer */
};

/**
 * Call fn for each mapping, in order of addresses, until it returns false.
 * @return false: there is no /proc.
 * @thread any
 */
bool weir_maps_visit(bool (*fn)(const struct weir_mapping *mapping, void *user), void *user);

/** VmPin: bytes that the kernel has pinned; 0 if unknown. @thread any */
uint64_t weir_maps_pinned_bytes(void);
