/*
 * A tenant as a row of the keeper's book, for the next supervisor: its slot, its pages and
 * processes, and its settings as text, which another version can read.
 *
 * The text has a line with the settings of the tenant's source, and one with those that somebody
 * has changed since, each after the digit of its origin.
 */
#include "host_backend/supervisor/workers/tenant_row.h"

#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/users.h"

#include "base/log.h"
#include "host_backend/config/shared_page.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The row's beginning; the text follows. Members are only appended, and then `bytes` grows. */
struct head {
    uint32_t bytes; /* of this struct */
    uint32_t generation, source, gone;
    int32_t worker;
    uint32_t demand_uid, user;         /* user: the uid for whom it counts */
    uint32_t has_account, has_process; /* which descriptors there are, in this order */
    uint64_t came_ns;
    uint64_t sure, suspected, last_ns, quarantine_end_ns;
    uint64_t refused_device, refused_pinned, refused_sessions;
    uint64_t moved;
};

void weir_sup_tenant_write(FILE *file, const struct weir_tenant_config *config)
{
    struct weir_tenant_config usual;
    char text[WEIR_SETTING_TEXT_BYTES];

    weir_tenant_config_default(&usual, config->name);
    fputs(config->name, file);
    for (size_t i = 0; i < weir_setting_count(); i++) {
        if (!weir_setting_equal(i, config, &usual)) {
            weir_setting_text(i, config, text);
            fprintf(file, "\t%s=%s", weir_setting_key(i), text);
        }
    }
    fputs("\n", file);
}

/* Store one "KEY=VALUE". @return the setting's number, or -1 */
static int store(char *word, struct weir_tenant_config *config, struct weir_diag *diag)
{
    char *value = strchr(word, '=');

    if (value) {
        *value++ = 0;
    }
    int setting = value ? weir_setting_find(word) : -1;
    if (setting < 0) {
        weir_diag_set(diag, 0, 0, "unknown setting '%.40s'", word);
        return -1;
    }
    return weir_setting_store((size_t)setting, value, config, diag) == WEIR_OK ? setting : -1;
}

enum weir_status weir_sup_tenant_read(char *line, struct weir_tenant_config *ret_config,
                                      struct weir_diag *diag)
{
    char *at = line, *word = strsep(&at, "\t");

    if (!weir_tenant_name_ok(word)) {
        weir_diag_set(diag, 0, 0, "%s", weir_tenant_name_rule);
        return WEIR_ERR_INVALID;
    }
    weir_tenant_config_default(ret_config, word);
    while ((word = strsep(&at, "\t"))) {
        WEIR_FAIL_IF(store(word, ret_config, diag) < 0, WEIR_ERR_INVALID);
    }
    return WEIR_OK;
}

static void write_changes(FILE *file, const struct weir_sup_tenant *tenant)
{
    char text[WEIR_SETTING_TEXT_BYTES];

    for (size_t i = 0; i < weir_setting_count(); i++) {
        if (tenant->origins[i] != (uint8_t)tenant->source) {
            weir_setting_text(i, &tenant->config, text);
            fprintf(file, "%u%s=%s\t", tenant->origins[i], weir_setting_key(i), text);
        }
    }
}

static struct head head_of(const struct weir_supervisor *sup, const struct weir_sup_tenant *t)
{
    return (struct head){.bytes = sizeof(struct head),
                         .generation = t->generation,
                         .source = t->source,
                         .gone = t->gone,
                         .worker = t->worker,
                         .demand_uid = t->demand_uid,
                         .user = sup->users[t->demand_user].uid,
                         .has_account = t->account != NULL,
                         .has_process = t->demand_fd >= 0,
                         .came_ns = t->came_ns,
                         .sure = t->faults.sure,
                         .suspected = t->faults.suspected,
                         .last_ns = t->faults.last_ns,
                         .quarantine_end_ns = t->faults.quarantine_end_ns,
                         .refused_device = t->refused.device,
                         .refused_pinned = t->refused.pinned,
                         .refused_sessions = t->refused.sessions,
                         .moved = t->moved};
}

void weir_sup_tenant_note(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    const int fds[] = {tenant->account ? tenant->account_fd : -1, tenant->demand_fd};
    struct head head = head_of(sup, tenant);
    char *bytes = NULL;
    size_t n = 0;
    FILE *file = sup->book ? open_memstream(&bytes, &n) : NULL;

    tenant->noted = tenant->faults;
    tenant->noted_moved = tenant->moved;
    if (!file) {
        return;
    }
    fwrite(&head, sizeof head, 1, file);
    weir_sup_tenant_write(file, &tenant->base);
    write_changes(file, tenant);
    if (fclose(file) == 0) {
        weir_book_put(sup, WEIR_BOOK_TENANT, tenant->index, bytes, n, fds, 2);
    }
    free(bytes);
}

static bool has_changed(const struct weir_sup_tenant *tenant)
{
    const struct weir_sup_faults *now = &tenant->faults, *noted = &tenant->noted;

    return tenant->moved != tenant->noted_moved || now->sure != noted->sure ||
           now->suspected != noted->suspected || now->last_ns != noted->last_ns ||
           now->quarantine_end_ns != noted->quarantine_end_ns;
}

void weir_sup_tenants_note_faults(struct weir_supervisor *sup, uint64_t now_ns)
{
    (void)now_ns;
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *t = &sup->tenants[i];

        if (t->used && has_changed(t)) {
            weir_sup_tenant_note(sup, t);
        }
    }
}

/* ---------------------------------------------------------------- the next supervisor */

/* Take the settings from the row's text. */
static bool read_settings(struct weir_sup_tenant *t, char *text)
{
    char *changes = strchr(text, '\n'), *word;
    struct weir_diag diag = {0};
    bool good = true;

    WEIR_FAIL_IF(!changes, false);
    *changes++ = 0;
    if (weir_sup_tenant_read(text, &t->base, &diag) != WEIR_OK) {
        weir_log_error("supervisor: a tenant's settings are not understood why=\"%s\"",
                       diag.message);
        return false;
    }
    t->config = t->base;
    memset(t->origins, (int)t->source, sizeof t->origins);
    while ((word = strsep(&changes, "\t"))) {
        int setting = *word >= '0' && *word <= '9' ? store(word + 1, &t->config, &diag) : -1;

        if (setting >= 0) {
            t->origins[setting] = (uint8_t)(*word - '0');
        }
        good &= *word == 0 || setting >= 0;
    }
    if (!good) {
        weir_log_warn("supervisor: a changed setting is lost tenant=%s why=\"%s\"", t->config.name,
                      diag.message);
    }
    return true;
}

static void take_pages(struct weir_book_row *row, const struct head *head,
                       struct weir_sup_tenant *t)
{
    void *page;

    if (head->has_account != 0) {
        t->account_fd = weir_book_take_fd(row, 0);
        if (weir_shared_page_map(t->account_fd, sizeof *t->account, &page) == WEIR_OK) {
            t->account = page;
        }
    }
    t->demand_fd =
        head->has_process != 0 ? weir_book_take_fd(row, head->has_account != 0 ? 1 : 0) : -1;
}

static void adopt(struct weir_supervisor *sup, struct weir_book_row *row, struct weir_sup_tenant *t,
                  char *text)
{
    struct head head;

    weir_book_read(row, &head, sizeof head);
    *t = (struct weir_sup_tenant){
        .index = (uint32_t)row->key,
        .generation = head.generation,
        .source = (enum weir_origin)head.source,
        .gone = head.gone != 0,
        .listen_fd = -1,
        .container_fd = -1,
        .vm_listen_fd = -1,
        .nvdimm = {.fd = -1, .watch = -1},
        .demand_uid = head.demand_uid,
        .came_ns = head.came_ns,
        .worker = head.worker,
        .faults = {.sure = head.sure,
                   .suspected = head.suspected,
                   .last_ns = head.last_ns,
                   .quarantine_end_ns = head.quarantine_end_ns},
        .refused = {head.refused_device, head.refused_pinned, head.refused_sessions},
        .moved = head.moved};
    take_pages(row, &head, t);
    weir_log_rate_init(&t->log_rate);
    t->used = read_settings(t, text);
    if (t->used && weir_sup_is_of_user(t)) {
        struct weir_sup_user *user = weir_sup_user(sup, head.user);

        t->demand_user = (uint32_t)(user - sup->users);
        if (head.quarantine_end_ns > user->quarantine_end_ns) {
            user->quarantine_end_ns = head.quarantine_end_ns;
        }
    }
    t->noted = t->faults;
}

void weir_sup_tenants_adopt(struct weir_supervisor *sup)
{
    struct weir_book_row *row;

    while ((row = weir_book_adopt(sup, WEIR_BOOK_TENANT))) {
        uint32_t head_bytes = 0;

        weir_book_read(row, &head_bytes, sizeof head_bytes);
        if (row->key >= WEIR_CONFIG_TENANTS_MAX || head_bytes > row->bytes) {
            continue;
        }
        char *text = strndup((const char *)row->data + head_bytes, row->bytes - head_bytes);
        if (text) {
            adopt(sup, row, &sup->tenants[row->key], text);
        }
        free(text);
    }
}
