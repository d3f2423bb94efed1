/*
 * How Weir's libcupti.so and `weir profile` watch a program: an export table of Weir's libcuda.so.1
 * (cuGetExportTable with WEIR_PROFILE_TABLE_UUID), private to them and to one version of Weir.
 *
 * The watcher sees each call of the Driver API and of the runtime, with a number, and takes the
 * records of numbered calls' work (record.h). While nobody watches, calls pay nothing.
 *
 * Times are nanoseconds of this machine's CLOCK_MONOTONIC; records' times need shift_ns added.
 *
 * Source: docs/design/profiling.md
 */
#pragma once

#include "proto/cuda_abi.h"
#include "proto/profile/record.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A random UUID (version 4). */
#define WEIR_PROFILE_TABLE_UUID                                                                    \
    {                                                                                              \
        0x0e, 0x52, 0xc8, 0x3f, 0x71, 0x9a, 0x4d, 0x06, 0xb3, 0x14, 0xe9, 0x2d, 0x58, 0xa7, 0x60,  \
            0x1c                                                                                   \
    }
#define WEIR_PROFILE_TABLE_VERSION 3u

#define WEIR_PROFILE_SYMBOLS 1024u

/* What a call does on the device, waits for, or makes. */
enum weir_profile_what {
    WEIR_PROFILE_NOTHING,
    WEIR_PROFILE_LAUNCH,
    WEIR_PROFILE_LAUNCH_GRAPH,
    WEIR_PROFILE_COPY,
    WEIR_PROFILE_FILL,
    WEIR_PROFILE_START,        /* the first cuInit */
    WEIR_PROFILE_MAKE_CONTEXT, /* or retain one that is there: then its stream is not new */
    WEIR_PROFILE_MAKE_STREAM,
    WEIR_PROFILE_WAIT_CONTEXT,
    WEIR_PROFILE_WAIT_STREAM,
    WEIR_PROFILE_WAIT_EVENT,
    WEIR_PROFILE_STREAM_WAITS, /* cuStreamWaitEvent */
};

/* Where one side of a copy is. */
enum weir_profile_memory {
    WEIR_PROFILE_MEMORY_UNKNOWN,
    WEIR_PROFILE_MEMORY_PAGEABLE,
    WEIR_PROFILE_MEMORY_PINNED,
    WEIR_PROFILE_MEMORY_DEVICE,
    WEIR_PROFILE_MEMORY_ARRAY,
    WEIR_PROFILE_MEMORY_MANAGED,
};

/* Members that do not apply to `what` are 0. */
struct weir_profile_work {
    enum weir_profile_what what;
    uint32_t context, stream; /* numbers, as cuCtxGetId and cuStreamGetId give them */
    uint32_t device;          /* ordinal */
    const char *kernel;       /* name; borrowed for the call of the watcher */
    uint32_t grid[3], block[3], cluster[3];
    uint32_t shared_bytes; /* dynamic, asked by the launch; the kernel's own follow: */
    uint32_t static_shared_bytes, local_bytes, registers;
    uint64_t graph; /* the executable graph's handle */
    uint64_t event; /* the event's handle */
    uint32_t value; /* a fill's */
    uint64_t bytes; /* of a copy; 0: not known */
    enum weir_profile_memory source, target;
    bool is_async;
    bool is_new;                   /* the call made the stream, and a NULL stream's context */
    bool is_null, is_non_blocking; /* the stream */
    int32_t priority;
};

/* A call of the Driver API. When a call begins, result, end_ns and work are 0. */
struct weir_profile_call {
    const char *name; /* of the symbol, with _v2, _ptsz and so on; never freed */
    uint32_t symbol;  /* a number that only this symbol has, below WEIR_PROFILE_SYMBOLS */
    uint32_t number;  /* 1 .. 2^31 - 1; that of the runtime's call, if one made this call */
    bool in_runtime;  /* the runtime made this call */
    CUresult result;
    uint64_t start_ns, end_ns;
    const uint64_t *words;     /* the arguments, one a word */
    const uint8_t *word_bytes; /* how large each argument is */
    uint32_t n_words;
    struct weir_profile_work work; /* valid if the call succeeded */
};

/* The begin or the end of a call of the CUDA runtime. Pointers are borrowed. */
struct weir_profile_runtime {
    const char *name; /* never freed */
    uint32_t number;  /* not 0 */
    uint32_t id;      /* the runtime's number of its function (cupti_runtime_cbid.h) */
    bool is_end;
    uint64_t start_ns, end_ns; /* end_ns is 0 at its begin */
    const void *params;
    int *result;        /* cudaError_t; valid at the end */
    uint64_t *scratch;  /* a word for the watcher, kept from the call's begin to its end */
    CUcontext context;  /* current one, or NULL */
    const void *symbol; /* launches: the address of the kernel's host function; else NULL */
};

/* The watcher's functions. They run on the calling thread; their own calls are not watched. */
struct weir_profile_watch {
    void (*entered)(const struct weir_profile_call *call); /* none that the runtime makes */
    void (*left)(const struct weir_profile_call *call);
    void (*runtime)(const struct weir_profile_runtime *call);
};

struct weir_profile_taken {
    const struct weir_profile_record *records; /* borrowed until the thread's next call */
    uint32_t n;
    int64_t shift_ns; /* add this to the records' times to get this machine's time */
    uint32_t pending; /* pieces of work that have not ended */
    uint64_t dropped; /* number of pieces of work that got no record, since the session began */
};

/* What the host records of calls that begin from now on. */
enum weir_profile_wish {
    WEIR_PROFILE_WISH_NOTHING,
    WEIR_PROFILE_WISH_WORK,   /* of graphs their nodes, where that is possible */
    WEIR_PROFILE_WISH_GRAPHS, /* of graphs the whole */
};

/* What the program sees of a device. Pointers stay valid. */
struct weir_profile_device {
    const char *name;
    const CUuuid *uuid;
    const int *attributes; /* by CUdevice_attribute */
    uint64_t bytes;        /* of its memory */
};

/* All functions: any thread. */
struct weir_profile_table {
    size_t table_bytes;
    uint32_t version; /* WEIR_PROFILE_TABLE_VERSION */
    /* Watch from now on; NULL: stop. Calls under way may still use the older watch, so it must
     * stay valid. take() gives what the host records. */
    void (*watch)(const struct weir_profile_watch *watch, enum weir_profile_wish wish);
    /* Take the records of work that has ended, each once. Waits until the host has read all earlier
     * calls. Fails if there is no session, or the host's release has no records. */
    CUresult (*take)(struct weir_profile_taken *ret_taken);
    /* Tell the kernel of a graph's node by the function in its record: fills in kernel, which is
     * name then, static_shared_bytes, local_bytes and registers. "": it was unloaded. */
    void (*kernel)(uint64_t function, char *name, size_t bytes, struct weir_profile_work *work);
    /* Number of a context (NULL: the current one), and of a stream; 0: it does not exist. */
    uint32_t (*context_number)(CUcontext context);
    uint32_t (*stream_number)(CUcontext context, CUstream stream);
    int (*device_of)(CUcontext context); /* -1: no such context */
    /* Tell of each stream, as a call that made it would. Asks no host. */
    void (*streams)(void (*tell)(const struct weir_profile_work *stream));
    bool (*device)(int ordinal, struct weir_profile_device *ret_device); /* false: there is none */
};
