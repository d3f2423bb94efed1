/*
 * Modules, libraries and their functions as the guest keeps them.
 *
 * A CUmodule, CUlibrary, CUfunction or CUkernel is the handle of one of these. A kernel may be
 * passed where a function is expected, and the other way round: both are struct
 * weir_guest_function. What cannot change about a function (parameter layout, attributes) came with
 * it, so launches and queries need not ask.
 */
#ifndef WEIR_GUEST_LIB_MODULE_H
#define WEIR_GUEST_LIB_MODULE_H

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

/* handle .. param_bytes immutable after creation; attributes are atomic. */
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
    CUdevice device;         /* the device that these attributes are of */
    /* A kernel's attributes on other devices; or NULL. */
    struct weir_function_elsewhere *elsewhere[WEIR_GUEST_MAX_DEVICES];
    uint64_t good_shapes[WEIR_FUNCTION_SHAPES]; /* atomic; unusual launches that the driver took, by
                                                   hash; 0: none */
    uint32_t epoch; /* atomic; grows whenever an attribute is set, which voids everything learnt
                       before */
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
    bool gone; /* guarded by lock: no function is added any more */
};

struct weir_guest_module {
    uint64_t handle;
    struct weir_guest_ctx *ctx;
    struct weir_library *library; /* the library, if cuLibraryGetModule made this module; it is not
                                     unloaded on its own */
    struct weir_image_object image;
    struct weir_guest_module *next_gone; /* links modules while their context is destroyed */
};

/* Where the host says that a variable of a library lies on a device. */
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
    /* For each device's context, once asked for; guarded by image.lock. */
    struct weir_guest_module *modules[WEIR_GUEST_MAX_DEVICES];
};

/** The struct behind a handle, or NULL. @thread any */
struct weir_guest_module *weir_module_get(CUmodule module);
struct weir_library *weir_library_get(CUlibrary library);
/** As weir_guest_object_get(), for functions and kernels. */
struct weir_guest_function *weir_function_get(const void *function);

/* A function's attributes on one device; both members are atomic. */
struct weir_function_view {
    int32_t *attributes; /* WEIR_FUNCTION_ATTRIBUTES of them */
    uint32_t *mask;
};

/** Find where a function's attributes on a device are kept. @return false: no memory @thread any */
bool weir_function_on(struct weir_guest_function *function, CUdevice device,
                      struct weir_function_view *ret_view);

/** An attribute on a device, asked for if it is not known. @thread any */
CUresult weir_function_attribute(struct weir_guest_function *function, CUdevice device,
                                 CUfunction_attribute attribute, int *ret_value);

/** A function by name, found earlier or asked for now. NOT_FOUND if there is none. @thread any */
CUresult weir_image_function(struct weir_image_object *image, const char *name,
                             struct weir_guest_function **ret_function);

/** How many functions there are. Fetches the enumeration on first use. @thread any */
CUresult weir_image_count(struct weir_image_object *image, uint32_t *ret_count);

/** The index-th function; NULL past the end. Fetches as above. @thread any */
CUresult weir_image_function_at(struct weir_image_object *image, uint32_t index,
                                struct weir_guest_function **ret_function);

/** Free a module or library and its functions: it is unloaded, or its context is gone. */
void weir_module_forget(struct weir_guest_module *module);
void weir_library_forget(struct weir_library *library);

/** Forget where a library's variables lie on a device. @param device  or WEIR_EVERY_DEVICE */
void weir_library_variables_forget(struct weir_library *library, CUdevice device);

/** A context goes: forget its modules and, if it is the primary one, the libraries' variables. */
void weir_modules_context_gone(struct weir_guest_ctx *ctx);

/** The index-th function of a module; CUDA_ERROR_NOT_FOUND past the last. @thread any */
CUresult weir_guest_module_function_at(CUmodule module, unsigned int index,
                                       CUfunction *ret_function);

/** JIT options as the program passed them. */
struct weir_guest_jit_options {
    unsigned int count;
    const CUjit_option *ids;
    void **values;
};

/** The options that travel, and where the logs go. Plain data; arrays have room for 64. */
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

/** CUDA_ERROR_INVALID_VALUE for a list without arrays or one that is too long. */
CUresult weir_jit_read(const struct weir_guest_jit_options *options,
                       struct weir_jit_wire *ret_wire);

/**
 * The host was asked to load an image: hand the logs to the program. If the image calls printf, or
 * may call it, synchronising calls fetch the text from now on.
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

/** Hand logs to the program's buffers. Accepts NULL texts. */
void weir_jit_write_logs(const struct weir_jit_wire *wire, const char *info, const char *error);

/* ---------------------------------------------------------------- managed variables */

/**
 * A global of a module or library became known: copies from and to it are accepted from now on, and
 * the program itself reads and writes a __managed__ variable at its address.
 *
 * For that the guest maps memory of its own there and copies it to the device before work and back
 * after synchronisation (concurrentManagedAccess is 0, so the program may not touch it in between).
 *
 * @param ctx      of a module; NULL: a library's, on the current device.
 * @param managed  it is such a variable.
 * @param owner    the module or library.
 * @return CUDA_SUCCESS  also where something of the program lies at a managed variable's address:
 *                       the log says so
 * @return CUDA_ERROR_OUT_OF_MEMORY
 * @return what a copy gives
 * @thread any
 */
CUresult weir_module_note_global(struct weir_guest_ctx *ctx, uint64_t address, uint64_t bytes,
                                 bool managed, void *owner);

/** Copy every mirror to the device, if there is any: work is about to be posted. @thread any */
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

/** The same for work that reaches this memory alone. */
static inline CUresult weir_managed_before_use(uint64_t address, uint64_t bytes)
{
    struct weir_mem mem;
    CUresult result = CUDA_SUCCESS;
    if (weir_moves_any() && weir_mem_find(address, &mem) && mem.moves) {
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

/** Unmap the mirrors of a module or library that is unloaded. */
void weir_managed_forget(const void *owner);

/** The primary context goes: so does the context that mirrors were filled in
 * before there was one. */
void weir_managed_context_gone(void);

#endif
