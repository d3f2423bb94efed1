#include "host_backend/supervisor/state/outbox.h"
#include "base/fd.h"
#include "host_backend/loop/loop.h"

#include "base/clock.h"
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* A process that takes no message for this long is considered hung. Some driver calls take
 * seconds. */
#define STANDS_STILL_NS (10 * WEIR_NS_PER_S)

struct weir_outbox_item {
    struct weir_outbox_item *next;
    struct weir_link_message message;
    int fd; /* our copy of the descriptor; -1: none */
};

static void drop_first(struct weir_outbox *box)
{
    struct weir_outbox_item *item = box->first;

    box->first = item->next;
    box->n--;
    weir_fd_close(item->fd);
    free(item);
}

enum weir_status weir_outbox_flush(struct weir_outbox *box, int link, uint64_t now_ns)
{
    enum weir_status status = WEIR_OK;

    while (box->n != 0 && status == WEIR_OK) {
        status = weir_link_send_now(link, &box->first->message, box->first->fd);
        if (status == WEIR_OK) {
            drop_first(box);
            box->due_ns = now_ns + STANDS_STILL_NS;
        }
    }
    return status == WEIR_ERR_AGAIN && now_ns < box->due_ns ? WEIR_OK : status;
}

static enum weir_status append(struct weir_outbox *box, const struct weir_link_message *message,
                               int fd, uint64_t now_ns)
{
    WEIR_FAIL_IF(box->n == WEIR_OUTBOX_MAX, WEIR_ERR_AGAIN);
    struct weir_outbox_item *item = malloc(sizeof *item);
    WEIR_FAIL_IF(!item, WEIR_ERR_NO_MEMORY);
    *item = (struct weir_outbox_item){.message = *message, .fd = -1};
    if (fd >= 0) {
        item->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    if (fd >= 0 && item->fd < 0) {
        free(item);
        return WEIR_ERR_NO_MEMORY;
    }
    if (box->n == 0) {
        box->first = item;
        box->due_ns = now_ns + STANDS_STILL_NS;
    } else {
        box->last->next = item;
    }
    box->last = item;
    box->n++;
    return WEIR_OK;
}

enum weir_status weir_outbox_send(struct weir_outbox *box, int link,
                                  const struct weir_link_message *message, int fd)
{
    uint64_t now_ns = weir_host_clock_ns();
    enum weir_status status = weir_outbox_flush(box, link, now_ns);

    if (status == WEIR_OK && box->n == 0) {
        status = weir_link_send_now(link, message, fd);
        return status == WEIR_ERR_AGAIN ? append(box, message, fd, now_ns) : status;
    }
    return status == WEIR_OK ? append(box, message, fd, now_ns) : status;
}

uint64_t weir_outbox_due_ns(const struct weir_outbox *box)
{
    return box->n != 0 ? box->due_ns : WEIR_FOREVER;
}

short weir_outbox_events(const struct weir_outbox *box)
{
    return box->n != 0 ? POLLIN | POLLOUT : POLLIN;
}

void weir_outbox_clear(struct weir_outbox *box)
{
    while (box->n != 0) {
        drop_first(box);
    }
}
