/*
 * Descriptors of device memory chunks, held by a process that never touches CUDA: the keeper.
 *
 * A chunk lives as long as a process holds its descriptor. So a worker's crash does not destroy it
 * while the driver still uses it, and the supervisor knows its size. A chunk is dropped at the
 * worker's request or end.
 *
 * Descriptors are divided among the tenants. A chunk over a tenant's part is not held here and ends
 * with its worker.
 */
#include "base/grow.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/workers.h"

#include <sys/resource.h>
#include <unistd.h>

/* A row (WEIR_BOOK_CHUNK). Members are only appended. */
struct row {
    int32_t worker;
    uint32_t zero;
    struct weir_link_chunk chunk;
};

/* Divide half of this process's descriptors; the rest is for sockets, links and clients. */
void weir_sup_chunks_init(struct weir_supervisor *sup)
{
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;

    weir_account_pool_init(&sup->chunks.pool);
    weir_account_pool_divide(&sup->chunks.pool, WEIR_ACCOUNT_DESCRIPTORS,
                             known ? limit.rlim_cur / 2 : 0, WEIR_CONFIG_TENANTS_MAX);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        sup->chunks.of[i] = (struct weir_account){.pool = &sup->chunks.pool};
        weir_account_limit_set(&sup->chunks.of[i], WEIR_ACCOUNT_DESCRIPTORS, UINT64_MAX);
    }
}

/* Close a chunk's descriptor, and let its tenant have another one. */
static void let_go(struct weir_supervisor *sup, const struct weir_kept_chunk *kept)
{
    weir_book_drop(sup, WEIR_BOOK_CHUNK, kept->key);
    weir_account_release(&sup->chunks.of[kept->chunk.tenant_index], WEIR_ACCOUNT_DESCRIPTORS, 1);
}

static bool note(struct weir_supervisor *sup, int worker, const struct weir_link_chunk *chunk,
                 uint64_t key)
{
    if (!WEIR_GROW(sup->chunks.kept, sup->chunks.n_kept, sup->chunks.room) ||
        chunk->tenant_index >= WEIR_CONFIG_TENANTS_MAX ||
        !weir_account_charge(&sup->chunks.of[chunk->tenant_index], WEIR_ACCOUNT_DESCRIPTORS, 1)) {
        return false;
    }
    sup->chunks.kept[sup->chunks.n_kept++] = (struct weir_kept_chunk){key, worker, *chunk};
    return true;
}

void weir_sup_keep(struct weir_supervisor *sup, int worker, const struct weir_link_chunk *chunk,
                   int fd)
{
    const struct row row = {.worker = worker, .chunk = *chunk};

    weir_sup_drop(sup, worker, chunk->id); /* the last supervisor may have handled this message */
    if (note(sup, worker, chunk, sup->chunks.last_key + 1)) {
        weir_book_put(sup, WEIR_BOOK_CHUNK, ++sup->chunks.last_key, &row, sizeof row, &fd, 1);
    }
    close(fd);
}

void weir_sup_chunks_adopt(struct weir_supervisor *sup)
{
    struct weir_book_row *row;

    while ((row = weir_book_adopt(sup, WEIR_BOOK_CHUNK))) {
        struct row old;

        weir_book_read(row, &old, sizeof old);
        sup->chunks.last_key = row->key > sup->chunks.last_key ? row->key : sup->chunks.last_key;
        if (!note(sup, old.worker, &old.chunk, row->key)) {
            weir_book_drop(sup, WEIR_BOOK_CHUNK, row->key);
        }
    }
}

void weir_sup_drop(struct weir_supervisor *sup, int worker, uint64_t id)
{
    for (size_t i = 0; i < sup->chunks.n_kept; i++) {
        if (sup->chunks.kept[i].worker == worker && sup->chunks.kept[i].chunk.id == id) {
            let_go(sup, &sup->chunks.kept[i]);
            sup->chunks.kept[i] = sup->chunks.kept[--sup->chunks.n_kept];
            return;
        }
    }
}

void weir_sup_drop_all(struct weir_supervisor *sup, int worker)
{
    size_t left = 0;

    for (size_t i = 0; i < sup->chunks.n_kept; i++) {
        if (sup->chunks.kept[i].worker == worker) {
            let_go(sup, &sup->chunks.kept[i]);
        } else {
            sup->chunks.kept[left++] = sup->chunks.kept[i];
        }
    }
    sup->chunks.n_kept = left;
}
