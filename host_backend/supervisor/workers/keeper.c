/*
 * The memory keeper: descriptors of device memory chunks, held by a process that never touches
 * CUDA.
 *
 * A chunk lives as long as somebody holds its descriptor, so a worker's crash does not destroy it
 * under a driver that is still using it, and its size is known here. A chunk is dropped when the
 * worker says so or is gone.
 *
 * Descriptors are divided among the tenants. What is over a tenant's part is not held: it lives on
 * in its worker, as long as that lives.
 */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/workers.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Half of this process's descriptors are for sockets, links and clients. */
void weir_sup_keeper_init(struct weir_supervisor *sup)
{
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0;

    weir_account_pool_init(&sup->kept_pool);
    weir_account_pool_divide(&sup->kept_pool, WEIR_ACCOUNT_DESCRIPTORS,
                             known ? limit.rlim_cur / 2 : 0, WEIR_CONFIG_TENANTS_MAX);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        sup->kept_of[i] = (struct weir_account){.pool = &sup->kept_pool};
        weir_account_limit_set(&sup->kept_of[i], WEIR_ACCOUNT_DESCRIPTORS, UINT64_MAX);
    }
}

/* No longer held: closed, and its tenant may have another one. */
static void let_go(struct weir_supervisor *sup, const struct weir_kept_chunk *kept)
{
    close(kept->fd);
    weir_account_release(&sup->kept_of[kept->chunk.tenant_index], WEIR_ACCOUNT_DESCRIPTORS, 1);
}

static bool make_room(struct weir_supervisor *sup)
{
    size_t room = sup->kept_room != 0 ? sup->kept_room * 2 : 64;
    struct weir_kept_chunk *bigger;

    if (sup->n_kept < sup->kept_room) {
        return true;
    }
    bigger = realloc(sup->kept, room * sizeof *bigger);
    if (bigger != NULL) {
        sup->kept = bigger;
        sup->kept_room = room;
    }
    return bigger != NULL;
}

void weir_sup_keep(struct weir_supervisor *sup, int worker, const struct weir_link_chunk *chunk,
                   int fd)
{
    if (!make_room(sup) || chunk->tenant_index >= WEIR_CONFIG_TENANTS_MAX ||
        !weir_account_charge(&sup->kept_of[chunk->tenant_index], WEIR_ACCOUNT_DESCRIPTORS, 1)) {
        close(fd);
        return;
    }
    sup->kept[sup->n_kept++] = (struct weir_kept_chunk){fd, worker, *chunk};
}

void weir_sup_drop(struct weir_supervisor *sup, int worker, uint64_t id)
{
    for (size_t i = 0; i < sup->n_kept; i++) {
        if (sup->kept[i].worker == worker && sup->kept[i].chunk.id == id) {
            let_go(sup, &sup->kept[i]);
            sup->kept[i] = sup->kept[--sup->n_kept];
            return;
        }
    }
}

void weir_sup_drop_all(struct weir_supervisor *sup, int worker)
{
    size_t left = 0;

    for (size_t i = 0; i < sup->n_kept; i++) {
        if (sup->kept[i].worker == worker) {
            let_go(sup, &sup->kept[i]);
        } else {
            sup->kept[left++] = sup->kept[i];
        }
    }
    sup->n_kept = left;
}
