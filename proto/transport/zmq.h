/*
 * The guest's end of the ZeroMQ transport. Private to proto/.
 *
 * Hello and Welcome are opaque bytes to this code.
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include <stddef.h>
#include <stdint.h>

struct weir_zmq_client_params {
    const char *endpoint;   /* "tcp://HOST:PORT" or "ipc://PATH" */
    const char *public_key; /* keys in Z85; all three are given, or none */
    const char *secret_key;
    const char *server_key;
    const void *hello; /* the first message */
    size_t hello_len;
    size_t answer_max_bytes;
    int socket_fd;        /* shows whether the host lives, besides ZeroMQ; copied; -1: none */
    uint64_t deadline_ns; /* on the clock of weir_clock_now_ns() */
};

/**
 * Connect, send hello, wait for the answer.
 *
 * @param ret_transport   not usable before weir_zmq_client_set_view().
 * @param ret_answer      what the host answered, to be freed with free().
 * @param ret_answer_len  its length.
 * @return WEIR_OK, WEIR_ERR_UNSUPPORTED (no libzmq), WEIR_ERR_INVALID (endpoint or key),
 *         WEIR_ERR_NO_DESCRIPTOR (too few left for libzmq),
 *         WEIR_ERR_NOT_FOUND (nobody listens), WEIR_ERR_DENIED (key refused), WEIR_ERR_FULL (hung
 * up in the handshake), WEIR_ERR_TIMED_OUT, WEIR_ERR_CLOSED, WEIR_ERR_PEER, WEIR_ERR_NO_MEMORY,
 * WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_zmq_client_connect(const struct weir_zmq_client_params *params,
                                         struct weir_transport **ret_transport, void **ret_answer,
                                         size_t *ret_answer_len) WEIR_MUST_CHECK;

/** Set the sizes of the worker's segment from the answer. @thread before any other use */
void weir_zmq_client_set_view(struct weir_transport *t, uint32_t n_words, uint64_t arena_bytes);
