/*
 * What `weir stats` says about sessions: live ones when somebody asks, and the last ones that have
 * ended.
 *
 * Source: docs/design/stats.md
 */
#ifndef WEIR_HOST_BACKEND_WORKER_STATS_H
#define WEIR_HOST_BACKEND_WORKER_STATS_H

struct weir_session;
struct weir_worker;

#define WEIR_STATS_ENDED_MAX 16 /* sessions kept after their end */

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
