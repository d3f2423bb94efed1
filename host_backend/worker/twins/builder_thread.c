/*
 * A device's builder is a thread that takes modules from a bounded queue and makes their twins.
 * This file also creates and destroys a device's state.
 *
 * Making twins takes seconds of a core, so another thread with a low priority (nice) makes each
 * set. A thread inherits its maker's nice value and cannot lower it without privileges, and the
 * builder also starts the thread that watches runs; so the builder itself keeps the normal value.
 */
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/device/connections.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/runs/run_streams.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/twins/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/device/device_idle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define BUILD_NICE 10

/* ---------------------------------------------------------------- a module */

void weir_forms_refuse(struct weir_forms_module *module, const char *why)
{
    if (!module->refused) {
        module->refused = true;
        weir_log_debug("forms: originals only tenant=%s why=\"%s\"", module->tenant, why);
    }
}

static void log_counts(const struct weir_forms_module *m)
{
    for (uint32_t i = 0; m->kernels && i < m->set->n_kernels; i++) {
        const struct weir_forms_kernel *k = &m->kernels[i];

        if (k->launches[WEIR_PTX_FORM_ORIGINAL] + k->launches[WEIR_PTX_FORM_TICKET] +
                k->launches[WEIR_PTX_FORM_PERSISTENT] !=
            0) {
            weir_log_debug("forms: launches tenant=%s kernel=%.100s original=%llu ticket=%llu "
                           "persistent=%llu block_ns=%llu plain_ps=%llu capped_ps=%llu "
                           "roomy_ps=%llu",
                           m->tenant, k->info->name,
                           (unsigned long long)k->launches[WEIR_PTX_FORM_ORIGINAL],
                           (unsigned long long)k->launches[WEIR_PTX_FORM_TICKET],
                           (unsigned long long)k->launches[WEIR_PTX_FORM_PERSISTENT],
                           (unsigned long long)atomic_load(&m->kernels[i].block_ns),
                           (unsigned long long)k->timing.grid_ps[WEIR_FORMS_PLAIN],
                           (unsigned long long)k->timing.grid_ps[WEIR_FORMS_CAPPED],
                           (unsigned long long)k->timing.grid_ps[WEIR_FORMS_ROOMY]);
        }
    }
}

/* Unload a module that the builder has loaded, and an original that was left to it. */
static void unload(struct weir_forms_module *m)
{
    struct weir_worker *worker = m->device->forms->worker;
    const struct weir_driver *d = m->device->forms->driver;
    uint32_t idle = weir_device_idle_begin(worker, NULL);
    CUcontext before;

    if (d->cuCtxPushCurrent_v2(m->device->gpu->context) == CUDA_SUCCESS) {
        if (m->twins) {
            (void)d->cuModuleUnload(m->twins);
        }
        for (uint32_t i = 0; m->kernels && i < m->set->n_kernels; i++) {
            weir_forms_variant_finish(&m->kernels[i]);
        }
        if (m->orphan) {
            (void)(m->library ? d->cuLibraryUnload((CUlibrary)m->original)
                              : d->cuModuleUnload(m->original));
        }
        (void)d->cuCtxPopCurrent_v2(&before);
    }
    weir_device_idle_end(worker, idle);
}

static void module_destroy(struct weir_forms_module *m)
{
    if (m->twins || m->orphan) {
        unload(m);
    }
    log_counts(m);
    weir_forms_learned_keep(m);
    weir_image_put(m->store, m->kept);
    weir_image_put(m->store, m->image);
    weir_forms_set_destroy(m->set);
    free(m->kernels);
    free(m->consts);
    free(m->option_ids);
    free(m->option_values);
    free(m);
}

/* R2, A2: publishes this holder's writes; the last holder acquires those of all. */
static bool is_last(struct weir_forms_module *module)
{
    return atomic_fetch_sub_explicit(&module->refs, 1, memory_order_acq_rel) == 1;
}

void weir_forms_module_put(struct weir_forms_module *module)
{
    if (is_last(module)) {
        module_destroy(module);
    }
}

void weir_forms_module_put_later(struct weir_forms_module *module)
{
    struct weir_forms_device *device = module->device;

    if (is_last(module)) {
        pthread_mutex_lock(&device->lock);
        WEIR_PUSH(device->dead, module);
        pthread_cond_signal(&device->work);
        pthread_mutex_unlock(&device->lock);
    }
}

static void destroy_all(struct weir_forms_module *first)
{
    for (struct weir_forms_module *gone; (gone = WEIR_POP(first));) {
        module_destroy(gone);
    }
}

/* ---------------------------------------------------------------- building */

static enum weir_status extract(struct weir_forms_module *m, struct weir_host_image **image,
                                char **ret_text, size_t *ret_bytes)
{
    const struct weir_forms *forms = m->device->forms;
    struct weir_image_ptx_want want = {.sm = m->device->sm,
                                       .code_runs = forms->real,
                                       .any_arch = forms->config.ptx == WEIR_FORMS_PTX_ANY,
                                       .max_bytes = WEIR_FORMS_TEXT_MAX_BYTES};
    enum weir_status status =
        weir_image_ptx((*image)->data, (*image)->bytes, &want, ret_text, ret_bytes);

    weir_image_put(m->store, *image);
    *image = NULL;
    return status;
}

/*
 * Look a twin up and load its code now, while the device is idle. Otherwise the driver would load
 * it at the first launch or query, and make all of the device's later work wait for that.
 */
static CUresult find_twin(const struct weir_driver *d, CUmodule module, const char *name,
                          CUfunction *ret_twin)
{
    CUresult result = d->cuModuleGetFunction(ret_twin, module, name);

    return result == CUDA_SUCCESS ? d->cuFuncLoad(*ret_twin) : result;
}

static CUresult find_twins(const struct weir_driver *d, struct weir_forms_module *m)
{
    CUresult result = CUDA_SUCCESS;
    bool ticket = false;

    for (uint32_t i = 0; i < m->set->n_kernels; i++) {
        struct weir_forms_kernel *k = &m->kernels[i];

        for (uint32_t form = 0; form < WEIR_PTX_FORM_COUNT; form++) {
            const char *name = k->info->twins[form].name;

            k->useless |= name && find_twin(d, m->twins, name, &k->twins[form]) != CUDA_SUCCESS;
        }
        ticket |= k->twins[WEIR_PTX_FORM_TICKET] != NULL;
    }
    if (ticket) {
        result = find_twin(d, m->twins, WEIR_PTX_FINISH_NAME, &m->finish);
    }
    return result;
}

static enum weir_status load(struct weir_forms_module *m)
{
    const struct weir_driver *d = m->device->forms->driver;

    m->kernels = calloc(m->set->n_kernels + 1u, sizeof *m->kernels);
    WEIR_FAIL_IF(!m->kernels, WEIR_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < m->set->n_kernels; i++) {
        m->kernels[i].module = m;
        m->kernels[i].info = &m->set->kernels[i];
    }
    uint32_t idle = weir_device_idle_begin(m->device->forms->worker, NULL);
    CUresult loaded = d->cuModuleLoadDataEx(&m->twins, m->set->image, 0, NULL, NULL);
    if (loaded != CUDA_SUCCESS) {
        m->twins = NULL;
    } else {
        loaded = find_twins(d, m);
    }
    weir_device_idle_end(m->device->forms->worker, idle);
    return loaded == CUDA_SUCCESS ? WEIR_OK : WEIR_ERR_DRIVER;
}

/* A build of another variant of a kernel's twin, or (NULL, NULL) of all twins of the module. */
struct build {
    struct weir_forms_module *module;
    struct weir_forms_kernel *kernel;
    struct weir_forms_other *other;
    struct weir_forms_set *set;
    struct weir_forms_build_report report;
    enum weir_status status;
};

static void build_here(struct build *b)
{
    struct weir_forms_module *m = b->module;
    const struct weir_forms_other *o = b->other;
    struct weir_forms *forms = m->device->forms;
    struct weir_forms_build_params params = {
        .cache = &forms->cache,
        .compiler = forms->compiler,
        .driver = forms->driver,
        .driver_version = m->device->gpu->about.driver_version,
        .sm = m->device->sm,
        .twins = forms->config.twins,
        .compile_memory_bytes = forms->config.compile_memory_bytes,
        .kernel = b->kernel ? b->kernel->info->name : NULL,
        .max_regs = o ? o->max_regs : 0,
        .options = {m->option_ids, m->option_values, m->n_options},
        .tenant = m->tenant};
    char *text;

    b->status = extract(m, o ? &b->other->image : &m->image, &text, &params.text_bytes);
    if (b->status != WEIR_OK) {
        snprintf(b->report.why, sizeof b->report.why, "no text that its code was made from");
        return;
    }
    params.text = text;
    b->status = weir_forms_build(&params, &b->set, &b->report);
    free(text);
}

static void *build_nicely(void *user)
{
    struct build *b = user;
    const struct weir_forms_device *device = b->module->device;

    (void)prctl(PR_SET_NAME, "weir-build");
    (void)setpriority(PRIO_PROCESS, 0, BUILD_NICE); /* sets the priority of this thread only */
    (void)device->forms->driver->cuCtxSetCurrent(device->gpu->context);
    build_here(b);
    return NULL;
}

static void build(struct build *b)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, build_nicely, b) == 0) {
        (void)pthread_join(thread, NULL);
    } else {
        build_here(b);
    }
}

/* Load a variant, without copies of constants: they would have to follow the original's. */
static bool load_other(struct weir_forms_kernel *k, struct weir_forms_other *c)
{
    const struct weir_driver *d = k->module->device->forms->driver;

    WEIR_FAIL_IF(c->set->n_kernels != 1 || c->set->n_consts != 0, false);
    const struct weir_forms_twin *twin = &c->set->kernels[0].twins[WEIR_PTX_FORM_PERSISTENT];
    WEIR_FAIL_IF(!twin->name, false);
    uint32_t idle = weir_device_idle_begin(k->module->device->forms->worker, NULL);
    CUresult loaded = d->cuModuleLoadDataEx(&c->module, c->set->image, 0, NULL, NULL);
    if (loaded != CUDA_SUCCESS) {
        c->module = NULL;
    } else {
        loaded = find_twin(d, c->module, twin->name, &c->twin);
    }
    weir_device_idle_end(k->module->device->forms->worker, idle);
    return loaded == CUDA_SUCCESS;
}

static void do_other(struct weir_forms_kernel *k, enum weir_forms_variant variant)
{
    struct weir_forms_other *o = &k->others[variant];
    struct weir_forms_module *m = k->module;
    struct build b = {.module = m, .kernel = k, .other = o};

    build(&b);
    o->set = b.set;
    bool ready = b.status == WEIR_OK && load_other(k, o);
    weir_log_debug("forms: %s tenant=%s kernel=%.100s registers=%u ready=%d cached=%d why=\"%s\"",
                   variant == WEIR_FORMS_CAPPED ? "capped" : "roomy", m->tenant, k->info->name,
                   o->max_regs, ready, b.report.cached, b.report.why);
    /* R3: publishes the builder's fields; meets A3 in other_is_ready(). */
    atomic_store_explicit(&o->state, ready ? WEIR_FORMS_OTHER_READY : WEIR_FORMS_OTHER_NONE,
                          memory_order_release);
}

static bool have_runs(struct weir_forms_device *device)
{
    struct weir_forms *forms = device->forms;
    struct weir_runs *runs = atomic_load(&device->runs);

    if (!runs && weir_runs_create(forms->driver, device->gpu->context, device->sms, device->streams,
                                  &runs) == WEIR_OK) {
        atomic_store(&device->runs, runs);
        if (forms->config.mode == WEIR_FORMS_EXPLORE) {
            device->exploring =
                pthread_create(&device->explorer, NULL, weir_forms_explore, device) == 0;
        }
    }
    return runs != NULL;
}

static void do_job(struct weir_forms_module *m)
{
    struct build b = {.module = m};
    uint64_t start_ns = weir_clock_now_ns();
    bool ready, learned;

    build(&b);
    m->set = b.set;
    if (b.status == WEIR_OK && m->set->n_kernels != 0) {
        b.status = load(m);
    }
    ready = b.status == WEIR_OK && m->set->n_kernels != 0 && have_runs(m->device);
    m->learned_key = weir_hash_of(&b.report.key, sizeof b.report.key);
    learned = ready && weir_forms_learned_take(m);

    if (b.status != WEIR_OK) {
        weir_log_debug("forms: no twins tenant=%s status=\"%s\" why=\"%s\"", m->tenant,
                       weir_status_text(b.status), b.report.why);
    } else {
        weir_log_debug("forms: twins tenant=%s kernels=%u of=%u cached=%d learned=%d ms=%llu",
                       m->tenant, m->set->n_kernels, b.report.n_kernels, b.report.cached, learned,
                       (unsigned long long)((weir_clock_now_ns() - start_ns) / WEIR_NS_PER_MS));
    }
    /* R1: publishes the builder's fields; meets A1 in weir_forms_here(). */
    atomic_store_explicit(&m->state, ready ? WEIR_FORMS_READY : WEIR_FORMS_NONE,
                          memory_order_release);
}

/* Unload dead modules. The lock is dropped meanwhile. */
static void bury_locked(struct weir_forms_device *device)
{
    struct weir_forms_module *dead = device->dead;

    device->dead = NULL;
    pthread_mutex_unlock(&device->lock);
    destroy_all(dead);
    pthread_mutex_lock(&device->lock);
}

/* @return when the next job is due; 0: now; WEIR_FOREVER: there is none. */
static uint64_t due_ns_locked(const struct weir_forms_device *device)
{
    uint64_t from_ns = device->n_jobs != 0 ? device->jobs[device->first_job].module->from_ns : 0;

    return device->n_jobs == 0 ? WEIR_FOREVER : from_ns > weir_clock_now_ns() ? from_ns : 0;
}

static void wait_locked(struct weir_forms_device *device, uint64_t until_ns)
{
    if (until_ns == WEIR_FOREVER) {
        pthread_cond_wait(&device->work, &device->lock);
    } else {
        (void)weir_thread_condition_wait(&device->work, &device->lock, until_ns);
    }
}

/* @return the next job; without a module: the thread must end. */
static struct weir_forms_job next_job_locked(struct weir_forms_device *device)
{
    while (!device->quit && (due_ns_locked(device) != 0 || device->dead)) {
        if (device->dead) {
            bury_locked(device);
        } else {
            wait_locked(device, due_ns_locked(device));
        }
    }
    if (device->quit) {
        return (struct weir_forms_job){0};
    }
    struct weir_forms_job job = device->jobs[device->first_job];
    device->first_job = (device->first_job + 1) % WEIR_FORMS_JOBS_MAX;
    device->n_jobs--;
    return job;
}

static void *builder(void *user)
{
    struct weir_forms_device *device = user;
    const struct weir_driver *d = device->forms->driver;
    struct weir_forms_job job;

    (void)prctl(PR_SET_NAME, "weir-forms");
    (void)d->cuCtxSetCurrent(device->gpu->context);
    do {
        pthread_mutex_lock(&device->lock);
        job = next_job_locked(device);
        pthread_mutex_unlock(&device->lock);
        if (job.kernel) {
            do_other(job.kernel, job.variant);
        } else if (job.module && atomic_load(&job.module->refs) > 1) {
            do_job(job.module); /* else only the job still has a reference */
        }
        if (job.module) {
            weir_forms_module_put(job.module);
        }
    } while (job.module);
    return NULL;
}

bool weir_forms_enqueue(struct weir_forms_module *module, struct weir_forms_kernel *kernel,
                        enum weir_forms_variant variant)
{
    struct weir_forms_device *device = module->device;

    WEIR_LOCKED(&device->lock);
    if (!device->building) {
        device->building = pthread_create(&device->builder, NULL, builder, device) == 0;
    }
    bool room = device->building && device->n_jobs < WEIR_FORMS_JOBS_MAX;
    if (room) {
        atomic_fetch_add(&module->refs, 1);
        device->jobs[(device->first_job + device->n_jobs++) % WEIR_FORMS_JOBS_MAX] =
            (struct weir_forms_job){module, kernel, variant};
        pthread_cond_signal(&device->work);
    }
    return room;
}

/* ---------------------------------------------------------------- a worker's forms */

static uint32_t attribute(const struct weir_worker_device *device, int32_t id)
{
    const struct weir_device_attribute *a = weir_device_attribute_get(&device->about, id);

    return a && a->value > 0 ? (uint32_t)a->value : 0;
}

enum weir_status weir_forms_create(struct weir_worker *worker,
                                   const struct weir_forms_config *config,
                                   const struct weir_compiler *compiler,
                                   struct weir_forms **ret_forms)
{
    const struct weir_platform *platform = weir_worker_platform(worker);
    struct weir_forms *forms = calloc(1, sizeof *forms);

    WEIR_FAIL_IF(!forms, WEIR_ERR_NO_MEMORY);
    forms->worker = worker;
    forms->driver = &platform->driver;
    forms->real = platform->real;
    forms->config = *config;
    forms->n_devices = platform->n_devices;
    weir_file_cache_init(&forms->cache, forms->config.cache_dir, forms->config.cache_bytes,
                         ".twins");
    forms->compiler = compiler;
    for (uint32_t i = 0; i < forms->n_devices; i++) {
        struct weir_forms_device *device = &forms->devices[i];
        const struct weir_worker_device *gpu = &platform->devices[i];

        device->streams = weir_run_streams_create(forms->driver, weir_connections_count(worker));
        if (!device->streams) {
            forms->n_devices = i;
            weir_forms_destroy(forms);
            return WEIR_ERR_NO_MEMORY;
        }
        device->forms = forms;
        device->index = i;
        device->gpu = gpu;
        device->sms = attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        device->sm_shared_bytes =
            attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
        device->sm = weir_device_capability(&gpu->about);
        pthread_mutex_init(&device->lock, NULL);
        weir_thread_condition_init(&device->work);
    }
    weir_log_debug("forms: compiler=\"%s\" cache=%s", forms->compiler->id,
                   forms->cache.dir[0] != 0 ? forms->cache.dir : "none");
    *ret_forms = forms;
    return WEIR_OK;
}

static void log_runs(uint32_t device, struct weir_runs *runs)
{
    struct weir_runs_counts c;
    char text[512];
    int n = 0;

    weir_runs_count(runs, &c);
#define WEIR_RUNS_ROW(name)                                                                        \
    n += snprintf(text + n, sizeof text - (size_t)n, " " #name "=%llu", (unsigned long long)c.name);
#include "host_backend/worker/runs/counts.def"
#undef WEIR_RUNS_ROW
    weir_log_info("forms: runs device=%u%s", device, text);
}

static void device_finish(struct weir_forms_device *device)
{
    pthread_mutex_lock(&device->lock);
    device->quit = true;
    pthread_cond_signal(&device->work);
    pthread_mutex_unlock(&device->lock);
    if (device->building) {
        pthread_join(device->builder, NULL);
    }
    struct weir_runs *runs = atomic_load(&device->runs);
    if (device->exploring) {
        pthread_join(device->explorer, NULL);
    }
    if (runs) {
        weir_runs_release(runs, NULL);
        if (!weir_runs_wait(runs, NULL, WEIR_NS_PER_S)) {
            weir_log_warn("forms: runs do not end device=%u", device->index);
        }
        log_runs(device->index, runs);
        atomic_store(&device->runs, NULL); /* from now on no thread resumes the runs */
        weir_runs_destroy(runs);
    }
    for (; device->n_jobs != 0; device->n_jobs--) {
        weir_forms_module_put(device->jobs[device->first_job].module);
        device->first_job = (device->first_job + 1) % WEIR_FORMS_JOBS_MAX;
    }
    destroy_all(device->dead);
    weir_run_streams_destroy(device->streams);
    pthread_cond_destroy(&device->work);
    pthread_mutex_destroy(&device->lock);
}

void weir_forms_destroy(struct weir_forms *forms)
{
    if (!forms) {
        return;
    }
    for (uint32_t i = 0; i < forms->n_devices; i++) {
        device_finish(&forms->devices[i]);
    }
    weir_file_cache_finish(&forms->cache);
    free(forms);
}

/* A device that gets its runs later is not included; weir_forms_device_idle_end() leaves it out,
 * too. */
bool weir_forms_device_idle_begin(struct weir_forms *forms, uint64_t limit_ns, uint32_t *ret_idle)
{
    uint64_t end_ns = weir_clock_now_ns() + limit_ns;
    bool all = true;

    *ret_idle = 0;
    for (uint32_t i = 0; forms && i < forms->n_devices; i++) {
        struct weir_runs *runs = atomic_load(&forms->devices[i].runs);
        uint64_t now_ns = weir_clock_now_ns();

        if (runs) {
            all &= weir_runs_device_idle_begin(runs, now_ns < end_ns ? end_ns - now_ns : 0);
            *ret_idle |= 1u << i;
        }
    }
    return all;
}

void weir_forms_device_idle_end(struct weir_forms *forms, uint32_t idle)
{
    for (uint32_t i = 0; idle >> i != 0; i++) {
        if ((idle >> i & 1) != 0) {
            weir_runs_device_idle_end(atomic_load(&forms->devices[i].runs));
        }
    }
}

struct weir_runs *weir_forms_runs_of(struct weir_forms *forms, uint32_t device)
{
    return forms && device < forms->n_devices ? atomic_load(&forms->devices[device].runs) : NULL;
}
