/* A job's share, from the administrator's rules (plugstack.conf) and the user's wishes. */
#include "slurm/share.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_RUN_DIR "/run/weir"
#define DEFAULT_WEIGHT  100u /* Weir's own default */
#define WEIGHT_MAX      10000u

#define REFUSE(...) (weir_diag_set(ret_diag, 0, 0, __VA_ARGS__), WEIR_ERR_INVALID)

/* The name of an option, without dashes. */
static const char *option_name(enum weir_share_option option)
{
    static const char *const names[] = {"weir-weight", "weir-mem", "weir-priority"};
    return names[option];
}

/* ---------------------------------------------------------------- values */

enum weir_status weir_share_size(const char *text, uint64_t *ret_bytes)
{
    static const char units[] = "KMGT";
    char *end;
    unsigned shift = 20;
    WEIR_FAIL_IF(*text < '0' || *text > '9', WEIR_ERR_INVALID);
    unsigned long long number = strtoull(text, &end, 10);
    if (*end) {
        const char *unit = strchr(units, *end & ~0x20); /* compare as a capital letter */
        if (!unit || (end[1] && strcasecmp(end + 1, "B") != 0 && strcasecmp(end + 1, "iB") != 0)) {
            return WEIR_ERR_INVALID;
        }
        shift = 10 * (unsigned)(unit - units + 1);
    }
    WEIR_FAIL_IF(number == 0 || number > (UINT64_C(1) << 60) >> shift, WEIR_ERR_INVALID);
    *ret_bytes = (uint64_t)number << shift;
    return WEIR_OK;
}

void weir_share_size_text(uint64_t bytes, char text[24])
{
    static const char units[] = "KMGT";
    uint64_t number = bytes >> 10;
    unsigned unit = 0;
    while (number && number % 1024 == 0 && unit < 3) {
        number >>= 10;
        unit++;
    }
    snprintf(text, 24, "%llu%c", (unsigned long long)number, units[unit]);
}

static enum weir_status weight_of(const char *text, uint32_t *ret_weight)
{
    char *end;
    WEIR_FAIL_IF(*text < '0' || *text > '9', WEIR_ERR_INVALID);
    unsigned long number = strtoul(text, &end, 10);
    WEIR_FAIL_IF(*end || number < 1 || number > WEIGHT_MAX, WEIR_ERR_INVALID);
    *ret_weight = (uint32_t)number;
    return WEIR_OK;
}

static enum weir_status priority_of(const char *text, enum weir_priority *ret_priority)
{
    return weir_priority_find(text, ret_priority) ? WEIR_OK : WEIR_ERR_INVALID;
}

static enum weir_status gpus_of(const char *text, enum weir_share_gpus *ret_gpus)
{
    bool all = strcmp(text, "all") == 0;
    *ret_gpus = all ? WEIR_SHARE_GPUS_ALL : WEIR_SHARE_GPUS_SLURM;
    return all || strcmp(text, "slurm") == 0 ? WEIR_OK : WEIR_ERR_INVALID;
}

static enum weir_status account_of(const char *text, enum weir_share_account *ret_account)
{
    bool comment = strcmp(text, "admincomment") == 0;
    *ret_account = comment ? WEIR_SHARE_ACCOUNT_COMMENT : WEIR_SHARE_ACCOUNT_NONE;
    return comment || strcmp(text, "none") == 0 ? WEIR_OK : WEIR_ERR_INVALID;
}

/* ---------------------------------------------------------------- rules */

enum kind { KIND_FOLDER, KIND_WEIGHT, KIND_SIZE, KIND_PRIORITY, KIND_GPUS, KIND_ACCOUNT };

static const char *const kind_texts[] = {
    [KIND_FOLDER] = "an absolute path, and not too long a one",
    [KIND_WEIGHT] = "a number between 1 and 10000",
    [KIND_SIZE] = "a size such as 8G; without a unit it is megabytes",
    [KIND_PRIORITY] = "low, normal or high",
    [KIND_GPUS] = "slurm or all",
    [KIND_ACCOUNT] = "none or admincomment",
};

static const struct rule {
    const char *key;
    enum kind kind;
    size_t offset, bytes;
} rows[] = {
#define AT(field)                                                                                  \
    offsetof(struct weir_share_rules, field), sizeof(((struct weir_share_rules *)0)->field)
    {"run_dir", KIND_FOLDER, AT(run_dir)},
    {"guest_lib", KIND_FOLDER, AT(guest_lib)},
    {"max_weight", KIND_WEIGHT, AT(max_weight)},
    {"default_weight", KIND_WEIGHT, AT(default_weight)},
    {"max_mem", KIND_SIZE, AT(max_mem_bytes)},
    {"default_mem", KIND_SIZE, AT(default_mem_bytes)},
    {"mem_per_shard", KIND_SIZE, AT(mem_per_shard_bytes)},
    {"max_priority", KIND_PRIORITY, AT(max_priority)},
    {"gpus", KIND_GPUS, AT(gpus)},
    {"account", KIND_ACCOUNT, AT(account)},
};
#define N_ROWS WEIR_COUNT(rows)

static enum weir_status store(const struct rule *row, const char *text,
                              struct weir_share_rules *rules)
{
    void *to = (char *)rules + row->offset;
    switch (row->kind) {
    case KIND_FOLDER:
        WEIR_FAIL_IF(*text != '/' || strlen(text) >= row->bytes, WEIR_ERR_INVALID);
        strcpy(to, text);
        return WEIR_OK;
    case KIND_WEIGHT:
        return weight_of(text, to);
    case KIND_SIZE:
        return weir_share_size(text, to);
    case KIND_PRIORITY:
        return priority_of(text, to);
    case KIND_GPUS:
        return gpus_of(text, to);
    case KIND_ACCOUNT:
        return account_of(text, to);
    }
    return WEIR_ERR_INVALID;
}

static enum weir_status read_one(const char *argument, struct weir_share_rules *rules,
                                 struct weir_diag *ret_diag)
{
    const char *equals = strchr(argument, '=');
    for (size_t i = 0; equals && i < N_ROWS; i++) {
        size_t n = strlen(rows[i].key);
        if ((size_t)(equals - argument) != n || strncmp(argument, rows[i].key, n) != 0) {
            continue;
        }
        return store(&rows[i], equals + 1, rules) == WEIR_OK
                   ? WEIR_OK
                   : REFUSE("%s must be %s: '%.60s'", rows[i].key, kind_texts[rows[i].kind],
                            equals + 1);
    }
    return REFUSE("there is no argument '%.60s'", argument);
}

enum weir_status weir_share_rules_read(int argc, const char *const *argv,
                                       struct weir_share_rules *ret_rules,
                                       struct weir_diag *ret_diag)
{
    enum weir_status status = WEIR_OK;
    *ret_rules =
        (struct weir_share_rules){.run_dir = DEFAULT_RUN_DIR, .max_priority = WEIR_PRIORITY_NORMAL};
    for (int i = 0; i < argc; i++) {
        struct weir_diag diag = {0};
        if (read_one(argv[i], ret_rules, &diag) != WEIR_OK && status == WEIR_OK) {
            status = WEIR_ERR_INVALID;
            *ret_diag = diag;
        }
    }
    if (ret_rules->max_weight == 0) {
        bool more = ret_rules->default_weight > DEFAULT_WEIGHT;
        ret_rules->max_weight = more ? ret_rules->default_weight : DEFAULT_WEIGHT;
    }
    if (ret_rules->default_weight == 0) {
        bool less = ret_rules->max_weight < DEFAULT_WEIGHT;
        ret_rules->default_weight = less ? ret_rules->max_weight : DEFAULT_WEIGHT;
    }
    if (status == WEIR_OK && ret_rules->default_weight > ret_rules->max_weight) {
        status = REFUSE("default_weight is more than max_weight");
    }
    if (status == WEIR_OK && ret_rules->max_mem_bytes &&
        ret_rules->default_mem_bytes > ret_rules->max_mem_bytes) {
        status = REFUSE("default_mem is more than max_mem");
    }
    return status;
}

/* ---------------------------------------------------------------- wishes */

enum weir_status weir_share_wish_take(struct weir_share_wish *wish, enum weir_share_option option,
                                      const char *text, struct weir_diag *ret_diag)
{
    enum weir_status status = WEIR_ERR_INVALID;
    enum kind kind = KIND_WEIGHT;
    switch (option) {
    case WEIR_SHARE_WEIGHT:
        status = weight_of(text, &wish->weight);
        break;
    case WEIR_SHARE_MEM:
        kind = KIND_SIZE;
        status = weir_share_size(text, &wish->mem_bytes);
        break;
    case WEIR_SHARE_PRIORITY:
        kind = KIND_PRIORITY;
        status = priority_of(text, &wish->priority);
        break;
    }
    WEIR_FAIL_IF(status != WEIR_OK,
                 REFUSE("--%s must be %s: '%.60s'", option_name(option), kind_texts[kind], text));
    wish->given[option] = true;
    return WEIR_OK;
}

enum weir_status weir_share_wish_check(const struct weir_share_wish *wish,
                                       const struct weir_share_rules *rules,
                                       struct weir_diag *ret_diag)
{
    WEIR_FAIL_IF(wish->given[WEIR_SHARE_WEIGHT] && wish->weight > rules->max_weight,
                 REFUSE("--weir-weight=%u is over this cluster's limit of %u", wish->weight,
                        rules->max_weight));
    if (wish->given[WEIR_SHARE_MEM] && rules->max_mem_bytes &&
        wish->mem_bytes > rules->max_mem_bytes) {
        char asked[24];
        char limit[24];
        weir_share_size_text(wish->mem_bytes, asked);
        weir_share_size_text(rules->max_mem_bytes, limit);
        return REFUSE("--weir-mem=%s is over this cluster's limit of %s", asked, limit);
    }
    WEIR_FAIL_IF(wish->given[WEIR_SHARE_PRIORITY] && wish->priority > rules->max_priority,
                 REFUSE("--weir-priority=%s is over this cluster's limit of %s",
                        weir_priority_names[wish->priority],
                        weir_priority_names[rules->max_priority]));
    return WEIR_OK;
}

/* Upper bound of the memory of a job with this number of shards; 0: no bound. */
static uint64_t most_of(const struct weir_share_rules *rules, uint32_t shards)
{
    uint64_t most = rules->max_mem_bytes;
    uint64_t of_shards;
    if (rules->mem_per_shard_bytes == 0) {
        return most;
    }
    if (__builtin_mul_overflow(rules->mem_per_shard_bytes, shards, &of_shards)) {
        return most; /* this is more than any device has */
    }
    return most == 0 || of_shards < most ? of_shards : most;
}

enum weir_status weir_share_of(const struct weir_share_wish *wish,
                               const struct weir_share_rules *rules, uint32_t shards,
                               struct weir_share *ret_share, struct weir_diag *ret_diag)
{
    struct weir_share share;
    WEIR_FAIL_IF(weir_share_wish_check(wish, rules, ret_diag) != WEIR_OK, WEIR_ERR_INVALID);
    WEIR_FAIL_IF(rules->mem_per_shard_bytes && shards == 0,
                 REFUSE("GPU memory is given by shard here, and the job has none: --gres=shard:N"));
    uint64_t most = most_of(rules, shards);
    uint64_t usual = rules->mem_per_shard_bytes ? 0 : rules->default_mem_bytes;
    share.mem_bytes = usual ? usual : most;
    if (wish->given[WEIR_SHARE_MEM]) {
        share.mem_bytes = wish->mem_bytes;
    }
    if (most && share.mem_bytes > most) {
        char asked[24];
        char limit[24];
        weir_share_size_text(share.mem_bytes, asked);
        weir_share_size_text(most, limit);
        return REFUSE("--weir-mem=%s is over the limit of %s of the job's %u shards", asked, limit,
                      shards);
    }
    share.weight = wish->given[WEIR_SHARE_WEIGHT] ? wish->weight : rules->default_weight;
    share.priority = wish->given[WEIR_SHARE_PRIORITY] ? wish->priority : WEIR_PRIORITY_NORMAL;
    if (share.priority > rules->max_priority) {
        share.priority = rules->max_priority;
    }
    *ret_share = share;
    return WEIR_OK;
}
