/*
 * The messages between the supervisor and a worker, or the gate process, over their socket pair
 * (SOCK_SEQPACKET).
 *
 * A message is a plain struct; at most one descriptor goes with it. The keeper holds the
 * supervisor's end, too: so messages wait there while one supervisor ends and the next begins. Both
 * ends are the same program, or releases that follow one another: see WEIR_LINK_VERSION.
 */
#pragma once

#include "base/status.h"
#include "host_backend/config/config.h"
#include "host_backend/config/control.h"

/*
 * The version of these messages, and of the pages that a worker shares with the supervisor and the
 * gate process (base/account.h, spin.h, gate/port.h). A supervisor serves processes of its own and
 * of the previous version. So a release may append rows to link.def and members to the end of a
 * message's struct, and raises this by 1: the older end ignores what it does not know, and the
 * newer reads zeros. Any other change raises it by 2, and then the programs that run at the upgrade
 * end.
 */
#ifndef WEIR_LINK_VERSION
#define WEIR_LINK_VERSION 4u
#endif

/* Kinds of events; workers report some of them. */
enum weir_event_kind {
#define WEIR_EVENT(kind, text, limited) WEIR_EVENT_##kind,
#include "host_backend/config/events.def"
#undef WEIR_EVENT
    WEIR_EVENT_COUNT
};

/* The descriptors that a worker has after exec, beside the standard ones. */
#define WEIR_LINK_FD          3 /* the worker's end of the link */
#define WEIR_LINK_LISTENER_FD 4 /* the listening socket for ZeroMQ, if Weir is built with it */

/* Kinds of messages. No kind has the value 0. */
enum weir_link_type {
    WEIR_LINK_NONE,
#define WEIR_LINK(message, worker, gate, of_worker, of_gate, when, about) WEIR_LINK_##message,
#include "host_backend/config/link.def"
#undef WEIR_LINK
    WEIR_LINK_COUNT
};

#define WEIR_LINK_DEVICES_MAX 16 /* at least as many as a worker may have devices */

/* The number of SMs of each of a worker's devices. */
struct weir_link_sms {
    uint32_t n;
    uint32_t sms[WEIR_LINK_DEVICES_MAX];
};

#define WEIR_LINK_GPUS_MAX 64u /* the most GPUs of a host */

/* A GPU, described for the gate process. */
struct weir_link_gpu {
    uint8_t uuid[16];
    uint32_t sms;      /* SMs of the whole device */
    uint32_t fill;     /* enum weir_sched_fill: the setting, lowered to what the device supports */
    bool levels;       /* the device first runs work in streams of a higher priority */
    bool above;        /* the device has a stream priority for WEIR_SCHED_ABOVE */
    bool parts;        /* weir_sched_part_step() can confine kernels and graphs to parts */
    bool real;         /* a GPU, not softgpu */
    uint32_t contexts; /* contexts that the device has room for, of all processes together */
};

/* The devices of a worker. The worker serves no guest yet, so the supervisor trusts the message. */
struct weir_link_reads {
    uint32_t n;
    struct weir_link_gpu gpu[WEIR_LINK_DEVICES_MAX];
};

struct weir_link_config {
    char driver[WEIR_CONFIG_PATH_BYTES];
    char softgpu[WEIR_CONFIG_PATH_BYTES];
    char log[WEIR_CONFIG_PATH_BYTES]; /* the level of the log, which goes to standard error */
    char run_dir[WEIR_CONFIG_PATH_BYTES];
    char listen_tcp[WEIR_CONFIG_PATH_BYTES];
    char server_key[WEIR_KEY_Z85_BYTES];    /* the secret key itself, not its path */
    char name[WEIR_TENANT_NAME_BYTES + 16]; /* name of the worker's sockets in the run directory */
    char devices[WEIR_DEVICE_LIST_BYTES];
    bool alone;               /* the worker serves only one tenant */
    bool gate_comes;          /* a port to the gate process follows, or GATE_LOST */
    uint32_t connections;     /* CUDA_DEVICE_MAX_CONNECTIONS; 0: as the driver chooses */
    bool under_mps;           /* an MPS client: the supervisor finds out who caused a fault */
    uint32_t sm_share_pct;    /* percent of the SMs that its contexts may use; 0: all */
    struct weir_link_sms sms; /* SMs of its devices, if its driver shows only the share */
    bool by_program; /* the worker serves one program at a time, and reports when it is idle */
    bool connections_of_guest; /* the only tenant may have it restarted with another number */
    uint64_t started_ns;       /* when the supervisor began to start it */
    uint64_t window_base;
    uint64_t window_bytes;
    uint64_t vmm_base;
    uint64_t vmm_bytes;
    struct weir_forms_config forms;
    struct weir_sched_settings scheduler;
    char cupti[WEIR_CONFIG_PATH_BYTES]; /* path of libcupti, "auto" or "off" */
};

/* Are new programs of a tenant let in? Monitors always are. */
enum weir_drain {
    WEIR_DRAIN_OFF,
    WEIR_DRAIN_ON,       /* the tenant is drained: new programs are refused */
    WEIR_DRAIN_RESTARTS, /* the host may be about to restart: they are asked to come again */
};

struct weir_link_tenant {
    uint32_t index;      /* number of the tenant's window; others may get it after TENANT_FREE */
    uint32_t generation; /* counts TENANT_GONE for this index; TENANT_FREE repeats it */
    uint32_t place;      /* the worker's place in the page that comes with this, if one does */
    bool many;           /* the tenant also has other workers */
    uint32_t drain;      /* enum weir_drain */
    struct weir_tenant_config config;
};

struct weir_link_gate_port {
    uint32_t id;     /* the id of the port */
    uint32_t worker; /* the supervisor's number for the worker */
    int32_t tenant;  /* the tenant whose work the worker may have; -1: none yet */
    uint32_t domain; /* as of weir_sched_queue_add(): the worker's MPS server, or its own context */
};

enum weir_link_channel {
    WEIR_CHANNEL_SOCKET, /* a unix socket of a tenant */
    WEIR_CHANNEL_VSOCK,
    WEIR_CHANNEL_BOX, /* a session that has left another worker (worker/rebuild/box.h) */
};

/* When a program's connection reached these steps in the supervisor, for the log. 0: never. */
struct weir_link_start {
    uint64_t arrived_ns; /* accept() returned the connection */
    uint64_t hello_ns;   /* the program's hello had arrived */
    uint64_t handed_ns;  /* the supervisor had sent the connection to the worker */
};

struct weir_link_guest {
    uint32_t tenant_index;
    uint32_t generation; /* generation in weir_link_tenant: guests of an earlier one are refused */
    uint32_t channel;    /* enum weir_link_channel */
    int64_t pid;
    uint64_t session; /* number of the program's session, unique in the host */
    uint32_t uid;
    char program[WEIR_HOST_TEXT_BYTES];
    struct weir_link_start start;
};

/* A session that has left its worker, and what another one must be like. */
struct weir_link_moved {
    uint32_t connections, sm_pct; /* as its program has asked for them; 0: it has not */
    bool native;                  /* its worker must be outside MPS */
    bool waits; /* the worker has the session until it is told what becomes of it (MOVE) */
    struct weir_link_guest guest; /* what the next worker is sent; last, since it may grow */
};

/* The steps by which a session moves from its worker to another one (docs/design/rebuild.md). */
enum weir_move {
    WEIR_MOVE_NO,
    WEIR_MOVE_ASK,     /* to its worker: let it leave as soon as it has nothing under way */
    WEIR_MOVE_CANNOT,  /* from it: it stays; the log says why */
    WEIR_MOVE_ARRIVED, /* from the other worker: it is here, and goes on when this is sent */
    WEIR_MOVE_FAILED,  /* likewise: it could not be made here, and nothing of it has changed */
    WEIR_MOVE_GONE,    /* to its worker, which waits: release it, another one has it */
    WEIR_MOVE_STAY,    /* likewise: go on, no other one has it */
    WEIR_MOVE_WAITS,   /* in its worker: neither is known yet */
    WEIR_MOVE_TEST,    /* likewise: to leave after each so many records, for tests */
};

struct weir_link_move {
    uint64_t session; /* ASK: 0 means all of the worker's */
    uint32_t tenant_index;
    uint32_t what; /* enum weir_move */
};

struct weir_link_region {
    uint64_t id;
    uint64_t offset; /* offset of the region in its file */
    uint64_t bytes;
    uint32_t transport; /* enum weir_transport_id: IVSHMEM or DEVDAX */
    int64_t pid;        /* pid of QEMU; 0: not known */
    uint32_t tenant_index;
    uint32_t generation; /* as of weir_link_guest */
};

struct weir_link_chunk {
    uint64_t id;
    uint64_t base;
    uint64_t bytes;
    uint32_t tenant_index;
};

#define WEIR_ENTRY_KEY_BYTES   32
#define WEIR_ENTRY_VALUE_BYTES 64
#define WEIR_ENTRY_ON_HOST     UINT32_MAX /* in place of a device */

/* Kinds of entries of the supervisor's directory (docs/design/ipc.md). */
enum weir_entry_kind {
    WEIR_ENTRY_MEMORY,     /* memory of a device or, in a file, of the host */
    WEIR_ENTRY_DESCRIPTOR, /* a descriptor for memory that a guest has; value: the memory's key */
    WEIR_ENTRY_POOL,       /* a descriptor for a pool that a guest has; value: the pool's name */
    WEIR_ENTRY_EVENT,      /* value: a CUipcEventHandle */
};

struct weir_link_entry {
    uint64_t question; /* number of the question, repeated in FOUND */
    uint32_t kind;     /* enum weir_entry_kind */
    uint32_t tenant_index;
    int32_t status; /* FOUND: WEIR_OK; NOT_FOUND, QUOTA, INVALID */
    /* These are set for memory, and for a descriptor of memory in FOUND: */
    uint32_t device; /* index in the worker's list; WEIR_ENTRY_ON_HOST */
    uint32_t handle_types;
    uint64_t bytes;
    uint8_t key[WEIR_ENTRY_KEY_BYTES]; /* random: a program that knows the key may use the entry */
    uint8_t value[WEIR_ENTRY_VALUE_BYTES];
};

/* What a session is asked for (docs/design/suspend.md). */
enum weir_suspend {
    WEIR_SUSPEND_NO,   /* to go on */
    WEIR_SUSPEND_ROOM, /* to give its device memory to others, if it rests, until it works again */
    WEIR_SUSPEND_HOLD, /* as ROOM, and to do nothing until it is asked to go on */
    WEIR_SUSPEND_TEST, /* to give memory and take it back at each record, for tests with softgpu */
};

struct weir_link_suspend {
    int32_t tenant_index; /* -1: of any tenant */
    uint32_t wish;        /* enum weir_suspend */
    uint64_t session;     /* 0: all of them */
    uint64_t bytes;       /* ROOM: so much managed memory is enough; 0: all device memory */
};

struct weir_link_idle {
    uint64_t n_guests; /* GUEST messages that the worker has read so far */
    uint32_t soiled;   /* 1: a program has changed a limit of the context, or was profiled by
                          libcupti */
};

/* What the next supervisor cannot know of a worker. */
struct weir_link_resumed {
    uint64_t n_guests;     /* GUEST messages that the worker has read so far */
    uint64_t last_session; /* the highest number of a session among them */
    int64_t pid;           /* of the program that it serves by_program, or 0 */
    int32_t tenant_index;  /* its only tenant; -1: none or several */
    uint32_t generation;   /* as of weir_link_guest */
    uint32_t syncs;        /* SYNC messages that it has sent */
    uint32_t busy;         /* 1: IDLE is still to come */
    uint32_t has_port;     /* 1: it has a port to the gate process */
    struct weir_status_worker worker;
};

struct weir_link_devices {
    uint32_t n;
    uint8_t uuid[WEIR_LINK_DEVICES_MAX][16];
};

/* Ask for a larger grant. The answer is in the tenant's page: the grant, then the question's
 * number. */
struct weir_link_more {
    uint32_t tenant_index;
    uint32_t item; /* enum weir_account_item */
    uint32_t question;
    uint64_t amount;
};

struct weir_link_fault {
    uint32_t tenant_index;
    uint32_t generation; /* as of weir_link_guest */
    int32_t error;       /* CUresult */
    uint32_t n_suspects; /* how many tenants may have caused the fault; 1: only this one */
    bool marks;          /* marks had shown which kernels had ended by then */
};

#define WEIR_LINK_WHY_BYTES 128

struct weir_link_event {
    uint32_t kind; /* enum weir_event_kind */
    uint32_t tenant_index;
    uint32_t generation; /* as of weir_link_guest */
    bool pinned;         /* the refused allocation was pinned host memory, not device memory */
    int64_t pid;         /* pid of the program */
    uint64_t session;
    uint64_t bytes;
    uint64_t n; /* how many events this one stands for */
    char program[WEIR_HOST_TEXT_BYTES];
    char call[64];
    char why[WEIR_LINK_WHY_BYTES];
};

/* Value of `other` in struct weir_sched_wait of a use: a tenant that is gone. */
#define WEIR_LINK_OTHER_GONE (WEIR_CONFIG_TENANTS_MAX + 1)

/* The SM time and the wait times of a session or, where port is 0, of all programs of a name. */
struct weir_link_use {
    uint32_t port; /* port of the session's worker */
    uint32_t tenant_index;
    uint64_t session;
    uint64_t sm_ns;
    char program[24];
    struct weir_sched_wait waits[WEIR_SCHED_WAIT_ROWS]; /* `other` is a tenant's slot + 1 */
};

#define WEIR_LINK_TEXT_BYTES 512

/* A request, or the answer to one. */
struct weir_link_text {
    uint64_t client;                 /* the client that asked; 0: nobody waits for an answer */
    char text[WEIR_LINK_TEXT_BYTES]; /* words with tabs between; an answer is "error: ...", or "" */
};

struct weir_link_message {
    uint32_t type; /* enum weir_link_type */
    union {
        struct weir_link_config config;
        struct weir_link_tenant tenant;
        struct weir_link_gate_port gate_port;
        struct weir_link_guest guest;
        struct weir_link_moved moved;
        struct weir_link_move move;
        struct weir_link_region region;
        struct weir_link_chunk chunk;
        struct weir_link_entry entry;
        struct weir_link_text text;
        struct weir_link_idle idle;
        struct weir_link_resumed resumed;
        struct weir_link_suspend suspend;
        struct weir_link_devices gpus; /* for DEVICES */
        struct weir_link_reads reads;
        struct weir_link_gpu gpu; /* used in GATE_GPU */
        struct weir_link_sms sms;
        struct weir_link_more more;
        struct weir_link_fault fault;
        struct weir_link_event event;
        struct weir_link_use use;
        bool devices;         /* in STATUS and STATS: the worker is to report its devices, too */
        uint32_t connections; /* 1 .. WEIR_CONTROL_MAX_CONNECTIONS */
        struct weir_status_worker worker; /* used in READY and STATUS_END */
        struct weir_status_tenant tenant_row;
        struct weir_status_session session_row;
        struct weir_status_device device_row;
    };
};

/* A received message, and the descriptor that came with it, or -1. A handler that keeps the
 * descriptor takes it. */
struct weir_link_heard {
    struct weir_link_message message;
    int fd;
};

/** Take the descriptor over. @return it, or -1 @thread the one that received the message */
static inline int weir_link_take_fd(struct weir_link_heard *heard)
{
    int fd = heard->fd;

    heard->fd = -1;
    return fd;
}

/** Close the descriptor, unless a handler has taken it. @thread the one that has received it */
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

/** Send one message without waiting, also on a blocking socket: WEIR_ERR_AGAIN if it is full. */
enum weir_status weir_link_send_now(int link, const struct weir_link_message *message,
                                    int fd) WEIR_MUST_CHECK;

/**
 * Receive one message.
 *
 * @param ret_fd  gives the descriptor that came with it, or -1.
 * @param ret_message  what the other end did not send of it is zero.
 * @return WEIR_OK, WEIR_ERR_CLOSED, WEIR_ERR_AGAIN, WEIR_ERR_PEER (no message), WEIR_ERR_IO
 * @return WEIR_ERR_NO_MEMORY  this process can open no more descriptors, so the message's
 *                             descriptor is lost. The message itself is read, and the link stays
 *                             usable.
 * @thread one at a time
 */
enum weir_status weir_link_receive(int link, struct weir_link_message *ret_message,
                                   int *ret_fd) WEIR_MUST_CHECK;

/**
 * Receive one message, which stays in the link until weir_link_consume(). So a message that a
 * supervisor has not handled to its end comes to the next supervisor again.
 * @return as weir_link_receive()
 * @thread one at a time
 */
enum weir_status weir_link_peek(int link, struct weir_link_message *ret_message,
                                int *ret_fd) WEIR_MUST_CHECK;

/** Remove the first message from the link. @thread one at a time */
void weir_link_consume(int link);
