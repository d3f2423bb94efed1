#include "host_backend/gate/client.h"

#include "base/clock.h"
#include "host_backend/gate/gate.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EPOCHS      0xffffu
#define EPOCH_SHIFT 48
#define INDEX_BITS  16
#define DEAF_NS     WEIR_NS_PER_S /* a process that reads nothing for this long is unresponsive */
_Static_assert(WEIR_GATE_PORT_ITEMS == 1u << INDEX_BITS, "an index in the low bits of a name");

enum weir_status weir_gate_client_create(int port_fd, int bell_fd, struct weir_gate_client *older,
                                         struct weir_gate_client **ret_client)
{
    struct weir_gate_client *client = calloc(1, sizeof *client);
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    if (client) {
        client->handles = calloc(WEIR_GATE_PORT_ITEMS, sizeof *client->handles);
    }
    if (client && client->handles) {
        status = weir_gate_port_map(port_fd, &client->port);
    }
    if (status != WEIR_OK) {
        if (client) {
            free(client->handles);
        }
        free(client);
        return status;
    }
    client->bell = bell_fd;
    client->older = older;
    client->epoch = older ? older->epoch % EPOCHS + 1 : 1;
    pthread_mutex_init(&client->lock, NULL);
    *ret_client = client;
    return WEIR_OK;
}

void weir_gate_client_destroy(struct weir_gate_client *client)
{
    while (client) {
        struct weir_gate_client *older = client->older;

        weir_gate_port_unmap(client->port);
        close(client->bell);
        pthread_mutex_destroy(&client->lock);
        free(client->handles);
        free(client);
        client = older;
    }
}

/* ---------------------------------------------------------------- requests */

static void post_locked(struct weir_gate_client *client, const struct weir_gate_request *request)
{
    client->deaf |= !weir_gate_port_post(client->port, client->bell, request);
}

void weir_gate_client_post(struct weir_gate_client *client, const struct weir_gate_request *request)
{
    WEIR_LOCKED(&client->lock);
    post_locked(client, request);
}

/* Find the handle of a name; NULL: the name is not valid. */
static struct weir_gate_handle *handle_of_locked(struct weir_gate_client *client,
                                                 weir_gate_name name)
{
    struct weir_gate_handle *handle = &client->handles[name % WEIR_GATE_PORT_ITEMS];
    bool valid = name >> EPOCH_SHIFT == client->epoch &&
                 handle->generation == (uint32_t)(name >> INDEX_BITS) &&
                 (handle->generation & 1) != 0;

    return valid ? handle : NULL;
}

void weir_gate_client_post_item(struct weir_gate_client *client, weir_gate_name name,
                                struct weir_gate_request *request)
{
    WEIR_LOCKED(&client->lock);
    struct weir_gate_handle *handle = handle_of_locked(client, name);
    if (handle) {
        request->item = (uint32_t)(handle - client->handles);
        request->generation = handle->generation;
        post_locked(client, request);
    }
}

bool weir_gate_client_is_deaf(struct weir_gate_client *client)
{
    WEIR_LOCKED(&client->lock);
    uint64_t now_ns =
        weir_clock_now_ns(); /* read under the lock: not before another thread's time */
    uint32_t tail = atomic_load(&client->port->tail);
    if (tail == atomic_load(&client->port->head)) {
        client->unread_since_ns = 0;
    } else if (client->unread_since_ns == 0 || tail != client->unread_tail) {
        client->unread_since_ns = now_ns;
        client->unread_tail = tail;
    } else {
        client->deaf |= now_ns - client->unread_since_ns > DEAF_NS;
    }
    return client->deaf;
}

/* ---------------------------------------------------------------- names */

uint32_t weir_gate_client_slot_take(struct weir_gate_client *client)
{
    uint32_t slot = WEIR_GATE_PORT_QUEUES;

    WEIR_LOCKED(&client->lock);
    for (uint32_t i = 0; i < WEIR_GATE_PORT_QUEUES / 64 && slot == WEIR_GATE_PORT_QUEUES; i++) {
        if (client->slots[i] != UINT64_MAX) {
            slot = i * 64 + (uint32_t)__builtin_ctzll(~client->slots[i]);
            client->slots[i] |= UINT64_C(1) << slot % 64;
        }
    }
    return slot;
}

void weir_gate_client_slot_put(struct weir_gate_client *client, uint32_t slot)
{
    WEIR_LOCKED(&client->lock);
    client->slots[slot / 64] &= ~(UINT64_C(1) << slot % 64);
}

weir_gate_name weir_gate_client_name(struct weir_gate_client *client, struct weir_gate_item *item)
{
    struct weir_gate_handle *handle = NULL;
    weir_gate_name name = 0;

    WEIR_LOCKED(&client->lock);
    if (client->free_handle != 0) {
        handle = &client->handles[client->free_handle - 1];
        client->free_handle = handle->next_free;
    } else if (client->handles_made != WEIR_GATE_PORT_ITEMS) {
        handle = &client->handles[client->handles_made++];
    }
    if (handle) {
        handle->generation++;
        handle->item = item;
        name = (uint64_t)client->epoch << EPOCH_SHIFT | (uint64_t)handle->generation << INDEX_BITS |
               (uint64_t)(handle - client->handles);
    }
    return name;
}

void weir_gate_client_unname(struct weir_gate_client *client, weir_gate_name name)
{
    WEIR_LOCKED(&client->lock);
    struct weir_gate_handle *handle = handle_of_locked(client, name);
    if (handle) {
        handle->generation++;
        handle->item = NULL;
        handle->next_free = client->free_handle;
        client->free_handle = (uint32_t)(handle - client->handles) + 1;
    }
}

struct weir_gate_item *weir_gate_client_item_at(struct weir_gate_client *client, uint32_t index)
{
    WEIR_LOCKED(&client->lock);
    return client->handles[index].item;
}

struct weir_gate_item *weir_gate_client_item(struct weir_gate_client *client, uint32_t index,
                                             uint32_t generation)
{
    struct weir_gate_item *item = NULL;

    WEIR_LOCKED(&client->lock);
    if (index < WEIR_GATE_PORT_ITEMS && client->handles[index].generation == generation) {
        item = client->handles[index].item;
    }
    return item;
}
