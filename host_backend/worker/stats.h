/*
 * The worker's reports to the supervisor: its devices, its sessions, and statistics of these and of
 * the last ended ones.
 *
 * Source: docs/design/stats.md
 */
#pragma once

#include "host_backend/config/control.h"
#include <stdbool.h>

struct weir_session;
struct weir_worker;

#define WEIR_STATS_ENDED_MAX 16 /* how many ended sessions are kept */

/** A session has ended: keep its statistics. @thread any, the worker's lock held */
void weir_stats_keep_locked(struct weir_session *session);

/** Describe the worker and its devices. @thread main */
void weir_worker_status_fill(struct weir_worker *worker, struct weir_status_worker *row);

/**
 * Send the rows that WEIR_LINK_STATUS and WEIR_LINK_STATS ask for. Programs that have just ended
 * are left out, with their resources.
 * @param stats    include statistics.
 * @param devices  include NVML's values of the devices.
 * @thread main; the first device's context is current in it afterwards
 */
void weir_worker_tell_status(struct weir_worker *worker, bool stats, bool devices);

/** Free the statistics of ended sessions. @thread the last one */
void weir_stats_finish(struct weir_worker *worker);
