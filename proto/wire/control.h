/*
 * The handshake's messages as plain C structs, decoded and checked; see control.proto.
 *
 * Every string is NUL-terminated, every count is within its limit, arrays are owned by the struct.
 */
#pragma once

#include "base/status.h"
#include "proto/transport/transport.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* It grows when guest and worker of different versions can no longer communicate. */
#define WEIR_PROTOCOL 1u

#define WEIR_CONTROL_MAX_BYTES      (64u << 10) /* largest encoded message */
#define WEIR_CONTROL_MAX_ATTRIBUTES 1024u
#define WEIR_CONTROL_MAX_FACTS      1024u
#define WEIR_CONTROL_MAX_TRANSPORTS 8u
#define WEIR_CONTROL_MAX_DEVICES    16u
#define WEIR_CONTROL_MAX_OPS        1024u
/* Most connections of a context to its GPU: the driver's bound. */
#define WEIR_CONTROL_MAX_CONNECTIONS 32u
#define WEIR_CONTROL_NAME_BYTES      16
#define WEIR_CONTROL_TEXT_BYTES      256
#define WEIR_CONTROL_TOKEN_BYTES     32

/* The peer of a unix socket, as the kernel reports it; pid 0: not visible here. */
struct weir_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
    bool known; /* false: the peer is in the network, and has a key instead */
};

/* A guest's requests, from its environment or its code. Limits must be below its tenant's. 0: no
 * request. */
struct weir_limit_wish {
    /* For each device, by its ordinal in the welcome. */
    uint64_t memory_bytes[WEIR_CONTROL_MAX_DEVICES];
    uint32_t sm_pct;      /* 1 .. 99: the share of multiprocessors */
    uint32_t connections; /* 1 .. WEIR_CONTROL_MAX_CONNECTIONS: for each of the worker's contexts */
    bool launches_on_device; /* its kernels launch kernels, so its worker must be outside MPS */
};

/* The hash of each operation as one side knows it: see op_hash.h. */
struct weir_op_hashes {
    uint32_t n; /* operations 0 .. n-1; hash 0: this side does not know the operation */
    uint32_t hash[WEIR_CONTROL_MAX_OPS];
};

struct weir_hello {
    uint32_t protocol;
    const struct weir_op_hashes *ops; /* NULL: the guest sent none; a decoded hello owns it */
    uint32_t pid;                     /* as the guest says; peer has the kernel's answer */
    char version[WEIR_CONTROL_TEXT_BYTES];
    char program[WEIR_CONTROL_TEXT_BYTES];
    uint32_t n_transports;
    char transports[WEIR_CONTROL_MAX_TRANSPORTS][WEIR_CONTROL_NAME_BYTES];
    bool has_token;
    uint8_t token[WEIR_CONTROL_TOKEN_BYTES];
    bool monitor; /* an NVML connection: it may only ask */
    struct weir_limit_wish wish;
    bool why;              /* a question, without a session: weir_connect_why() */
    struct weir_peer peer; /* filled by the receiver, not from the message */
};

struct weir_device_attribute {
    int32_t id;     /* a CUdevice_attribute */
    int32_t result; /* the driver's CUresult for the query of the attribute */
    int64_t value;
};

/* For instance "limit.2" (CUlimit by number), "peer.1" (can it reach device 1 of the welcome?) or
 * "p2p.1.3" (CUdevice_P2PAttribute 3 towards device 1). */
struct weir_device_fact {
    char key[64];
    uint64_t value;
};

struct weir_device {
    int32_t driver_version; /* as cuDriverGetVersion */
    char name[WEIR_CONTROL_TEXT_BYTES];
    uint8_t uuid[16];
    uint8_t luid[8];
    uint32_t luid_mask;
    char pci_bus_id[32];
    uint64_t total_memory_bytes;
    bool real; /* false: the device is softgpu's */
    int32_t stream_priority_least;
    int32_t stream_priority_greatest;
    uint64_t granularity_bytes;
    uint32_t n_attributes;
    struct weir_device_attribute *attributes;
    uint32_t n_facts;
    struct weir_device_fact *facts;
};

struct weir_welcome {
    enum weir_status status; /* WEIR_OK, or why the worker refused */
    int32_t result;          /* CUresult */
    char message[WEIR_CONTROL_TEXT_BYTES];
    uint64_t session;
    char transport[WEIR_CONTROL_NAME_BYTES];
    uint64_t segment_bytes;
    uint32_t n_words;
    uint64_t arena_bytes;
    char zmq_endpoint[WEIR_CONTROL_TEXT_BYTES];
    bool has_token;
    uint8_t token[WEIR_CONTROL_TOKEN_BYTES];
    uint64_t window_base;
    uint64_t window_bytes;
    char tenant[WEIR_CONTROL_TEXT_BYTES];
    uint64_t memory_quota_bytes;
    char weight[WEIR_CONTROL_NAME_BYTES]; /* the tenant's weight, for people */
    uint64_t spin_ns;                     /* 0: the guest chooses */
    uint32_t n_devices;                   /* at least 1 if status is WEIR_OK */
    struct weir_device devices[WEIR_CONTROL_MAX_DEVICES];
};

/** Free a hello. Accepts NULL. @thread any */
void weir_hello_destroy(struct weir_hello *hello);

/** Free a welcome and its arrays. Accepts NULL. @thread any */
void weir_welcome_destroy(struct weir_welcome *welcome);

/* Name of the fact with cuCtxGetExecAffinity()'s answer, if the call succeeds. */
#define WEIR_DEVICE_FACT_SMS "affinity.sms"

/**
 * Get a fact of a device.
 *
 * @param device      borrowed.
 * @param key         the fact's name.
 * @param ret_value   written only if found.
 * @return true when the device has such a fact.
 * @thread any
 */
bool weir_device_fact_get(const struct weir_device *device, const char *key, uint64_t *ret_value);

/** Find an attribute of a device by its number; NULL: none. @thread any */
const struct weir_device_attribute *weir_device_attribute_get(const struct weir_device *device,
                                                              int32_t id);
