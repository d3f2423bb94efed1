/*
 * Private to softgpu/exec: the internal code that kernels are decoded to and the state of a running
 * warp, block and grid. docs/design/softgpu.md describes how the parts work together.
 *
 * Registers: each register of a frame is a row of 32 lanes: uint32_t[32] for types of up to 32 bits
 * (the bits above a narrower type are undefined), uint64_t[32], or two such rows for b128. A
 * predicate is one uint32_t with a bit per lane. An operand is a weir_x_ref: the byte offset of its
 * row (a multiple of 8) and, in the low two bits, the one of the warp's four bases to which it is
 * relative.
 *
 * Threads: a block, its warps and frames belong to the host thread that runs them; threads share a
 * grid, whose atomic members are marked; code (functions, instructions) is immutable once decoded.
 */
#pragma once

#include "base/thread.h"
#include "ptx/ir.h"
#include "softgpu/exec/exec.h"
#include "softgpu/memory.h"

#define WEIR_X_LANES 32
#define WEIR_X_FULL  0xffffffffu

typedef uint32_t weir_x_ref;
#define WEIR_X_BASE_REGS     0u /* registers of the running frame */
#define WEIR_X_BASE_CONSTS   1u /* immediates of the running function, each as a row of 32 copies */
#define WEIR_X_BASE_SPECIALS 2u /* the warp's special registers */
#define WEIR_X_NO_REF        UINT32_MAX

/* Rows of the special registers, in units of 32-bit rows; 64-bit ones take two. */
enum weir_x_special {
    WEIR_X_ZERO, /* also for the registers that have no row */
    WEIR_X_TID_X,
    WEIR_X_TID_Y,
    WEIR_X_TID_Z,
    WEIR_X_NTID_X,
    WEIR_X_NTID_Y,
    WEIR_X_NTID_Z,
    WEIR_X_CTAID_X,
    WEIR_X_CTAID_Y,
    WEIR_X_CTAID_Z,
    WEIR_X_NCTAID_X,
    WEIR_X_NCTAID_Y,
    WEIR_X_NCTAID_Z,
    WEIR_X_LANEID,
    WEIR_X_WARPID,
    WEIR_X_NWARPID,
    WEIR_X_SMID,
    WEIR_X_NSMID,
    WEIR_X_MASK_EQ,
    WEIR_X_MASK_LE,
    WEIR_X_MASK_LT,
    WEIR_X_MASK_GE,
    WEIR_X_MASK_GT,
    WEIR_X_ENVREG1,
    WEIR_X_ENVREG2,
    WEIR_X_DYNAMIC_SMEM,
    WEIR_X_TOTAL_SMEM,
    WEIR_X_ONE,
    WEIR_X_CLUSTERID_X,
    WEIR_X_CLUSTERID_Y,
    WEIR_X_CLUSTERID_Z,
    WEIR_X_NCLUSTERID_X,
    WEIR_X_NCLUSTERID_Y,
    WEIR_X_NCLUSTERID_Z,
    WEIR_X_CLUSTER_CTAID_X,
    WEIR_X_CLUSTER_CTAID_Y,
    WEIR_X_CLUSTER_CTAID_Z,
    WEIR_X_CLUSTER_NCTAID_X,
    WEIR_X_CLUSTER_NCTAID_Y,
    WEIR_X_CLUSTER_NCTAID_Z,
    WEIR_X_CLUSTER_RANK,
    WEIR_X_CLUSTER_SIZE,
    WEIR_X_CLUSTER_EXPLICIT, /* a predicate */
    WEIR_X_GRIDID,           /* 64 bits */
    WEIR_X_GRIDID_HIGH,
    WEIR_X_SPECIAL_COUNT
};

struct weir_x_warp;
struct weir_x_inst;

/* Runs one instruction for the warp's mask. Returns the next one, or NULL after setting
 * w->event. */
typedef const struct weir_x_inst *(*weir_x_fn)(struct weir_x_warp *w, const struct weir_x_inst *i);
typedef uint32_t (*weir_x_compare_fn)(struct weir_x_warp *w, const struct weir_x_inst *i);
typedef uint64_t (*weir_x_rmw_fn)(void *place, uint64_t value, uint64_t compare);

#define WEIR_X_F_FTZ     0x1u
#define WEIR_X_F_SAT     0x2u
#define WEIR_X_F_NAN     0x4u
#define WEIR_X_F_RELU    0x8u
#define WEIR_X_F_APPROX  0x10u
#define WEIR_X_F_FULL    0x20u
#define WEIR_X_F_ABS     0x40u
#define WEIR_X_F_WIDE    0x80u  /* data register is 64 bits wide */
#define WEIR_X_F_ADDR64  0x100u /* address register is 64 bits wide */
#define WEIR_X_F_ACQUIRE 0x200u
#define WEIR_X_F_RELEASE 0x400u
#define WEIR_X_F_SIGNED  0x800u
#define WEIR_X_F_XORSIGN 0x1000u
#define WEIR_X_F_MULTI   0x2000u /* all lanes have one address, an immediate */

enum weir_x_round { WEIR_X_RN, WEIR_X_RZ, WEIR_X_RM, WEIR_X_RP, WEIR_X_RNA };

/* The state space of an address; NONE (generic) is resolved at run time. */
enum weir_x_space {
    WEIR_X_GENERIC,
    WEIR_X_GLOBAL,
    WEIR_X_SHARED,
    WEIR_X_CLUSTER, /* shared memory of any block of the cluster */
    WEIR_X_CONST,   /* only in isspacep: accesses of .const use GLOBAL */
    WEIR_X_LOCAL,
    WEIR_X_FRAME, /* local, from the running frame's base: .param and .local of functions */
    WEIR_X_PARAM, /* the entry's parameter block */
};

struct weir_x_inst {
    weir_x_fn fn;
    weir_x_fn inner; /* the handler that a guarded instruction runs */
    weir_x_ref d, a, b, c, e;
    weir_x_ref guard;
    uint32_t guard_flip; /* 0 or ~0 */
    uint32_t flags;      /* WEIR_X_F_* */
    uint32_t line;
    uint8_t type;  /* enum weir_ptx_type of the operation */
    uint8_t type2; /* type of the source or the result, where that differs */
    uint8_t round; /* enum weir_x_round */
    uint8_t space; /* enum weir_x_space */
    uint8_t bytes; /* size of one element in memory */
    uint8_t vec;   /* number of elements */
    uint8_t sub;   /* its meaning depends on fn */
    uint8_t sub2;
    union {
        uint64_t imm;
        const struct weir_x_inst *target;
        const void *ext;
        weir_x_compare_fn compare;
        weir_x_rmw_fn rmw;
    };
    const weir_x_ref *refs; /* vector elements and other long lists */
    uint64_t imm2;          /* address offset where the union holds something else */
};

/* How one argument or result of a call is copied, from a register or frame to another. */
struct weir_x_arg {
    bool from_reg, to_reg;
    bool wide;     /* the registers have 64 bits */
    uint32_t from; /* weir_x_ref or offset in the frame's local bytes */
    uint32_t to;
    uint32_t bytes;
};

enum weir_x_builtin {
    WEIR_X_BUILTIN_NONE,
    WEIR_X_BUILTIN_VPRINTF,
    WEIR_X_BUILTIN_ASSERT,
    WEIR_X_BUILTIN_MALLOC,
    WEIR_X_BUILTIN_FREE
};

struct weir_x_call {
    const struct weir_x_func *callee; /* NULL: the callee's address is in inst->a */
    struct weir_x_arg *args;
    struct weir_x_arg *results;
    uint32_t n_args;
    uint32_t n_results;
    uint32_t param_bytes; /* an indirect callee must have the same number */
};

/* A branch table. */
struct weir_x_table {
    uint32_t n;
    const struct weir_x_inst *targets[];
};

/* A piece of memory that is freed with its function. */
struct weir_x_piece {
    struct weir_x_piece *next;
    char bytes[] __attribute__((aligned(16)));
};

/* A function, decoded for one kernel, which decides its shared variables' addresses. */
struct weir_x_func {
    const char *name;
    const struct weir_ptx_func *ir;
    struct weir_x_inst *code;
    uint32_t n_code;
    char *consts; /* immediates, aligned to 64 */
    uint32_t consts_bytes;
    uint32_t frame_bytes; /* size of the registers' frame */
    uint32_t local_bytes; /* size of .param and .local, from the frame's local base */
    uint32_t param_bytes; /* part of local_bytes for parameters and results */
    /* Local bytes of the function and everything it calls; set once all functions are decoded. */
    uint64_t deepest;
    uint32_t n_regs32; /* number of 32-bit registers, for the register estimate */
    bool calls_indirect, recursive, visiting;
    const char *unsupported;
    struct weir_x_func **callees;
    uint32_t n_callees;
    bool uses_printf;
    bool launches;
    bool uses_alloca, uses_alloca_below;
    struct weir_x_piece *pieces; /* pieces that the code points to */
    struct weir_x_func *next;    /* next function of the kernel */
};

/* Registers of one activation; shared by the lanes that made the call together. */
struct weir_x_frame {
    struct weir_x_frame *parent;
    const struct weir_x_inst *return_to; /* the instruction after the call */
    const struct weir_x_func *func;
    uint32_t mask; /* lanes that have not returned */
    uint32_t depth;
    uint32_t local_base;
    /* Tops of the caller's stack, if this function calls alloca. */
    uint32_t saved_tops[WEIR_X_LANES];
    uint32_t alloc_bytes;
    char regs[] __attribute__((aligned(64)));
};

enum weir_x_state {
    WEIR_X_RUNNABLE,
    WEIR_X_WAIT_BARRIER,
    WEIR_X_WAIT_SYNC, /* waits for other lanes of the warp */
};

/* Lanes of a warp at the same instruction of the same activation. */
struct weir_x_group {
    const struct weir_x_inst *ip;
    struct weir_x_frame *frame;
    uint32_t mask;
    uint8_t state;
    uint8_t barrier;
    uint64_t stamp; /* when the group last ran */
};

enum weir_x_event {
    WEIR_X_EVENT_NONE,
    WEIR_X_EVENT_SWITCH, /* groups have changed; w->resume is set */
    WEIR_X_EVENT_GONE,   /* the running group's lanes have exited */
    WEIR_X_EVENT_YIELD,  /* let other groups run; w->resume is set */
    WEIR_X_EVENT_FAULT,
};

struct weir_x_warp {
    char *base[4];
    uint32_t mask; /* lanes of the running group that execute the instruction */
    uint32_t group_mask;
    struct weir_x_frame *frame;
    char *local; /* local memory of lane 0 */
    uint64_t local_bytes;
    struct weir_x_block *block;
    struct weir_x_core *core;
    const struct weir_x_inst *resume;
    uint8_t event;                           /* enum weir_x_event */
    bool fair;                               /* next run the group that has waited longest */
    uint32_t live;                           /* lanes that have not exited */
    uint32_t carry;                          /* condition code of .cc, a bit per lane */
    uint32_t cluster_arrivals[WEIR_X_LANES]; /* arrivals at barrier.cluster */
    uint32_t stack_top[WEIR_X_LANES];        /* start of alloca's allocations in local memory */
    uint32_t lowest_top;                     /* the lowest of all stack tops: frames end below it */
    uint32_t index;                          /* index in the block */
    uint32_t n_groups;
    uint32_t current;
    uint64_t stamp;
    struct weir_x_group groups[WEIR_X_LANES];
    uint32_t specials[WEIR_X_SPECIAL_COUNT][WEIR_X_LANES] __attribute__((aligned(64)));
};

#define WEIR_X_BARRIERS 16
#define WEIR_X_CLUSTER_BARRIER                                                                     \
    WEIR_X_BARRIERS /* stands for barrier.cluster in place of a barrier's id */
#define WEIR_X_MAX_CLUSTER 16u
struct weir_x_barrier {
    uint32_t arrived;  /* number of threads that have arrived */
    uint32_t expected; /* 0: all threads that have not exited */
    uint32_t red_popc, red_and, red_or;
    bool in_use;
};

/*
 * Blocks that can access each other's shared memory. All run on one core and begin together, and
 * none is freed before the last one has ended. This struct is a part of the first block.
 */
struct weir_x_cluster {
    uint32_t n_blocks;
    uint32_t n_over;
    uint32_t live_threads;
    uint32_t arrived; /* threads that have arrived in this phase of barrier.cluster */
    uint32_t phase;
    struct weir_x_block *blocks[WEIR_X_MAX_CLUSTER];
};

enum weir_x_block_state { WEIR_X_BLOCK_RUNNING, WEIR_X_BLOCK_DONE, WEIR_X_BLOCK_STOPPED };

struct weir_x_block {
    struct weir_x_block *next; /* next block on the same core, or in the list of spare ones */
    struct weir_x_grid *grid;
    struct weir_x_core *core;
    uint64_t arena_bytes;
    uint32_t index[3];
    uint32_t n_warps;
    uint32_t live_threads;
    uint32_t live_warps;
    char *shared;
    uint64_t shared_bytes;
    const char *params;
    uint32_t param_bytes;
    struct weir_x_barrier barriers[WEIR_X_BARRIERS];
    struct weir_x_cluster *cluster; /* lies in the cluster's first block */
    struct weir_x_cluster own_cluster;
    uint32_t cluster_rank;
    struct weir_x_warp **warps;
};

#define WEIR_X_RANGES 8
/* What belongs to one host thread that runs blocks. */
struct weir_x_core {
    struct weir_x_core *next; /* next in the list of spare cores */
    struct weir_exec_device *device;
    struct weir_exec_sms sms; /* the SMs that the thread acts as */
    uint32_t turn;            /* number of blocks begun; the core's SMs take turns by it */
    uint32_t sm;
    uint64_t range_generation;
    uint32_t n_ranges;
    struct weir_soft_range ranges[WEIR_X_RANGES]; /* sorted by last use, the most recent first */
    struct weir_x_frame *spare_frames[24];        /* lists by log2 of the frames' size */
    uint64_t frame_bytes;                         /* size of all frames, in use and spare */
    struct weir_x_block *resident;
    uint32_t n_resident;
};

struct weir_x_grid {
    struct weir_x_grid *next;
    const struct weir_exec_launch *launch;
    struct weir_exec_kernel *kernel;
    struct weir_exec_device *device;
    uint64_t id;
    uint64_t n_blocks;
    uint64_t next_block; /* counts in the order of clusters; guarded by the device lock */
    uint64_t active;     /* blocks begun and not ended; guarded by the device lock */
    uint32_t stop;       /* atomic: set by a fault or by cancel */
    uint32_t faulted;    /* atomic: the thread that sets it writes fault */
    struct weir_exec_fault fault;
    uint32_t threads;
    uint32_t n_warps;
    uint64_t shared_bytes;
    uint64_t local_bytes;
    uint64_t arena_bytes;
    uint32_t per_sm;          /* how many blocks fit one SM */
    struct weir_exec_sms sms; /* SMs where the blocks may run; at least one */
    uint32_t cluster[3];      /* size of a cluster, in blocks */
    uint32_t cluster_blocks;
    bool explicit_cluster; /* the launch or the kernel gave a cluster size */
    uint32_t *workspace;   /* counter of cooperative groups' grid barrier */
    bool done;             /* guarded by the device lock */
    pthread_cond_t wake;
};

struct weir_x_heap;

struct weir_exec_device {
    struct weir_exec_device_params params;
    pthread_mutex_t lock; /* guards all members below but the atomics */
    pthread_cond_t work;
    pthread_t *threads;
    struct weir_x_core *cores;
    uint32_t n_threads; /* threads that run; 0 before first use */
    bool stopping;
    struct weir_x_grid *grids;
    struct weir_x_block *spare_blocks;
    struct weir_x_core *spare_cores; /* cores of threads that launch */
    uint32_t n_spare;
    uint64_t n_grids;
    pthread_mutex_t heap_lock;
    struct weir_x_heap *heaps;
};

/* A definition at module scope. */
struct weir_x_symbol {
    const char *name;
    struct weir_ptx_var *var; /* the variable; either this or the function is set */
    struct weir_ptx_func *func;
    uint8_t rank; /* 0 visible, 1 weak, 2 common, 3 private to its source text */
};

struct weir_exec_kernel {
    struct weir_exec_module *module;
    struct weir_ptx_func *ir;
    struct weir_exec_kernel_info info;
    struct weir_exec_param *params;
    pthread_mutex_t lock; /* guards decoding */
    bool decoded;
    struct weir_x_func *entry;
    struct weir_x_func *funcs;
    struct weir_x_func **by_id; /* module->n_functions entries: the decoded functions by id */
    /* Places of shared variables. */
    struct weir_x_shared_place *shared;
    uint32_t n_shared;
    uint32_t dynamic_at; /* start of dynamic shared memory, 0: at the end of the static part */
    uint32_t static_shared_bytes;
    uint32_t n_funcs; /* number of decoded functions */
    uint32_t nesting; /* present nesting of decoding */
    uint64_t stack_bytes;
};

struct weir_x_shared_place {
    const struct weir_ptx_var *var;
    uint32_t offset; /* UINT32_MAX: dynamic, after all static ones */
};

enum weir_x_store { WEIR_X_STORE_PLAIN, WEIR_X_STORE_MANAGED, WEIR_X_STORE_CONST, WEIR_X_STORES };

struct weir_exec_module {
    struct weir_exec_device *device;
    struct weir_exec_memory memory;
    struct weir_ptx_module **sources;
    uint32_t n_sources;
    struct weir_x_symbol *symbols; /* sorted by name */
    uint32_t n_symbols;
    struct weir_ptx_func **functions; /* functions with bodies that are no entries, by id */
    uint32_t n_functions;
    bool *address_taken;
    struct weir_exec_kernel *kernels;
    uint32_t n_kernels;
    uint64_t storage[WEIR_X_STORES]; /* 0, or what the variables lie in */
    uint64_t storage_bytes[WEIR_X_STORES];
};

/* Marks function addresses in kernels; no memory address has these bits. */
#define WEIR_X_FUNC_TAG 0x00f0000000000000ull

/*
 * Windows for generic addresses, each WEIR_X_WINDOW_BYTES long and aligned to its size. Behind the
 * window of shared memory lies one for each block of the cluster, so that an address of
 * shared::cluster is also an offset: from 0 the block's own memory, from (rank + 1) <<
 * WEIR_X_WINDOW_SHIFT each block's.
 */
#define WEIR_X_WINDOW_SHIFT 24
#define WEIR_X_WINDOW_BYTES (1ull << WEIR_X_WINDOW_SHIFT)
/* Shared memory of each block, local memory, parameters. */
#define WEIR_X_WINDOWS (WEIR_X_MAX_CLUSTER + 3)
extern uint64_t weir_x_window_shared;
extern uint64_t weir_x_window_local;
extern uint64_t weir_x_window_param;

static inline void *weir_x_row(const struct weir_x_warp *w, weir_x_ref ref)
{
    return w->base[ref & 3u] + (ref & ~3u);
}

typedef uint32_t __attribute__((may_alias)) weir_x_u32;
typedef uint64_t __attribute__((may_alias)) weir_x_u64;
typedef float __attribute__((may_alias)) weir_x_f32;
typedef double __attribute__((may_alias)) weir_x_f64;

static inline weir_x_u32 *weir_x_w32(const struct weir_x_warp *w, weir_x_ref ref)
{
    return weir_x_row(w, ref);
}

static inline weir_x_u64 *weir_x_w64(const struct weir_x_warp *w, weir_x_ref ref)
{
    return weir_x_row(w, ref);
}

static inline uint32_t weir_x_pred(const struct weir_x_warp *w, weir_x_ref ref)
{
    return *(const weir_x_u32 *)weir_x_row(w, ref);
}

static inline void weir_x_set_pred(struct weir_x_warp *w, weir_x_ref ref, uint32_t bits)
{
    weir_x_u32 *p = weir_x_row(w, ref);
    *p = (*p & ~w->mask) | (bits & w->mask);
}

/* Run the statement with l = each lane of the mask. The loop for a full mask vectorises. */
#define WEIR_X_EACH(w, l, ...)                                                                     \
    do {                                                                                           \
        if ((w)->mask == WEIR_X_FULL) {                                                            \
            for (uint32_t l = 0; l < WEIR_X_LANES; l++) {                                          \
                __VA_ARGS__;                                                                       \
            }                                                                                      \
        } else {                                                                                   \
            for (uint32_t rest_ = (w)->mask; rest_ != 0; rest_ &= rest_ - 1) {                     \
                uint32_t l = (uint32_t)__builtin_ctz(rest_);                                       \
                __VA_ARGS__;                                                                       \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#define WEIR_X_EACH_ACTIVE(w, l, ...)                                                              \
    do {                                                                                           \
        for (uint32_t rest_ = (w)->mask; rest_ != 0; rest_ &= rest_ - 1) {                         \
            uint32_t l = (uint32_t)__builtin_ctz(rest_);                                           \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* fault.c: record why the grid ends; NULL, for handlers to return. */
const struct weir_x_inst *weir_x_fault(struct weir_x_warp *w, const struct weir_x_inst *i,
                                       uint32_t code, uint32_t lane, uint64_t address,
                                       const char *fmt, ...) WEIR_PRINTF(6, 7);

/* warp.c */
struct weir_x_frame *weir_x_frame_get(struct weir_x_core *core, const struct weir_x_func *func);
void weir_x_frame_put(struct weir_x_core *core, struct weir_x_frame *frame);
void weir_x_core_finish(struct weir_x_core *core);
/** Add a group; the running one keeps the rest. */
void weir_x_warp_fork(struct weir_x_warp *w, uint32_t mask, const struct weir_x_inst *ip);
/** Make frame the running one. */
void weir_x_warp_enter(struct weir_x_warp *w, struct weir_x_frame *frame);
/** Take lanes out of the kernel; the caller deals with the running group. */
void weir_x_warp_exit_lanes(struct weir_x_warp *w, uint32_t mask);
enum weir_x_warp_state {
    WEIR_X_WARP_READY,
    WEIR_X_WARP_BLOCKED,
    WEIR_X_WARP_DONE,
    WEIR_X_WARP_FAULT
};
enum weir_x_warp_state weir_x_warp_run(struct weir_x_warp *w, uint32_t budget);
/** Leave the run loop and come back at ip after groups were looked at again. */
static inline const struct weir_x_inst *weir_x_leave(struct weir_x_warp *w,
                                                     const struct weir_x_inst *ip, uint8_t event)
{
    w->resume = ip;
    w->event = event;
    return NULL;
}

/* block.c */
struct weir_x_block *weir_x_block_start(struct weir_x_core *core, struct weir_x_grid *grid,
                                        uint64_t linear);
enum weir_x_block_state weir_x_block_run(struct weir_x_block *block, uint32_t rounds);
void weir_x_block_finish(struct weir_x_block *block);
/** Lanes of a warp have exited. */
void weir_x_block_threads_left(struct weir_x_warp *w, uint32_t mask);
/** Lanes of a warp arrive at barrier.cluster. */
void weir_x_cluster_arrive(struct weir_x_warp *w, uint32_t mask);
/** Arrive with the warp's mask; NULL event or next instruction as a handler. */
const struct weir_x_inst *weir_x_block_arrive(struct weir_x_warp *w, const struct weir_x_inst *i,
                                              uint32_t id, uint32_t count, bool wait);

/* decode.c */
enum weir_status weir_x_kernel_decode(struct weir_exec_kernel *kernel);
void weir_x_kernel_release(struct weir_exec_kernel *kernel);

/* module.c */
struct weir_ptx_func *weir_x_func_resolve(const struct weir_exec_module *module,
                                          struct weir_ptx_func *func);
const struct weir_ptx_var *weir_x_var_resolve(const struct weir_exec_module *module,
                                              const struct weir_ptx_var *var);
enum weir_x_builtin weir_x_builtin_of(const char *name);

/* builtin.c */
const struct weir_x_inst *weir_x_exec_vprintf(struct weir_x_warp *w, const struct weir_x_inst *i);
const struct weir_x_inst *weir_x_exec_assertfail(struct weir_x_warp *w,
                                                 const struct weir_x_inst *i);
const struct weir_x_inst *weir_x_exec_malloc(struct weir_x_warp *w, const struct weir_x_inst *i);
const struct weir_x_inst *weir_x_exec_free(struct weir_x_warp *w, const struct weir_x_inst *i);
void weir_x_heap_destroy(struct weir_exec_device *device);

/* access.c: addresses to host pointers */
/** Turn lane addresses of a space into host addresses for the warp's mask. */
bool weir_x_translate(struct weir_x_warp *w, const struct weir_x_inst *i, enum weir_x_space space,
                      uint64_t addr[WEIR_X_LANES], uint32_t bytes, uint32_t align, uint32_t access);
/** Resolve one generic address of a lane; NULL: some of the bytes are not accessible. */
void *weir_x_generic(struct weir_x_warp *w, uint32_t lane, uint64_t address, uint64_t bytes,
                     uint32_t access);

/* Look-ups for decode.c: the handler of an instruction's form, or NULL. */
weir_x_fn weir_x_find_int(const struct weir_ptx_inst *ir, struct weir_x_inst *out);
weir_x_fn weir_x_find_float(const struct weir_ptx_inst *ir, struct weir_x_inst *out);
weir_x_fn weir_x_find_half(const struct weir_ptx_inst *ir, struct weir_x_inst *out);
weir_x_fn weir_x_find_cvt(const struct weir_ptx_inst *ir, struct weir_x_inst *out);
weir_x_fn weir_x_find_compare(const struct weir_ptx_inst *ir, struct weir_x_inst *out);
weir_x_fn weir_x_find_round(const struct weir_ptx_inst *ir, struct weir_x_inst *out);
weir_x_rmw_fn weir_x_find_rmw(const struct weir_ptx_inst *ir);
/** The handler that does the same in global memory, where that differs. */
weir_x_rmw_fn weir_x_global_rmw(weir_x_rmw_fn rmw);

/* mbarrier.c */
/** Bytes that an object waits for have come; its address has been translated. */
void weir_x_mbarrier_complete(uint64_t object, uint32_t bytes);

/* op_warp.c */
/** The lanes whose partners (member mask in e) are here stay in the mask;
 * false: none, return NULL. */
bool weir_x_take_part(struct weir_x_warp *w, const struct weir_x_inst *i);

/* Handlers that decode.c names. */
#define WEIR_X_HANDLER(name)                                                                       \
    const struct weir_x_inst *weir_x_exec_##name(struct weir_x_warp *w, const struct weir_x_inst *i)
WEIR_X_HANDLER(guarded);
WEIR_X_HANDLER(guarded_split);
WEIR_X_HANDLER(bra);
WEIR_X_HANDLER(bra_guarded);
WEIR_X_HANDLER(brx);
WEIR_X_HANDLER(call);
WEIR_X_HANDLER(ret);
WEIR_X_HANDLER(exit);
WEIR_X_HANDLER(trap);
WEIR_X_HANDLER(nop);
WEIR_X_HANDLER(nanosleep);
WEIR_X_HANDLER(barrier);
WEIR_X_HANDLER(fence);
WEIR_X_HANDLER(sreg);
WEIR_X_HANDLER(frame_address);
WEIR_X_HANDLER(unsupported);

/* sms.c: sets of SMs. */
/** The SMs that the host thread of this index acts as. */
struct weir_exec_sms weir_x_sms_of_thread(const struct weir_exec_device *device, uint32_t index);
/** The device's SMs that a launch may use; none, if it names only others. */
struct weir_exec_sms weir_x_sms_of_launch(const struct weir_exec_device *device,
                                          const struct weir_exec_launch *launch);
struct weir_exec_sms weir_x_sms_common(const struct weir_exec_sms *a,
                                       const struct weir_exec_sms *b);
/** The member of number `n`, ascending; n below the count. */
uint32_t weir_x_sms_at(const struct weir_exec_sms *sms, uint32_t n);

/* texture.c: called around each grid, so that no texture is freed while the grid runs. */
void weir_x_textures_enter(void);
void weir_x_textures_leave(void);
WEIR_X_HANDLER(ld);
WEIR_X_HANDLER(ld_global32);
WEIR_X_HANDLER(ld_global64);
WEIR_X_HANDLER(ld_shared32);
WEIR_X_HANDLER(ld_param);
WEIR_X_HANDLER(st);
WEIR_X_HANDLER(st_global32);
WEIR_X_HANDLER(st_shared32);
WEIR_X_HANDLER(atom);
WEIR_X_HANDLER(atom128);
WEIR_X_HANDLER(cp_async);
WEIR_X_HANDLER(store_async);
WEIR_X_HANDLER(mapa);
WEIR_X_HANDLER(ctarank);
WEIR_X_HANDLER(alloca);
WEIR_X_HANDLER(stacksave);
WEIR_X_HANDLER(stackrestore);
WEIR_X_HANDLER(cluster_arrive);
WEIR_X_HANDLER(cluster_wait);
WEIR_X_HANDLER(cvta_to);
WEIR_X_HANDLER(cvta_from);
WEIR_X_HANDLER(isspacep);
WEIR_X_HANDLER(mbarrier);
WEIR_X_HANDLER(shfl);
WEIR_X_HANDLER(vote);
WEIR_X_HANDLER(match);
WEIR_X_HANDLER(redux);
WEIR_X_HANDLER(elect);
WEIR_X_HANDLER(activemask);
WEIR_X_HANDLER(warp_sync);
WEIR_X_HANDLER(mov32);
WEIR_X_HANDLER(mov64);
WEIR_X_HANDLER(mov_pred);
WEIR_X_HANDLER(not_pred);
WEIR_X_HANDLER(and_pred);
WEIR_X_HANDLER(or_pred);
WEIR_X_HANDLER(xor_pred);
WEIR_X_HANDLER(mov128);
WEIR_X_HANDLER(slct);
WEIR_X_HANDLER(pack);
WEIR_X_HANDLER(unpack);
WEIR_X_HANDLER(selp32);
WEIR_X_HANDLER(selp64);
WEIR_X_HANDLER(lop3);
WEIR_X_HANDLER(lop3_pred);
WEIR_X_HANDLER(tex);
WEIR_X_HANDLER(txq);
WEIR_X_HANDLER(surface);
WEIR_X_HANDLER(matrix);
WEIR_X_HANDLER(ldmatrix);
WEIR_X_HANDLER(wmma_memory);
WEIR_X_HANDLER(movmatrix);
