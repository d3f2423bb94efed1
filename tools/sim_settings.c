#include "tools/sim_settings.h"

#include "sched/tuning.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 128u
#define AT(field)  offsetof(struct weir_sched_config, field)

/* A numeric setting of struct weir_sched_config; settings of 64 bits are times. */
static const struct number {
    const char *name;
    size_t offset;
    uint64_t factor; /* nanoseconds in the setting's unit; 0: a 32-bit number without a unit */
    uint64_t min, max;
} numbers[] = {
    {"alone_us", AT(alone_ns), 1000, 1, 1000000},
    {"inflight_us", AT(inflight_ns), 1000, 1, 1000000},
    {"guess_us", AT(guess_ns), 1000, 1, 1000000},
    {"quiet_us", AT(quiet_ns), 1000, 1, 1000000},
    {"starve_ms", AT(starve_ns), 1000000, 1, 1000000},
    {"lease_ms", AT(lease_ns), 1000000, 1, 1000000},
    {"overhead_ppm", AT(overhead_ppm), 0, 1, 1000000},
    {"small_sms", AT(small_sms), 0, 0, 1000000},
    {"above", AT(above), 0, 0, 1},
    {"room_sms", AT(room_sms), 0, 0, 1000000},
    {"part_step", AT(part_step), 0, 0, 1000000},
};

static bool read_whole(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    char *end;
    WEIR_FAIL_IF(*text < '0' || *text > '9', false);
    errno = 0;
    *ret_value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *ret_value >= min && *ret_value <= max;
}

static bool set_number(struct weir_sched_config *config, const struct number *number,
                       const char *value)
{
    uint64_t read;
    WEIR_FAIL_IF(!read_whole(value, number->min, number->max, &read), false);
    if (number->factor != 0) {
        uint64_t ns = read * number->factor;
        memcpy((char *)config + number->offset, &ns, sizeof ns);
    } else {
        uint32_t narrow = (uint32_t)read;
        memcpy((char *)config + number->offset, &narrow, sizeof narrow);
    }
    return true;
}

static bool set_fill(struct weir_sim_params *params, const char *value)
{
    uint32_t i = 0;
    while (weir_sched_fill_words[i] && strcmp(weir_sched_fill_words[i], value) != 0) {
        i++;
    }
    WEIR_FAIL_IF(!weir_sched_fill_words[i], false);
    params->config.fill = (enum weir_sched_fill)i;
    params->config.small_sms =
        i == WEIR_SCHED_FILL_ALL ? tuning.small_devices * params->gpu.sms : 0;
    params->config.above = i == WEIR_SCHED_FILL_ALL;
    return true;
}

/* A row of sched/tuning.def. */
static const struct row {
    const char *name;
    size_t offset;
    enum { ROW_COUNT, ROW_TIME, ROW_FACTOR } kind;
} rows[] = {
#define WEIR_TUNING(name, type, value, unit, reason, measurement)                                  \
    {#name, offsetof(struct weir_tuning, name),                                                    \
     _Generic((type)0, uint32_t                                                                    \
              : ROW_COUNT, uint64_t                                                                \
              : ROW_TIME, int64_t                                                                  \
              : ROW_TIME, double                                                                   \
              : ROW_FACTOR)},
#include "sched/tuning.def"
#undef WEIR_TUNING
};

static const struct row *row_named(const char *name, size_t length)
{
    size_t at =
        WEIR_FIRST(i, WEIR_COUNT(rows),
                   strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0);
    return at < WEIR_COUNT(rows) ? &rows[at] : NULL;
}

/* Integers must be at least 1, because some are divisors. */
static bool tune_row(const struct row *row, double value)
{
    char *field = (char *)&tuning + row->offset;
    double most = row->kind == ROW_COUNT ? UINT32_MAX : 1e18;

    WEIR_FAIL_IF(!(value > 0 && value <= most) || (row->kind != ROW_FACTOR && value < 1), false);
    int64_t time = (int64_t)value;
    uint32_t count = (uint32_t)time;
    memcpy(field,
           row->kind == ROW_FACTOR  ? (const void *)&value
           : row->kind == ROW_COUNT ? (const void *)&count
                                    : (const void *)&time,
           row->kind == ROW_COUNT ? sizeof count : sizeof time);
    return true;
}

bool weir_sim_settings_tune(const char *text, char *ret_error)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        size_t name = strcspn(text, "=,");
        const struct row *row = text[name] == '=' ? row_named(text, name) : NULL;
        char *end = NULL;
        double value = row ? strtod(text + name + 1, &end) : 0;

        if (!row || end != text + length || !tune_row(row, value)) {
            (void)snprintf(ret_error, WEIR_SIM_SETTINGS_ERROR_BYTES,
                           "'%.*s' is no row of sched/tuning.def with a value that it may have",
                           (int)(WEIR_MIN(length, 60)), text);
            return false;
        }
        text += length + (text[length] == ',');
    }
    return true;
}

/* Read names with '+' between them, because commas separate settings. */
static bool set_policies(struct weir_sim_params *params, char *value)
{
    for (char *at = strchr(value, '+'); at; at = strchr(at, '+')) {
        *at = ',';
    }
    return weir_policy_set_parse(value, &params->policies, NULL) == WEIR_OK;
}

static bool set_one(struct weir_sim_params *params, const char *word)
{
    char copy[WORD_BYTES];
    (void)snprintf(copy, sizeof copy, "%s", word);
    char *value = strchr(copy, '=');
    WEIR_FAIL_IF(!value || strlen(word) >= sizeof copy, false);
    *value++ = '\0';
    if (strcmp(copy, "policy") == 0) {
        return set_policies(params, value);
    }
    if (strcmp(copy, "fill") == 0) {
        return set_fill(params, value);
    }
    if (strcmp(copy, "domains") == 0) {
        params->knows_contexts = strcmp(value, "contexts") == 0;
        return params->knows_contexts || strcmp(value, "load") == 0;
    }
    if (strcmp(copy, "contexts") == 0) {
        params->own_contexts = strcmp(value, "own") == 0;
        return params->own_contexts || strcmp(value, "load") == 0;
    }
    size_t at = WEIR_FIRST(i, WEIR_COUNT(numbers), strcmp(copy, numbers[i].name) == 0);
    return at < WEIR_COUNT(numbers) ? set_number(&params->config, &numbers[at], value)
                                    : weir_sim_gpu_set(&params->gpu, word, strlen(word)) == WEIR_OK;
}

bool weir_sim_settings_apply(struct weir_sim_params *params, const char *text, char *ret_error)
{
    while (*text != '\0') {
        char word[WORD_BYTES];
        size_t length = strcspn(text, ",");
        (void)snprintf(word, sizeof word, "%.*s", (int)(WEIR_MIN(length, WORD_BYTES)), text);
        if (length >= sizeof word || !set_one(params, word)) {
            (void)snprintf(ret_error, WEIR_SIM_SETTINGS_ERROR_BYTES,
                           "'%.60s' is no setting with a value that it may have", word);
            return false;
        }
        text += length + (text[length] == ',');
    }
    return true;
}
