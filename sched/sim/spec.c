/*
 * The parser of the generator's language: groups with ';' or newlines between them, words with
 * blanks, KEY=VALUE each. '#' begins a comment. weir-trace(1) lists the keys.
 */
#include "sched/sim/spec.h"

#include "base/grow.h"
#include "sched/sim/gpu.h"
#include "sched/trace/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX  4096u
#define SECONDS_MAX 86400.0

enum value_kind { COUNT, SPAN, SIZE, PLAIN, PART, AMOUNT_NS, AMOUNT_BYTES, NAME, WORD };

struct key {
    const char *name;
    enum value_kind kind;
    size_t offset;
    double min; /* least value of numbers, and of both ends of ranges */
    double max;
};

#define AT(field) offsetof(struct weir_sim_group, field)

static const struct key keys[] = {
    {"tenants", COUNT, AT(tenants), 1, 10000},
    {"weight", PLAIN, AT(weight), 1, WEIR_SCHED_WEIGHT_MAX},
    {"limit", COUNT, AT(sm_limit), 1, 100},
    {"min", COUNT, AT(min_share), 0, 100},
    {"gpu", COUNT, AT(streams.gpu), 0, WEIR_SCHED_TRACE_GPUS_MAX - 1},
    {"ranks", COUNT, AT(streams.ranks), 1, WEIR_SCHED_TRACE_GPUS_MAX},
    {"gpus", COUNT, AT(streams.gpus), 1, WEIR_SCHED_TRACE_GPUS_MAX},
    {"streams", COUNT, AT(streams.n), 1, 64},
    {"keys", COUNT, AT(keys), 1, 1000},
    {"kernel", SPAN, AT(kernel_ns), 100, SECONDS_MAX * 1e9},
    {"blocks", PLAIN, AT(blocks), 1, 2147483647},
    {"per_sm", COUNT, AT(blocks_per_sm), 1, 32},
    {"graph", PLAIN, AT(graph_sms), 1, WEIR_SIM_SMS_MAX},
    {"jitter", PART, AT(jitter), 0, 0.99},
    {"need", PART, AT(need), 0, 1},
    {"memory", PART, AT(memory), 0, 1},
    {"kernels", COUNT, AT(kernels), 0, 1000},
    {"h2d", SIZE, AT(copies.h2d), 1, 1e13},
    {"d2h", SIZE, AT(copies.d2h), 1, 1e13},
    {"cut", AMOUNT_BYTES, AT(copies.cut_bytes), 4096, 1e13},
    {"stage", SPAN, AT(copies.stage_ns), 0, SECONDS_MAX * 1e9},
    {"think", SPAN, AT(think_ns), 0, SECONDS_MAX * 1e9},
    {"depth", COUNT, AT(depth), 1, 1024},
    {"start", AMOUNT_NS, AT(start_ns), 0, SECONDS_MAX * 1e9},
    {"items", COUNT, AT(items), 1, 4294967295.0},
    {"name", NAME, AT(name), 0, 0},
    {"priority", WORD, 0, 0, 0},
    {"form", WORD, 0, 0, 0},
    {"arrive", WORD, 0, 0, 0},
    {"predicted", WORD, 0, 0, 0},
    {"context", WORD, 0, 0, 0},
};

struct scan {
    const char *at;
    uint32_t line;
    const char *line_start;
    struct weir_diag *diag;
};

static enum weir_status fail(const struct scan *scan, const char *at, const char *what,
                             const char *word)
{
    weir_diag_set(scan->diag, scan->line, (uint32_t)(at - scan->line_start) + 1, "%s '%.40s'", what,
                  word);
    return WEIR_ERR_SYNTAX;
}

struct unit {
    const char *name;
    double factor;
};

static const struct unit time_units[] = {
    {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};
static const struct unit byte_units[] = {
    {"", 1},       {"K", 1024},      {"M", 1048576},        {"G", 1073741824.0},
    {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824.0}, {NULL, 0}};
static const struct unit no_units[] = {{"", 1}, {NULL, 0}};

/* Parse a number and its unit, which must be all of the text. */
static bool read_number(const char *text, const struct unit *units, const struct key *key,
                        double *ret_value)
{
    char *end;
    if (*text < '0' || *text > '9' || strspn(text, "0123456789.") > 20) {
        return false;
    }
    double value = strtod(text, &end);
    for (const struct unit *unit = units; unit->name; unit++) {
        if (strcmp(end, unit->name) == 0) {
            value *= unit->factor;
            WEIR_FAIL_IF(!isfinite(value) || value < key->min || value > key->max, false);
            *ret_value = value;
            return true;
        }
    }
    return false;
}

/* "A", "A..B" or "exp:A". */
static bool read_range(char *text, const struct unit *units, const struct key *key,
                       struct weir_sim_range *ret_range)
{
    struct weir_sim_range range = {.is_exponential = strncmp(text, "exp:", 4) == 0};
    text += range.is_exponential ? 4 : 0;
    char *dots = strstr(text, "..");
    if (dots) {
        *dots = '\0';
    }
    if (!read_number(text, units, key, &range.low) ||
        (dots && (range.is_exponential || !read_number(dots + 2, units, key, &range.high)))) {
        return false;
    }
    range.high = dots ? range.high : range.low;
    if (range.high < range.low) {
        return false;
    }
    *ret_range = range;
    return true;
}

static bool set_name(struct weir_sim_group *group, const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t length = strlen(text);
    WEIR_FAIL_IF(!length || length >= sizeof group->name || strspn(text, letters) != length, false);
    memcpy(group->name, text, length + 1);
    return true;
}

static bool set_priority(struct weir_sim_group *group, const char *text)
{
    return weir_priority_find(text, &group->priority);
}

static bool set_form(struct weir_sim_group *group, const char *text)
{
    const uint32_t forms = WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE;

    if (strcmp(text, "closed") == 0) {
        group->flags = (group->flags & ~forms) | WEIR_SCHED_PARTABLE;
        return true;
    }
    uint32_t flags = strcmp(text, "persistent") == 0 ? forms
                     : strcmp(text, "ticket") == 0   ? (uint32_t)WEIR_SCHED_STOPPABLE
                                                     : 0;
    group->flags = (group->flags & ~forms) | flags;
    return flags || strcmp(text, "original") == 0;
}

/* "loop", "poisson:RATE" or "burst:N:PERIOD". */
static bool set_arrivals(struct weir_sim_group *group, char *text)
{
    static const struct key rate = {.min = 1e-3, .max = 1e7};
    static const struct key burst = {.min = 1, .max = 100000};
    static const struct key period = {.min = 1e3, .max = SECONDS_MAX * 1e9};
    double n, ns;
    if (strcmp(text, "loop") == 0) {
        group->arrivals = WEIR_SIM_LOOP;
        return true;
    }
    if (strncmp(text, "poisson:", 8) == 0) {
        group->arrivals = WEIR_SIM_POISSON;
        return read_number(text + 8, no_units, &rate, &group->rate);
    }
    char *colon = strncmp(text, "burst:", 6) == 0 ? strchr(text + 6, ':') : NULL;
    WEIR_FAIL_IF(!colon, false);
    *colon = '\0';
    if (!read_number(text + 6, no_units, &burst, &n) ||
        !read_number(colon + 1, time_units, &period, &ns)) {
        return false;
    }
    group->arrivals = WEIR_SIM_BURST;
    group->burst = (uint32_t)n;
    group->period_ns = (uint64_t)ns;
    return true;
}

static bool set_predicted(struct weir_sim_group *group, const char *text)
{
    group->is_predicted = strcmp(text, "yes") == 0;
    return group->is_predicted || strcmp(text, "no") == 0;
}

/* "own" or a number. */
static bool set_context(struct weir_sim_group *group, const char *text)
{
    static const struct key number = {.min = 0, .max = 10000};
    double value;
    if (strcmp(text, "own") == 0) {
        group->context = WEIR_SIM_OWN_CONTEXT;
        return true;
    }
    WEIR_FAIL_IF(!read_number(text, no_units, &number, &value) || value != floor(value), false);
    group->context = (uint32_t)value;
    return true;
}

static bool set_word(struct weir_sim_group *group, const char *name, char *text)
{
    switch (*name) {
    case 'p':
        return name[2] == 'i' ? set_priority(group, text) : set_predicted(group, text);
    case 'f':
        return set_form(group, text);
    case 'c':
        return set_context(group, text);
    default:
        return set_arrivals(group, text);
    }
}

static bool set_value(struct weir_sim_group *group, const struct key *key, char *text)
{
    char *field = (char *)group + key->offset;
    struct weir_sim_range range;
    double value = 0;
    bool is_good = false;
    switch (key->kind) {
    case SPAN:
    case SIZE:
    case PLAIN:
        is_good = read_range(text,
                             key->kind == SPAN   ? time_units
                             : key->kind == SIZE ? byte_units
                                                 : no_units,
                             key, &range);
        if (is_good) {
            memcpy(field, &range, sizeof range);
        }
        return is_good;
    case NAME:
        return set_name(group, text);
    case WORD:
        return set_word(group, key->name, text);
    case COUNT:
    case PART:
        is_good = read_number(text, no_units, key, &value);
        break;
    case AMOUNT_NS:
    case AMOUNT_BYTES:
        is_good = read_number(text, key->kind == AMOUNT_NS ? time_units : byte_units, key, &value);
        break;
    }
    if (!is_good || (key->kind == COUNT && value != floor(value))) {
        return false;
    }
    if (key->kind == PART) {
        memcpy(field, &value, sizeof value);
    } else if (key->kind == COUNT && key->offset != AT(items)) {
        uint32_t count = (uint32_t)value;
        memcpy(field, &count, sizeof count);
    } else {
        uint64_t amount = (uint64_t)value;
        memcpy(field, &amount, sizeof amount);
    }
    return true;
}

static enum weir_status read_word(struct scan *scan, struct weir_sim_group *group)
{
    char word[128];
    const char *at = scan->at;
    size_t length = strcspn(at, " \t\r\n;#");
    scan->at += length;
    (void)snprintf(word, sizeof word, "%.*s", (int)(WEIR_MIN(length, 127)), at);
    char *equals = strchr(word, '=');
    WEIR_FAIL_IF(!equals || length >= sizeof word,
                 fail(scan, at, "KEY=VALUE is expected instead of", word));
    *equals = '\0';
    for (size_t i = 0; i < WEIR_COUNT(keys); i++) {
        if (strcmp(keys[i].name, word) == 0) {
            char value[128];
            memcpy(value, equals + 1, strlen(equals + 1) + 1);
            return set_value(group, &keys[i], equals + 1)
                       ? WEIR_OK
                       : fail(scan, at + (equals + 1 - word), "not a value of that key:", value);
        }
    }
    return fail(scan, at, "unknown key", word);
}

static struct weir_sim_group defaults(const struct scan *scan, uint32_t number)
{
    struct weir_sim_group group = {
        .line = scan->line,
        .column = (uint32_t)(scan->at - scan->line_start) + 1,
        .tenants = 1,
        .weight = {1, 1, false},
        .priority = WEIR_PRIORITY_NORMAL,
        .sm_limit = 100,
        .streams = {.n = 1, .ranks = 1, .gpus = 1},
        .keys = 1,
        .kernel_ns = {1e6, 1e6, false},
        .blocks_per_sm = 8,
        .flags = WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE,
        .need = 1,
        .kernels = 1,
        .depth = 1,
        .is_predicted = true,
    };
    (void)snprintf(group.name, sizeof group.name, "t%u", number);
    return group;
}

/* Skip blanks and comments; true: a group ends here. */
static bool skip(struct scan *scan)
{
    bool is_end = false;
    for (; *scan->at; scan->at++) {
        if (*scan->at == '#') {
            scan->at += strcspn(scan->at, "\n");
            scan->at--;
        } else if (*scan->at == '\n') {
            scan->line++;
            scan->line_start = scan->at + 1;
            is_end = true;
        } else if (*scan->at == ';') {
            is_end = true;
        } else if (*scan->at != ' ' && *scan->at != '\t' && *scan->at != '\r') {
            break;
        }
    }
    return is_end || !*scan->at;
}

static enum weir_status read_group(struct scan *scan, struct weir_sim_group *group)
{
    do {
        WEIR_TRY(read_word(scan, group));
    } while (!skip(scan));
    if (!group->kernels && !group->copies.h2d.high && !group->copies.d2h.high) {
        weir_diag_set(scan->diag, group->line, group->column,
                      "a task without kernels and copies is none");
        return WEIR_ERR_SYNTAX;
    }
    if (group->streams.gpu + group->streams.ranks * group->streams.gpus >
        WEIR_SCHED_TRACE_GPUS_MAX) {
        weir_diag_set(scan->diag, group->line, group->column, "a queue on a GPU above %u",
                      WEIR_SCHED_TRACE_GPUS_MAX - 1);
        return WEIR_ERR_SYNTAX;
    }
    if (group->graph_sms.high > 0) { /* graphs can be neither stopped nor moved */
        group->flags &= ~(uint32_t)(WEIR_SCHED_STOPPABLE | WEIR_SCHED_MOVABLE);
        group->blocks = group->graph_sms;
        group->blocks_per_sm = 1;
    }
    return WEIR_OK;
}

enum weir_status weir_sim_spec_parse(const char *spec, struct weir_sim_group **ret_groups,
                                     uint32_t *ret_n, struct weir_diag *ret_diag)
{
    struct scan scan = {.at = spec, .line = 1, .line_start = spec, .diag = ret_diag};
    struct weir_sim_group *groups = NULL;
    uint32_t n = 0;
    enum weir_status status = WEIR_OK;
    (void)skip(&scan);
    while (status == WEIR_OK && *scan.at) {
        if (n == GROUPS_MAX || !WEIR_GROW_POWER(groups, n)) {
            weir_diag_set(ret_diag, scan.line, 0, "too many groups, or no memory for them");
            status = n < GROUPS_MAX ? WEIR_ERR_NO_MEMORY : WEIR_ERR_SYNTAX;
            break;
        }
        groups[n] = defaults(&scan, n + 1);
        status = read_group(&scan, &groups[n++]);
    }
    if (status == WEIR_OK && !n) {
        weir_diag_set(ret_diag, 1, 1, "no tenants");
        status = WEIR_ERR_SYNTAX;
    }
    if (status != WEIR_OK) {
        free(groups);
        return status;
    }
    *ret_groups = groups;
    *ret_n = n;
    return WEIR_OK;
}
