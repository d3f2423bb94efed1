/* Images, modules and libraries. */
#include "host_backend/worker/code/program_ptx.h"
#include "host_backend/worker/device/admission.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/state/ending.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/twins/forms.h"

#include "host_backend/worker/code/image_globals.h"
#include "host_backend/worker/code/image_ready.h"
#include "host_backend/worker/code/variables.h"
#include "host_backend/worker/memory/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGE_MAX_BYTES (UINT64_C(1) << 30)

struct weir_host_image *weir_ops_image(struct weir_session *s, const uint8_t hash[16],
                                       uint64_t bytes)
{
    struct weir_hash name;

    memcpy(name.bytes, hash, sizeof name.bytes);
    return weir_image_get(&s->tenant->images, &name, bytes);
}

void weir_ops_image_named(const struct weir_session *s)
{
    if (s->devices.book && s->devices.book->n_promised != 0) {
        s->devices.book->n_promised--;
    }
}

/* ---------------------------------------------------------------- the store */

CUresult weir_host_image_query(struct weir_session *s, const struct weir_op_image_query_in *in,
                               struct weir_op_image_query_out *out)
{
    struct weir_host_image *image = weir_ops_image(s, in->hash, in->bytes);

    out->present = image != NULL;
    if (image && s->devices.book) {
        s->devices.book->n_promised++;
    }
    weir_image_put(&s->tenant->images, image);
    return CUDA_SUCCESS;
}

static struct weir_upload *new_upload(struct weir_session *s, const struct weir_op_image_put_in *in)
{
    struct weir_upload *u = calloc(1, sizeof *u);

    WEIR_FAIL_IF(!u, NULL);
    u->data = malloc(in->bytes + WEIR_IMAGE_TAIL_BYTES);
    if (!u->data) {
        free(u);
        return NULL;
    }
    memset(u->data + in->bytes, 0, WEIR_IMAGE_TAIL_BYTES);
    memcpy(u->hash.bytes, in->hash, sizeof in->hash);
    u->bytes = in->bytes;
    WEIR_PUSH(s->uploads, u);
    return u;
}

/* Find the upload that a piece belongs to; the first piece begins it. */
static CUresult find_upload(struct weir_session *s, const struct weir_op_image_put_in *in,
                            struct weir_upload **ret_upload)
{
    struct weir_host_image_store *store = &s->tenant->images;
    struct weir_upload *u;
    unsigned n = 0;

    for (u = s->uploads; u; u = u->next, n++) {
        if (u->bytes == in->bytes && memcmp(u->hash.bytes, in->hash, sizeof in->hash) == 0) {
            *ret_upload = u;
            return CUDA_SUCCESS;
        }
    }
    WEIR_FAIL_IF(in->bytes > IMAGE_MAX_BYTES, CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_FAIL_IF(in->offset != 0 || in->bytes == 0 || n >= WEIR_UPLOADS_MAX,
                 CUDA_ERROR_INVALID_VALUE);
    if (weir_image_reserve(store, in->bytes) != WEIR_OK) {
        (void)weir_session_over_quota(s, WEIR_ACCOUNT_HOST_MEMORY, in->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_upload = new_upload(s, in);
    if (!*ret_upload) {
        weir_image_unreserve(store, in->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Remove an upload from the list; its bytes stay reserved. */
static void unlist_upload(struct weir_session *s, const struct weir_upload *upload)
{
    struct weir_upload **at = &s->uploads;

    while (*at != upload) {
        at = &(*at)->next;
    }
    *at = upload->next;
}

/* The upload is complete: store the image. */
static CUresult store_upload(struct weir_session *s, struct weir_upload *u)
{
    struct weir_host_image *image;

    unlist_upload(s, u);
    enum weir_status status =
        weir_image_add(&s->tenant->images, &u->hash, u->data, u->bytes, &image);
    free(u);
    if (status != WEIR_OK) {
        return status == WEIR_ERR_INVALID ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_image_put(&s->tenant->images, image);
    if (s->devices.book) {
        s->devices.book->n_promised++;
    }
    return CUDA_SUCCESS;
}

CUresult weir_host_image_put(struct weir_session *s, const struct weir_op_image_put_in *in)
{
    const uint8_t *piece = weir_session_arena(s, in->arena, in->piece_bytes);
    struct weir_upload *u;

    WEIR_TRY(find_upload(s, in, &u));
    if (in->offset != u->received || in->piece_bytes > u->bytes - u->received || !piece) {
        unlist_upload(s, u);
        u->next = NULL;
        weir_uploads_free(&s->tenant->images, u);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(u->data + u->received, piece, in->piece_bytes);
    u->received += in->piece_bytes;
    return u->received < u->bytes ? CUDA_SUCCESS : store_upload(s, u);
}

CUresult weir_host_image_get(struct weir_session *s, const struct weir_op_image_get_in *in)
{
    struct weir_host_image_store *store = &s->tenant->images;
    uint8_t *piece = weir_session_arena(s, in->arena, in->piece_bytes);
    struct weir_hash hash;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    memcpy(hash.bytes, in->hash, sizeof hash.bytes);
    struct weir_host_image *image = weir_image_get_any(store, &hash);
    WEIR_FAIL_IF(!image, CUDA_ERROR_NOT_FOUND);
    if (in->offset <= image->bytes && in->piece_bytes <= image->bytes - in->offset && piece) {
        memcpy(piece, image->data + in->offset, in->piece_bytes);
        result = CUDA_SUCCESS;
    }
    weir_image_put(store, image);
    return result;
}

/* ---------------------------------------------------------------- options */

/* Is this an option whose value is a number? If it were an address of the guest, the worker would
 * read there. */
static bool option_ok(uint32_t id)
{
    switch ((int)id) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_THREADS_PER_BLOCK:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
    case CU_JIT_LTO:
    case CU_JIT_FTZ:
    case CU_JIT_PREC_DIV:
    case CU_JIT_PREC_SQRT:
    case CU_JIT_FMA:
    case CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES:
    case CU_JIT_POSITION_INDEPENDENT_CODE:
    case CU_JIT_MIN_CTA_PER_SM:
    case CU_JIT_MAX_THREADS_PER_BLOCK:
    case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
        return true;
    default:
        return false;
    }
}

CUresult weir_ops_jit_options(const uint32_t *ids, uint32_t n_ids, const uint64_t *values,
                              uint32_t n_values, struct weir_host_jit_options *ret_options)
{
    ret_options->n = 0;
    WEIR_FAIL_IF(n_ids != n_values || n_ids > WEIR_JIT_OPTIONS_MAX, CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < n_ids; i++) {
        WEIR_FAIL_IF(!option_ok(ids[i]), CUDA_ERROR_INVALID_VALUE);
        ret_options->ids[ret_options->n] = (CUjit_option)ids[i];
        ret_options->values[ret_options->n++] = (void *)(uintptr_t)values[i];
    }
    return CUDA_SUCCESS;
}

static void add_option(struct weir_host_jit_options *options, CUjit_option id, void *value)
{
    options->ids[options->n] = id;
    options->values[options->n++] = value;
}

void weir_ops_jit_logs(struct weir_host_jit_options *options, char *info, char *error)
{
    void *bytes = (void *)(uintptr_t)(WEIR_LOG_BYTES - 1);

    add_option(options, CU_JIT_INFO_LOG_BUFFER, info);
    add_option(options, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, bytes);
    add_option(options, CU_JIT_ERROR_LOG_BUFFER, error);
    add_option(options, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, bytes);
}

/* ---------------------------------------------------------------- code for the driver */

/* A load in progress. The image's variables are charged. */
struct load {
    struct weir_host_image *image; /* a reference */
    const void *code;              /* the code that the driver gets; the image owns it */
    const void *compiled;          /* code compiled from the image's PTX; NULL: not compiled */
    struct weir_image_facts facts;
    bool is_bundle;
    char *info, *error; /* logs owned by one operation; NULL: not wanted */
};

static CUresult prepare(struct weir_session *s, const uint8_t hash[16], uint64_t bytes,
                        uint32_t kind, bool want_logs, struct load *load)
{
    CUresult result = CUDA_SUCCESS;

    weir_ops_image_named(s);
    WEIR_FAIL_IF(kind >= WEIR_IMAGE_KIND_COUNT, CUDA_ERROR_INVALID_VALUE);
    *load = (struct load){.image = weir_ops_image(s, hash, bytes),
                          .is_bundle = kind == WEIR_IMAGE_BUNDLE};
    WEIR_FAIL_IF(!load->image, CUDA_ERROR_NOT_FOUND);
    switch ((int)weir_image_ready(&s->tenant->images, load->image, load->is_bundle, s->platform->sm,
                                  &load->code, &load->facts)) {
    case WEIR_OK:
        break;
    case WEIR_ERR_QUOTA:
        result = weir_session_over_quota(s, WEIR_ACCOUNT_HOST_MEMORY, bytes);
        break;
    case WEIR_ERR_NO_MEMORY:
        result = CUDA_ERROR_OUT_OF_MEMORY;
        break;
    default:
        result = CUDA_ERROR_INVALID_IMAGE;
    }
    if (result == CUDA_SUCCESS && want_logs) {
        load->info = weir_session_alloc(s, WEIR_LOG_BYTES);
        load->error = weir_session_alloc(s, WEIR_LOG_BYTES);
        if (!load->info || !load->error) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result == CUDA_SUCCESS) {
        result =
            weir_session_charge(s, s->device, WEIR_ACCOUNT_DEVICE_MEMORY, load->facts.global_bytes);
    }
    if (result != CUDA_SUCCESS) {
        weir_image_put(&s->tenant->images, load->image);
    }
    return result;
}

static void give_up(struct weir_session *s, struct load *load)
{
    weir_tenant_release(s->tenant, s->device, load->facts.global_bytes);
    weir_image_put(&s->tenant->images, load->image);
}

/*
 * Charge variables that could not be read from the PTX, by their size in the compiled code. If the
 * driver compiles, their size is unknown until the memory is taken.
 */
static CUresult charge_unknown(struct weir_session *s, struct load *load,
                               const struct weir_program_code *code)
{
    enum weir_image_form form;

    if (!code->code || weir_image_check(code->code, code->bytes, &form) != WEIR_OK ||
        form != WEIR_IMAGE_ELF) {
        if (load->error) {
            snprintf(load->error, WEIR_LOG_BYTES,
                     "weir: the size of a .global variable cannot be read, so it cannot be charged "
                     "to the tenant");
        }
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    uint64_t bytes = weir_elf_globals(code->code, code->bytes);
    if (bytes > load->facts.global_bytes) {
        WEIR_TRY(weir_session_charge(s, s->device, WEIR_ACCOUNT_DEVICE_MEMORY,
                                     bytes - load->facts.global_bytes));
        load->facts.global_bytes = bytes;
    }
    return CUDA_SUCCESS;
}

/* Compile the PTX if the worker can. false: the image is refused. */
static bool compile(struct weir_session *s, const struct weir_host_jit_options *options,
                    struct load *load, int32_t *ret_result)
{
    const struct weir_jit_options given = {options->ids, options->values, options->n};
    struct weir_program_code code;

    weir_program_ptx_compile(s, load->image,
                             load->is_bundle ? WEIR_PROGRAM_LOADS_BUNDLE : WEIR_PROGRAM_LOADS,
                             &given, &code);
    load->compiled = code.code;
    if (load->error) {
        snprintf(code.refused != CUDA_SUCCESS ? load->error : load->info, WEIR_LOG_BYTES, "%s",
                 code.log);
    }
    if (code.refused == CUDA_SUCCESS && load->facts.has_unknown_globals) {
        code.refused = charge_unknown(s, load, &code);
    }
    *ret_result = (int32_t)code.refused;
    return code.refused == CUDA_SUCCESS;
}

/* Begin calls in which the driver may wait for all of the device's work. */
static CUresult begin(struct weir_session *s, struct load *load, uint32_t *ret_idle)
{
    weir_admission_idle(s);
    CUresult result = weir_device_idle_begin_or_fail(s, ret_idle);
    if (result != CUDA_SUCCESS) {
        if (load->error) {
            snprintf(load->error, WEIR_LOG_BYTES,
                     "the GPU was not idle within %llu s, as loading code in a shared worker needs",
                     (unsigned long long)(weir_device_idle_limit_ns(s) / WEIR_NS_PER_S));
        }
        give_up(s, load);
    }
    return result;
}

/* Has the driver refused compiled code, so that it must get the image itself? */
static bool try_itself(struct weir_session *s, struct load *load, CUresult result)
{
    if (!load->compiled || result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ||
        weir_error_is_sticky(result)) {
        return false;
    }
    weir_program_ptx_not_taken(s, result);
    load->compiled = NULL;
    return true;
}

/* Make the object of a module or library that the driver has loaded. load is taken on success. */
static CUresult enter(struct weir_session *s, enum weir_kind kind, uint64_t handle, void *native,
                      struct weir_host_ctx *ctx, struct load *load, uint32_t *ret_uses_printf)
{
    struct weir_host_module *m;
    struct weir_object *o;

    WEIR_TRY(weir_host_object_create(s, kind, sizeof *m, handle, native, ctx, &o));
    m = (struct weir_host_module *)o;
    m->library = kind == WEIR_KIND_LIBRARY;
    m->image = load->image;
    m->code = load->compiled ? load->compiled : load->code;
    m->uses_printf = load->facts.uses_printf;
    m->may_assert = load->facts.may_assert;
    m->leaves_addresses = load->facts.leaves_addresses;
    m->closed = !load->compiled ? load->facts.closed : NULL;
    o->charged_bytes = load->facts.global_bytes;
    weir_session_hold(s, o->device, o->charged_bytes);
    m->is_bundle = load->is_bundle;
    *ret_uses_printf = m->uses_printf;
    return CUDA_SUCCESS;
}

/* Return the driver's refusal as an output, not as the call's error, so that its log reaches the
 * guest. */
static CUresult refused(struct weir_session *s, CUresult result)
{
    if (weir_error_is_sticky(result)) {
        weir_session_fault(s, result);
    }
    (void)weir_session_note_lack(s, result);
    return CUDA_SUCCESS;
}

/* Keep a library's options, since it may have to be loaded again. They were checked before the
 * first load. */
static CUresult keep_options(struct weir_session *s, const struct weir_op_library_load_in *in)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_LIBRARY, in->l);

    if (in->n_option_ids == 0) {
        return CUDA_SUCCESS;
    }
    m->options = malloc(sizeof *m->options);
    if (!m->options) {
        (void)weir_host_object_destroy(s, &m->o);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return weir_ops_jit_options(in->option_ids, in->n_option_ids, in->option_values,
                                in->n_option_values, m->options);
}

/* Give code to the driver. */
static CUresult load_native(struct weir_session *s, enum weir_kind kind, const void *code,
                            struct weir_host_jit_options *options, void **ret_native)
{
    /* The worker keeps the image as long as the library, whatever the guest does with its own
     * memory. */
    CUlibraryOption library_ids[] = {CU_LIBRARY_BINARY_IS_PRESERVED};
    void *library_values[] = {(void *)1};
    CUmodule module;
    CUlibrary library;

    if (kind == WEIR_KIND_MODULE) {
        WEIR_TRY(s->driver->cuModuleLoadDataEx(&module, code, options->n, options->ids,
                                               options->values));
        *ret_native = module;
    } else {
        WEIR_TRY(s->driver->cuLibraryLoadData(&library, code, options->ids, options->values,
                                              options->n, library_ids, library_values, 1));
        *ret_native = library;
    }
    return CUDA_SUCCESS;
}

/* Load a module or a library. Code that was compiled here already includes the options. */
static CUresult load_code(struct weir_session *s, enum weir_kind kind, struct load *load,
                          struct weir_host_jit_options *options, void **ret_native)
{
    if (load->compiled) {
        CUresult result = load_native(s, kind, load->compiled,
                                      &(struct weir_host_jit_options){.n = 0}, ret_native);

        if (!try_itself(s, load, result)) {
            return result;
        }
    }
    if (load->info) {
        weir_ops_jit_logs(options, load->info, load->error);
    }
    return load_native(s, kind, load->code, options, ret_native);
}

static CUresult make(struct weir_session *s, enum weir_kind kind,
                     const struct weir_op_library_load_in *in, struct weir_host_ctx *ctx,
                     struct weir_host_jit_options *options, struct load *load,
                     struct weir_op_library_load_out *out)
{
    const struct weir_jit_options own = {options->ids, options->values, options->n};
    void *native;
    CUresult result = load_code(s, kind, load, options, &native);

    out->result = (int32_t)result;
    if (result != CUDA_SUCCESS) {
        give_up(s, load);
        return refused(s, result);
    }
    result = enter(s, kind, in->l, native, ctx, load, &out->uses_printf);
    if (result != CUDA_SUCCESS) {
        (void)(kind == WEIR_KIND_MODULE ? s->driver->cuModuleUnload(native)
                                        : s->driver->cuLibraryUnload(native));
        give_up(s, load);
        return result;
    }
    if (kind == WEIR_KIND_LIBRARY) {
        WEIR_TRY(keep_options(s, in));
    }
    weir_forms_loaded(s, weir_host_object_get(s, kind, in->l), &own);
    return CUDA_SUCCESS;
}

/* Load what both operations name in the same way. @param ctx  NULL: a library's, of all devices */
static CUresult load_as(struct weir_session *s, enum weir_kind kind,
                        const struct weir_op_library_load_in *in, struct weir_host_ctx *ctx,
                        struct weir_op_library_load_out *out)
{
    struct weir_host_jit_options options;
    struct load load;
    uint32_t idle;

    WEIR_TRY(weir_session_free_name(s, kind, in->l));
    WEIR_TRY(weir_ops_jit_options(in->option_ids, in->n_option_ids, in->option_values,
                                  in->n_option_values, &options));
    WEIR_TRY(prepare(s, in->hash, in->bytes, in->kind, in->want_logs != 0, &load));
    out->info_log = load.info;
    out->error_log = load.error;
    if (!compile(s, &options, &load, &out->result)) {
        give_up(s, &load);
        return CUDA_SUCCESS;
    }
    out->result = (int32_t)begin(s, &load, &idle);
    if (out->result != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    CUresult result = make(s, kind, in, ctx, &options, &load, out);
    weir_device_idle_end(s->worker, idle);
    return result;
}

CUresult weir_host_module_load(struct weir_session *s, const struct weir_op_module_load_in *in,
                               struct weir_op_module_load_out *out)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    struct weir_op_library_load_out loaded = {0};
    struct weir_op_library_load_in as = {
        .l = in->m,
        .bytes = in->bytes,
        .kind = in->kind,
        .option_ids = in->option_ids,
        .n_option_ids = in->n_option_ids,
        .option_values = in->option_values,
        .n_option_values = in->n_option_values,
        .want_logs = in->want_logs,
    };

    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    memcpy(as.hash, in->hash, sizeof as.hash);
    WEIR_TRY(load_as(s, WEIR_KIND_MODULE, &as, ctx, &loaded));
    *out = (struct weir_op_module_load_out){loaded.result, loaded.info_log, loaded.error_log,
                                            loaded.uses_printf};
    return CUDA_SUCCESS;
}

CUresult weir_host_library_load(struct weir_session *s, const struct weir_op_library_load_in *in,
                                struct weir_op_library_load_out *out)
{
    WEIR_FAIL_IF(in->n_library_option_ids != in->n_library_option_values, CUDA_ERROR_INVALID_VALUE);
    for (uint32_t i = 0; i < in->n_library_option_ids; i++) {
        WEIR_FAIL_IF(in->library_option_ids[i] != CU_LIBRARY_BINARY_IS_PRESERVED,
                     CUDA_ERROR_INVALID_VALUE);
    }
    return load_as(s, WEIR_KIND_LIBRARY, in, NULL, out);
}

CUresult weir_host_module_unload(struct weir_session *s, const struct weir_op_module_unload_in *in)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_MODULE, in->m);

    WEIR_FAIL_IF(!m || m->of_library, CUDA_ERROR_INVALID_HANDLE);
    return weir_host_object_destroy(s, &m->o);
}

CUresult weir_host_library_unload(struct weir_session *s,
                                  const struct weir_op_library_unload_in *in)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_LIBRARY, in->l);

    return m ? weir_host_object_destroy(s, &m->o) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult weir_host_library_module(struct weir_session *s,
                                  const struct weir_op_library_module_in *in)
{
    struct weir_host_ctx *ctx = weir_ops_ctx(s, in->c);
    struct weir_host_module *library;
    struct weir_object *o;
    CUmodule native;

    WEIR_TRY(weir_ops_library(s, in->l, &library));
    WEIR_FAIL_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    WEIR_TRY(s->driver->cuLibraryGetModule(&native, library->o.native));
    library->used = true;
    WEIR_TRY(weir_host_object_create(s, WEIR_KIND_MODULE, sizeof(struct weir_host_module), in->m,
                                     native, ctx, &o));
    o->borrowed = true;
    o->owner = &library->o;
    ((struct weir_host_module *)o)->of_library = true;
    ((struct weir_host_module *)o)->uses_printf = library->uses_printf;
    ((struct weir_host_module *)o)->may_assert = library->may_assert;
    ((struct weir_host_module *)o)->closed = library->closed;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- globals */

/* Has the guest a __managed__ variable at the same address? */
static uint32_t is_managed(const struct weir_session *s, CUdeviceptr address)
{
    unsigned managed = 0;

    return s->driver->cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) ==
               CUDA_SUCCESS &&
           managed != 0;
}

/* Note that the guest has asked for a variable's address. Where the session is made again, the
 * address must be the same. */
static CUresult note_asked(struct weir_session *s, struct weir_host_module *m,
                           const struct weir_variable *v, const char *name)
{
    bool first;

    WEIR_FAIL_IF(weir_variables_ask(m, v, name, &first) != WEIR_OK, CUDA_ERROR_OUT_OF_MEMORY);
    return first ? weir_session_book_number(s, weir_session_book_next_name(s), v->at,
                                            "variable that the program has asked for", name)
                 : CUDA_SUCCESS;
}

/* Allow the guest to name the memory of a variable, and describe it. */
static CUresult admit_global(struct weir_session *s, struct weir_host_module *m, const char *name,
                             CUdeviceptr address, size_t bytes,
                             struct weir_op_module_global_out *out)
{
    const struct weir_variable v = {
        .at = address, .bytes = bytes, .managed = is_managed(s, address)};

    WEIR_TRY(note_asked(s, m, &v, name));
    if (bytes != 0 && weir_session_check_dptr(s, address, bytes) != CUDA_SUCCESS &&
        weir_session_admit(s, address, bytes, m) != WEIR_OK) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (m->forms && bytes != 0) {
        weir_forms_exposed(s, m, address, bytes);
    }
    *out = (struct weir_op_module_global_out){
        .address = address, .bytes = bytes, .managed = v.managed};
    return CUDA_SUCCESS;
}

CUresult weir_host_module_global(struct weir_session *s, const struct weir_op_module_global_in *in,
                                 struct weir_op_module_global_out *out)
{
    struct weir_host_module *m = weir_host_object_get(s, WEIR_KIND_MODULE, in->m);
    CUdeviceptr address;
    size_t bytes;

    WEIR_FAIL_IF(!m, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(s->driver->cuModuleGetGlobal_v2(&address, &bytes, m->o.native, in->name));
    return admit_global(s, m, in->name, address, bytes, out);
}

CUresult weir_host_library_global(struct weir_session *s,
                                  const struct weir_op_library_global_in *in,
                                  struct weir_op_library_global_out *out)
{
    struct weir_op_module_global_out global;
    struct weir_host_module *m;
    CUdeviceptr address;
    size_t bytes;

    WEIR_TRY(weir_ops_library(s, in->l, &m));
    WEIR_TRY(in->managed != 0
                 ? s->driver->cuLibraryGetManaged(&address, &bytes, m->o.native, in->name)
                 : s->driver->cuLibraryGetGlobal(&address, &bytes, m->o.native, in->name));
    m->used = true;
    WEIR_TRY(admit_global(s, m, in->name, address, bytes, &global));
    *out = (struct weir_op_library_global_out){
        .address = global.address, .bytes = global.bytes, .managed = global.managed};
    return CUDA_SUCCESS;
}
