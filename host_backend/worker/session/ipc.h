/* What processes of a tenant share by handles of 64 random bytes. */
#ifndef WEIR_HOST_BACKEND_WORKER_SESSION_IPC_H
#define WEIR_HOST_BACKEND_WORKER_SESSION_IPC_H

#include "proto/cuda_abi.h"
#include <stdint.h>

struct weir_host_chunk;

/* A place in device memory; in the tenant, under its lock. */
struct weir_ipc_token {
    struct weir_ipc_token *next;
    uint8_t handle[64];
    struct weir_host_chunk *chunk; /* not a reference: the token goes with the chunk */
    uint64_t base, bytes;
};

/* An event that several processes of a tenant share. */
struct weir_ipc_event {
    struct weir_ipc_event *next; /* in the tenant, under its lock */
    uint8_t handle[64];
    CUevent native;
    uint32_t refs;
};

#endif
