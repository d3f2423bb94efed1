/*
 * The directory of objects that a tenant's programs share across its workers, by keys that cannot
 * be guessed.
 *
 * A worker publishes an entry, and another worker of the same tenant finds it. Kinds of entries:
 *
 *   memory       lives while a worker has it (its maker, or who has found it) or a guest's
 *                descriptor stands for it, whoever has died meanwhile. It is charged to the tenant
 *                once, in the place of the page that is no worker's (base/account.h).
 *   descriptor   stands for memory, or for a pool. Our end of the pair hangs up when the guests
 *                have closed their last copy; then the entry goes.
 *   event        lives as long as its maker has it: CUDA promises no more.
 *
 * A worker may only name tenants that it serves: its only one or, in a shared worker, those whose
 * remote programs it has. Each entry counts as one of the descriptors that the tenant may have here
 * (chunks.c).
 *
 * Source: docs/design/ipc.md
 */
#include "base/fd.h"
#include "base/grow.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LOOK_AT  64
#define HAVE_MAX 16384u /* uses of an entry by workers: a program may find one in a loop */

struct weir_sup_entry {
    struct weir_sup_entry *next; /* the next one in its bucket */
    struct weir_link_entry about;
    int fd; /* memory: the driver's descriptor or, of the host's, the file; descriptor: our end of
             * the pair; event: -1 */
    struct weir_sup_entry *memory; /* the memory that a descriptor stands for; or NULL */
    uint32_t n_descriptors;        /* descriptors that stand for this memory */
    uint64_t key;                  /* of its row in the book */
    int16_t *workers;              /* the workers that have it, once for each use; owned */
    size_t n_workers, workers_room;
};

static struct weir_sup_entry **bucket_of(struct weir_supervisor *sup, const uint8_t *key)
{
    return &sup->directory.buckets[(key[0] | (unsigned)key[1] << 8) % WEIR_DIRECTORY_BUCKETS];
}

static bool is_called(const struct weir_sup_entry *e, uint32_t tenant, uint32_t kind,
                      const uint8_t *key)
{
    return e->about.tenant_index == tenant && e->about.kind == kind &&
           memcmp(e->about.key, key, sizeof e->about.key) == 0;
}

static struct weir_sup_entry *find(struct weir_supervisor *sup, uint32_t tenant, uint32_t kind,
                                   const uint8_t *key)
{
    struct weir_sup_entry *e = *bucket_of(sup, key);

    while (e && !is_called(e, tenant, kind, key)) {
        e = e->next;
    }
    return e;
}

/* --------------------------------------------------------------- the workers that have an entry */

static bool add_worker(struct weir_sup_entry *e, int worker)
{
    if (e->n_workers == HAVE_MAX || !WEIR_GROW(e->workers, e->n_workers, e->workers_room)) {
        return false;
    }
    e->workers[e->n_workers++] = (int16_t)worker;
    return true;
}

static void remove_worker(struct weir_sup_entry *e, int worker)
{
    for (size_t i = 0; i < e->n_workers; i++) {
        if (e->workers[i] == worker) {
            e->workers[i] = e->workers[--e->n_workers];
            return;
        }
    }
}

static void remove_worker_wholly(struct weir_sup_entry *e, int worker)
{
    size_t left = 0;

    for (size_t i = 0; i < e->n_workers; i++) {
        if (e->workers[i] != worker) {
            e->workers[left++] = e->workers[i];
        }
    }
    e->n_workers = left;
}

/* ---------------------------------------------------------------- the next supervisor */

/* An entry as a row (WEIR_BOOK_ENTRY); the workers follow. Members are only appended. */
struct row {
    struct weir_link_entry about;
    uint32_t n;
    struct {
        int16_t worker;
        uint16_t uses;
    } of[WEIR_WORKERS_MAX];
};

static void note(struct weir_supervisor *sup, const struct weir_sup_entry *e)
{
    uint16_t uses[WEIR_WORKERS_MAX] = {0};
    struct row row = {.about = e->about};

    for (size_t i = 0; i < e->n_workers; i++) {
        uses[e->workers[i]]++;
    }
    for (int i = 0; i < WEIR_WORKERS_MAX; i++) {
        if (uses[i] != 0) {
            row.of[row.n].worker = (int16_t)i;
            row.of[row.n++].uses = uses[i];
        }
    }
    weir_book_put(sup, WEIR_BOOK_ENTRY, e->key, &row,
                  offsetof(struct row, of) + row.n * sizeof row.of[0], &e->fd, 1);
}

/* ---------------------------------------------------------------- making and dropping entries */

static bool is_descriptor(const struct weir_sup_entry *e)
{
    return e->about.kind == WEIR_ENTRY_DESCRIPTOR || e->about.kind == WEIR_ENTRY_POOL;
}

static void free_entry(struct weir_supervisor *sup, struct weir_sup_entry *e)
{
    if (is_descriptor(e)) { /* a worker's copy would keep it in the set */
        (void)epoll_ctl(sup->directory.watch_fd, EPOLL_CTL_DEL, e->fd, NULL);
    }
    weir_fd_close(e->fd);
    free(e->workers);
    free(e);
}

static bool is_unused(const struct weir_sup_entry *e)
{
    return !is_descriptor(e) && e->n_workers == 0 && e->n_descriptors == 0;
}

static void release_kept(struct weir_account_page *page, const struct weir_link_entry *about)
{
    if (about->device == WEIR_ENTRY_ON_HOST) {
        weir_account_page_release(page, WEIR_ACCOUNT_PINNED_MEMORY, about->bytes);
        return;
    }
    weir_account_page_release(page, WEIR_ACCOUNT_DEVICE_MEMORY, about->bytes);
    weir_account_page_release(page, WEIR_ACCOUNT_OF_DEVICE + about->device, about->bytes);
}

static void drop_one(struct weir_supervisor *sup, struct weir_sup_entry *e)
{
    uint32_t tenant = e->about.tenant_index;
    struct weir_sup_entry **at = bucket_of(sup, e->about.key);

    while (*at != e) {
        at = &(*at)->next;
    }
    *at = e->next;
    weir_book_drop(sup, WEIR_BOOK_ENTRY, e->key);
    weir_account_release(&sup->chunks.of[tenant], WEIR_ACCOUNT_DESCRIPTORS, 1);
    if (e->about.kind == WEIR_ENTRY_MEMORY) {
        sup->directory.n_memory--;
        release_kept(sup->tenants[tenant].account, &e->about);
    }
    free_entry(sup, e);
}

/* Drop an entry, and its memory if this was the last descriptor for it. */
static void drop(struct weir_supervisor *sup, struct weir_sup_entry *e)
{
    struct weir_sup_entry *memory = e->memory;

    drop_one(sup, e);
    if (memory) {
        memory->n_descriptors--;
        if (is_unused(memory)) {
            drop_one(sup, memory);
        }
    }
}

/* Check a worker's message, since a guest may control the worker. */
static bool is_sound(const struct weir_link_entry *about, int fd)
{
    switch (about->kind) {
    case WEIR_ENTRY_MEMORY:
        return fd >= 0 && about->bytes != 0 &&
               (about->device < WEIR_ACCOUNT_DEVICES || about->device == WEIR_ENTRY_ON_HOST);
    case WEIR_ENTRY_DESCRIPTOR:
    case WEIR_ENTRY_POOL:
        return fd >= 0;
    case WEIR_ENTRY_EVENT:
        return fd < 0;
    default:
        return false;
    }
}

static bool watch(struct weir_supervisor *sup, struct weir_sup_entry *e)
{
    struct epoll_event event = {.events = 0, .data = {.ptr = e}}; /* hang-up is always reported */

    return epoll_ctl(sup->directory.watch_fd, EPOLL_CTL_ADD, e->fd, &event) == 0;
}

/* Move what a worker has charged for memory to the tenant's page itself: all of it, or nothing. */
static bool keep(struct weir_account_page *page, int worker, const struct weir_link_entry *about)
{
    const uint32_t place = (uint32_t)worker;
    const enum weir_account_item item = WEIR_ACCOUNT_OF_DEVICE + about->device;

    if (about->device == WEIR_ENTRY_ON_HOST) {
        return weir_account_page_keep(page, place, WEIR_ACCOUNT_PINNED_MEMORY, about->bytes);
    }
    /* The worker's end gives back what it has charged and what is not kept. */
    return weir_account_page_keep(page, place, item, about->bytes) &&
           (weir_account_page_keep(page, place, WEIR_ACCOUNT_DEVICE_MEMORY, about->bytes) ||
            (weir_account_page_release(page, item, about->bytes), false));
}

/* Prepare an entry according to its kind. */
static enum weir_status prepare(struct weir_supervisor *sup, int worker, struct weir_sup_entry *e)
{
    struct weir_sup_tenant *tenant = &sup->tenants[e->about.tenant_index];

    if (e->about.kind == WEIR_ENTRY_DESCRIPTOR) {
        e->memory = find(sup, tenant->index, WEIR_ENTRY_MEMORY, e->about.value);
        WEIR_FAIL_IF(!e->memory, WEIR_ERR_INVALID);
    }
    if (is_descriptor(e)) {
        return watch(sup, e) ? WEIR_OK : WEIR_ERR_QUOTA;
    }
    WEIR_FAIL_IF(!add_worker(e, worker), WEIR_ERR_QUOTA);
    return e->about.kind != WEIR_ENTRY_MEMORY || keep(tenant->account, worker, &e->about)
               ? WEIR_OK
               : WEIR_ERR_INVALID;
}

static void enter(struct weir_supervisor *sup, struct weir_sup_entry *e)
{
    struct weir_sup_entry **bucket = bucket_of(sup, e->about.key);

    if (e->memory) {
        e->memory->n_descriptors++;
    }
    e->next = *bucket;
    *bucket = e;
    sup->directory.n_memory += e->about.kind == WEIR_ENTRY_MEMORY;
}

/* Add an entry that has been charged; takes the descriptor. */
static enum weir_status make(struct weir_supervisor *sup, int worker,
                             const struct weir_link_entry *about, int fd)
{
    struct weir_sup_entry *e = calloc(1, sizeof *e);

    if (!e) {
        close(fd);
        return WEIR_ERR_QUOTA;
    }
    e->about = *about;
    e->fd = fd;
    enum weir_status status = prepare(sup, worker, e);
    if (status == WEIR_OK) {
        e->key = ++sup->directory.last_key;
        enter(sup, e);
        note(sup, e);
    } else {
        free_entry(sup, e);
    }
    return status;
}

/* Enter what the last supervisor had. @return false: no memory, or the row is no longer valid */
static bool adopt(struct weir_supervisor *sup, struct weir_book_row *row, const struct row *old)
{
    struct weir_sup_entry *e = calloc(1, sizeof *e);
    bool good = e != NULL;

    WEIR_FAIL_IF(!e, false);
    e->about = old->about;
    e->key = row->key;
    e->fd = weir_book_take_fd(row, 0);
    for (uint32_t i = 0; i < old->n && i < WEIR_WORKERS_MAX; i++) {
        for (uint32_t k = 0; k < old->of[i].uses && good; k++) {
            good = add_worker(e, old->of[i].worker);
        }
    }
    if (e->about.kind == WEIR_ENTRY_DESCRIPTOR) {
        e->memory = find(sup, e->about.tenant_index, WEIR_ENTRY_MEMORY, e->about.value);
        good = good && e->memory;
    }
    good = good && is_sound(&e->about, e->fd) && (!is_descriptor(e) || watch(sup, e)) &&
           weir_account_charge(&sup->chunks.of[e->about.tenant_index], WEIR_ACCOUNT_DESCRIPTORS, 1);
    if (!good) {
        free_entry(sup, e);
        return false;
    }
    enter(sup, e);
    return true;
}

/* Take over the entries that are descriptors for memory, or all others. */
static void adopt_some(struct weir_supervisor *sup, bool descriptors)
{
    struct weir_book_row *row = NULL;
    struct row old;

    while ((row = weir_book_next(sup, WEIR_BOOK_ENTRY, row))) {
        weir_book_read(row, &old, sizeof old);
        if ((old.about.kind == WEIR_ENTRY_DESCRIPTOR) == descriptors &&
            old.about.tenant_index < WEIR_CONFIG_TENANTS_MAX) {
            row->adopted = adopt(sup, row, &old);
        }
        if (row->key > sup->directory.last_key) {
            sup->directory.last_key = row->key;
        }
    }
}

void weir_sup_directory_adopt(struct weir_supervisor *sup)
{
    adopt_some(sup, false);
    adopt_some(sup, true);
}

/* ---------------------------------------------------------------- requests of workers */

/* Does the worker serve this tenant, and does the tenant have other workers? */
static bool serves(const struct weir_supervisor *sup, int worker, uint32_t tenant)
{
    return tenant < WEIR_CONFIG_TENANTS_MAX &&
           weir_sup_serves(sup, worker, &sup->tenants[tenant]) && !sup->tenants[tenant].gone &&
           sup->tenants[tenant].account;
}

static enum weir_status publish(struct weir_supervisor *sup, int worker,
                                const struct weir_link_entry *about, int fd)
{
    struct weir_account *kept = &sup->chunks.of[about->tenant_index % WEIR_CONFIG_TENANTS_MAX];
    enum weir_status status = WEIR_ERR_INVALID;
    const struct weir_sup_entry *there =
        serves(sup, worker, about->tenant_index)
            ? find(sup, about->tenant_index, about->kind, about->key)
            : NULL;

    if (there && there->about.question == about->question) {
        status = WEIR_OK; /* the last supervisor entered it, and may not have answered */
    } else if (serves(sup, worker, about->tenant_index) && is_sound(about, fd) && !there) {
        status = weir_account_charge(kept, WEIR_ACCOUNT_DESCRIPTORS, 1) ? WEIR_OK : WEIR_ERR_QUOTA;
    }
    if (status != WEIR_OK || there) {
        weir_fd_close(fd);
        return status;
    }
    status = make(sup, worker, about, fd);
    if (status != WEIR_OK) {
        weir_account_release(kept, WEIR_ACCOUNT_DESCRIPTORS, 1);
    }
    return status;
}

static void answer(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry,
                   enum weir_status status, int fd)
{
    struct weir_link_message message = {.type = WEIR_LINK_FOUND, .entry = *entry};

    message.entry.status = status;
    (void)weir_sup_worker_send(sup, worker, &message, fd); /* a worker that is gone needs none */
}

void weir_sup_publish(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry,
                      int fd)
{
    answer(sup, worker, entry, publish(sup, worker, entry, fd), -1);
}

/* Fill the answer, and count one more use of the memory by the worker. */
static enum weir_status hand_out(struct weir_supervisor *sup, struct weir_sup_entry *e, int worker,
                                 struct weir_link_entry *found, int *ret_fd)
{
    struct weir_sup_entry *memory = e->about.kind == WEIR_ENTRY_MEMORY ? e : e->memory;

    WEIR_FAIL_IF(memory && !add_worker(memory, worker), WEIR_ERR_QUOTA);
    if (memory) {
        note(sup, memory);
    }
    memcpy(found->value, e->about.value, sizeof found->value);
    if (memory) {
        found->device = memory->about.device;
        found->handle_types = memory->about.handle_types;
        found->bytes = memory->about.bytes;
        *ret_fd = memory->fd;
    }
    return WEIR_OK;
}

void weir_sup_find(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry)
{
    struct weir_link_entry found = *entry;
    struct weir_sup_entry *e = NULL;
    enum weir_status status = WEIR_ERR_NOT_FOUND;
    int fd = -1;

    if (serves(sup, worker, entry->tenant_index)) {
        e = find(sup, entry->tenant_index, entry->kind, entry->key);
    }
    if (e) {
        status = hand_out(sup, e, worker, &found, &fd);
    }
    answer(sup, worker, &found, status, fd);
}

void weir_sup_withdraw(struct weir_supervisor *sup, int worker, const struct weir_link_entry *entry)
{
    struct weir_sup_entry *e = serves(sup, worker, entry->tenant_index)
                                   ? find(sup, entry->tenant_index, entry->kind, entry->key)
                                   : NULL;

    if (!e || is_descriptor(e)) {
        return; /* its tenant was removed, or the message is false */
    }
    remove_worker(e, worker);
    if (is_unused(e)) {
        drop(sup, e);
    } else {
        note(sup, e);
    }
}

/* ---------------------------------------------------------------- ends */

void weir_sup_directory_look(struct weir_supervisor *sup)
{
    struct epoll_event events[LOOK_AT];
    int n = epoll_wait(sup->directory.watch_fd, events, LOOK_AT, 0);

    for (int i = 0; i < n; i++) {
        drop(sup, events[i].data.ptr);
    }
}

/*
 * Drop each entry of a bucket for which goes() holds. This may also drop any other entry of the
 * bucket, as memory, so the search restarts.
 */
static void drop_if(struct weir_supervisor *sup, bool (*goes)(struct weir_sup_entry *e, int which),
                    int which)
{
    for (size_t i = 0; i < WEIR_DIRECTORY_BUCKETS; i++) {
        struct weir_sup_entry *e = sup->directory.buckets[i];

        while (e) {
            if (goes(e, which)) {
                drop(sup, e);
                e = sup->directory.buckets[i];
            } else {
                e = e->next;
            }
        }
    }
}

static bool loses_worker(struct weir_sup_entry *e, int worker)
{
    remove_worker_wholly(e, worker);
    return is_unused(e);
}

void weir_sup_directory_worker_gone(struct weir_supervisor *sup, int worker)
{
    drop_if(sup, loses_worker, worker);
}

/* Descriptors are dropped before the memory that they stand for. */
static bool is_descriptor_of(struct weir_sup_entry *e, int tenant)
{
    return is_descriptor(e) && e->about.tenant_index == (uint32_t)tenant;
}

static bool is_of(struct weir_sup_entry *e, int tenant)
{
    return e->about.tenant_index == (uint32_t)tenant;
}

void weir_sup_directory_tenant_gone(struct weir_supervisor *sup,
                                    const struct weir_sup_tenant *tenant)
{
    drop_if(sup, is_descriptor_of, (int)tenant->index);
    drop_if(sup, is_of, (int)tenant->index);
}

bool weir_sup_directory_open(struct weir_supervisor *sup)
{
    sup->directory.watch_fd = epoll_create1(EPOLL_CLOEXEC);
    return sup->directory.watch_fd >= 0;
}

void weir_sup_directory_close(struct weir_supervisor *sup)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        weir_sup_directory_tenant_gone(sup, &sup->tenants[i]);
    }
    weir_fd_close(sup->directory.watch_fd);
}

uint64_t weir_sup_directory_bytes(const struct weir_sup_tenant *tenant, enum weir_account_item item)
{
    return !tenant->account ? 0
                            : atomic_load_explicit(&tenant->account->of[WEIR_ACCOUNT_KEPT][item],
                                                   memory_order_relaxed);
}

static void on_closed(void *user, int index)
{
    (void)index;
    weir_sup_directory_look(user);
}

void weir_sup_directory_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    weir_host_loop_watch(loop, sup->directory.watch_fd, POLLIN, on_closed, sup, 0);
}
