/*
 * The guest's modules, libraries and functions.
 *
 * A CUmodule, CUlibrary, CUfunction or CUkernel is the handle of one of these. A kernel may be
 * passed where a function is expected, and the other way round: both are struct
 * weir_guest_function. Its constant properties (parameter layout, attributes) came with the
 * look-up, so launches and queries need not ask the host.
 */
#pragma once

#include "guest_lib/image.h"
#include "guest_lib/lock.h"
#include "guest_lib/memory.h"
#include "guest_lib/moves.h"
#include "guest_lib/objects.h"
#include "guest_lib/state.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stdint.h>

#define WEIR_FUNCTION_ATTRIBUTES 32
#define WEIR_FUNCTION_SHAPES     8

struct weir_function_param {
    uint32_t offset;
    uint32_t bytes;
};

/* A kernel's attributes on a device other than that of its look-up. Atomic. A 0 bit in
 * the mask: unknown. */
struct weir_function_elsewhere {
    int32_t attributes[WEIR_FUNCTION_ATTRIBUTES];
    uint32_t attribute_mask;
};

/* The members handle .. param_bytes are immutable after creation; attributes are atomic. */
struct weir_guest_function {
    uint64_t handle;
    struct weir_guest_module *module; /* the module that has the function; else NULL */
    struct weir_library *library;     /* the library that has the kernel; else NULL */
    char *name;
    struct weir_function_param *params;
    uint32_t n_params;
    uint32_t param_bytes;
    int32_t attributes[WEIR_FUNCTION_ATTRIBUTES];
    uint32_t attribute_mask; /* bit per attribute that is valid */
    CUdevice device;         /* the device for which these attributes are */
    /* A kernel's attributes on other devices; or NULL. */
    struct weir_function_elsewhere *elsewhere[WEIR_GUEST_MAX_DEVICES];
    uint64_t good_shapes[WEIR_FUNCTION_SHAPES]; /* atomic; hashes of unusual launches that the
                                                   driver accepted; 0: none */
    uint32_t epoch; /* atomic; grows when an attribute is set, which voids good_shapes */
    struct weir_guest_function *next; /* next in the image's list, guarded by the image's lock */
};

/* What modules and libraries share: the functions found so far. */
struct weir_image_object {
    struct weir_guest_module *module; /* the module or the library that the image belongs to */
    struct weir_library *library;
    struct weir_lock lock; /* guards the list */
    struct weir_guest_function *functions;
    uint32_t n_names; /* names and names_bytes: the enumeration, fetched once */
    char *names;
    bool names_known;
    bool gone; /* no function may be added any more; guarded by lock */
};

struct weir_guest_module {
    uint64_t handle;
    struct weir_guest_ctx *ctx;
    struct weir_library *library; /* the library, if cuLibraryGetModule made it: owns the module */
    struct weir_image_object image;
    struct weir_guest_module *next_gone; /* links modules while their context is destroyed */
};

/* The address of a library's variable on a device, from the host. */
struct weir_library_variable {
    struct weir_library_variable *next;
    CUdevice device;
    uint64_t address;
    uint64_t bytes;
    char name[];
};

struct weir_library {
    uint64_t handle;
    struct weir_image_object image;
    /* Variables that the program asked for; guarded by image.lock. */
    struct weir_library_variable *variables;
    /* One for each device's context, made when asked for; guarded by image.lock. */
    struct weir_guest_module *modules[WEIR_GUEST_MAX_DEVICES];
};

/** Find the struct behind a handle; NULL: none. @thread any */
struct weir_guest_module *weir_module_get(CUmodule module);
struct weir_library *weir_library_get(CUlibrary library);
/** Prevent functions from being freed, or allow it again. The thread makes no call in between.
 * @thread any */
void weir_functions_keep(bool keep);
/** As weir_guest_object_get(), for functions and kernels. */
struct weir_guest_function *weir_function_get(const void *function);

/* A function's attributes on one device; both members are atomic. */
struct weir_function_view {
    int32_t *attributes; /* WEIR_FUNCTION_ATTRIBUTES of them */
    uint32_t *mask;
};

/** Find the place of a function's attributes on a device. @return false: no memory @thread any */
bool weir_function_on(struct weir_guest_function *function, CUdevice device,
                      struct weir_function_view *ret_view);

/** Read an attribute on a device, from the host if it is not known yet. @thread any */
CUresult weir_function_attribute(struct weir_guest_function *function, CUdevice device,
                                 CUfunction_attribute attribute, int *ret_value);

/** Find a function by name, in the list or at the host. NOT_FOUND if there is none. @thread any */
CUresult weir_image_function(struct weir_image_object *image, const char *name,
                             struct weir_guest_function **ret_function);

/** Count the functions. Fetches the enumeration on first use. @thread any */
CUresult weir_image_count(struct weir_image_object *image, uint32_t *ret_count);

/** Find the index-th function; NULL past the end. Fetches as above. @thread any */
CUresult weir_image_function_at(struct weir_image_object *image, uint32_t index,
                                struct weir_guest_function **ret_function);

/** Free a module or library and its functions: it is unloaded, or its context is gone. */
void weir_module_forget(struct weir_guest_module *module);
void weir_library_forget(struct weir_library *library);

/** A context is destroyed: forget its modules and, if it is the primary one, the libraries'
 * variables. */
void weir_modules_context_gone(struct weir_guest_ctx *ctx);

/** Find the index-th function of a module; CUDA_ERROR_NOT_FOUND past the last. @thread any */
CUresult weir_guest_module_function_at(CUmodule module, unsigned int index,
                                       CUfunction *ret_function);

/** JIT options as the program passed them. */
struct weir_guest_jit_options {
    unsigned int count;
    const CUjit_option *ids;
    void **values;
};

/** The options that go to the host, and the buffers for logs. Plain data; arrays have room for
 * 64. */
struct weir_jit_wire {
    uint32_t ids[64];
    uint64_t values[64];
    uint32_t count;
    char *info_log;
    char *error_log;
    uint64_t info_bytes;
    uint64_t error_bytes;
    void **ret_info_bytes;
    void **ret_error_bytes;
    void **ret_wall_time;
};

/** Read the options. CUDA_ERROR_INVALID_VALUE: a list has no arrays, or is too long. */
CUresult weir_jit_read(const struct weir_guest_jit_options *options,
                       struct weir_jit_wire *ret_wire);

/**
 * The host has answered a load of an image: copy the logs to the program. If the image may call
 * printf, synchronising calls fetch the text from now on.
 *
 * @param asked        the result of the call to the host. The parameters below come from its
 *                     answer, and are read only if this is CUDA_SUCCESS.
 * @param info, error  the compiler's logs. @param uses_printf  whether the image calls printf.
 * @param result       the result of the driver's call that loaded the image.
 * @return asked if that is an error; else result
 * @thread any
 */
CUresult weir_guest_image_loaded(const struct weir_jit_wire *jit, CUresult asked, const char *info,
                                 const char *error, uint32_t uses_printf, int32_t result);

/** Copy logs to the program's buffers. Accepts NULL texts. */
void weir_jit_write_logs(const struct weir_jit_wire *wire, const char *info, const char *error);

/* ---------------------------------------------------------------- managed variables */

/**
 * A global of a module or library became known: copies from and to it are accepted from now on, and
 * the program itself reads and writes a __managed__ variable at its address.
 *
 * What of it fills blocks moves as managed allocations do, if they can. For the rest the guest maps
 * its own memory there, and copies it to the device before work and back after synchronisation
 * (concurrentManagedAccess is 0, so the program may not touch it in between).
 *
 * @param ctx      context of a module; NULL: a library's global, on the current device.
 * @param managed  it is a __managed__ variable.
 * @param owner    the module or library.
 * @return CUDA_SUCCESS  also if the program already uses a managed variable's address, which is
 *                       logged
 * @return CUDA_ERROR_OUT_OF_MEMORY
 * @return an error of a copy
 * @thread any
 */
CUresult weir_module_note_global(struct weir_guest_ctx *ctx, uint64_t address, uint64_t bytes,
                                 bool managed, void *owner);

/** Work is about to be posted: copy every mirror to the device. @thread any */
CUresult weir_managed_push_slow(void);
static inline CUresult weir_managed_push(void)
{
    return __builtin_expect(__atomic_load_n(&weir_managed_count, __ATOMIC_ACQUIRE) != 0, 0)
               ? weir_managed_push_slow()
               : CUDA_SUCCESS;
}

/** The same, and have managed memory go to the device that kernels may reach: all of it.
 * @thread any; no lock held */
static inline CUresult weir_managed_before_launch(void)
{
    if (__builtin_expect(__atomic_load_n(&weir_managed_count, __ATOMIC_ACQUIRE) == 0, 1)) {
        return CUDA_SUCCESS;
    }
    CUresult result = weir_moves_any() ? weir_moves_take(0, 0) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? weir_managed_push_slow() : result;
}

/** Can some of this memory move? */
static inline bool weir_mem_moves(const struct weir_mem *mem)
{
    return mem->moves || (mem->kind == WEIR_MEM_MODULE && mem->flags &&
                          __atomic_load_n(&weir_moves_count, __ATOMIC_RELAXED) != 0);
}

/** The same for work that reaches this memory alone. */
static inline CUresult weir_managed_before_use(uint64_t address, uint64_t bytes)
{
    struct weir_mem mem;
    CUresult result = CUDA_SUCCESS;
    if (weir_moves_any() && weir_mem_find(address, &mem) && weir_mem_moves(&mem)) {
        result = weir_moves_take(address, bytes);
    }
    return result == CUDA_SUCCESS ? weir_managed_push() : result;
}

/** Copy every mirror back from the device: a synchronising call has seen the work done. */
CUresult weir_managed_pull_slow(void);
static inline CUresult weir_managed_pull(void)
{
    CUresult result = weir_moves_merged() ? weir_moves_merge() : CUDA_SUCCESS;
    return result != CUDA_SUCCESS ? result
           : __builtin_expect(__atomic_load_n(&weir_managed_count, __ATOMIC_ACQUIRE) != 0, 0)
               ? weir_managed_pull_slow()
               : CUDA_SUCCESS;
}

/** Do these pages belong to a variable, and move as allocations do? @thread any */
bool weir_managed_variable_moves(uint64_t address, uint64_t bytes);

/** Unmap the variables of a module or library that is unloaded. */
void weir_managed_forget(const void *owner);

/** The primary context is destroyed: also destroy the hidden context in which mirrors were filled
 * before it existed. */
void weir_managed_context_gone(void);
