/*
 * Structs of the supervisor about programs, MPS domains, virtual machines and GPUs; the files of
 * these parts maintain them. Private to host_backend/supervisor.
 */
#pragma once

#include "host_backend/config/config.h"
#include "host_backend/config/link.h"
#include "host_backend/confine/confine.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* GPUs that this host serves (workers/claims.c) */

#define WEIR_CLAIMS_MAX 64

/* The GPUs that this host has claimed. Zeroed: none. */
struct weir_claims {
    struct weir_claim {
        char uuid[48]; /* as nvidia-smi -L prints it */
        int fd; /* a listening socket; -1: the GPU belongs to a user's host, which root's ignores */
    } of[WEIR_CLAIMS_MAX];
    unsigned n;
};

/* A tenant's NVDIMM file. */
struct weir_sup_nvdimm {
    char path[256];              /* "": there is no file */
    int fd;                      /* -1: none */
    int watch;                   /* watch in sup->machines.nvdimm_watch_fd for opening the file */
    uint64_t bytes;              /* size of the file */
    uint64_t look_until_ns;      /* until then look for the process that opened it */
    uint64_t again_ns;           /* when to retry after a lack of room; 0: no */
    pid_t noted_pid;             /* pid of the machine that the last host has noted */
    unsigned long long noted_at; /* when that process started */
};

#define WEIR_MPS_MAX 12 /* the most domains */

#define WEIR_MPS_CLIENTS_MAX 48 /* clients that a server takes before CUDA 13.1 */

/* A program's worker that ran when its domain died. */
struct weir_mps_client {
    pid_t pid;
    uint32_t tenant_index, generation; /* as of weir_link_fault */
    int64_t user;                      /* as of weir_sup_share_user() */
};

/* A fault whose cause is still being searched (mps_blame.c). */
struct weir_mps_blame {
    bool open;
    uint64_t by_ns;               /* when the search ends; the first reporter is a suspect then */
    struct weir_link_fault first; /* report of the first worker that reported it */
    int64_t first_user;           /* its user, as of weir_sup_share_user() */
    struct weir_mps_client clients[WEIR_MPS_CLIENTS_MAX];
    uint32_t n;
};

/* An MPS domain. Zeroed: none. */
struct weir_sup_mps {
    bool used;
    pid_t pid;     /* pid of the control daemon; 0: not running */
    bool ready;    /* the daemon takes clients */
    bool leaving;  /* set by a fault until all its workers have ended */
    bool reserve;  /* it has no workers, and is used when no other domain takes any */
    bool serves;   /* in reserve: its server has been started */
    bool asked;    /* in reserve: the daemon was asked to start its server */
    bool closing;  /* it is ended, since programs with other devices need its place */
    pid_t starter; /* the process that sends the daemon a command and waits; 0: none */
    uint32_t turn; /* among domains that share devices: the lowest is filled first */
    char devices[WEIR_DEVICE_LIST_BYTES]; /* devices of its first worker */
    char folder[108];                     /* folder of its pipes and logs */
    const struct weir_confine_user *user; /* the user of the daemon and the workers */
    uint64_t started_ns;  /* when the daemon was last started, also without success */
    uint64_t served_ns;   /* when it last had a client; 0: never */
    uint64_t close_by_ns; /* if closing: when to kill the daemon; 0: it must still be told */
    uint64_t leave_by_ns; /* when to kill workers that have not left */
    off_t log_seen;       /* bytes of the log that were read so far */
    struct weir_mps_blame blame;
    uint64_t again_ns; /* after a fault: when it takes clients again */
};

/* The SMs of each device of a list, as a worker has reported them. */
struct weir_mps_sms {
    char devices[WEIR_DEVICE_LIST_BYTES];
    struct weir_link_sms sms;
};

#define WEIR_PROGRAMS_MAX 160 /* the most workers of programs: more contexts than a GPU has */

#define WEIR_PENDING_MAX 512 /* the most programs that wait for a worker */

#define WEIR_SHORTAGES_MAX 32

/* How far a worker's session is on its way to another one (moves.c). Zeroed: it stays. */
struct weir_sup_move {
    bool wanted;       /* as soon as there is a worker for it */
    bool asked;        /* its worker was told, and its answer is to come */
    uint64_t session;  /* 0: any */
    uint64_t until_ns; /* when to give up if there is no worker for it */
    uint64_t again_ns; /* after it could not: when to ask for it again by itself */
};

/* State of a worker of kind PROGRAM. Zeroed: a spare that has served nobody. */
struct weir_sup_program {
    pid_t pid;              /* pid of the program in the worker; 0: none, or not known */
    bool busy;              /* it has a program, or one is on its way */
    bool stopping;          /* it takes no program any more */
    bool terminated;        /* its MPS server was told to drop it before the kill */
    bool asserted;          /* an assert has ended its context, which is no fault of its domain */
    bool native;            /* it never runs under MPS */
    bool is_alone;          /* it is native only since its program was alone on the GPU */
    bool is_older;          /* it runs the program of the previous release */
    uint32_t domain;        /* number of its MPS domain, from 1; 0: none */
    uint32_t connections;   /* CUDA_DEVICE_MAX_CONNECTIONS of its domain; 0: in no domain */
    uint32_t sm_share_pct;  /* percent of the SMs of its contexts; 0: all */
    uint64_t n_guests;      /* connections that the worker has received */
    uint64_t idle_since_ns; /* when its last program ended; 0: it has served none */
    uint64_t misplaced_since_ns; /* since when it wants another kind of worker; 0: it does not */
    struct weir_sup_move move;
    uint64_t arriving;  /* session that it makes again while another worker waits; 0: none */
    uint64_t moved_row; /* key of that session in the keeper's book */
};

/* A program's connection that has no worker yet. */
struct weir_sup_pending {
    bool used;
    int fd;
    bool said_hello;      /* the members below are known */
    bool monitor;         /* the program asks for a status and does no work */
    uint32_t connections; /* requested CUDA_DEVICE_MAX_CONNECTIONS; 0: none */
    uint32_t sm_pct;      /* requested CUDA_DEVICE_SM_LIMIT; 0: none */
    bool native;          /* the program must run outside MPS: its kernels launch kernels */
    bool moved;           /* no connection: a session that has left a worker, in its box */
    /* Of a moved session: */
    bool waits; /* the worker that it leaves can go on with it, and waits to be told */
    int from;   /* index of that worker in sup->workers */
    pid_t from_pid;
    uint32_t from_domain; /* number of its MPS domain; 0: none */
    uint64_t since_ns;
    struct weir_link_guest guest; /* what its worker will receive */
};

/* The pending connections for which a worker must be started, in order, as of the last
 * weir_sup_programs_tick(). An entry that is no longer used does not count. */
struct weir_sup_waiting {
    uint32_t n;
    uint16_t of[WEIR_PENDING_MAX];
};

/* Why workers for a list of devices cannot start now (shortage.c). Zeroed: they can. */
struct weir_sup_shortage {
    char devices[WEIR_DEVICE_LIST_BYTES];
    uint64_t room_ns;   /* start no worker before: there was no room for a context */
    uint64_t spares_ns; /* start no spare worker before */
    int wait_status;    /* status of the worker that failed, as waitpid() gives it */
};
