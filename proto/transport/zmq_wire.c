#include "proto/transport/zmq_wire.h"
#include "proto/transport/ring.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool set_int(const struct weir_zmq_api *api, void *socket, int option, int value)
{
    return api->zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

bool weir_zmq_socket_setup(const struct weir_zmq_api *api, void *socket)
{
    const int64_t max_bytes = WEIR_ZMQ_FRAME_MAX;
    /* No high-water marks for sending: the window limits the messages, so sending never waits. */
    return api->zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes) == 0 &&
           set_int(api, socket, ZMQ_SNDHWM, 0) && set_int(api, socket, ZMQ_TCP_KEEPALIVE, 1) &&
           set_int(api, socket, ZMQ_TCP_KEEPALIVE_IDLE, WEIR_ZMQ_PROBE_IDLE_S) &&
           set_int(api, socket, ZMQ_TCP_KEEPALIVE_INTVL, WEIR_ZMQ_PROBE_INTERVAL_S) &&
           set_int(api, socket, ZMQ_TCP_KEEPALIVE_CNT, WEIR_ZMQ_PROBE_COUNT) &&
           set_int(api, socket, ZMQ_TCP_MAXRT, WEIR_ZMQ_LOST_MS) &&
           set_int(api, socket, ZMQ_HANDSHAKE_IVL, WEIR_ZMQ_HANDSHAKE_MS) &&
           set_int(api, socket, ZMQ_IPV6, 1);
}

void weir_zmq_message_init(const struct weir_zmq_api *api, struct weir_zmq_message *message)
{
    api->zmq_msg_init(&message->identity);
    api->zmq_msg_init(&message->head);
    api->zmq_msg_init(&message->tail);
    message->has_identity = false;
    message->has_tail = false;
}

void weir_zmq_message_finish(const struct weir_zmq_api *api, struct weir_zmq_message *message)
{
    api->zmq_msg_close(&message->identity);
    api->zmq_msg_close(&message->head);
    api->zmq_msg_close(&message->tail);
}

static enum weir_status fill_frame(const struct weir_zmq_api *api, zmq_msg_t *frame,
                                   const void *bytes, size_t len)
{
    api->zmq_msg_close(frame);
    if (api->zmq_msg_init_size(frame, len) != 0) {
        api->zmq_msg_init(frame);
        return WEIR_ERR_NO_MEMORY;
    }
    memcpy(api->zmq_msg_data(frame), bytes, len);
    return WEIR_OK;
}

enum weir_status weir_zmq_message_fill(const struct weir_zmq_api *api,
                                       struct weir_zmq_message *message, const void *head,
                                       size_t head_len, const void *tail, size_t tail_len)
{
    enum weir_status status = fill_frame(api, &message->head, head, head_len);
    if (status == WEIR_OK && tail_len > 0) {
        status = fill_frame(api, &message->tail, tail, tail_len);
        message->has_tail = status == WEIR_OK;
    }
    return status;
}

enum weir_status weir_zmq_message_address(const struct weir_zmq_api *api,
                                          struct weir_zmq_message *message, const void *identity,
                                          size_t len)
{
    enum weir_status status = fill_frame(api, &message->identity, identity, len);
    message->has_identity = status == WEIR_OK;
    return status;
}

enum weir_status weir_zmq_message_send(const struct weir_zmq_api *api, void *socket,
                                       struct weir_zmq_message *message)
{
    bool sent = !message->has_identity ||
                api->zmq_msg_send(&message->identity, socket, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0;
    int more = message->has_tail ? ZMQ_SNDMORE : 0;
    sent = sent && api->zmq_msg_send(&message->head, socket, ZMQ_DONTWAIT | more) >= 0;
    if (more) {
        sent = sent && api->zmq_msg_send(&message->tail, socket, ZMQ_DONTWAIT) >= 0;
    }
    int error = sent ? 0 : api->zmq_errno();
    weir_zmq_message_finish(api, message);
    weir_zmq_message_init(api, message);
    if (sent) {
        return WEIR_OK;
    }
    return error == EHOSTUNREACH || error == EAGAIN ? WEIR_ERR_CLOSED : WEIR_ERR_IO;
}

/* Drop the rest of a message that has more frames than it should. */
static void drop_rest(const struct weir_zmq_api *api, void *socket)
{
    zmq_msg_t frame;
    int more = 1;
    while (more) {
        api->zmq_msg_init(&frame);
        more = api->zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) >= 0 && api->zmq_msg_more(&frame);
        api->zmq_msg_close(&frame);
    }
}

enum weir_status weir_zmq_message_receive(const struct weir_zmq_api *api, void *socket,
                                          bool with_identity, struct weir_zmq_message *message)
{
    zmq_msg_t *frames[3];
    int wanted = 0;
    if (with_identity) {
        frames[wanted++] = &message->identity;
    }
    frames[wanted++] = &message->head;
    frames[wanted++] = &message->tail;
    int n = 0;
    bool more = true;
    while (more && n < wanted) {
        if (api->zmq_msg_recv(frames[n], socket, ZMQ_DONTWAIT) < 0) {
            int error = api->zmq_errno();
            return n == 0 && (error == EAGAIN || error == EINTR) ? WEIR_ERR_AGAIN : WEIR_ERR_IO;
        }
        more = api->zmq_msg_more(frames[n++]);
    }
    message->has_identity = with_identity;
    message->has_tail = n == wanted;
    if (!more && n >= wanted - 1) {
        return WEIR_OK;
    }
    if (more) {
        drop_rest(api, socket);
    }
    return WEIR_ERR_PEER;
}

bool weir_zmq_control_read(const struct weir_zmq_api *api, struct weir_zmq_message *message,
                           struct weir_zmq_control *ret_control)
{
    WEIR_FAIL_IF(api->zmq_msg_size(&message->head) != sizeof *ret_control, false);
    memcpy(ret_control, api->zmq_msg_data(&message->head), sizeof *ret_control);
    return ret_control->magic == WEIR_ZMQ_CONTROL_MAGIC;
}

uint64_t weir_zmq_cost(size_t record_bytes, size_t bulk_bytes)
{
    return (uint64_t)record_bytes + bulk_bytes + WEIR_ZMQ_MESSAGE_COST;
}

bool weir_zmq_flow_may_send(const struct weir_zmq_flow *flow, uint64_t cost)
{
    return flow->sent - flow->acknowledged + cost <= WEIR_ZMQ_WINDOW_BYTES;
}

bool weir_zmq_flow_credit(struct weir_zmq_flow *flow, uint64_t total)
{
    WEIR_FAIL_IF(total < flow->acknowledged || total > flow->sent, false);
    flow->acknowledged = total;
    return true;
}

bool weir_zmq_flow_consume(struct weir_zmq_flow *flow, uint64_t cost)
{
    flow->consumed += cost;
    if (flow->consumed - flow->credited < WEIR_ZMQ_WINDOW_BYTES / 4) {
        return false;
    }
    flow->credited = flow->consumed;
    return true;
}

enum weir_status weir_zmq_inbox_put(const struct weir_zmq_api *api, struct weir_zmq_inbox *inbox,
                                    struct weir_zmq_flow *flow, struct weir_zmq_message *message)
{
    size_t len = api->zmq_msg_size(&message->head);
    size_t bulk_len = message->has_tail ? api->zmq_msg_size(&message->tail) : 0;
    uint64_t cost = weir_zmq_cost(len, bulk_len);
    struct weir_record header;
    WEIR_FAIL_IF(len < sizeof header || bulk_len > WEIR_BULK_MAX_BYTES, WEIR_ERR_PEER);
    memcpy(&header, api->zmq_msg_data(&message->head), sizeof header);
    if (header.len_bytes != len || weir_record_check_length(header.len_bytes) != WEIR_OK ||
        flow->received - flow->consumed + cost > WEIR_ZMQ_WINDOW_BYTES) {
        return WEIR_ERR_PEER;
    }
    struct weir_zmq_node *node = malloc(sizeof *node + len);
    WEIR_FAIL_IF(!node, WEIR_ERR_NO_MEMORY);
    /* Copied because libzmq gives no alignment: the bytes may lie inside its receive buffer. */
    memcpy(node->record, api->zmq_msg_data(&message->head), len);
    node->next = NULL;
    node->cost = cost;
    node->has_bulk = bulk_len > 0;
    api->zmq_msg_init(&node->bulk);
    api->zmq_msg_move(&node->bulk, &message->tail);
    flow->received += cost;
    if (inbox->last) {
        inbox->last->next = node;
    } else {
        inbox->first = node;
    }
    inbox->last = node;
    __atomic_fetch_add(&inbox->count, 1, __ATOMIC_RELEASE);
    return WEIR_OK;
}

struct weir_zmq_node *weir_zmq_inbox_take(struct weir_zmq_inbox *inbox)
{
    struct weir_zmq_node *node = inbox->first;
    if (node) {
        inbox->first = node->next;
        if (!inbox->first) {
            inbox->last = NULL;
        }
        __atomic_fetch_sub(&inbox->count, 1, __ATOMIC_RELAXED);
    }
    return node;
}

void weir_zmq_node_free(const struct weir_zmq_api *api, struct weir_zmq_node *node)
{
    if (node) {
        api->zmq_msg_close(&node->bulk);
        free(node);
    }
}

bool weir_zmq_readable(const struct weir_zmq_api *api, void *socket)
{
    int events = 0;
    size_t len = sizeof events;
    return api->zmq_getsockopt(socket, ZMQ_EVENTS, &events, &len) == 0 && (events & ZMQ_POLLIN);
}

int weir_zmq_fd(const struct weir_zmq_api *api, void *socket)
{
    int fd = -1;
    size_t len = sizeof fd;
    return api->zmq_getsockopt(socket, ZMQ_FD, &fd, &len) == 0 ? fd : -1;
}

bool weir_zmq_monitor_read(const struct weir_zmq_api *api, void *monitor, int *ret_event,
                           uint32_t *ret_value)
{
    zmq_msg_t frame;
    bool found = false;
    api->zmq_msg_init(&frame);
    if (api->zmq_msg_recv(&frame, monitor, ZMQ_DONTWAIT) >= 0) {
        const uint8_t *bytes = api->zmq_msg_data(&frame);
        uint16_t event = 0;
        if (api->zmq_msg_size(&frame) >= sizeof event + sizeof *ret_value) {
            memcpy(&event, bytes, sizeof event);
            memcpy(ret_value, bytes + sizeof event, sizeof *ret_value);
        }
        *ret_event = event;
        found = true;
        if (api->zmq_msg_more(&frame)) {
            drop_rest(api, monitor); /* drop the frame with the address */
        }
    }
    api->zmq_msg_close(&frame);
    return found;
}
