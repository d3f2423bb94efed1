/*
 * What guests count of their calls (weir stats): read from their segments when somebody asks, or as
 * a remote guest last said; and kept of the last sessions that have ended.
 *
 * Source: docs/design/stats.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATS_H
#define WEIR_HOST_BACKEND_WORKER_STATS_H

#include "proto/transport/stats_page.h"
#include <stddef.h>

struct weir_session;
struct weir_worker;

#define WEIR_STATS_ENDED_MAX 16 /* sessions kept after their end */

/* Functions that were called. Their names are sound. */
struct weir_stats_set {
    size_t n;
    struct weir_stats_row rows[];
};

/**
 * Sum a guest's page, of which nothing is believed.
 *
 * @param page  the guest may write it meanwhile; NULL: none.
 * @return a set to free(); NULL when there is no page, no sense in it, or no memory.
 * @thread any
 */
struct weir_stats_set *weir_stats_read_page(const struct weir_stats_page *page);

/** The same from the rows that a remote guest sent; bytes that make no whole row are left away. */
struct weir_stats_set *weir_stats_read_rows(const void *data, size_t bytes);

/** The session has ended: keep its statistics. @thread any, the worker's lock held */
void weir_stats_keep_locked(struct weir_session *session);

/**
 * A file with the statistics of all sessions, live and ended, as rows of status_text.h.
 * @return a descriptor, the caller's; -1: none could be made.
 * @thread any
 */
int weir_stats_file(struct weir_worker *worker);

/** Forget the ended ones. @thread the last one */
void weir_stats_finish(struct weir_worker *worker);

#endif
