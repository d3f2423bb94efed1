/*
 * The kernel engine of softgpu: it loads PTX and executes grids. It knows no CUDA types and no
 * streams: the driver half (softgpu/driver) orders launches and calls weir_exec_run().
 *
 * SMs are real threads, one pool per device; each keeps as many blocks resident as occupancy allows
 * and switches between their warps, so blocks may wait for each other. Any number of grids may run
 * at once.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir_exec_device;
struct weir_exec_module;
struct weir_exec_kernel;

struct weir_exec_device_params {
    uint32_t sm_count;            /* what kernels see as %nsmid, 1 .. WEIR_EXEC_MAX_SMS */
    uint32_t thread_count;        /* host threads that act as these SMs, 1 .. sm_count */
    uint32_t compute_capability;  /* e.g. 90: the newest PTX target (sm_90) that loads */
    uint32_t max_threads_per_sm;  /* 2048 */
    uint32_t max_blocks_per_sm;   /* 32 */
    uint32_t shared_bytes_per_sm; /* 233472 */
    uint32_t registers_per_sm;    /* 65536 */
};

/* A set of SMs: bit sm % 64 of word sm / 64. */
#define WEIR_EXEC_MAX_SMS 256u
struct weir_exec_sms {
    uint64_t words[WEIR_EXEC_MAX_SMS / 64];
};
static inline void weir_exec_sms_add(struct weir_exec_sms *sms, uint32_t sm)
{
    sms->words[sm / 64] |= 1ull << sm % 64;
}
static inline bool weir_exec_sms_has(const struct weir_exec_sms *sms, uint32_t sm)
{
    return (sms->words[sm / 64] >> sm % 64 & 1) != 0;
}
uint32_t weir_exec_sms_count(const struct weir_exec_sms *sms);

enum weir_status weir_exec_device_create(const struct weir_exec_device_params *params,
                                         struct weir_exec_device **ret_device) WEIR_MUST_CHECK;
void weir_exec_device_destroy(struct weir_exec_device *device);

/**
 * The SMs in a row in which those that one host thread stands for are neighbours.
 *
 * Who cuts this row into parts gives them host threads of their own as far as there are any, so
 * that what runs in one part takes as little as possible from the others.
 *
 * @param place  0 .. sm_count - 1.
 * @return the SM, as kernels see it in %smid.
 * @thread any
 */
uint32_t weir_exec_sm_at(const struct weir_exec_device *device, uint32_t place);

/* Allocates memory for a module's .global and .const variables. The driver half implements this. */
struct weir_exec_memory {
    /* Allocate zeroed memory in the memory map. @param managed the host accesses it, too. */
    enum weir_status (*allocate)(void *user, uint64_t bytes, uint64_t alignment, bool managed,
                                 uint64_t *ret_address);
    void (*release)(void *user, uint64_t address);
    void *user;
};

struct weir_exec_source {
    const char *text; /* PTX, need not end in NUL */
    size_t bytes;
    const char *name; /* for diagnostics; may be NULL */
};

/**
 * Parse, check, link and decode one or more PTX texts into one module.
 *
 * @param sources    extern symbols of one are resolved in the others.
 * @param n_sources  1 .. 1024
 * @param memory     called now and from weir_exec_module_destroy().
 * @param diag       filled on WEIR_ERR_SYNTAX, WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND.
 * @return WEIR_OK
 * @return WEIR_ERR_SYNTAX       not valid PTX
 * @return WEIR_ERR_VERSION      needs a newer target or PTX version than the device has
 * @return WEIR_ERR_UNSUPPORTED  uses an instruction that softgpu lacks: only kernels that reach it
 * are refused at launch; this is returned when the module itself cannot load
 * @return WEIR_ERR_NOT_FOUND    an extern symbol that nobody defines
 * @return WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_exec_module_load(struct weir_exec_device *device,
                                       const struct weir_exec_source *sources, uint32_t n_sources,
                                       const struct weir_exec_memory *memory,
                                       struct weir_diag *diag,
                                       struct weir_exec_module **ret_module) WEIR_MUST_CHECK;

/** No grid of it may be running. Accepts NULL. */
void weir_exec_module_destroy(struct weir_exec_module *module);

/* The module's kernels in order of appearance; NULL past the last. Borrowed from the module. */
const struct weir_exec_kernel *weir_exec_module_kernel_at(const struct weir_exec_module *module,
                                                          uint32_t index);
const struct weir_exec_kernel *weir_exec_module_kernel(const struct weir_exec_module *module,
                                                       const char *name);

struct weir_exec_param {
    uint32_t offset;
    uint32_t bytes;
};

/* Properties of a kernel; they never change. */
struct weir_exec_kernel_info {
    const char *name;
    const struct weir_exec_param *params;
    uint32_t n_params;
    uint32_t param_bytes;
    uint32_t static_shared_bytes;
    uint32_t local_bytes; /* local memory of each thread */
    uint32_t const_bytes;
    uint32_t registers;           /* estimate of what ptxas would use, 16 .. 255 */
    uint32_t max_threads;         /* from .maxntid/.reqntid, else 1024 */
    uint32_t required_block[3];   /* .reqntid, or 0 */
    uint32_t required_cluster[3]; /* .reqnctapercluster, or 0 */
    bool cluster_must_be_set;     /* .explicitcluster */
    uint32_t ptx_version;         /* e.g. 90 */
    uint32_t target;              /* e.g. 75 */
    bool uses_printf;
    bool launches;           /* the kernel launches kernels, which cannot run here */
    const char *unsupported; /* why the kernel cannot run here, or NULL */
};
const struct weir_exec_kernel_info *weir_exec_kernel_info(const struct weir_exec_kernel *kernel);

struct weir_exec_global {
    uint64_t address;
    uint64_t bytes;
    bool managed;
    bool constant;
};
/** WEIR_ERR_NOT_FOUND if the module has no such variable (texref, samplerref, surfref neither). */
enum weir_status weir_exec_module_global(const struct weir_exec_module *module, const char *name,
                                         struct weir_exec_global *ret_global) WEIR_MUST_CHECK;

/* Why a grid was stopped. The values are CUresult's. */
struct weir_exec_fault {
    uint32_t code; /* 700 illegal address, 710 assert, 714.., 715 illegal instruction,
                      716 misaligned, 717 address space, 718 PC, 719 launch failed (deadlock) */
    uint32_t block[3];
    uint32_t thread[3];
    uint64_t address;
    uint32_t line; /* line of the PTX text */
    char message[160];
};

struct weir_exec_launch {
    const struct weir_exec_kernel *kernel;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t cluster[3]; /* blocks of a cluster, 0: as the kernel says; 16 together at most */
    uint32_t dynamic_shared_bytes;
    const void *params; /* packed, param_bytes long; borrowed until the grid is done */
    uint32_t params_bytes;
    /* Not 0: begin the blocks in another order, the same for the same seed. */
    uint64_t order_seed;
    bool cooperative; /* grid barrier allowed: all blocks must be resident */
    /* Receives device printf's text, for each block in order of execution. SM threads call it. */
    void (*print)(void *user, const char *text, size_t bytes);
    void *print_user;
    uint64_t heap_bytes; /* device malloc heap limit */
    /* SMs on which its blocks run; SMs that the device does not have are ignored. NULL: all SMs. */
    const struct weir_exec_sms *sms;
    /* Another thread sets it to end the grid early, when the process exits. Read with relaxed
     * loads. */
    const uint32_t *cancel;
};

/**
 * Run a grid and wait for it.
 *
 * Geometry has been checked against the device by the caller (the driver half reports
 * CUDA_ERROR_INVALID_VALUE and so on), resources are checked again here.
 *
 * @param ret_fault  filled when WEIR_ERR_DRIVER is returned.
 * @return WEIR_OK
 * @return WEIR_ERR_DRIVER       the kernel faulted
 * @return WEIR_ERR_INVALID      geometry or resources can never fit
 * @return WEIR_ERR_UNSUPPORTED  info->unsupported
 * @return WEIR_ERR_CLOSED       cancelled
 * @thread any; several at once share the SMs
 */
enum weir_status weir_exec_run(struct weir_exec_device *device,
                               const struct weir_exec_launch *launch,
                               struct weir_exec_fault *ret_fault) WEIR_MUST_CHECK;

/** Blocks of this kernel that fit one SM at once (0 when none does). @thread any */
uint32_t weir_exec_occupancy(const struct weir_exec_device *device,
                             const struct weir_exec_kernel *kernel, uint32_t threads_per_block,
                             uint32_t dynamic_shared_bytes);

/*
 * Textures and surfaces: kernels hold the 64-bit object value. The driver half fills one of these
 * per object and registers it; the engine samples it. Memory is linear host memory, row-major, x
 * fastest.
 */
enum weir_exec_texture_format {
    WEIR_EXEC_TEX_U8,
    WEIR_EXEC_TEX_U16,
    WEIR_EXEC_TEX_U32,
    WEIR_EXEC_TEX_S8,
    WEIR_EXEC_TEX_S16,
    WEIR_EXEC_TEX_S32,
    WEIR_EXEC_TEX_F16,
    WEIR_EXEC_TEX_F32
};
enum weir_exec_texture_address { /* CUaddress_mode's values */
                                 WEIR_EXEC_TEX_WRAP,
                                 WEIR_EXEC_TEX_CLAMP,
                                 WEIR_EXEC_TEX_MIRROR,
                                 WEIR_EXEC_TEX_BORDER
};
struct weir_exec_texture_level {
    uint64_t base;                 /* address of texel (0,0,0) */
    uint64_t width, height, depth; /* in texels; height and depth 0 where absent; layers in depth */
    uint64_t row_bytes;            /* bytes from row to row */
    uint64_t slice_bytes;          /* bytes from slice or layer to the next */
};
struct weir_exec_texture {
    enum weir_exec_texture_format format;
    uint32_t channels; /* 1, 2, 4 */
    uint32_t n_levels; /* 1 .. 16 */
    bool layered, cubemap, surface;
    bool normalized_coords, linear_filter, read_as_integer, srgb;
    enum weir_exec_texture_address address[3];
    float border[4];
    struct weir_exec_texture_level levels[16];
};
/** The object's value, never 0. WEIR_ERR_NO_MEMORY. @thread any */
enum weir_status weir_exec_texture_register(const struct weir_exec_texture *texture,
                                            uint64_t *ret_object) WEIR_MUST_CHECK;
/** Grids that run may go on using it. WEIR_ERR_NOT_FOUND for what is not registered. @thread any */
enum weir_status weir_exec_texture_unregister(uint64_t object) WEIR_MUST_CHECK;
