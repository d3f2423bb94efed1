/*
 * The keeper: the process that outlives the supervisor, and what the two say to each other
 * (docs/design/keeper.md).
 *
 * The keeper is the parent of workers, the gate process and MPS daemons. It holds rows: an owner, a
 * key, bytes and descriptors. Only their owner in the supervisor reads a row; the keeper hands all
 * rows to each supervisor that connects. A row may belong to a process: SPAWN makes both at once.
 *
 * One message is one packet of a SOCK_SEQPACKET socket. Both ends trust each other: the socket
 * admits only the keeper's own user, and no process that the keeper has started.
 */
#pragma once

#include "base/fd_pass.h"
#include "base/status.h"
#include "host_backend/confine/confine.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WEIR_KEEP_VERSION   1u
#define WEIR_KEEP_SOCKET    "keep.sock" /* in the run directory */
#define WEIR_KEEP_LISTEN_FD 3           /* the keeper's listening socket after exec */

/* The most bytes of a message: a supervisor's environment is the largest part. */
#define WEIR_KEEP_BYTES_MAX (128u << 10)

enum weir_keep_type {
    WEIR_KEEP_NONE,
    WEIR_KEEP_HELLO,   /* both ways: value is the version; then all rows follow, and LISTED. From a
                          supervisor: pid is linger_s; the bytes are the words of the command that
                          ends the host in order */
    WEIR_KEEP_ROW,     /* one row, before LISTED; pid: its process's, or 0 */
    WEIR_KEEP_LISTED,  /* all rows were sent */
    WEIR_KEEP_SPAWN,   /* struct weir_keep_spawn, the row's bytes, words; answered by SPAWNED */
    WEIR_KEEP_SPAWNED, /* pid, or value: the errno of a failure */
    WEIR_KEEP_EXITED,  /* a process has ended or was stopped; value: as waitpid() gives it */
    WEIR_KEEP_REAPED,  /* the supervisor knows of the end: forget the process and its row */
    WEIR_KEEP_PUT,     /* make a row, or replace its bytes and descriptors */
    WEIR_KEEP_DROP,    /* remove a row, unless it is a process's */
    WEIR_KEEP_END,     /* kill what is left, and end */
};

struct weir_keep_message {
    uint32_t type; /* enum weir_keep_type */
    uint32_t owner;
    uint64_t key;
    int32_t pid;
    int32_t value;
    uint32_t bytes; /* of data */
    uint8_t data[WEIR_KEEP_BYTES_MAX];
};

/* What a process becomes. */
struct weir_keep_spawn {
    struct weir_confine_user user;
    bool is_worker; /* it has no privileges, and the kernel ends it before others */
    bool lowered;   /* its mappings lie below the addresses that programs use */
    bool by_file; /* the descriptor after the process's is the program, whatever its name is now */
    int32_t death_signal;
    uint32_t n_fds; /* the first descriptors are the process's: 0, 1 which is also 2, 3 and so on;
                       the last are the row's */
    uint32_t row_bytes; /* they follow this struct; then words, each with its NUL */
    uint32_t n_argv;    /* the first words; the first is the program; all others are environment */
    char log_path[128]; /* opened as descriptor 1 and 2 by the process's own user; "": not wanted */
};

/**
 * Send a message.
 * @param fds  n of them go with it; borrowed; n <= WEIR_FDS_MAX.
 * @return whether it was sent; false: see errno @thread any
 */
bool weir_keep_send(int socket_fd, const struct weir_keep_message *message, const int *fds,
                    uint32_t n);

/**
 * Receive a message. One that is short, torn or lost descriptors has the type NONE.
 * @param ret_fds  always written; the caller closes them.
 * @return false: the connection has ended @thread one at a time
 */
bool weir_keep_receive(int socket_fd, struct weir_keep_message *ret_message,
                       struct weir_fds *ret_fds);

/** The row's bytes of a SPAWN. NULL: the message is not whole. @thread any */
const uint8_t *weir_keep_spawn_row(const struct weir_keep_message *message,
                                   struct weir_keep_spawn *ret_spawn);

/** `weir keep`: its service starts it with the run directory, weir serve also with "started" and
 * the listening socket. @return exit status @thread main */
int weir_keeper_main(int argc, char **argv);
