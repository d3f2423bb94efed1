/*
 * softgpu that runs kernels in another form, to test the PTX passes: a libcuda.so.1 for programs.
 *
 * With WEIR_SOFTGPU_FORM=ticket or persistent every module gets twins of its kernels when it is
 * loaded, and every launch of a kernel that admits the form runs the twin. The twin is cut at
 * random places, stopped and resumed, with random SMs, block limits and task sizes, chosen from
 * WEIR_SOFTGPU_FORM_SEED. The program must not notice. WEIR_SOFTGPU_FORM_APART=1 loads the twins as
 * a module of their own, as a host does (weir_ptx_twins()): then this file plays both parts, the
 * driver, and the host that binds the twins to the program's variables.
 *
 * WEIR_SOFTGPU_ORDER_SEED chooses the order in which blocks begin, for kernels in any form.
 */
#include "base/log.h"
#include "ptx/analysis.h"
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"
#include "softgpu/driver/driver.h"
#include "softgpu/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 64 /* most rounds of one launch; the last one runs to the end */

static enum weir_ptx_form wanted_form(void)
{
    const char *text = getenv("WEIR_SOFTGPU_FORM");
    enum weir_ptx_form form = text ? weir_ptx_form_from_text(text) : WEIR_PTX_FORM_ORIGINAL;

    return form == WEIR_PTX_FORM_COUNT ? WEIR_PTX_FORM_ORIGINAL : form;
}

/* A pseudorandom number for each launch, the same in every run with the same order. */
static uint64_t mixed(const char *text, uint64_t number)
{
    uint64_t x = (strtoull(text, NULL, 10) + 1) * 0x9e3779b97f4a7c15ull + number;

    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    return x + !x;
}

static uint64_t order_seed(void)
{
    static uint64_t launches;
    const char *text = getenv("WEIR_SOFTGPU_ORDER_SEED");

    return text ? mixed(text, __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED)) : 0;
}

static bool are_apart(uint32_t n_sources)
{
    const char *text = getenv("WEIR_SOFTGPU_FORM_APART");

    return n_sources == 1 && text && strcmp(text, "1") == 0;
}

/* ---------------------------------------------------------------- twins apart */

struct copied {
    void *to;
    const void *from;
    size_t bytes;
};

struct weir_soft_twins {
    struct weir_ptx_module *ptx; /* holds the twins' infos */
    struct weir_ptx_twins twins;
    struct weir_exec_module *exec;
    struct copied *consts;
};

static void unload(struct weir_soft_twins *apart)
{
    if (apart) {
        weir_exec_module_destroy(apart->exec);
        weir_ptx_destroy(apart->ptx);
        free(apart->consts);
        free(apart);
    }
}

static enum weir_status make(struct weir_soft_twins *apart, const struct weir_exec_source *source)
{
    const struct weir_ptx_twin_want want = {.forms = WEIR_PTX_FORM_BIT(wanted_form())};
    struct weir_diag diag;
    enum weir_status status = weir_ptx_parse(source->text, source->bytes, 0, NULL, &apart->ptx);

    if (status == WEIR_OK) {
        status = weir_ptx_twins(apart->ptx, &want, 1, &apart->twins);
    }
    for (uint32_t i = 0; status == WEIR_OK && i < apart->twins.n_infos; i++) {
        const struct weir_ptx_twin_info *info = &apart->twins.infos[i];

        weir_log_info("softgpu: form apart kernel=%s form=%s result=%s reason=%s", info->kernel,
                      weir_ptx_form_text(info->form), weir_status_text(info->status), info->reason);
    }
    return status == WEIR_OK ? weir_ptx_check(apart->ptx, &diag) : status;
}

/* Give the twins the addresses of the original module's variables and constants. */
static enum weir_status bind(struct weir_soft_twins *apart, const struct weir_exec_module *original)
{
    const struct weir_ptx_twins *twins = &apart->twins;
    struct weir_exec_global table = {0}, from, to;
    enum weir_status status = WEIR_OK;

    if (twins->n_binds) {
        status = weir_exec_module_global(apart->exec, WEIR_PTX_BINDS_NAME, &table);
    }
    for (uint32_t i = 0; i < twins->n_binds && status == WEIR_OK; i++) {
        status = weir_exec_module_global(original, twins->binds[i], &from);
        if (status == WEIR_OK) {
            ((uint64_t *)(uintptr_t)table.address)[i] = from.address;
        }
    }
    apart->consts = calloc(twins->n_consts + 1u, sizeof(*apart->consts));
    for (uint32_t i = 0; i < twins->n_consts && apart->consts && status == WEIR_OK; i++) {
        status = weir_exec_module_global(original, twins->consts[i], &from);
        if (status == WEIR_OK) {
            status = weir_exec_module_global(apart->exec, twins->consts[i], &to);
        }
        if (status == WEIR_OK) {
            apart->consts[i] = (struct copied){(void *)(uintptr_t)to.address,
                                               (const void *)(uintptr_t)from.address, from.bytes};
        }
    }
    return apart->consts ? status : WEIR_ERR_NO_MEMORY;
}

static enum weir_status load_apart(struct weir_exec_device *engine,
                                   const struct weir_exec_source *source,
                                   const struct weir_exec_memory *memory,
                                   const struct weir_exec_module *original,
                                   struct weir_soft_twins **ret_apart)
{
    struct weir_soft_twins *apart = calloc(1, sizeof(*apart));
    struct weir_exec_source twins = {.name = "twins"};
    struct weir_diag diag = {0};
    char *text = NULL;

    if (!apart) {
        return WEIR_ERR_NO_MEMORY;
    }
    enum weir_status status = make(apart, source);

    if (status == WEIR_OK) {
        status = weir_ptx_print_buffer(apart->ptx, &text, &twins.bytes);
    }
    if (status == WEIR_OK) {
        twins.text = text;
        status = weir_exec_module_load(engine, &twins, 1, memory, &diag, &apart->exec);
    }
    if (status == WEIR_OK) {
        status = bind(apart, original);
    }
    free(text);
    if (status != WEIR_OK) {
        weir_log_error("softgpu: no module of twins: %s line=%u %s", weir_status_text(status),
                       diag.line, diag.message);
        unload(apart);
        return status;
    }
    *ret_apart = apart;
    return WEIR_OK;
}

static const struct weir_exec_kernel *apart_twin(struct weir_soft_twins *apart, const char *kernel,
                                                 uint32_t *ret_dynamic)
{
    for (uint32_t i = 0; i < apart->twins.n_infos; i++) {
        const struct weir_ptx_twin_info *info = &apart->twins.infos[i];

        if (info->name && strcmp(info->kernel, kernel) == 0) {
            *ret_dynamic = info->dynamic_shared_bytes;
            return weir_exec_module_kernel(apart->exec, info->name);
        }
    }
    return NULL;
}

static void copy_consts(struct weir_soft_twins *apart)
{
    for (uint32_t i = 0; i < apart->twins.n_consts; i++) {
        memcpy(apart->consts[i].to, apart->consts[i].from, apart->consts[i].bytes);
    }
}

/* ---------------------------------------------------------------- twins in the program's module */

static bool make_twins(struct weir_ptx_module *module, enum weir_ptx_form form)
{
    struct weir_ptx_analysis *analysis;
    struct weir_diag diag;
    bool ok = true;

    if (weir_ptx_analyze(module, WEIR_PTX_ASSUME_OWN_POINTERS, &analysis) != WEIR_OK) {
        return false;
    }
    for (uint32_t i = 0; i < analysis->n_kernels && ok; i++) {
        struct weir_ptx_twin_info info;
        enum weir_status status = weir_ptx_twin(module, &analysis->kernels[i], form, &info);

        weir_log_info("softgpu: form kernel=%s form=%s result=%s reason=%s",
                      analysis->kernels[i].entry->name, weir_ptx_form_text(form),
                      weir_status_text(status), info.reason);
        ok = status != WEIR_ERR_NO_MEMORY && status != WEIR_ERR_INTERNAL;
    }
    weir_ptx_analysis_destroy(analysis);
    return ok && weir_ptx_check(module, &diag) == WEIR_OK;
}

static void rewrite(const struct weir_exec_source *source, char **ret_text, size_t *ret_len)
{
    struct weir_ptx_module *module;

    *ret_text = NULL;
    if (weir_ptx_parse(source->text, source->bytes, 0, NULL, &module) != WEIR_OK) {
        return; /* loading will give the reason */
    }
    if (!make_twins(module, wanted_form()) ||
        weir_ptx_print_buffer(module, ret_text, ret_len) != WEIR_OK) {
        weir_log_error("softgpu: twins could not be made");
        *ret_text = NULL;
    }
    weir_ptx_destroy(module);
}

static bool is_twin(const struct weir_exec_kernel *kernel)
{
    const char *dollar = strrchr(weir_exec_kernel_info(kernel)->name, '$');

    return dollar && weir_ptx_form_from_text(dollar + 1) != WEIR_PTX_FORM_COUNT;
}

/* One launch under way. */
struct run {
    struct weir_exec_device *engine;
    struct weir_exec_launch launch;  /* parameters of the twin */
    struct weir_ptx_form_args *args; /* the arguments' place in launch.params */
    struct weir_ptx_control *control;
    struct weir_exec_fault *fault;
    uint32_t starts;
    uint64_t random;
    uint64_t stop_turns; /* how long the thread that stops the launch waits */
};

/* xorshift64*: uniform in 0 .. n - 1. */
static uint64_t random_below(struct run *run, uint64_t n)
{
    run->random ^= run->random >> 12;
    run->random ^= run->random << 25;
    run->random ^= run->random >> 27;
    return (run->random * 0x2545f4914f6cdd1dull >> 11) % n;
}

static void seed(struct run *run)
{
    static uint64_t launches;
    const char *text = getenv("WEIR_SOFTGPU_FORM_SEED");
    uint64_t number = __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);

    run->random = mixed(text ? text : "1", number);
}

static enum weir_status start(struct run *run, uint64_t blocks)
{
    run->starts++;
    run->launch.grid[0] = (uint32_t)blocks;
    run->launch.grid[1] = 1;
    run->launch.grid[2] = 1;
    return weir_exec_run(run->engine, &run->launch, run->fault);
}

/* Set the stop flag at a random time while the kernel runs. */
static void *stop_later(void *user)
{
    struct run *run = user;

    for (uint64_t i = 0; i < run->stop_turns; i++) {
        __asm__ volatile("" ::: "memory");
    }
    __atomic_or_fetch(&run->control->ask, WEIR_PTX_ASK_STOP, __ATOMIC_RELAXED);
    __atomic_store_n(&run->control->stop, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Start a ticket or persistent twin once, and let it run to a random end or until it is stopped. */
static enum weir_status run_round(struct run *run, bool persistent, bool last)
{
    struct weir_ptx_control *control = run->control;
    struct weir_ptx_form_args *args = run->args;
    uint32_t left = args->total - control->next;
    bool in_args = random_below(run, 2) == 0;
    uint32_t first = 0, count = 0, block_limit = 0;
    pthread_t thread;
    bool stopper = false;

    control->stop = 0;
    args->end = args->total;
    args->task_blocks = 1 + (uint32_t)random_below(run, 8);
    args->nearly_at = (uint32_t)random_below(run, args->total);
    if (!last && random_below(run, 2) == 0) {
        args->end = control->next + (uint32_t)random_below(run, left + 1);
    }
    if (!last && random_below(run, 2) == 0) {
        first = (uint32_t)random_below(run, 4);
        count = 1 + (uint32_t)random_below(run, 4);
    }
    if (!last && random_below(run, 2) == 0) {
        block_limit = 1 + (uint32_t)random_below(run, 3);
    }
    args->sm_range = in_args && count ? WEIR_PTX_SM_RANGE(first, count) : 0;
    args->block_limit = in_args ? block_limit : 0;
    control->ask = in_args ? 0 : WEIR_PTX_ASK(first, count, block_limit);
    uint32_t blocks =
        (uint32_t)(persistent ? 1 + random_below(run, 16) : left + random_below(run, 4));

    if (!last && random_below(run, 2) == 0) {
        run->stop_turns = random_below(run, 1u << 18);
        stopper = pthread_create(&thread, NULL, stop_later, run) == 0;
    }
    enum weir_status status = start(run, blocks);

    if (stopper) {
        pthread_join(thread, NULL);
    }
    return status;
}

/* Check the control block between two starts. */
static enum weir_status check_control(const struct run *run, bool persistent)
{
    const struct weir_ptx_control *control = run->control;
    const struct weir_ptx_form_args *args = run->args;
    uint32_t done = weir_ptx_control_done(control, args->end);
    uint64_t workers = 0;

    for (uint32_t i = 0; i < WEIR_PTX_CONTROL_SMS; i++) {
        workers += control->running[i];
    }
    /* Every task that was taken must be done: then a stop shows how far the kernel came. */
    bool ok =
        workers == 0 && control->workers == 0 &&
        (!persistent || (control->done == done && control->finished == (done == args->total)));

    if (!ok) {
        weir_log_error("softgpu: control block workers=%llu next=%u done=%u end=%u finished=%u",
                       (unsigned long long)workers, control->next, control->done, args->end,
                       control->finished);
    }
    return ok ? WEIR_OK : WEIR_ERR_INTERNAL;
}

static enum weir_status run_controlled(struct run *run, bool persistent)
{
    enum weir_status status = WEIR_OK;

    run->args->control = (uint64_t)(uintptr_t)run->control;
    for (uint32_t i = 0; run->control->next < run->args->total && status == WEIR_OK; i++) {
        status = run_round(run, persistent, i >= MAX_ROUNDS);
        if (status == WEIR_OK) {
            status = check_control(run, persistent);
        }
        /* Continue at the requested end: blocks behind it were not begun. */
        run->control->next = weir_ptx_control_done(run->control, run->args->end);
    }
    return status;
}

static enum weir_status run_twin(struct run *run, enum weir_ptx_form form)
{
    run->control = calloc(1, sizeof(*run->control));
    if (!run->control) {
        return WEIR_ERR_NO_MEMORY;
    }
    uint64_t base = (uint64_t)(uintptr_t)run->control;
    enum weir_status status =
        weir_soft_memory_add(base, sizeof(*run->control), WEIR_SOFT_READ | WEIR_SOFT_WRITE);

    if (status == WEIR_OK) {
        status = run_controlled(run, form == WEIR_PTX_FORM_PERSISTENT);
        (void)!weir_soft_memory_remove(base);
    }
    free(run->control);
    return status;
}

/* Largest size of a twin's slot: for twins inside the program's module the real size is unknown. */
#define SLOT_BYTES 48u

static const struct weir_exec_kernel *twin_of(const struct weir_exec_module *module,
                                              struct weir_soft_twins *apart,
                                              const struct weir_exec_kernel *kernel,
                                              enum weir_ptx_form form, uint32_t *ret_dynamic)
{
    const char *name = weir_exec_kernel_info(kernel)->name;
    char twin[4096];

    if (apart) {
        return apart_twin(apart, name, ret_dynamic);
    }
    int len = snprintf(twin, sizeof(twin), "%s$%s", name, weir_ptx_form_text(form));

    *ret_dynamic = SLOT_BYTES;
    return len > 0 && (size_t)len < sizeof(twin) ? weir_exec_module_kernel(module, twin) : NULL;
}

/* Build the twin's parameters: the kernel's own, followed by the form's. */
static char *twin_params(const struct weir_exec_launch *launch,
                         const struct weir_exec_kernel_info *info,
                         const struct weir_ptx_form_args *args,
                         struct weir_ptx_form_args **ret_args)
{
    uint32_t at = info->params[info->n_params - 1].offset;
    char *params = calloc(1, info->param_bytes);

    if (params) {
        memcpy(params, launch->params, launch->params_bytes < at ? launch->params_bytes : at);
        memcpy(params + at, args, sizeof(*args));
        *ret_args = (struct weir_ptx_form_args *)(void *)(params + at);
    }
    return params;
}

static enum weir_status run_launch(struct weir_exec_device *engine,
                                   const struct weir_exec_module *module,
                                   struct weir_soft_twins *apart,
                                   const struct weir_exec_launch *asked,
                                   struct weir_exec_fault *ret_fault)
{
    enum weir_ptx_form form = wanted_form();
    struct weir_exec_launch plain = *asked;
    plain.order_seed = order_seed();
    const struct weir_exec_launch *launch = &plain;
    struct run run = {.engine = engine, .launch = plain, .fault = ret_fault};
    struct weir_ptx_form_args args;
    uint32_t dynamic = 0;
    const struct weir_exec_kernel *twin =
        form == WEIR_PTX_FORM_ORIGINAL ? NULL
                                       : twin_of(module, apart, launch->kernel, form, &dynamic);

    if (dynamic != 0) {
        run.launch.dynamic_shared_bytes = ((launch->dynamic_shared_bytes + 15u) & ~15u) + dynamic;
    }
    bool clusters = launch->cluster[0] != 0;

    /* A launch that uses all shared memory leaves no room for a twin's slot. */
    if (!twin || launch->cooperative || clusters || !weir_ptx_form_args_init(launch->grid, &args) ||
        weir_exec_occupancy(engine, twin, launch->block[0] * launch->block[1] * launch->block[2],
                            run.launch.dynamic_shared_bytes) == 0) {
        return weir_exec_run(engine, launch, ret_fault);
    }
    const struct weir_exec_kernel_info *info = weir_exec_kernel_info(twin);
    char *params = twin_params(launch, info, &args, &run.args);

    if (!params) {
        return WEIR_ERR_NO_MEMORY;
    }
    if (apart) {
        copy_consts(apart);
    }
    run.launch.kernel = twin;
    run.launch.params = params;
    run.launch.params_bytes = info->param_bytes;
    seed(&run);
    enum weir_status status = run_twin(&run, form);

    weir_log_debug("softgpu: form ran kernel=%s blocks=%u starts=%u", info->name, args.total,
                   run.starts);
    free(params);
    return status;
}

/* ---------------------------------------------------------------- for the driver */

/* Load a module whose texts have twins of its kernels. */
static enum weir_status load_rewritten(struct weir_exec_device *engine,
                                       const struct weir_exec_source *asked, uint32_t n,
                                       const struct weir_exec_memory *memory,
                                       struct weir_diag *diag, struct weir_exec_module **ret_module)
{
    struct weir_exec_source *sources = calloc(n, sizeof(*sources));
    char **texts = calloc(n, sizeof(char *));
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    if (sources && texts) {
        for (uint32_t i = 0; i < n; i++) {
            sources[i] = asked[i];
            rewrite(&asked[i], &texts[i], &sources[i].bytes);
            sources[i].text = texts[i] ? texts[i] : asked[i].text;
        }
        status = weir_exec_module_load(engine, sources, n, memory, diag, ret_module);
        for (uint32_t i = 0; i < n; i++) {
            free(texts[i]);
        }
    }
    free(texts);
    free(sources);
    return status;
}

static enum weir_status load(struct weir_exec_device *engine,
                             const struct weir_exec_source *sources, uint32_t n,
                             const struct weir_exec_memory *memory, struct weir_diag *diag,
                             struct weir_exec_module **ret_module,
                             struct weir_soft_twins **ret_twins)
{
    bool other = wanted_form() != WEIR_PTX_FORM_ORIGINAL;
    if (other && !are_apart(n)) {
        return load_rewritten(engine, sources, n, memory, diag, ret_module);
    }
    WEIR_TRY(weir_exec_module_load(engine, sources, n, memory, diag, ret_module));
    return other ? load_apart(engine, sources, memory, *ret_module, ret_twins) : WEIR_OK;
}

__attribute__((constructor)) static void offer(void)
{
    static const struct weir_soft_forms forms = {load, unload, is_twin, run_launch};
    weir_soft_forms = &forms;
}
