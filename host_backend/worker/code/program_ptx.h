/*
 * PTX that a program loads or links, compiled before the driver sees it: in a worker of several
 * programs, where the driver would compile while all others wait (docs/design/modules.md).
 */
#ifndef WEIR_HOST_BACKEND_WORKER_CODE_PROGRAM_PTX_H
#define WEIR_HOST_BACKEND_WORKER_CODE_PROGRAM_PTX_H

#include "host_backend/config/file_cache.h"
#include "host_backend/config/forms.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/code/jit.h"
#include "host_backend/worker/state/session.h"

struct weir_platform;

/* A worker's. Internally locked. */
struct weir_program_ptx {
    const struct weir_compiler *compiler; /* borrowed */
    struct weir_compile_limits limits;
    struct weir_file_cache cache;
    atomic_uint taken; /* whether the driver takes what ptxas makes: enum in program_ptx.c */
};

/**
 * What a worker needs for it.
 *
 * @param compiler  borrowed until .._destroy().
 * @return NULL: the driver compiles as it loads, because the worker serves one program, or softgpu
 *         without a compiler of its own, or there is no memory
 * @thread main, with the device open
 */
struct weir_program_ptx *weir_program_ptx_create(const struct weir_platform *platform,
                                                 const struct weir_forms_config *config,
                                                 const struct weir_compiler *compiler);
/** Accepts NULL. */
void weir_program_ptx_destroy(struct weir_program_ptx *ptx);

/* What an image is compiled for. */
enum weir_program_use {
    WEIR_PROGRAM_LOADS, /* the program loads as it is */
    WEIR_PROGRAM_LINKS, /* the program links with others */
    WEIR_PROGRAM_LOADS_BUNDLE,
};

struct weir_program_code {
    const void *code; /* code for the driver, owned by the image; NULL: give it the image itself */
    uint64_t bytes;
    CUresult refused; /* CUDA_SUCCESS: it is not */
    const char *log;  /* owned by the session's operation; "": the compiler wrote nothing */
};

/**
 * Compile an image's PTX, if the driver would have to. What ptxas refuses is the driver's to
 * compile, and to say what is wrong; what ptxas does not finish within the limits, or crashes on,
 * is refused.
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
 * The driver refuses the code, so it is given the image itself. Is that because of this ptxas,
 * which may be newer than the driver? Then it is used no more.
 * @thread session, between weir_device_idle_begin() and _end()
 */
void weir_program_ptx_not_taken(struct weir_session *session, CUresult why);

/** What an image leaves. Accepts NULL. */
void weir_image_compiled_destroy(struct weir_image_compiled *compiled);

#endif
