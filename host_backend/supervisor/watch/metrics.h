/*
 * Metrics in Prometheus' text format, and the part of HTTP that is needed to serve them.
 *
 * Pure functions: they format a report and check a request. metrics_http.c has the sockets.
 */
#pragma once

#include "host_backend/config/control.h"
#include <stdio.h>

/**
 * Write a report as metrics.
 *
 * Every configured tenant has every series, also when it is idle, except those of a scheduler where
 * there is none.
 *
 * @param start_time_s  when the host began, in seconds since 1970.
 * @thread any
 */
void weir_metrics_write(FILE *out, const struct weir_status_report *report, double start_time_s);

#define WEIR_HTTP_HEAD_MAX 4096 /* bytes of a request; its body is never read */
#define WEIR_HTTP_MORE     0    /* the request has not ended yet */

/**
 * Check the part of a request that has come.
 * @param head any bytes.
 * @param bytes 0 .. WEIR_HTTP_HEAD_MAX.
 * @param ret_head the answer's body is not wanted (HEAD).
 * @return WEIR_HTTP_MORE, or the status of the answer: 200 (GET or HEAD of /metrics), 400, 404,
 * 405, 431 (too long), 505
 * @thread any
 */
int weir_http_judge(const char *head, size_t bytes, bool *ret_head);

/** The text of a status: "404 Not Found" and so on. */
const char *weir_http_reason(int status);
