/* Writes and reads a status as text: one flat JSON object a line, from one table of fields. */
#include "host_backend/config/status_text.h"

#include "base/gpu_uuid.h"
#include "base/text.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The columns of status.def. */
/* clang-format off */
#define TEXT(n) WEIR_STATUS_TEXT
#define U32     WEIR_STATUS_U32
#define U64     WEIR_STATUS_U64
#define REAL    WEIR_STATUS_REAL
#define SUM     .merge = WEIR_STATUS_SUM
#define ANY     .merge = WEIR_STATUS_ANY
#define FIRST   .merge = WEIR_STATUS_FIRST
#define METRIC(text, of, in, about, ...)                                                           \
    .metric = {.name = text, .type = of, .unit = WEIR_STATUS_##in, .help = about, ##__VA_ARGS__}
#define GAUGE(text, unit, help, ...)   METRIC(text, "gauge", unit, help, ##__VA_ARGS__)
#define COUNTER(text, unit, help, ...) METRIC(text, "counter", unit, help, ##__VA_ARGS__)
#define WAITS(seconds)                 .metric = {.bucket = seconds}
#define LABEL(key, value)              .label = "," key "=\"" value "\""
#define SCHEDULED                      .scheduled = true
#define FIELD(type, of, member, ...)                                                               \
    {.name = #member, .kind = of, .offset = offsetof(struct type, member),                         \
     .size = sizeof(((struct type *)0)->member), ##__VA_ARGS__}

#define WEIR_STATUS_BEGIN(row) const struct weir_status_field weir_status_##row##_fields[] = {
#define WEIR_STATUS(row, type, member, ...) FIELD(weir_status_##row, type, member, ##__VA_ARGS__),
#define WEIR_STATUS_MEMBER(row, type, member)
#define WEIR_STATUS_END(row) {.name = NULL}};
/* clang-format on */
#include "host_backend/config/status.def"

#define HOST(type, member)  FIELD(weir_status_report, type, member)
#define COUNT(type, member) FIELD(weir_status_count, type, member)
static const struct weir_status_field host_fields[] = {
    HOST(TEXT(), version),    HOST(U32, protocol),  HOST(TEXT(), run_dir),
    HOST(U64, pid),           HOST(REAL, age_s),    HOST(U64, kept_fds),
    HOST(TEXT(), policy),     HOST(TEXT(), config), HOST(U32, memory_promised_pct),
    HOST(U64, worker_starts), HOST(U32, drained),   {.name = NULL}};
static const struct weir_status_field form_fields[] = {
    COUNT(TEXT(), name), COUNT(U64, n), {.name = NULL}};
static const struct weir_status_field run_fields[] = {
    COUNT(TEXT(), device), COUNT(TEXT(), name), COUNT(U64, n), {.name = NULL}};

/* The kinds of rows of a report, for the reader. */
static const struct {
    const char *name;
    const struct weir_status_field *fields;
    size_t array, n, size; /* offsets in the report, and an element's size; 0: the report itself */
    size_t counted; /* offset of the index of the weir_status_counted that the row belongs to; else
                       0 */
} rows[] = {
#define ROWS(row, type, fields, member, counted)                                                   \
    {row,                                                                                          \
     fields,                                                                                       \
     offsetof(struct weir_status_report, member),                                                  \
     offsetof(struct weir_status_report, n_##member),                                              \
     sizeof(struct type),                                                                          \
     counted},
    {"host", host_fields, 0, 0, 0, 0}, WEIR_STATUS_ARRAYS(ROWS)};
#define N_ROWS  WEIR_COUNT(rows)
#define WRITTEN 11 /* weir_status_text_write() writes the first 11 kinds */

/* Write a number: without a fraction if it is whole, such as bytes. JSON has no NAN. */
static void put_real(FILE *out, double value)
{
    if (isnan(value)) {
        fputs("null", out);
    } else {
        bool whole = value > -1e15 && value < 1e15 && value == (double)(int64_t)value;

        fprintf(out, whole ? "%.0f" : "%.3f", value); /* 4051369984, not .000 */
    }
}

static void write_row(FILE *out, const char *row, const struct weir_status_field *fields,
                      const void *object)
{
    fprintf(out, "{\"row\":\"%s\"", row);
    for (const struct weir_status_field *f = fields; f->name; f++) {
        const char *at = (const char *)object + f->offset;

        fprintf(out, ",\"%s\":", f->name);
        switch (f->kind) {
        case WEIR_STATUS_TEXT:
            weir_json_put(out, at);
            break;
        case WEIR_STATUS_U32:
            fprintf(out, "%u", *(const uint32_t *)(const void *)at);
            break;
        case WEIR_STATUS_U64:
            fprintf(out, "%llu", (unsigned long long)*(const uint64_t *)(const void *)at);
            break;
        case WEIR_STATUS_REAL:
            put_real(out, *(const double *)(const void *)at);
            break;
        }
    }
    fputs("}\n", out);
}

static void *at(const void *object, size_t offset)
{
    return (char *)(uintptr_t)object + offset;
}

void weir_status_text_write(FILE *out, const struct weir_status_report *report)
{
    write_row(out, "host", host_fields, report);
    for (size_t k = 1; k < WRITTEN; k++) {
        const char *array = *(char **)at(report, rows[k].array);
        size_t n = *(size_t *)at(report, rows[k].n);

        for (size_t i = 0; i < n; i++) {
            write_row(out, rows[k].name, rows[k].fields, array + i * rows[k].size);
        }
    }
    fputs(WEIR_STATUS_TEXT_END, out);
}

void weir_status_device_init(struct weir_status_device *row, const uint8_t *u)
{
    *row = (struct weir_status_device){
        .free_bytes = NAN, .utilization_pct = NAN, .temperature_c = NAN, .power_w = NAN};
    weir_gpu_uuid_text(u, row->uuid);
}

#define WRITER(row)                                                                                \
    void weir_status_text_##row(FILE *out, const struct weir_status_##row *object)                 \
    {                                                                                              \
        write_row(out, #row, weir_status_##row##_fields, object);                                  \
    }
WRITER(tenant)
WRITER(device)
WRITER(setting)
WRITER(check)
WRITER(event)
WRITER(counted)
WRITER(function)
WRITER(prediction)

void weir_status_text_rate(FILE *out, const char *of, const struct weir_status_rate *row)
{
    write_row(out, of, weir_status_rate_fields, row);
}

void weir_status_text_form(FILE *out, const struct weir_status_count *row)
{
    write_row(out, "form", form_fields, row);
}

void weir_status_text_run(FILE *out, const struct weir_status_count *row)
{
    write_row(out, "run", run_fields, row);
}

FILE *weir_status_text_file(void)
{
    int fd = memfd_create("weir-stats", MFD_CLOEXEC);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (!out && fd >= 0) {
        close(fd);
    }
    return out;
}

/* ---------------------------------------------------------------- several rows, others' rows */

static bool is_known(const struct weir_status_field *f, const void *row)
{
    const void *value = at(row, f->offset);

    switch (f->kind) {
    case WEIR_STATUS_TEXT:
        return *(const char *)value != 0;
    case WEIR_STATUS_U32:
        return *(const uint32_t *)value != 0;
    case WEIR_STATUS_U64:
        return *(const uint64_t *)value != 0;
    case WEIR_STATUS_REAL:
        return !isnan(*(const double *)value);
    }
    return false;
}

static void add(const struct weir_status_field *f, void *sum, const void *row)
{
    if (f->kind == WEIR_STATUS_U32) {
        *(uint32_t *)at(sum, f->offset) += *(const uint32_t *)at(row, f->offset);
    } else if (f->kind == WEIR_STATUS_U64) {
        *(uint64_t *)at(sum, f->offset) += *(const uint64_t *)at(row, f->offset);
    }
}

void weir_status_merge(const struct weir_status_field *fields, void *sum, const void *row)
{
    for (const struct weir_status_field *f = fields; f->name; f++) {
        switch (f->merge) {
        case WEIR_STATUS_SUM:
            add(f, sum, row);
            break;
        case WEIR_STATUS_ANY:
        case WEIR_STATUS_FIRST:
            if (!is_known(f, sum)) {
                memcpy(at(sum, f->offset), at(row, f->offset), f->size);
            }
            break;
        case WEIR_STATUS_KEEP:
            break;
        }
    }
}

void weir_status_end_texts(const struct weir_status_field *fields, void *row)
{
    for (const struct weir_status_field *f = fields; f->name; f++) {
        if (f->kind == WEIR_STATUS_TEXT) {
            ((char *)at(row, f->offset))[f->size - 1] = 0;
        }
    }
}

/* ---------------------------------------------------------------- reading */

/* Decode \uXXXX to UTF-8, from its first digit on; returns the number of bytes. */
static size_t read_escape(const char *digits, char bytes[3])
{
    char hex[5] = "";

    memcpy(hex, digits, strnlen(digits, 4));
    unsigned code = (unsigned)strtoul(hex, NULL, 16);
    if (code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    bytes[0] = (char)(0xe0 | code >> 12);
    bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
    bytes[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

/* Read a string at *at (behind its quote) into room; false if the string does not end. */
static bool read_string(char **at, char *room, size_t room_bytes)
{
    size_t used = 0;
    char *p = *at;

    for (; *p != '"'; p++) {
        char bytes[3] = {*p};
        size_t n = 1;

        if (*p == '\\') {
            p++;
            bytes[0] = *p;
            if (*p == 'u') {
                n = read_escape(p + 1, bytes);
                p += strnlen(p + 1, 4);
            }
        }
        WEIR_FAIL_IF(*p == 0, false);
        if (used + n < room_bytes) {
            memcpy(room + used, bytes, n);
            used += n;
        } else {
            room_bytes = used; /* the room is full: drop the rest */
        }
    }
    room[used] = 0;
    *at = p + 1;
    return true;
}

static void store(const struct weir_status_field *fields, void *object, const char *key,
                  bool is_text, const char *text)
{
    for (const struct weir_status_field *f = fields; fields && f->name; f++) {
        char *at = (char *)object + f->offset;

        if (strcmp(f->name, key) != 0 || is_text != (f->kind == WEIR_STATUS_TEXT)) {
            continue;
        }
        switch (f->kind) {
        case WEIR_STATUS_TEXT:
            snprintf(at, f->size, "%s", text);
            break;
        case WEIR_STATUS_U32:
            *(uint32_t *)(void *)at = (uint32_t)strtoul(text, NULL, 10);
            break;
        case WEIR_STATUS_U64:
            *(uint64_t *)(void *)at = strtoull(text, NULL, 10);
            break;
        case WEIR_STATUS_REAL:
            *(double *)(void *)at = strcmp(text, "null") == 0 ? NAN : strtod(text, NULL);
            break;
        }
    }
}

/* Read the fields of a line behind its first field; *at stands behind that field's value. */
static bool read_fields(char *at, const struct weir_status_field *fields, void *object)
{
    char key[32], text[512];

    while (at[0] == ',' && at[1] == '"') {
        at += 2;
        WEIR_FAIL_IF(!read_string(&at, key, sizeof key) || *at++ != ':', false);
        bool is_text = *at == '"';
        if (is_text) {
            at++;
            WEIR_FAIL_IF(!read_string(&at, text, sizeof text), false);
        } else {
            size_t n = strcspn(at, ",}");

            snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), at);
            at += n;
        }
        store(fields, object, key, is_text, text);
    }
    return strcmp(at, "}") == 0;
}

/* Append a zeroed element to an array. */
static void *grow(void **array, size_t *n, size_t size)
{
    void *bigger = realloc(*array, (*n + 1) * size);

    WEIR_FAIL_IF(!bigger, NULL);
    *array = bigger;
    return memset((char *)bigger + (*n)++ * size, 0, size);
}

/* Find the object that a row of this kind fills: a new element of its array. NULL: no memory. */
static void *make_object(struct weir_status_report *report, size_t k)
{
    if (rows[k].size == 0) {
        return report;
    }
    void *object = grow(at(report, rows[k].array), at(report, rows[k].n), rows[k].size);
    if (object && rows[k].counted != 0) {
        *(uint32_t *)at(object, rows[k].counted) = (uint32_t)report->n_counted - 1;
    }
    return object;
}

static enum weir_status read_line(char *line, struct weir_status_report *report, bool *ret_end)
{
    static const char start[] = "{\"row\":\"";
    void *object = NULL;
    char row[32];
    size_t k = 0;

    WEIR_FAIL_IF(strncmp(line, start, sizeof start - 1) != 0, WEIR_ERR_PEER);
    line += sizeof start - 1;
    WEIR_FAIL_IF(!read_string(&line, row, sizeof row), WEIR_ERR_PEER);
    while (k < N_ROWS &&
           (strcmp(row, rows[k].name) != 0 || (rows[k].counted != 0 && report->n_counted == 0))) {
        k++;
    }
    if (k < N_ROWS) {
        object = make_object(report, k);
        WEIR_FAIL_IF(!object, WEIR_ERR_NO_MEMORY);
    } else {
        *ret_end = strcmp(row, "end") == 0;
    }
    return read_fields(line, k < N_ROWS ? rows[k].fields : NULL, object) ? WEIR_OK : WEIR_ERR_PEER;
}

enum weir_status weir_status_text_read(char *text, struct weir_status_report **ret_report)
{
    struct weir_status_report *report = calloc(1, sizeof *report);
    enum weir_status status = report ? WEIR_OK : WEIR_ERR_NO_MEMORY;
    bool end = false;
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); status == WEIR_OK && line && !end;
         line = strtok_r(NULL, "\n", &rest)) {
        status = read_line(line, report, &end);
    }
    if (status == WEIR_OK && !end) {
        status = WEIR_ERR_PEER;
    }
    if (status != WEIR_OK) {
        weir_status_report_destroy(report);
        return status;
    }
    *ret_report = report;
    return WEIR_OK;
}

void weir_status_report_destroy(struct weir_status_report *report)
{
    for (size_t k = 1; report && k < N_ROWS; k++) {
        free(*(void **)at(report, rows[k].array));
    }
    free(report);
}
