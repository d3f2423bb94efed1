/*
 * Compiles PTX that a program loads or links before the driver sees it. This is for a worker of
 * several programs, where the driver would compile while all others wait (docs/design/modules.md).
 */
#pragma once

#include "host_backend/config/file_cache.h"
#include "host_backend/config/forms.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/code/jit.h"
#include "host_backend/worker/state/session.h"

struct weir_platform;

/* The compiler of a worker. Internally locked. */
struct weir_program_ptx {
    const struct weir_compiler *compiler; /* borrowed */
    struct weir_compile_limits limits;
    struct weir_file_cache cache;
    atomic_uint taken; /* whether the driver accepts ptxas' code: enum in program_ptx.c */
};

/**
 * Make a worker's state for compiling programs.
 *
 * @param compiler  borrowed until .._destroy().
 * @return NULL: the driver compiles as it loads, because the worker serves one program, or uses
 *         softgpu without its own compiler, or lacks memory
 * @thread main, with the device open
 */
struct weir_program_ptx *weir_program_ptx_create(const struct weir_platform *platform,
                                                 const struct weir_forms_config *config,
                                                 const struct weir_compiler *compiler);
/** Accepts NULL. */
void weir_program_ptx_destroy(struct weir_program_ptx *ptx);

/* What a program does with the compiled image. */
enum weir_program_use {
    WEIR_PROGRAM_LOADS, /* the program loads it directly */
    WEIR_PROGRAM_LINKS, /* the program links it with others */
    WEIR_PROGRAM_LOADS_BUNDLE,
};

struct weir_program_code {
    const void *code; /* code for the driver, owned by the image; NULL: give it the image itself */
    uint64_t bytes;
    CUresult refused; /* CUDA_SUCCESS: the image is not refused */
    const char *log;  /* owned by the session's operation; "": the compiler wrote nothing */
};

/**
 * Compile an image's PTX, if the driver would have to. If ptxas refuses a text, the driver compiles
 * it or reports the error. If ptxas crashes or exceeds its limits, the image is refused.
 *
 * @param image     with a reference of the caller's, which must outlast the use of the code.
 * @param options   the program's.
 * @param ret_code  always written.
 * @thread session, in no handler of the barrier (device_idle.h): takes as long as compiling does,
 *         and holds no lock
 */
void weir_program_ptx_compile(struct weir_session *session, struct weir_host_image *image,
                              enum weir_program_use use, const struct weir_jit_options *options,
                              struct weir_program_code *ret_code);

/**
 * The driver has refused compiled code, and gets the image itself. Find out whether ptxas is newer
 * than the driver; if so, it is no longer used.
 * @thread session, between weir_device_idle_begin() and _end()
 */
void weir_program_ptx_not_taken(struct weir_session *session, CUresult why);

/** Free the compiled code of an image. Accepts NULL. */
void weir_image_compiled_destroy(struct weir_image_compiled *compiled);
