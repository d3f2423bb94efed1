/* What the files of e2e_hostile share: an honest client's means, and scenarios of the handshake. */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct client {
    struct weir_transport *transport;
    const struct weir_segment_view *view;
    uint32_t tail; /* of to_host: our own, for scenarios that write the ring directly */
    uint64_t seq;
};

extern const char *hostile_url;

/** Say why, and end the program as failed. */
void hostile_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/** The next of a fixed sequence of random numbers. */
uint64_t hostile_any(void);

/** A limit for what takes this long at most on a machine with a processor for everybody: longer on
 * a busier one. */
uint64_t hostile_limit_ns(uint64_t calm_ns);

struct weir_op_hashes;
/** Connect as a guest that names these operations; said: the host's words. */
enum weir_status hostile_try_connect(struct client *c, const struct weir_op_hashes *ops,
                                     char said[256]);
/** What an honest guest names. */
const struct weir_op_hashes *hostile_own_ops(void);
/** From now on connections say that they are monitors. */
void hostile_as_monitor(void);
void hostile_connect(struct client *c);
void hostile_disconnect(struct client *c);
bool hostile_echo_works(struct client *c);

/** The session must have survived `what`; disconnects. */
void hostile_expect_alive(struct client *c, const char *what);

/** Call and give the result; the reply must come. */
int32_t hostile_call(struct client *c, int op, const void *message);
/** Call an operation by its number alone, without a body. */
int32_t hostile_call_number(struct client *c, uint16_t op);
/** The same, with a descriptor behind it (borrowed). */
int32_t hostile_call_with_fd(struct client *c, int op, const void *message, int fd);
void hostile_post(struct client *c, int op, const void *message);
/** The host must end the session because of `what`; disconnects. */
void hostile_expect_end(struct client *c, const char *what);

/** A memfd of so many bytes. */
int hostile_memory_file(size_t bytes, bool sealed);

void hostile_scenario_vmm(void);
void hostile_scenario_greedy(void);
void hostile_scenario_registered(void);
void hostile_scenario_guarded(void);
void hostile_scenario_images(void);
void hostile_scenario_windows(void);
void hostile_scenario_managed(void);
void hostile_scenario_garbage_hello(void);
void hostile_scenario_silent(void);
void hostile_scenario_no_operations(void);
void hostile_scenario_other_release(void);
void hostile_scenario_wrong_protocol(void);
void hostile_scenario_no_transport(void);
void hostile_scenario_comings_and_goings(void);
void hostile_scenario_sessions(void);
void hostile_scenario_monitors(void);
