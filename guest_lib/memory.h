/*
 * The guest's memory: what addresses mean, and where new ones come from.
 *
 *     weir_mem_find()      which allocation an address lies in (index.c: a balanced tree)
 *     weir_mem_alloc()     cut from chunks that the host granted (heap.c, chunk.c)
 *     weir_staging_*       blocks of the shared arena for pageable copies (staging.c)
 *     weir_copy_*          copies in all directions (copy.c)
 *
 * Device addresses and pinned host memory lie in the tenant's window. Everything that the GPU may
 * read or write is in the index; an address that is not is pageable host memory or an error.
 *
 * Source: docs/design/memory.md
 */
#pragma once

#include "guest_lib/lock.h"
#include "guest_lib/stream.h"
#include "proto/common/advice.h"
#include "proto/cuda_abi.h"
#include "proto/wire/op_kinds.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum weir_mem_kind {
    WEIR_MEM_DEVICE,     /* cuMemAlloc, pools */
    WEIR_MEM_MODULE,     /* a module's global: belongs to its module */
    WEIR_MEM_IMPORTED,   /* a module's global variable; its owner is the module */
    WEIR_MEM_MAPPED,     /* cuMemMap: flags are the devices' access, owner is a struct
                            weir_guest_vmm_handle */
    WEIR_MEM_PINNED,     /* cuMemHostAlloc: shared memory, device address == address */
    WEIR_MEM_MANAGED,    /* cuMemAllocManaged: it moves, or is like PINNED with other attributes */
    WEIR_MEM_REGISTERED, /* cuMemHostRegister: the program's own memory; device_base is 0 if the GPU
                            does not reach it */
    WEIR_MEM_HOST,       /* "pinned" in a remote session: ordinary memory */
};

struct weir_pool;

/*
 * One range of addresses. Owned by the index; what weir_mem_find() copies out is a snapshot.
 */
struct weir_mem {
    uint64_t base;
    uint64_t bytes; /* size that the program asked for */
    enum weir_mem_kind kind;
    unsigned int flags;   /* flags of the allocating call; a mapping's access; CU_MEM_ATTACH_GLOBAL:
                             __managed__ */
    uint64_t device_base; /* address at which the GPU reaches `base` */
    struct weir_guest_ctx
        *ctx; /* NULL for library globals, and for memory of an invisible device */
    /* The device where the memory lies, or that of its context; -1: not visible here. */
    CUdevice device;
    uint64_t buffer_id;        /* unique, never reused */
    struct weir_pool *pool;    /* pool of cuMemAllocAsync, or NULL */
    void *owner;               /* heap block, registration or IPC reference, by kind */
    uint32_t handle_types;     /* handle types to which a mapping's memory may be exported */
    uint32_t heap_epoch;       /* epoch of its block's heap at the allocation */
    uint32_t opens;            /* cuIpcOpenMemHandle() calls beyond the first */
    bool on_host;              /* MAPPED: memory of the host (vmm.h) */
    unsigned int flags_here;   /* the processor's access to it */
    bool moves;                /* managed memory that lies on the device, too (moves.h) */
    bool placed;               /* the host was told where such memory is to lie */
    struct weir_advice advice; /* on managed memory; belongs to the index: not for snapshots */
    bool sync_memops;          /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
};

static inline bool weir_mem_gpu_visible(const struct weir_mem *mem)
{
    return mem->kind != WEIR_MEM_HOST && (mem->kind != WEIR_MEM_REGISTERED || mem->device_base);
}
/* Does the program itself read and write the memory at the GPU's address? */
static inline bool weir_mem_is_managed(const struct weir_mem *mem)
{
    return mem->kind == WEIR_MEM_MANAGED || (mem->kind == WEIR_MEM_MODULE && mem->flags);
}
static inline bool weir_mem_on_device(const struct weir_mem *mem)
{
    return mem->kind <= WEIR_MEM_MAPPED && !mem->on_host;
}

/* ---------------------------------------------------------------- index */

/** Add a range, which is copied. @return false: no memory, or it overlaps another range
 * @thread any */
bool weir_mem_insert(const struct weir_mem *mem);

/** Find the range that contains address. @thread any */
bool weir_mem_find(uint64_t address, struct weir_mem *ret_mem);

/** Remove the range that begins at base, if its kind is in the mask (1 << kind). @thread any */
bool weir_mem_remove(uint64_t base, uint32_t kind_mask, struct weir_mem *ret_mem);

/** Change sync_memops of the range that contains address. @thread any */
bool weir_mem_set_sync(uint64_t address, bool sync_memops);

/**
 * Note the program's advice on managed memory (proto/common/advice.h).
 * @param at  checked. @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (not in one range),
 * CUDA_ERROR_OUT_OF_MEMORY @thread any
 */
CUresult weir_mem_advise(uint64_t address, uint64_t bytes, CUmem_advise advice, CUmemLocation at);
/** As cuMemRangeGetAttribute. @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE @thread any */
CUresult weir_mem_advised(uint64_t address, uint64_t bytes, CUmem_range_attribute attribute,
                          void *data, size_t data_bytes);
/** Can advice on this be given? @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE (it is not managed
 * memory), CUDA_ERROR_INVALID_CONTEXT @thread any */
CUresult weir_mem_check_managed(uint64_t address, uint64_t bytes, struct weir_mem *ret_mem);

/** Change the access to the mapping that begins at base: the processor's (here), or devices'.
 * @thread any */
void weir_mem_set_flags(uint64_t base, unsigned int flags, bool here);

/** Set the address at which the GPU reaches a registered range from now on. @thread any */
void weir_mem_set_device(uint64_t base, uint64_t device_base);

/** Find a range that overlaps this one. @return false: there is none @thread any */
bool weir_mem_overlapping(uint64_t base, uint64_t bytes, struct weir_mem *ret_mem);

/**
 * Do the bytes from address on lie in the range or, if that is a mapping, also in accessible
 * mappings that follow it without a gap? Registered ranges may continue in the same way. @thread
 * any
 */
bool weir_mem_reaches(const struct weir_mem *mem, uint64_t address, uint64_t bytes);

/** The device that a range belongs to. */
CUdevice weir_mem_device(const struct weir_mem *mem);

/**
 * Count that memory of another process is opened once more (by 1), or closed (by -1).
 * @return false: no such memory begins at base, or it was open only once, and the caller must
 *         remove it
 * @thread any
 */
bool weir_mem_count_opens(uint64_t base, int by);

/** Remove every range for which match() is true, then call drop() for each with no lock held. */
void weir_mem_remove_if(bool (*match)(const struct weir_mem *mem, void *user),
                        void (*drop)(const struct weir_mem *mem), void *user);

/**
 * Do the bytes lie within one known range that the GPU can reach? Copies the range out. Registered
 * memory is shared with the GPU first, if needed (register.h).
 *
 * @return CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, or an error of weir_register_reach()
 * @thread any; no lock held
 */
CUresult weir_mem_check(uint64_t address, uint64_t bytes, struct weir_mem *ret_mem);

/**
 * A module's or library's global became known: copies from and to it are then accepted. The same
 * range may be added again. ctx NULL: a library's global, on the current device. managed: it is a
 * __managed__ variable.
 * @thread any
 */
CUresult weir_mem_note_global(struct weir_guest_ctx *ctx, uint64_t base, uint64_t bytes,
                              bool managed, void *owner);

#define WEIR_EVERY_DEVICE (-1)
/** Forget the globals of an owner (module, library) that is unloaded, or reset on one device. */
void weir_mem_forget_globals(const void *owner, CUdevice device);

/* ---------------------------------------------------------------- allocation */

/** Allocate memory of the kind DEVICE, PINNED or MANAGED, and add it to the index. @thread any */
CUresult weir_mem_alloc(struct weir_guest_ctx *ctx, enum weir_mem_kind kind, uint64_t bytes,
                        unsigned int flags, struct weir_pool *pool, struct weir_mem *ret_mem);

/** Free a range that weir_mem_remove() returned, at once: no work uses it any more. @thread any */
void weir_mem_release(const struct weir_mem *mem);

/** Held while a thread requests a descriptor and receives it (state.c). */
extern struct weir_lock weir_mem_fd;
static inline void weir_mem_fd_lock(void)
{
    weir_lock_acquire(&weir_mem_fd);
}
static inline void weir_mem_fd_unlock(void)
{
    weir_lock_release(&weir_mem_fd);
}

/** Return the current context's empty device chunks to the host. @thread any; no lock held */
void weir_mem_trim(void);

/** Return the current context's empty chunks, including blocks that were freed in pools, since
 * other code needs memory. */
void weir_mem_make_room(void);

/** Free bytes in a device's granted chunks of this process. @thread any */
uint64_t weir_mem_cached_bytes(CUdevice device);

/** A context is being destroyed: free the memory that it owned. */
void weir_mem_context_gone(struct weir_guest_ctx *ctx);

void weir_mem_finish(void);

/* ---------------------------------------------------------------- pools */

/** The CUmemoryPool. */
uint64_t weir_pool_handle(const struct weir_pool *pool);

/** A pool's block was freed by cuMemFree, or with its context: subtract it from the pool's
 * count. */
void weir_pool_forget(const struct weir_mem *mem);

#define WEIR_MEM_OF_POOL 1u /* flags of an imported range: cuMemPoolImportPointer's */

/** Was the range made by cuMemPoolImportPointer? Then cuMemFree and cuMemFreeAsync accept it. */
static inline bool weir_mem_is_pool_import(const struct weir_mem *mem)
{
    return mem->kind == WEIR_MEM_IMPORTED && mem->flags == WEIR_MEM_OF_POOL;
}

/** Undo cuMemPoolImportPointer: no work of this process uses the memory. */
CUresult weir_pool_free_import(uint64_t address);

/**
 * Return blocks of pools to their contexts if they were freed and streams have passed the free.
 * @param all  false: each pool keeps as much as its release threshold allows.
 * @return whether there is more free memory now
 * @thread any; no lock held
 */
bool weir_pools_give_back(bool all);

/** A context is destroyed: forget its state for stream-ordered allocation. */
void weir_pools_context_gone(struct weir_guest_ctx *ctx);
void weir_pools_finish(void);

/* ---------------------------------------------------------------- staging */

/**
 * Take a block of the arena. Waits for blocks in flight if there is no room.
 *
 * @param bytes       at most weir_staging_max_bytes().
 * @param ret_offset  in the arena, 256-byte aligned.
 * @return CUDA_SUCCESS, a sticky error, CUDA_ERROR_OUT_OF_MEMORY (larger than the arena can ever
 *         provide)
 * @thread any; may block; no lock held, and no other block except pending ones
 */
CUresult weir_staging_take(uint64_t bytes, uint64_t *ret_offset);

/** Take a block like weir_staging_take(), but never wait. A caller that holds blocks that only it
 * can free must use this, and free its own blocks when it fails. */
bool weir_staging_try(uint64_t bytes, uint64_t *ret_offset);

/** Free the block once the point is passed. @thread any */
void weir_staging_free_after(uint64_t offset, const struct weir_stream_point *point);

/** Free the block now. @thread any */
void weir_staging_free(uint64_t offset);

/** The largest block that weir_staging_take() guarantees; at most a quarter of the arena. */
uint64_t weir_staging_max_bytes(void);

/** Move bytes between program memory and the arena, also of a remote host. @thread any */
CUresult weir_staging_write(uint64_t offset, const void *data, uint64_t bytes);
CUresult weir_staging_read(uint64_t offset, void *ret_data, uint64_t bytes);

CUresult weir_staging_init(uint64_t arena_bytes);
void weir_staging_finish(void);

/** memcpy() by several threads if that is faster. @thread any */
void weir_parallel_copy(void *dst, const void *src, size_t bytes);

/* ---------------------------------------------------------------- copies */

/* One side of a copy. */
enum weir_copy_side_kind {
    WEIR_COPY_GPU,      /* an address that the GPU can reach */
    WEIR_COPY_PAGEABLE, /* the program's memory */
    WEIR_COPY_ARRAY,    /* a CUarray handle */
};

struct weir_guest_copy_side {
    enum weir_copy_side_kind kind;
    uint64_t address;      /* GPU: the device address; ARRAY: the handle */
    uint64_t x, y, z, lod; /* position in an array; x in bytes */
    uint64_t pitch, height;
    bool on_device;  /* device memory or an array, which decides whether a call waits */
    bool registered; /* PAGEABLE: asynchronous copies keep the stream's order (copy_ordered.c) */
};

/** The kind that operations use for the side; a pageable side is a block of the arena there. */
static inline enum weir_side_kind weir_copy_side_on_wire(const struct weir_guest_copy_side *side)
{
    return side->kind == WEIR_COPY_GPU        ? WEIR_SIDE_ADDRESS
           : side->kind == WEIR_COPY_PAGEABLE ? WEIR_SIDE_ARENA
                                              : WEIR_SIDE_ARRAY;
}

/** Find out what a program's address means: a GPU side (checked to hold `bytes`) or a pageable one.
 * Registered memory counts as pageable, too, unless its pages are shared as one piece. */
CUresult weir_copy_classify(uint64_t address, uint64_t bytes,
                            struct weir_guest_copy_side *ret_side);

/**
 * The calling thread is about to read the program's memory for work on the stream. Earlier host
 * functions of the stream may write it, so wait for them first: for a synchronous copy, and for any
 * copy of a remote session, whose pinned memory is read in this way, too.
 *
 * @thread any; no lock held
 */
CUresult weir_copy_source_ready(struct weir_guest_stream *stream, bool sync);

/** Linear copy in stream order. sync: like the synchronous entry points. @thread any */
CUresult weir_copy_linear(const struct weir_guest_copy_side *dst,
                          const struct weir_guest_copy_side *src, uint64_t bytes,
                          struct weir_guest_stream *stream, bool sync);

/**
 * Post one piece of a linear copy.
 * @param dst, src  addresses for the GPU; or, with the flags WEIR_COPY_DST_IN_ARENA .., offsets in
 *             the arena.
 * @param rest      bytes of the same copy that follow this piece.
 * @thread any
 */
CUresult weir_copy_post(uint64_t dst, uint64_t src, uint64_t bytes, uint64_t rest,
                        struct weir_guest_stream *stream, uint32_t flags);

/**
 * Linear copy between the GPU and registered memory that is not shared, or within such memory: the
 * call does not wait, and the bytes are read and written in the stream's order.
 *
 * @param dst, src  one of them, or both, WEIR_COPY_PAGEABLE and registered; the other one is not
 * pageable.
 * @thread any
 */
CUresult weir_copy_ordered(const struct weir_guest_copy_side *dst,
                           const struct weir_guest_copy_side *src, uint64_t bytes,
                           struct weir_guest_stream *stream);

/** May copies that were posted by weir_copy_ordered() still read or write the program's memory?
 * @thread any */
bool weir_copies_ordered_pending(void);

/** Pitched or array copy; width in bytes. @thread any */
CUresult weir_copy_box(const struct weir_guest_copy_side *dst,
                       const struct weir_guest_copy_side *src, uint64_t width, uint64_t height,
                       uint64_t depth, struct weir_guest_stream *stream, bool sync);
