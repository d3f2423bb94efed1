/*
 * Status as text: one flat JSON object a line, whose kind is in "row".
 *
 * Writer (supervisor) and reader (weir status) share the fields of status.def, so they cannot
 * disagree. Readers ignore keys that they do not know.
 */
#pragma once

#include "host_backend/config/control.h"
#include <stdbool.h>
#include <stdio.h>

/* The last line on the socket: an answer without it was cut off. Not shown to users. */
#define WEIR_STATUS_TEXT_END "{\"row\":\"end\"}\n"

enum weir_status_kind {
    WEIR_STATUS_TEXT,
    WEIR_STATUS_U32,
    WEIR_STATUS_U64,
    WEIR_STATUS_REAL,
};

/* How the values of several workers are combined. */
enum weir_status_merge {
    WEIR_STATUS_KEEP,
    WEIR_STATUS_SUM,
    WEIR_STATUS_ANY,
    WEIR_STATUS_FIRST,
};

enum weir_status_unit {
    WEIR_STATUS_ONE,
    WEIR_STATUS_NANOSECONDS,
    WEIR_STATUS_PERCENT,
};

/* How a figure is shown as a metric. */
struct weir_status_metric {
    const char *name; /* NULL: the field is no metric */
    const char *type, *help;
    enum weir_status_unit unit;
    const char *label;  /* ',direction="to_device"'; NULL: none */
    bool scheduled;     /* the metric exists only where there is a scheduler */
    const char *bucket; /* bound in the histogram of waits, in seconds; NULL: no bucket */
};

/* A field of status.def. */
struct weir_status_field {
    const char *name; /* NULL: the end of the table */
    enum weir_status_kind kind;
    size_t offset, size; /* in struct weir_status_<row> */
    enum weir_status_merge merge;
    struct weir_status_metric metric;
};

extern const struct weir_status_field weir_status_tenant_fields[];
extern const struct weir_status_field weir_status_extra_fields[];
extern const struct weir_status_field weir_status_device_fields[];
extern const struct weir_status_field weir_status_session_fields[];
extern const struct weir_status_field weir_status_worker_fields[];

/**
 * Merge another worker's row of the same tenant or device into sum.
 * @param fields    of both rows.
 * @param sum, row  structs of that kind.
 * @thread any
 */
void weir_status_merge(const struct weir_status_field *fields, void *sum, const void *row);

/** Put a NUL at the end of all texts of a row, since its sender may not have. @thread any */
void weir_status_end_texts(const struct weir_status_field *fields, void *row);

/** Write all rows, the last one {"row":"end"}. @thread any */
void weir_status_text_write(FILE *out, const struct weir_status_report *report);

/** Make a file in memory for rows of `weir stats`. @return for fclose(), or NULL @thread any */
FILE *weir_status_text_file(void);
/** Write one row of `weir stats`; the session's functions follow it. @thread any */
void weir_status_text_counted(FILE *out, const struct weir_status_counted *row);
void weir_status_text_prediction(FILE *out, const struct weir_status_prediction *row);
void weir_status_text_function(FILE *out, const struct weir_status_function *row);
void weir_status_text_form(FILE *out, const struct weir_status_count *row);
/** Write a row of a device; it follows all sessions. @thread any */
void weir_status_text_run(FILE *out, const struct weir_status_count *row);

/** Write one row. @thread any */
void weir_status_text_tenant(FILE *out, const struct weir_status_tenant *row);
void weir_status_text_device(FILE *out, const struct weir_status_device *row);
void weir_status_text_setting(FILE *out, const struct weir_status_setting *row);
void weir_status_text_check(FILE *out, const struct weir_status_check *row);
/** @param of  the row's name: "tenant_rate" and so on. @thread any */
void weir_status_text_rate(FILE *out, const char *of, const struct weir_status_rate *row);
/** Write an event. @thread any */
void weir_status_text_event(FILE *out, const struct weir_status_event *row);

/**
 * Read the output of weir_status_text_write().
 *
 * @param text  NUL-terminated; changed.
 * @return WEIR_OK, WEIR_ERR_PEER (not such a text, or cut off), WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_status_text_read(char *text,
                                       struct weir_status_report **ret_report) WEIR_MUST_CHECK;
