/*
 * Compiles the PTX of programs in a worker that serves several.
 *
 * Without this file the driver would compile while it loads a module, and loads while the device is
 * kept idle (device_idle.h): a program whose PTX takes 20 s to compile would stop all others for 20
 * s, and one that takes all memory would end them. So the text is compiled first, without a lock
 * and without an idle device:
 *
 *     1. was it compiled before? In the image's own list, or in the cache's folder 2. ptxas in a
 *     confined process with limits (compiler/) 3. without ptxas, or if it refuses the text: the
 *     driver's linker, in this thread 4. if that refuses it, too: nothing, and the driver reports
 *     the error when it loads
 *
 * A text on which ptxas crashed or exceeded its limits never reaches step 3: the driver contains
 * the same compiler, and would fail in the same way inside the worker. With options that ptxas has
 * no equal for, or parts of a bundle, ptxas only tries whether the text can be compiled within the
 * limits, and the driver compiles it.
 *
 * Results are kept by content, device and options, and charged to the tenant as its images are. The
 * image's lock guards the list and is not held to compile; two sessions that load one new text at
 * the same time both compile it.
 */
#include "host_backend/worker/code/program_ptx.h"

#include "base/log.h"
#include "base/text.h"
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "proto/wire/session_api.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX_BYTES (UINT64_C(1) << 30) /* longest text: no image is longer */
#define KEY_BYTES      4096u

/* Does the driver accept the code that ptxas makes? */
enum { TAKEN_NOT_KNOWN, TAKEN_YES, TAKEN_NO };

struct weir_image_compiled {
    struct weir_image_compiled *next;
    struct weir_hash key;
    uint64_t bytes;
    _Alignas(16) uint8_t data[];
};

struct text {
    struct weir_session *session;
    struct weir_program_ptx *ptx;
    const struct weir_jit_options *options;
    bool relocatable;
    char *chars; /* owned */
    size_t bytes;
    uint32_t sm;
    char sm_suffix;
    struct weir_compile_result *result; /* owned */
};

struct weir_program_ptx *weir_program_ptx_create(const struct weir_platform *platform,
                                                 const struct weir_forms_config *config,
                                                 const struct weir_compiler *compiler)
{
    if (platform->by_program || (!platform->real && !weir_compiler_is_there(compiler))) {
        return NULL;
    }
    struct weir_program_ptx *ptx = calloc(1, sizeof *ptx);
    if (ptx) {
        ptx->compiler = compiler;
        ptx->limits = (struct weir_compile_limits){.memory_bytes = config->compile_memory_bytes,
                                                   .cpu_s = config->compile_s};
        weir_file_cache_init(&ptx->cache, config->cache_dir, config->cache_bytes, ".cubin");
    }
    return ptx;
}

void weir_program_ptx_destroy(struct weir_program_ptx *ptx)
{
    if (ptx) {
        weir_file_cache_finish(&ptx->cache);
        free(ptx);
    }
}

void weir_image_compiled_destroy(struct weir_image_compiled *compiled)
{
    for (struct weir_image_compiled *first; (first = WEIR_POP(compiled));) {
        free(first);
    }
}

/* ---------------------------------------------------------------- the text */

/* The compute capability times ten; 0: the worker's devices differ, so no code fits all. */
static uint32_t device_sm(const struct weir_session *s)
{
    return s->platform->real ? s->platform->sm
                             : weir_device_capability(&s->platform->devices[s->device].about);
}

static const char *skip_comments(const char *at)
{
    while (*at != 0) {
        const char *end;

        if (isspace((unsigned char)*at)) {
            at++;
        } else if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            end = strstr(at + 2, "*/");
            if (!end) {
                return at + strlen(at);
            }
            at = end + 2;
        } else {
            break;
        }
    }
    return at;
}

/* Get the letter behind the architecture in ".target sm_90a", if the text is for the device's
 * architecture. */
static char suffix_of(const char *text, uint32_t sm)
{
    const char *at = skip_comments(text);
    unsigned target;
    char letter = 0;

    if (strncmp(at, ".version", 8) != 0) {
        return 0;
    }
    at = skip_comments(at + strcspn(at, "\n"));
    if (strncmp(at, ".target", 7) != 0 ||
        sscanf(skip_comments(at + 7), "sm_%u%c", &target, &letter) != 2 || target != sm) {
        return 0;
    }
    return letter == 'a' || letter == 'f' ? letter : 0;
}

/* Get the text to compile. false: the driver need not compile, or the text is unknown. */
static bool text_get(struct text *t, const uint8_t *data, uint64_t bytes)
{
    struct weir_image_ptx_want want = {
        .sm = t->sm, .code_runs = true, .no_code = true, .max_bytes = TEXT_MAX_BYTES};

    WEIR_FAIL_IF(weir_image_ptx(data, bytes, &want, &t->chars, &t->bytes) != WEIR_OK, false);
    t->sm_suffix = suffix_of(t->chars, t->sm);
    return true;
}

/* ---------------------------------------------------------------- cached results */

static bool make_key(const struct text *t, const struct weir_host_image *image,
                     struct weir_hash *ret_key)
{
    const struct weir_session *s = t->session;
    char room[KEY_BYTES];

    size_t at = (size_t)snprintf(room, sizeof room, "code|%s|%s|%s|%d|%u|%d|%" PRIu64 "|",
                                 WEIR_VERSION, s->tenant->name, t->ptx->compiler->id,
                                 s->platform->devices[s->device].about.driver_version, t->sm,
                                 t->relocatable, image->bytes);
    for (uint32_t i = 0; i < t->options->n && at < sizeof room; i++) {
        at += (size_t)snprintf(room + at, sizeof room - at, "|%d=%llu", (int)t->options->ids[i],
                               (unsigned long long)(uintptr_t)t->options->values[i]);
    }
    WEIR_FAIL_IF(at + sizeof image->hash.bytes > sizeof room, false);
    memcpy(room + at, image->hash.bytes, sizeof image->hash.bytes);
    *ret_key = weir_hash_of(room, at + sizeof image->hash.bytes);
    return true;
}

static const struct weir_image_compiled *find(struct weir_host_image *image,
                                              const struct weir_hash *key)
{
    pthread_mutex_lock(&image->lock);
    const struct weir_image_compiled *c =
        WEIR_LINKED(each, image->compiled, memcmp(&each->key, key, sizeof *key) == 0);
    pthread_mutex_unlock(&image->lock);
    return c; /* the compiled code stays as long as the image */
}

/* Cache a result. NULL: there is no room for it. */
static const struct weir_image_compiled *keep(struct text *t, struct weir_host_image *image,
                                              const struct weir_hash *key, const uint8_t *data,
                                              size_t bytes)
{
    struct weir_host_image_store *store = &t->session->tenant->images;

    if (weir_image_reserve(store, bytes) != WEIR_OK) {
        weir_tenant_refused(t->session->tenant, WEIR_ACCOUNT_HOST_MEMORY);
        return NULL;
    }
    struct weir_image_compiled *c = calloc(1, sizeof *c + bytes + WEIR_IMAGE_TAIL_BYTES);
    if (!c) {
        weir_image_unreserve(store, bytes);
        return NULL;
    }
    c->key = *key;
    c->bytes = bytes;
    memcpy(c->data, data, bytes);
    weir_image_grew(store, image, bytes);
    WEIR_LOCKED(&image->lock);
    WEIR_PUSH(image->compiled, c);
    return c;
}

static void give(struct weir_program_code *code, const struct weir_image_compiled *kept)
{
    if (!kept) {
        code->refused = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    code->code = kept->data;
    code->bytes = kept->bytes;
}

/* Find the result of an earlier compilation. true: found. */
static bool get_kept(struct text *t, struct weir_host_image *image, const struct weir_hash *key,
                     struct weir_program_code *code)
{
    const struct weir_image_compiled *kept = find(image, key);
    uint8_t *bytes;
    size_t n;

    if (!kept && weir_file_cache_get(&t->ptx->cache, key, &bytes, &n) == WEIR_OK) {
        kept = keep(t, image, key, bytes, n);
        free(bytes);
        give(code, kept);
        return true;
    }
    if (kept) {
        give(code, kept);
    }
    return kept != NULL;
}

/* ---------------------------------------------------------------- compiling */

static bool gives_up(void *user)
{
    const struct weir_session *s = user;

    return atomic_load_explicit(&s->ending, memory_order_relaxed) || weir_session_peer_gone(s);
}

static void say_stopped(struct text *t, enum weir_compile_end end, struct weir_program_code *code)
{
    struct weir_session *s = t->session;
    char program[256];
    char *log = weir_session_alloc(s, WEIR_COMPILE_LOG_BYTES);

    code->refused = end == WEIR_COMPILE_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
    if (end == WEIR_COMPILE_GIVEN_UP) {
        return; /* the session is ending, so nobody needs the result */
    }
    weir_log_warn("session: PTX was not compiled session=%llu tenant=%s program=\"%s\" why=\"%s\" "
                  "compile_memory=%" PRIu64 " compile_s=%u",
                  (unsigned long long)s->id, s->tenant->name,
                  weir_text_visible(weir_session_program(s), program, sizeof program),
                  weir_compile_end_text(end), t->ptx->limits.memory_bytes, t->ptx->limits.cpu_s);
    if (log) {
        snprintf(log, WEIR_COMPILE_LOG_BYTES, "weir: the PTX was not compiled: %s\n",
                 weir_compile_end_text(end));
        code->log = log;
    }
}

/* @param ret_all  did ptxas understand all options? */
static enum weir_compile_end by_ptxas(struct text *t, bool *ret_all)
{
    struct weir_compile_job job = {.tmp_dir = t->ptx->cache.dir,
                                   .text = t->chars,
                                   .text_bytes = t->bytes,
                                   .sm = t->sm,
                                   .sm_suffix = t->sm_suffix,
                                   .limits = t->ptx->limits,
                                   .give_up = gives_up,
                                   .user = t->session};

    *ret_all = weir_jit_ptxas_options(t->options, &job.options);
    job.options.relocatable = t->relocatable;
    if (!weir_compiler_is_there(t->ptx->compiler) || atomic_load(&t->ptx->taken) == TAKEN_NO) {
        return WEIR_COMPILE_NOT_DONE;
    }
    return weir_compiler_run(t->ptx->compiler, &job, t->result);
}

/* Compile the text into t->result, or find the result. false: the text is refused, and code says
 * why. */
static bool compile(struct text *t, bool may_link, struct weir_program_code *code)
{
    const struct weir_session *s = t->session;
    bool all;
    enum weir_compile_end end = by_ptxas(t, &all);

    if (weir_compile_is_stopped(end)) {
        say_stopped(t, end, code);
        return false;
    }
    if (end == WEIR_COMPILE_DONE) {
        if (all && may_link) {
            return true;
        }
        free(t->result->image);
        t->result->image = NULL;
    }
    return may_link && !t->relocatable && s->platform->real &&
           weir_jit_by_driver(s->driver, t->chars, t->bytes, t->options, t->result) == WEIR_OK;
}

static void compile_image(struct text *t, struct weir_host_image *image,
                          struct weir_program_code *code)
{
    struct weir_hash key;

    if (!make_key(t, image, &key) || get_kept(t, image, &key, code) ||
        !text_get(t, image->data, image->bytes) || !compile(t, true, code)) {
        return;
    }
    (void)!weir_file_cache_put(&t->ptx->cache, &key, t->result->image, t->result->bytes);
    give(code, keep(t, image, &key, t->result->image, t->result->bytes));
    char *log =
        t->result->log[0] != 0 ? weir_session_alloc(t->session, WEIR_COMPILE_LOG_BYTES) : NULL;
    if (log) {
        memcpy(log, t->result->log, WEIR_COMPILE_LOG_BYTES);
        code->log = log;
    }
}

/* The driver links the parts as it loads them, so ptxas only tries them. */
static void try_bundle(struct text *t, const struct weir_host_image *image,
                       struct weir_program_code *code)
{
    struct weir_bundle_part *parts;
    uint32_t n;

    if (!weir_compiler_is_there(t->ptx->compiler) ||
        weir_bundle_check(image->data, image->bytes, &parts, &n) != WEIR_OK) {
        return;
    }
    t->relocatable = true;
    for (uint32_t i = 0; i < n && code->refused == CUDA_SUCCESS; i++) {
        if (text_get(t, image->data + parts[i].offset, parts[i].bytes)) {
            (void)compile(t, false, code);
            free(t->chars);
            t->chars = NULL;
        }
    }
    free(parts);
}

void weir_program_ptx_compile(struct weir_session *session, struct weir_host_image *image,
                              enum weir_program_use use, const struct weir_jit_options *options,
                              struct weir_program_code *ret_code)
{
    struct text t = {.session = session,
                     .ptx = session->platform->program_ptx,
                     .options = options,
                     .relocatable = use == WEIR_PROGRAM_LINKS,
                     .sm = device_sm(session)};

    *ret_code = (struct weir_program_code){.code = NULL, .log = ""};
    if (!t.ptx || t.sm == 0) {
        return;
    }
    t.result = calloc(1, sizeof *t.result);
    if (!t.result) {
        ret_code->refused = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    if (use == WEIR_PROGRAM_LOADS_BUNDLE) {
        try_bundle(&t, image, ret_code);
    } else {
        compile_image(&t, image, ret_code);
    }
    free(t.chars);
    free(t.result->image);
    free(t.result);
}

/* ------------------------------------------------------------- does the driver accept the code? */

/* Test whether the driver accepts code of the simplest text, which it cannot refuse for another
 * reason. */
static bool takes_the_least(struct weir_session *s, struct weir_program_ptx *ptx)
{
    static const char text[] = ".version 6.4\n.target sm_50\n.address_size 64\n"
                               ".visible .entry weir_least()\n{\n    ret;\n}\n";
    struct weir_compile_job job = {.tmp_dir = ptx->cache.dir,
                                   .text = text,
                                   .text_bytes = sizeof text - 1,
                                   .sm = device_sm(s),
                                   .options = {.level = -1},
                                   .limits = ptx->limits};
    struct weir_compile_result *result = calloc(1, sizeof *result);
    bool taken = true;
    CUmodule module;

    if (!result) {
        return true;
    }
    if (weir_compiler_run(ptx->compiler, &job, result) == WEIR_COMPILE_DONE) {
        taken =
            s->driver->cuModuleLoadDataEx(&module, result->image, 0, NULL, NULL) == CUDA_SUCCESS;
        if (taken) {
            (void)s->driver->cuModuleUnload(module);
        }
    }
    free(result->image);
    free(result);
    return taken;
}

void weir_program_ptx_not_taken(struct weir_session *session, CUresult why)
{
    struct weir_program_ptx *ptx = session->platform->program_ptx;

    weir_log_debug("session: compiled PTX not loaded, the driver compiles session=%llu tenant=%s "
                   "result=%d",
                   (unsigned long long)session->id, session->tenant->name, (int)why);
    if (!weir_compiler_is_there(ptx->compiler) || atomic_load(&ptx->taken) != TAKEN_NOT_KNOWN) {
        return;
    }
    if (takes_the_least(session, ptx)) {
        atomic_store(&ptx->taken, TAKEN_YES);
    } else if (atomic_exchange(&ptx->taken, TAKEN_NO) != TAKEN_NO) {
        weir_log_warn("compiler: the driver refuses what this ptxas makes (is it newer than the "
                      "driver?), so the driver compiles compiler=\"%s\" result=%d",
                      ptx->compiler->id, (int)why);
    }
}
