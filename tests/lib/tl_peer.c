#include "tests/lib/tl_peer.h"
#include "base/clock.h"
#include "proto/transport/segment_map.h"
#include "proto/transport/shm.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

void tl_peer_make(bool victim_is_host, struct tl_peer *ret_peer)
{
    const struct weir_segment_params sizes = {
        .n_words = 16, .ring_bytes = 4096, .arena_bytes = 4096};
    int sockets[2];
    struct weir_shm_params end = {
        .id = WEIR_TRANSPORT_SHM, .is_host = victim_is_host, .pid_fd = -1};
    *ret_peer = (struct tl_peer){0};
    assert_int_equal(weir_segment_create(&sizes, &ret_peer->memory_fd, &end.view), WEIR_OK);
    assert_int_equal(weir_segment_map(ret_peer->memory_fd, end.view.bytes, &ret_peer->view),
                     WEIR_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets),
                     0);
    end.socket_fd = sockets[0];
    ret_peer->socket_fd = sockets[1];
    assert_int_equal(weir_shm_create(&end, &ret_peer->victim), WEIR_OK);
    struct weir_segment_header *header = ret_peer->view.header;
    ret_peer->control_in = victim_is_host ? &header->to_host : &header->to_guest;
    ret_peer->control_out = victim_is_host ? &header->to_guest : &header->to_host;
    ret_peer->ring_in = victim_is_host ? ret_peer->view.to_host : ret_peer->view.to_guest;
}

void tl_peer_destroy(struct tl_peer *peer)
{
    peer->victim->ops->destroy(peer->victim);
    weir_segment_unmap(&peer->view);
    tl_peer_hang_up(peer);
    close(peer->memory_fd);
}

void tl_peer_hang_up(struct tl_peer *peer)
{
    if (peer->socket_fd >= 0) {
        close(peer->socket_fd);
        peer->socket_fd = -1;
    }
}

void tl_peer_plant(struct tl_peer *peer, uint32_t len_bytes)
{
    struct weir_record record = {.len_bytes = len_bytes, .op = 1};
    memcpy(peer->ring_in, &record, sizeof record);
}

void tl_peer_set_tail(struct tl_peer *peer, uint32_t tail)
{
    __atomic_store_n(&peer->control_in->tail, tail, __ATOMIC_SEQ_CST);
    weir_futex_wake(&peer->control_in->tail, 1);
}

void tl_peer_set_head(struct tl_peer *peer, uint32_t head)
{
    __atomic_store_n(&peer->control_out->head, head, __ATOMIC_SEQ_CST);
    weir_futex_wake(&peer->control_out->head, 1);
}
