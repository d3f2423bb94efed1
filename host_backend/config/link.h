/*
 * What the supervisor and a worker, or the gate process, say to each other over their socket pair
 * (SOCK_SEQPACKET).
 *
 * Both are the same program, so a message is a plain struct; at most one descriptor goes with it.
 * Either end's closing ends the other: the worker exits, the supervisor starts a new one.
 */
#ifndef WEIR_HOST_BACKEND_CONFIG_LINK_H
#define WEIR_HOST_BACKEND_CONFIG_LINK_H

#include "base/status.h"
#include "host_backend/config/config.h"
#include "host_backend/config/control.h"

/* Kinds of events; workers tell of some. */
enum weir_event_kind {
#define WEIR_EVENT(kind, text, limited) WEIR_EVENT_##kind,
#include "host_backend/config/events.def"
#undef WEIR_EVENT
    WEIR_EVENT_COUNT
};

/* The worker's descriptors after exec, beside the standard ones. */
#define WEIR_LINK_FD          3 /* its end of the link */
#define WEIR_LINK_LISTENER_FD 4 /* listens for ZeroMQ; there if Weir is built with it */

/* 0 is none of them. */
enum weir_link_type {
    WEIR_LINK_NONE,
#define WEIR_LINK(message, worker, gate, of_worker, of_gate, when, about) WEIR_LINK_##message,
#include "host_backend/config/link.def"
#undef WEIR_LINK
    WEIR_LINK_COUNT
};

#define WEIR_LINK_DEVICES_MAX 16 /* at least those of a worker */

/* The SMs that each of a worker's devices has. */
struct weir_link_sms {
    uint32_t n;
    uint32_t sms[WEIR_LINK_DEVICES_MAX];
};

#define WEIR_LINK_GPUS_MAX 64u /* of a host */

/* A GPU, as the gate process is to schedule it. */
struct weir_link_gpu {
    uint8_t uuid[16];
    uint32_t sms;      /* all of it has */
    uint32_t fill;     /* enum weir_sched_fill: the setting, lowered to what the device supports */
    bool levels;       /* work in streams of a higher priority goes first */
    bool above;        /* there is a level for WEIR_SCHED_ABOVE */
    bool part;         /* kernels can be kept to weir_sched_room_sms() SMs */
    bool real;         /* a GPU, not softgpu */
    uint32_t contexts; /* that it takes, of all processes together */
};

/* The devices of a worker that no guest has reached yet: so it is believed. */
struct weir_link_reads {
    uint32_t n;
    struct weir_link_gpu gpu[WEIR_LINK_DEVICES_MAX];
};

struct weir_link_config {
    char driver[WEIR_CONFIG_PATH_BYTES];
    char softgpu[WEIR_CONFIG_PATH_BYTES];
    char log[WEIR_CONFIG_PATH_BYTES]; /* a level: where it goes is standard error */
    char run_dir[WEIR_CONFIG_PATH_BYTES];
    char listen_tcp[WEIR_CONFIG_PATH_BYTES];
    char server_key[WEIR_KEY_Z85_BYTES];    /* the secret key itself */
    char name[WEIR_TENANT_NAME_BYTES + 16]; /* of its sockets in the run directory */
    char devices[WEIR_DEVICE_LIST_BYTES];
    bool alone;                /* it serves one tenant */
    bool gate_comes;           /* a port to the gate process follows, or GATE_LOST */
    uint32_t connections;      /* CUDA_DEVICE_MAX_CONNECTIONS; 0: as the driver chooses */
    bool under_mps;            /* the supervisor finds out whose a fault is */
    uint32_t sm_share_pct;     /* of the SMs, that its contexts are to have; 0: all */
    struct weir_link_sms sms;  /* that its devices have, where its driver only tells the share */
    bool by_program;           /* it serves one program at a time, and says when it is idle */
    bool connections_of_guest; /* the tenant, alone here, may have it started with another number */
    uint64_t started_ns;       /* when the supervisor began to start it */
    uint64_t window_base;
    uint64_t window_bytes;
    uint64_t vmm_base;
    uint64_t vmm_bytes;
    struct weir_forms_config forms;
    struct weir_sched_settings scheduler;
};

struct weir_link_tenant {
    uint32_t index;  /* picks the window; another tenant's only after TENANT_FREE */
    uint32_t goings; /* counts the index's TENANT_GONE; TENANT_FREE answers that one */
    uint32_t place;  /* of the worker in the page that comes with it, if one does */
    bool many;       /* it has other workers, too */
    struct weir_tenant_config config;
};

struct weir_link_gate_port {
    uint32_t id;     /* names the port */
    uint32_t worker; /* the supervisor's number for it */
    int32_t tenant;  /* whose work it may have; -1: nobody's yet */
    uint32_t domain; /* as of weir_sched_queue_add(): its MPS server, or its own context */
};

enum weir_link_channel {
    WEIR_CHANNEL_SOCKET, /* a tenant's unix socket */
    WEIR_CHANNEL_VSOCK,
};

/* When a program's connection was where in the supervisor, for the log. 0: it was not there. */
struct weir_link_start {
    uint64_t arrived_ns; /* accepted */
    uint64_t hello_ns;   /* its hello was there */
    uint64_t handed_ns;  /* given to the worker */
};

struct weir_link_guest {
    uint32_t tenant_index;
    uint32_t goings;  /* of weir_link_tenant: who comes to an earlier tenant is turned away */
    uint32_t channel; /* enum weir_link_channel */
    int64_t pid;
    uint32_t uid;
    char program[WEIR_HOST_TEXT_BYTES];
    struct weir_link_start start;
};

struct weir_link_region {
    uint64_t id;
    uint64_t offset; /* in its file */
    uint64_t bytes;
    uint32_t transport; /* enum weir_transport_id: IVSHMEM or DEVDAX */
    int64_t pid;        /* QEMU's; 0: not known */
    uint32_t tenant_index;
    uint32_t goings; /* as of weir_link_guest */
};

struct weir_link_chunk {
    uint64_t id;
    uint64_t base;
    uint64_t bytes;
    uint32_t tenant_index;
};

#define WEIR_ENTRY_KEY_BYTES   32
#define WEIR_ENTRY_VALUE_BYTES 64

/* What is in the supervisor's directory (docs/design/ipc.md). */
enum weir_entry_kind {
    WEIR_ENTRY_MEMORY,     /* of a device */
    WEIR_ENTRY_DESCRIPTOR, /* a guest's descriptor for memory; value: the key of that */
    WEIR_ENTRY_POOL,       /* a guest's descriptor for a pool; value: its name */
    WEIR_ENTRY_EVENT,      /* value: a CUipcEventHandle */
};

struct weir_link_entry {
    uint64_t question; /* a number that FOUND repeats */
    uint32_t kind;     /* enum weir_entry_kind */
    uint32_t tenant_index;
    int32_t status; /* FOUND: WEIR_OK; NOT_FOUND, QUOTA, INVALID */
    /* Of memory, and FOUND's of a descriptor for memory: */
    uint32_t device; /* index in the worker's */
    uint32_t handle_types;
    uint64_t bytes;
    uint8_t key[WEIR_ENTRY_KEY_BYTES]; /* random: who knows it may have it */
    uint8_t value[WEIR_ENTRY_VALUE_BYTES];
};

struct weir_link_idle {
    uint64_t n_guests; /* GUEST messages that it has read */
    uint32_t soiled;   /* 1: a limit of its context is not as it was at first */
};

struct weir_link_devices {
    uint32_t n;
    uint8_t uuid[WEIR_LINK_DEVICES_MAX][16];
};

/* The answer is in the tenant's page: what it is granted, and then the question's number. */
struct weir_link_more {
    uint32_t tenant_index;
    uint32_t item; /* enum weir_account_item */
    uint32_t question;
    uint64_t amount;
};

struct weir_link_fault {
    uint32_t tenant_index;
    uint32_t goings;     /* as of weir_link_guest */
    int32_t error;       /* CUresult */
    uint32_t n_suspects; /* tenants that may have caused it, with this one; 1: it was this one */
    bool marks;          /* it is known which kernels had ended */
};

#define WEIR_LINK_WHY_BYTES 128

struct weir_link_event {
    uint32_t kind; /* enum weir_event_kind */
    uint32_t tenant_index;
    uint32_t goings; /* as of weir_link_guest */
    bool pinned;     /* a refused allocation of pinned host memory, not of device memory */
    int64_t pid;     /* of the program */
    uint64_t session;
    uint64_t bytes;
    uint64_t n; /* how many it stands for */
    char program[WEIR_HOST_TEXT_BYTES];
    char call[64];
    char why[WEIR_LINK_WHY_BYTES];
};

/* What a session has used of the SMs or, where port is 0, all programs of a name. */
struct weir_link_use {
    uint32_t port; /* of the session's worker */
    uint32_t tenant_index;
    uint64_t session;
    uint64_t sm_ns;
    char program[24];
};

#define WEIR_LINK_TEXT_BYTES 512

/* A request, and its answer. */
struct weir_link_text {
    uint64_t client;                 /* whose request it is; 0: nobody waits for an answer */
    char text[WEIR_LINK_TEXT_BYTES]; /* words with tabs between; an answer: "error: ...", or "" */
};

struct weir_link_message {
    uint32_t type; /* enum weir_link_type */
    union {
        struct weir_link_config config;
        struct weir_link_tenant tenant;
        struct weir_link_gate_port gate_port;
        struct weir_link_guest guest;
        struct weir_link_region region;
        struct weir_link_chunk chunk;
        struct weir_link_entry entry;
        struct weir_link_text text;
        struct weir_link_idle idle;
        struct weir_link_devices gpus; /* DEVICES */
        struct weir_link_reads reads;
        struct weir_link_gpu gpu; /* GATE_GPU */
        struct weir_link_sms sms;
        struct weir_link_more more;
        struct weir_link_fault fault;
        struct weir_link_event event;
        struct weir_link_use use;
        bool devices;                     /* STATUS, STATS: it is to look at its devices, too */
        uint32_t connections;             /* 1 .. WEIR_CONTROL_MAX_CONNECTIONS */
        struct weir_status_worker worker; /* READY, STATUS_END */
        struct weir_status_tenant tenant_row;
        struct weir_status_session session_row;
        struct weir_status_device device_row;
    };
};

/* A message that has come, and the descriptor that came with it, or -1. A handler that keeps the
 * descriptor takes it. */
struct weir_link_heard {
    struct weir_link_message message;
    int fd;
};

/** Take the descriptor over. @return it, or -1 @thread the one that has received the message */
static inline int weir_link_take_fd(struct weir_link_heard *heard)
{
    int fd = heard->fd;

    heard->fd = -1;
    return fd;
}

/** Close the descriptor, unless a handler has taken it. @thread likewise */
void weir_link_finish(struct weir_link_heard *heard);

/**
 * Send one message.
 *
 * @param link  a SOCK_SEQPACKET socket.
 * @param fd    goes with it; borrowed; -1: none.
 * @return WEIR_OK, WEIR_ERR_CLOSED, WEIR_ERR_AGAIN (a non-blocking socket is full), WEIR_ERR_IO
 * @thread any: a message is sent whole
 */
enum weir_status weir_link_send(int link, const struct weir_link_message *message,
                                int fd) WEIR_MUST_CHECK;

/** The same, and never wait: WEIR_ERR_AGAIN if there is no room, whatever the socket. */
enum weir_status weir_link_send_now(int link, const struct weir_link_message *message,
                                    int fd) WEIR_MUST_CHECK;

/**
 * Receive one message.
 *
 * @param ret_fd  gives the descriptor that came with it, or -1.
 * @return WEIR_OK, WEIR_ERR_CLOSED, WEIR_ERR_AGAIN, WEIR_ERR_PEER (of another size), WEIR_ERR_IO
 * @return WEIR_ERR_NO_MEMORY  this process can open no more descriptors, so the message's is lost.
 *                             The message is read, and the link goes on without it.
 * @thread one at a time
 */
enum weir_status weir_link_receive(int link, struct weir_link_message *ret_message,
                                   int *ret_fd) WEIR_MUST_CHECK;

#endif
