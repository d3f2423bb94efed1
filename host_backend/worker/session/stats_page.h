/*
 * Statistics that guests keep of their calls: read from their segments on request, or as a remote
 * guest sent them last.
 *
 * Source: docs/design/stats.md
 */
#pragma once

#include "proto/transport/stats_page.h"
#include <stddef.h>

/* Functions that were called. Their names have only characters of symbols. */
struct weir_stats_set {
    size_t n;
    struct weir_stats_row rows[];
};

/**
 * Read a guest's page; nothing in it is trusted.
 *
 * @param page  the guest may write it at the same time; NULL: none.
 * @return a set to free(); NULL when there is no page, no valid content, or no memory.
 * @thread any
 */
struct weir_stats_set *weir_stats_read_page(const struct weir_stats_page *page);

/** Like weir_stats_read_page(), from a remote guest's rows; an incomplete row is ignored. */
struct weir_stats_set *weir_stats_read_rows(const void *data, size_t bytes);
