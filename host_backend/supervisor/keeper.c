/*
 * The memory keeper: descriptors of device memory chunks, held by a process that never touches
 * CUDA.
 *
 * A chunk lives as long as somebody holds its descriptor, so a worker's crash does not destroy it
 * under a driver that is still using it, and its size is known here. A chunk is dropped when the
 * worker says so or is gone.
 */
#include "host_backend/supervisor/supervisor.h"

#include "base/log.h"
#include <stdlib.h>
#include <unistd.h>

void weir_sup_keep(struct weir_supervisor *sup, int worker, const struct weir_link_chunk *chunk,
                   int fd)
{
    if (sup->n_kept >= weir_sup_kept_max()) { /* it lives on in its worker */
        close(fd);
        return;
    }
    if (sup->n_kept == sup->kept_room) {
        size_t room = sup->kept_room != 0 ? sup->kept_room * 2 : 64;
        struct weir_kept_chunk *bigger =
            room <= WEIR_KEPT_MAX ? realloc(sup->kept, room * sizeof *bigger) : NULL;

        if (bigger == NULL) {
            close(fd);
            return;
        }
        sup->kept = bigger;
        sup->kept_room = room;
    }
    sup->kept[sup->n_kept++] = (struct weir_kept_chunk){fd, worker, *chunk};
}

void weir_sup_drop(struct weir_supervisor *sup, int worker, uint64_t id)
{
    for (size_t i = 0; i < sup->n_kept; i++) {
        if (sup->kept[i].worker == worker && sup->kept[i].chunk.id == id) {
            close(sup->kept[i].fd);
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
            close(sup->kept[i].fd);
        } else {
            sup->kept[left++] = sup->kept[i];
        }
    }
    sup->n_kept = left;
}
