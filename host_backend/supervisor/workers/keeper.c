/*
 * The memory keeper: descriptors of device memory chunks, held by a process that never touches
 * CUDA.
 *
 * A chunk lives as long as a process holds its descriptor. So a worker's crash does not destroy it
 * while the driver still uses it, and the supervisor knows its size. A chunk is dropped at the
 * worker's request or end.
 *
 * Descriptors are divided among the tenants. A chunk over a tenant's part is not held here and ends
 * with its worker.
 */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/workers.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Divide half of this process's descriptors; the rest is for sockets, links and clients. */
void weir_sup_keeper_init(struct weir_supervisor *sup)
{
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;

    weir_account_pool_init(&sup->keeper.pool);
    weir_account_pool_divide(&sup->keeper.pool, WEIR_ACCOUNT_DESCRIPTORS,
                             known ? limit.rlim_cur / 2 : 0, WEIR_CONFIG_TENANTS_MAX);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        sup->keeper.of[i] = (struct weir_account){.pool = &sup->keeper.pool};
        weir_account_limit_set(&sup->keeper.of[i], WEIR_ACCOUNT_DESCRIPTORS, UINT64_MAX);
    }
}

/* Close a chunk's descriptor, and let its tenant have another one. */
static void let_go(struct weir_supervisor *sup, const struct weir_kept_chunk *kept)
{
    close(kept->fd);
    weir_account_release(&sup->keeper.of[kept->chunk.tenant_index], WEIR_ACCOUNT_DESCRIPTORS, 1);
}

static bool make_room(struct weir_supervisor *sup)
{
    size_t room = sup->keeper.room != 0 ? sup->keeper.room * 2 : 64;
    struct weir_kept_chunk *bigger;

    if (sup->keeper.n_kept < sup->keeper.room) {
        return true;
    }
    bigger = realloc(sup->keeper.kept, room * sizeof *bigger);
    if (bigger) {
        sup->keeper.kept = bigger;
        sup->keeper.room = room;
    }
    return bigger != NULL;
}

void weir_sup_keep(struct weir_supervisor *sup, int worker, const struct weir_link_chunk *chunk,
                   int fd)
{
    if (!make_room(sup) || chunk->tenant_index >= WEIR_CONFIG_TENANTS_MAX ||
        !weir_account_charge(&sup->keeper.of[chunk->tenant_index], WEIR_ACCOUNT_DESCRIPTORS, 1)) {
        close(fd);
        return;
    }
    sup->keeper.kept[sup->keeper.n_kept++] = (struct weir_kept_chunk){fd, worker, *chunk};
}

void weir_sup_drop(struct weir_supervisor *sup, int worker, uint64_t id)
{
    for (size_t i = 0; i < sup->keeper.n_kept; i++) {
        if (sup->keeper.kept[i].worker == worker && sup->keeper.kept[i].chunk.id == id) {
            let_go(sup, &sup->keeper.kept[i]);
            sup->keeper.kept[i] = sup->keeper.kept[--sup->keeper.n_kept];
            return;
        }
    }
}

void weir_sup_drop_all(struct weir_supervisor *sup, int worker)
{
    size_t left = 0;

    for (size_t i = 0; i < sup->keeper.n_kept; i++) {
        if (sup->keeper.kept[i].worker == worker) {
            let_go(sup, &sup->keeper.kept[i]);
        } else {
            sup->keeper.kept[left++] = sup->keeper.kept[i];
        }
    }
    sup->keeper.n_kept = left;
}
