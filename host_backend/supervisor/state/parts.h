/*
 * What the supervisor knows of programs, MPS domains, virtual machines and GPUs: the structs that
 * the files of these parts look after. Private to host_backend/supervisor.
 */
#ifndef WEIR_HOST_BACKEND_SUPERVISOR_STATE_PARTS_H
#define WEIR_HOST_BACKEND_SUPERVISOR_STATE_PARTS_H

#include "host_backend/config/config.h"
#include "host_backend/config/link.h"
#include "host_backend/confine/confine.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* GPUs that this host serves (workers/claims.c) */

#define WEIR_CLAIMS_MAX 64

/* Zeroed: none. */
struct weir_claims {
    struct weir_claim {
        char uuid[48]; /* as nvidia-smi -L prints it */
        int fd;        /* listens; -1: a user's host has it, which does not bind root's */
    } of[WEIR_CLAIMS_MAX];
    unsigned n;
};

/* A tenant's file. */
struct weir_sup_nvdimm {
    char path[256];              /* "": none */
    int fd;                      /* -1: none */
    int watch;                   /* of sup->machines.nvdimm_watch_fd: it was opened */
    uint64_t bytes;              /* of the file */
    uint64_t look_until_ns;      /* somebody has opened it, who is not found yet */
    uint64_t again_ns;           /* there is no file, for want of room: try again then; 0: no */
    pid_t noted_pid;             /* the machine that the host before this one has noted, .. */
    unsigned long long noted_at; /* .. and when that process started */
};

#define WEIR_MPS_MAX 12 /* domains */

#define WEIR_MPS_CLIENTS_MAX 48 /* of a server, until CUDA 13.1 */

/* A program's worker that was there when its domain died. */
struct weir_mps_client {
    pid_t pid;
    uint32_t tenant_index, goings; /* as of weir_link_fault */
    int64_t user;                  /* as of weir_sup_share_user() */
};

/* A fault of which it is not known yet whose it was (mps_blame.c). */
struct weir_mps_blame {
    bool open;
    uint64_t by_ns; /* then the search ends, and the first to report it is a suspect */
    struct weir_link_fault first; /* of the first to report it */
    int64_t first_user;           /* .. as of weir_sup_share_user() */
    struct weir_mps_client clients[WEIR_MPS_CLIENTS_MAX];
    uint32_t n;
};

/* A domain. Zeroed: none. */
struct weir_sup_mps {
    bool used;
    pid_t pid;     /* of the control daemon; 0: not running */
    bool ready;    /* it takes clients */
    bool leaving;  /* after a fault, until all its workers have ended */
    bool reserve;  /* it has no workers, and gets some when no other can take any */
    bool serves;   /* if in reserve: its server has been started */
    bool asked;    /* .. or the daemon was told to start it */
    bool closing;  /* it ends, since another list of devices needs its place */
    pid_t starter; /* the process that tells it and waits; 0: none */
    uint32_t turn; /* of domains with the same devices the lowest is filled first */
    char devices[WEIR_DEVICE_LIST_BYTES]; /* of its workers */
    char folder[108];                     /* of its pipes and logs */
    const struct weir_confine_user *user; /* who runs it, and its workers */
    struct weir_link_sms sms;             /* of its devices; none: no worker has told yet */
    uint64_t started_ns;                  /* when the daemon was last started, or tried to be */
    uint64_t served_ns;                   /* when a worker was last its client; 0: none was */
    uint64_t close_by_ns; /* if closing: the daemon is killed then; 0: it has not been told yet */
    uint64_t leave_by_ns; /* workers that have not left by then are killed */
    off_t log_seen;       /* of the log: read so far */
    struct weir_mps_blame blame;
    uint64_t again_ns; /* after a fault: it takes clients from then on */
};

#define WEIR_PROGRAMS_MAX 160 /* workers of programs: more than a GPU has contexts for */

#define WEIR_PENDING_MAX 512 /* programs that wait for a worker */

#define WEIR_SHORTAGES_MAX 32

/* What a worker of kind PROGRAM is at. Zeroed: a spare that has served nobody. */
struct weir_sup_program {
    pid_t pid;              /* of the program in its worker; 0: none, or its pid is not known */
    bool busy;              /* a program is in it, or on its way there */
    bool stopping;          /* it takes no program any more */
    bool terminated;        /* its MPS server was told to let it go, and then it was killed */
    bool asserted;          /* an assert has ended its context, which is no fault of its domain */
    bool native;            /* it is never under MPS */
    uint32_t domain;        /* number of its MPS domain, from 1; 0: none */
    uint32_t sm_share_pct;  /* of the SMs, that its contexts have there; 0: all */
    uint64_t n_guests;      /* connections that it was given */
    uint64_t idle_since_ns; /* when its last program had ended; 0: it has served nobody */
};

/* A program's connection that has no worker yet. */
struct weir_sup_pending {
    bool used;
    int fd;
    bool said_hello;      /* then what follows is known */
    bool monitor;         /* it only asks */
    uint32_t connections; /* CUDA_DEVICE_MAX_CONNECTIONS that it wishes; 0: none */
    uint32_t sm_pct;      /* CUDA_DEVICE_SM_LIMIT likewise */
    bool native;          /* it is to be outside MPS: its kernels launch kernels */
    uint64_t since_ns;
    struct weir_link_guest guest; /* for its worker */
};

/* Of them those for whom a worker is to be started, in their order; one that is no longer used does
 * not count. As of the last weir_sup_programs_tick(). */
struct weir_sup_waiting {
    uint32_t n;
    uint16_t of[WEIR_PENDING_MAX];
};

/* What a list of devices lacks (shortage.c). Zeroed: nothing. */
struct weir_sup_shortage {
    char devices[WEIR_DEVICE_LIST_BYTES];
    uint64_t room_ns;   /* a worker found no room for a context: none is tried for before that */
    uint64_t spares_ns; /* .. and no spare */
    int wait_status;    /* of the worker that failed, as waitpid() gives it */
};

#endif
