/*
 * Status as text: one flat JSON object a line, told apart by "row".
 *
 * Writer (supervisor) and reader (weir status) share the table of fields in status_text.c, so they
 * cannot disagree. Readers ignore keys that they do not know.
 */
#ifndef WEIR_HOST_BACKEND_CONFIG_STATUS_TEXT_H
#define WEIR_HOST_BACKEND_CONFIG_STATUS_TEXT_H

#include "host_backend/config/control.h"
#include <stdio.h>

/* The last line on the socket: without it the answer was cut off. Not shown to users. */
#define WEIR_STATUS_TEXT_END "{\"row\":\"end\"}\n"

/** Write all rows, the last one {"row":"end"}. @thread any */
void weir_status_text_write(FILE *out, const struct weir_status_report *report);

/** Write one row of `weir stats`; a session's functions follow it. @thread any */
void weir_status_text_counted(FILE *out, const struct weir_status_counted *row);
void weir_status_text_prediction(FILE *out, const struct weir_status_prediction *row);
void weir_status_text_function(FILE *out, const struct weir_status_function *row);
void weir_status_text_form(FILE *out, const struct weir_status_count *row);
/** Of a device: behind all sessions. @thread any */
void weir_status_text_run(FILE *out, const struct weir_status_count *row);

/** Write one row. @thread any */
void weir_status_text_tenant(FILE *out, const struct weir_status_tenant *row);
void weir_status_text_device(FILE *out, const struct weir_status_device *row);
void weir_status_text_setting(FILE *out, const struct weir_status_setting *row);
void weir_status_text_policy(FILE *out, const struct weir_status_policy *row);
void weir_status_text_check(FILE *out, const struct weir_status_check *row);
/** @param of  the row's name: "tenant_rate" and so on. @thread any */
void weir_status_text_rate(FILE *out, const char *of, const struct weir_status_rate *row);
/** Write what happened. @thread any */
void weir_status_text_event(FILE *out, const struct weir_status_event *row);

/**
 * Read what weir_status_text_write() wrote.
 *
 * @param text  NUL-terminated; changed.
 * @return WEIR_OK, WEIR_ERR_PEER (not such a text, or cut off), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_status_text_read(char *text,
                                       struct weir_status_report **ret_report) WEIR_MUST_CHECK;

#endif
