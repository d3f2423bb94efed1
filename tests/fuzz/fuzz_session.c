/*
 * Sequences of operations into one session on softgpu, as a hostile guest may send them: decoders,
 * handlers, and the session's end (session/guest.h says how records are made).
 *
 * The worker lives as long as its contexts, as it does in a host; tenant and session are made for
 * each input. After each nothing may be left: no object, no chunk, nothing charged to the tenant.
 *
 * Another tenant has memory beside it, whose address the guest knows. Nothing may have been written
 * there, and nothing of it may have come into the guest's arena. (The guest's kernels reach their
 * own module's memory only: what others might do in a context that tenants share is no secret.)
 *
 * WEIR_FUZZ_FORMS: the same with a scheduler, twins of all kernels that are stopped and resumed at
 * random, and graphs in pieces. Their threads go their own ways, so an input need not do the same
 * twice.
 */
#include "host_backend/config/config.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/device/connections.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/memory/access.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/directory.h"
#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/session/tenant_life.h"
#include "host_backend/worker/sessions.h"
#include "host_backend/worker/state/session.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include "host_backend/worker/twins/forms.h"
#include "host_backend/worker/twins/orders.h"
#include "tests/fuzz/session/guest.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_NS    (200 * WEIR_NS_PER_MS)
#define OTHERS_BYTES (2u << 20)
#define SECRET       UINT64_C(0x5ec2e75ec2e75ec1)
#define WISH_BYTES   (16u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct weir_worker *worker;
static struct weir_spin_page spin_page;

/* The other tenant, and its memory. */
static struct {
    struct weir_tenant *tenant;
    CUmemGenericAllocationHandle memory;
    uint64_t *words; /* softgpu's memory is the process's */
} other;

static void require(bool condition, const char *what)
{
    if (!condition) {
        (void)fprintf(stderr, "fuzz_session: %s\n", what);
        abort();
    }
}

/* Of this build tree, or of the folder that this program was carried to. */
static const char *softgpu(void)
{
    const char *elsewhere = getenv("WEIR_FUZZ_SOFTGPU");

    return elsewhere ? elsewhere : WEIR_FUZZ_SOFTGPU;
}

static void configure(struct weir_link_config *config)
{
    struct weir_host_config host;

    weir_config_default(&host);
    config->window_base = host.window_base;
    config->window_bytes = UINT64_C(1) << 32;
    config->vmm_base = host.vmm_base;
    config->vmm_bytes = UINT64_C(1) << 34;
    (void)snprintf(config->driver, sizeof config->driver, "softgpu");
    (void)snprintf(config->softgpu, sizeof config->softgpu, "%s", softgpu());
}

static struct weir_tenant *make_tenant(uint32_t index, const char *name)
{
    struct weir_tenant_config config;
    struct weir_tenant *tenant;

    weir_tenant_config_default(&config, name);
    tenant = weir_tenant_create(worker, index, &config);
    require(tenant && weir_tenant_reserve(tenant) == CUDA_SUCCESS, "no tenant");
    worker->tenants[index] = tenant;
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_DEVICE_MEMORY, 64u << 20);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_PINNED_MEMORY, 64u << 20);
    weir_account_limit_set(&tenant->account, WEIR_ACCOUNT_HOST_MEMORY, 16u << 20);
    return tenant;
}

static void drop_tenant(struct weir_tenant *tenant)
{
    worker->tenants[tenant->index] = NULL;
    weir_tenant_destroy(tenant);
}

/* ---------------------------------------------------------------- the other tenant */

static void open_other(void)
{
    const struct weir_driver *driver = &worker->platform.driver;
    struct weir_session maker = {.worker = worker};
    uint64_t base;

    other.tenant = make_tenant(1, "b");
    base = weir_tenant_window_base(other.tenant);
    require(weir_memory_create(&maker, 0, OTHERS_BYTES, &other.memory) == CUDA_SUCCESS &&
                driver->cuMemMap(base, OTHERS_BYTES, 0, other.memory, 0) == CUDA_SUCCESS &&
                weir_memory_access(worker, 0, 0, base, OTHERS_BYTES,
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS,
            "no memory for the other tenant");
    other.words = (uint64_t *)(uintptr_t)base; // NOLINT(performance-no-int-to-ptr): softgpu's
    for (size_t i = 0; i < OTHERS_BYTES / sizeof *other.words; i++) {
        other.words[i] = SECRET;
    }
}

static void close_other(void)
{
    const struct weir_driver *driver = &worker->platform.driver;

    (void)driver->cuMemUnmap(weir_tenant_window_base(other.tenant), OTHERS_BYTES);
    (void)driver->cuMemRelease(other.memory);
    drop_tenant(other.tenant);
}

static void check_other(void)
{
    require(other.words[0] == SECRET &&
                memcmp(other.words, other.words + 1, OTHERS_BYTES - sizeof *other.words) == 0,
            "the guest has written another tenant's memory");
}

static void check_arena(const struct guest *guest)
{
    const uint64_t secret = SECRET;

    require(!memmem(guest->view.arena, guest->view.arena_bytes, &secret, sizeof secret),
            "the guest has read another tenant's memory");
}

/* ---------------------------------------------------------------- the worker */

#ifdef WEIR_FUZZ_FORMS
static void open_forms(void)
{
    static const struct weir_compiler compiler = WEIR_COMPILER_NONE;
    struct weir_forms_config *forms = &worker->config.forms;

    *forms = (struct weir_forms_config){.mode = WEIR_FORMS_EXPLORE,
                                        .ptx = WEIR_FORMS_PTX_ANY,
                                        .twins = WEIR_FORMS_TWINS_ALL,
                                        .compiler = "driver",
                                        .cache_dir = "none"};
    worker->config.scheduler = weir_sched_settings_default();
    require(weir_forms_create(worker, forms, &compiler, &worker->forms) == WEIR_OK, "no forms");
    worker->hooks = &weir_forms_hooks;
    require(weir_gates_create(worker, &weir_orders_of_runs, WEIR_ORDERS_ROOM) == WEIR_OK,
            "no gates");
}

static void close_forms(void)
{
    weir_forms_destroy(worker->forms);
    worker->forms = NULL;
    worker->hooks = NULL;
}

/* Their builder holds images for longer than sessions live. */
static void await_images(struct weir_tenant *tenant)
{
    uint64_t end_ns = weir_clock_now_ns() + 20 * WEIR_NS_PER_S;
    const struct timespec pause = {0, (long)WEIR_NS_PER_MS};

    while (weir_host_image_store_in_use(&tenant->images) && weir_clock_now_ns() < end_ns) {
        nanosleep(&pause, NULL);
    }
}
#else
static void open_forms(void)
{
}

static void close_forms(void)
{
}

static void await_images(struct weir_tenant *tenant)
{
    (void)tenant;
}
#endif

static void open_worker(void)
{
    setenv("WEIR_SOFTGPU_SMS", "2", 1);
    setenv("WEIR_SOFTGPU_DEVICES", "2", 1);
    worker = calloc(1, sizeof *worker);
    require(worker && weir_log_init("none", "fuzz") == WEIR_OK, "no memory");
    configure(&worker->config);
    pthread_mutex_init(&worker->lock, NULL);
    weir_thread_condition_init(&worker->idle);
    worker->platform.spin.page = &spin_page;
    worker->link = -1;
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    worker->directory = weir_directory_create(worker->link);
    worker->vmm_area = weir_vmm_area_create();
    worker->device_idle = weir_device_idle_create();
    worker->counts.pool = weir_worker_pool_create();
    require(weir_prints_create(SETTLE_NS, &worker->prints) == WEIR_OK &&
                weir_worker_open_device(worker) == WEIR_OK,
            "no device");
    open_forms();
}

/* Its contexts are dead: in a host the process ends. */
static void close_worker(void)
{
    close_forms();
    close_other();
    weir_gates_destroy(worker);
    weir_device_idle_destroy(worker);
    weir_worker_close_device(worker);
    weir_connections_destroy(worker);
    weir_prints_destroy(worker->prints);
    close(worker->wake_fd);
    weir_directory_destroy(worker->directory);
    weir_vmm_area_destroy(worker->vmm_area);
    free(worker->counts.pool);
    pthread_cond_destroy(&worker->idle);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
    worker = NULL;
}

/* ---------------------------------------------------------------- an input */

static void check_tenant(struct weir_tenant *tenant)
{
    require(!weir_host_image_store_in_use(&tenant->images), "an image is still held");
    for (int item = 0; item < WEIR_ACCOUNT_COUNT; item++) {
        uint64_t used = weir_account_used(&tenant->account, (enum weir_account_item)item);

        require(used == (item == WEIR_ACCOUNT_HOST_MEMORY
                             ? weir_host_image_store_bytes(&tenant->images)
                             : 0),
                weir_account_item_text((enum weir_account_item)item));
    }
}

static void run_session(struct weir_tenant *tenant, const uint8_t *data, size_t size)
{
    struct guest *guest = guest_create(data, size);
    struct weir_limit_wish wish = {.memory_bytes = {WISH_BYTES}};
    struct weir_session_params params = {.worker = worker,
                                         .tenant = tenant,
                                         .transport = &guest->base,
                                         .id = 1,
                                         .remote = (guest->options & GUEST_REMOTE) != 0,
                                         .monitor =
                                             (guest->options & GUEST_MONITOR) == GUEST_MONITOR,
                                         .wish = (guest->options & GUEST_WISH) != 0 ? &wish : NULL,
                                         .program = "fuzz"};

    guest_see_address(guest, weir_tenant_window_base(other.tenant));
    guest_see_address(guest, (uintptr_t)worker);
    require(weir_session_create(&params, &guest->session) == WEIR_OK, "no session");
    worker->sessions = guest->session;
    worker->n_sessions = 1;
    weir_session_run(guest->session);
    worker->sessions = NULL;
    weir_session_clear(guest->session);
    check_arena(guest);
    worker->n_sessions = 0;
    weir_session_destroy(guest->session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_tenant *tenant;
    bool alive;

    if (!worker) {
        open_worker();
        open_other();
    }
    require(weir_platform_enter(&worker->platform) == CUDA_SUCCESS, "the context is dead");
    tenant = make_tenant(0, "a");
    run_session(tenant, data, size);
    weir_exports_look(worker); /* the guest has closed its descriptors */
    alive = weir_worker_sticky_error(worker) == CUDA_SUCCESS;
    require(!alive || atomic_load(&worker->counts.objects) == 0, "objects are left");
    require(!alive || atomic_load(&worker->counts.chunks) == 0, "chunks are left");
    await_images(tenant);
    check_tenant(tenant);
    check_other();
    drop_tenant(tenant);
    if (!alive) {
        close_worker();
    }
    return 0;
}
