/*
 * The worker process: opens the driver, handles the supervisor's messages, and gives each guest a
 * thread.
 *
 * It serves on while one supervisor ends and the next begins: the keeper holds the supervisor's end
 * of the link. It ends with the keeper (the parent-death signal), when told to stop, or when the
 * GPU's context has died; then it waits a little, so that guests can read the reason.
 */
#include "base/fd.h"
#include "host_backend/config/shared_page.h"
#include "host_backend/confine/confine.h"
#include "host_backend/worker/code/program_ptx.h"
#include "host_backend/worker/device/connections.h"
#include "host_backend/worker/device/device.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/fault.h"
#include "host_backend/worker/device/gates.h"
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/guests.h"
#include "host_backend/worker/memory/directory.h"
#include "host_backend/worker/memory/spare.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/memory/warm.h"
#include "host_backend/worker/profile/cupti.h"
#include "host_backend/worker/rebuild/rebuild.h"
#include "host_backend/worker/regions.h"
#include "host_backend/worker/session/tenant_life.h"
#include "host_backend/worker/state/bus_guard.h"
#include "host_backend/worker/state/start_stages.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include "host_backend/worker/stats.h"
#include "host_backend/worker/suspend.h"
#include "host_backend/worker/twins/forms.h"
#include "host_backend/worker/twins/orders.h"

#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/thread.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define STOP_WAIT_S    4
#define STACK_BYTES    (8u << 20)
#define LOOK_MS        10000 /* how late the worker may notice new spare memory */
#define LAST_WORDS_NS  (200 * WEIR_NS_PER_MS)
#define GONE_LOOK_MS   50  /* how often to check whether a tenant's sessions have ended */
#define SPARES_LOOK_MS 500 /* how often to check for memory that was spare too long */

/* State from the supervisor that only the main thread uses. */
static struct {
    bool may_listen; /* the worker has received the tenants that existed at its start */
    int tcp_fd;      /* the supervisor's listener for remote guests, until passed on */
    int region_fd;   /* descriptor of a region whose bell has not come yet; or -1 */
    struct weir_link_region region;
    uint64_t n_guests;   /* connections that the supervisor has sent */
    uint64_t n_reported; /* n_guests when the worker last reported that it is idle */
    int gate_port_fd;    /* descriptor of the gate's port until its bell comes; or -1 */
    bool gate_known;     /* the gate's port has come, or will not come */
    bool has_port;       /* the gate's port has come, and is not lost */
    uint64_t session;    /* highest number of a session that the supervisor has sent */
    int64_t pid;         /* pid of the program that the worker serves by_program; or 0 */
    bool stop;           /* end all sessions and exit */
} told = {.tcp_fd = -1, .region_fd = -1, .gate_port_fd = -1};

static struct weir_compiler compiler = WEIR_COMPILER_NONE;
static struct weir_log_rate lost_messages = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Map the account page that all workers of the tenant charge. The tenant has no session here
 * yet. */
static void share_account(struct weir_tenant *tenant, const struct weir_link_tenant *message,
                          int page_fd)
{
    void *page;

    if (message->place < WEIR_ACCOUNT_PLACES &&
        weir_shared_page_map(page_fd, sizeof *tenant->account.page, &page) == WEIR_OK) {
        weir_tenant_share_account(tenant, page, message->place);
        tenant->has_others = message->many;
    } else {
        weir_log_error("worker: counts for itself tenant=%s", tenant->name);
    }
}

/* Handle a tenant's settings, with which its account page comes. Without a page the worker counts
 * by itself. */
static void on_tenant(struct weir_worker *worker, struct weir_link_heard *heard)
{
    const struct weir_link_tenant *message = &heard->message.tenant;

    if (message->index >= WEIR_CONFIG_TENANTS_MAX) {
        return;
    }
    struct weir_tenant *tenant = worker->tenants[message->index];
    if (tenant) {
        pthread_mutex_lock(&worker->lock);
        __atomic_store_n(&tenant->generation, message->generation, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&worker->lock);
        atomic_store(&tenant->drain, message->drain);
        weir_tenant_configure(tenant, &message->config);
        return;
    }
    tenant = weir_tenant_create(worker, message->index, &message->config);
    if (!tenant) {
        weir_log_error("worker: no memory for a tenant tenant=%s", message->config.name);
        return;
    }
    tenant->generation = message->generation;
    atomic_store(&tenant->drain, message->drain);
    if (heard->fd >= 0) {
        share_account(tenant, message, heard->fd);
    }
    pthread_mutex_lock(&worker->lock);
    worker->tenants[message->index] = tenant;
    pthread_mutex_unlock(&worker->lock);
}

/* End the sessions of a tenant, or with NULL of all. */
static void end_sessions(struct weir_worker *worker, const struct weir_tenant *tenant)
{
    WEIR_LOCKED(&worker->lock);
    for (struct weir_session *s = worker->sessions; s; s = s->next) {
        if (!tenant || s->tenant == tenant) {
            weir_session_end(s);
        }
    }
}

static void on_tenant_gone(struct weir_worker *worker, struct weir_link_heard *heard)
{
    const struct weir_link_tenant *message = &heard->message.tenant;
    struct weir_tenant *tenant =
        message->index < WEIR_CONFIG_TENANTS_MAX ? worker->tenants[message->index] : NULL;

    if (tenant) {
        pthread_mutex_lock(&worker->lock);
        tenant->gone = true;
        __atomic_store_n(&tenant->generation, message->generation, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&worker->lock);
        end_sessions(worker, tenant);
    }
}

/* Free the removed tenants of which nothing is left. @return whether other removed tenants
 * remain */
static bool free_gone(struct weir_worker *worker)
{
    struct weir_link_message message = {.type = WEIR_LINK_TENANT_FREE};
    bool others = false;

    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_tenant *tenant = worker->tenants[i];

        if (!tenant || !tenant->gone) {
            continue;
        }
        pthread_mutex_lock(&worker->lock);
        /* The builder of kernels' forms holds images for longer than their sessions live. */
        bool busy = tenant->n_arrivals != 0 || weir_host_image_store_in_use(&tenant->images);
        if (!busy) {
            worker->tenants[i] = NULL;
        }
        pthread_mutex_unlock(&worker->lock);
        others |= busy;
        if (!busy) {
            message.tenant.index = i;
            message.tenant.generation = tenant->generation;
            weir_tenant_destroy(tenant);
            weir_worker_tell(worker, &message);
        }
    }
    return others;
}

/* A region comes in two messages, a descriptor each. */
static void on_region(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)worker;
    weir_fd_close(told.region_fd);
    told.region_fd = weir_link_take_fd(heard);
    told.region = heard->message.region;
}

static void on_region_bell(struct weir_worker *worker, struct weir_link_heard *heard)
{
    if (told.region_fd >= 0) {
        weir_region_attach(worker, &told.region, told.region_fd, weir_link_take_fd(heard));
        told.region_fd = -1;
    }
}

static void on_region_gone(struct weir_worker *worker, struct weir_link_heard *heard)
{
    weir_region_detach(worker, heard->message.region.id);
}

/* Keep the port to the gate process until its bell comes. */
static void keep_gate_port(int fd)
{
    weir_fd_close(told.gate_port_fd);
    told.gate_port_fd = fd;
}

static void on_gate_port(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)worker;
    keep_gate_port(weir_link_take_fd(heard));
}

static void on_gate_bell(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)weir_platform_enter(&worker->platform); /* to resume runs that the last gate stopped */
    if (told.gate_port_fd >= 0 && heard->fd >= 0) {
        weir_gates_attach(worker, told.gate_port_fd, weir_link_take_fd(heard));
        told.has_port = true;
    }
    keep_gate_port(-1);
    told.gate_known = true;
}

static void on_gate_lost(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)heard;
    (void)weir_platform_enter(&worker->platform);
    weir_gates_detach(worker);
    told.has_port = false;
    told.gate_known = true;
}

static void on_listen(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)worker;
    told.may_listen = true;
    told.tcp_fd = weir_link_take_fd(heard);
}

static void on_guest(struct weir_worker *worker, struct weir_link_heard *heard)
{
    const struct weir_link_guest *guest = &heard->message.guest;

    if (told.n_guests++ == told.n_reported) {
        told.pid = guest->pid;
    }
    told.session = WEIR_MAX(guest->session, told.session);
    if (heard->fd >= 0) { /* without a descriptor the guest is refused */
        weir_guest_arrived(worker, guest, weir_link_take_fd(heard));
    }
}

static void on_status(struct weir_worker *worker, struct weir_link_heard *heard)
{
    weir_worker_tell_status(worker, heard->message.type == WEIR_LINK_STATS, heard->message.devices);
}

static void on_found(struct weir_worker *worker, struct weir_link_heard *heard)
{
    weir_directory_answered(worker, &heard->message.entry, weir_link_take_fd(heard));
}

static void on_give_back(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)heard;
    (void)weir_spares_release(worker);
}

static void on_suspend(struct weir_worker *worker, struct weir_link_heard *heard)
{
    weir_suspend_ask(worker, &heard->message.suspend);
}

static void on_move(struct weir_worker *worker, struct weir_link_heard *heard)
{
    weir_rebuild_told(worker, &heard->message.move);
}

static void on_context_gone(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)heard;
    weir_rebuild_leave_all(worker);
    weir_worker_fault_elsewhere(worker);
}

/* Tell a new supervisor what it cannot know of this worker. */
static void on_resume(struct weir_worker *worker, struct weir_link_heard *heard)
{
    struct weir_link_message message = {.type = WEIR_LINK_RESUMED};
    struct weir_link_resumed *r = &message.resumed;
    uint32_t n = 0;

    weir_directory_resume(worker, heard->message.resumed.busy != 0);
    if (heard->message.resumed.busy != 0) {
        return;
    }
    r->tenant_index = -1;
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (worker->tenants[i]) {
            r->tenant_index = n++ == 0 ? (int32_t)i : -1;
            r->generation = worker->tenants[i]->generation;
        }
    }
    r->n_guests = told.n_guests;
    r->last_session = told.session;
    r->busy = told.n_guests != told.n_reported;
    r->pid = r->busy ? told.pid : 0;
    r->has_port = told.has_port;
    pthread_mutex_lock(&worker->counts.sync_lock);
    r->syncs = worker->counts.syncs;
    pthread_mutex_unlock(&worker->counts.sync_lock);
    weir_worker_status_fill(worker, &r->worker);
    weir_worker_tell(worker, &message);
    weir_rebuild_say_again(worker);
}

static void on_release(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)heard;
    told.stop = weir_guests_close(worker);
    if (!told.stop) {
        weir_worker_tell(worker, &(struct weir_link_message){.type = WEIR_LINK_STAYS});
    }
}

static void on_stop(struct weir_worker *worker, struct weir_link_heard *heard)
{
    (void)worker;
    (void)heard;
    told.stop = true;
}

static void (*const handlers[WEIR_LINK_COUNT])(struct weir_worker *worker,
                                               struct weir_link_heard *heard) = {
#define NO NULL
#define WEIR_LINK(message, worker, gate, of_worker, of_gate, when, about)                          \
    [WEIR_LINK_##message] = worker,
#include "host_backend/config/link.def"
#undef WEIR_LINK
#undef NO
};

/* Handle one message. false: stop. If this process has no descriptor left for the message's, the
 * handler still runs: a thread waits for the answer, or the supervisor counts the messages. */
static bool on_message(struct weir_worker *worker)
{
    struct weir_link_heard heard;
    enum weir_status status = weir_link_receive(worker->link, &heard.message, &heard.fd);
    uint32_t type = heard.message.type;

    if (status == WEIR_ERR_NO_MEMORY) {
        weir_log_limit_thread(&lost_messages, "-"); /* a guest may open connections without end */
        weir_log_error("worker: no descriptors left, a message came without its own type=%u", type);
        weir_log_limit_thread(NULL, NULL);
    } else if (status != WEIR_OK) {
        weir_log_warn("worker: the supervisor is gone");
        return false;
    }
    if (type < WEIR_LINK_COUNT && handlers[type]) {
        handlers[type](worker, &heard);
    } else {
        weir_log_warn("worker: unknown message type=%u", type);
    }
    weir_link_finish(&heard);
    return !told.stop;
}

/* Report to the supervisor when the program has gone. For workers that serve one program at a
 * time. */
static void report_idle(struct weir_worker *worker)
{
    struct weir_link_message message = {.type = WEIR_LINK_IDLE,
                                        .idle = {.n_guests = told.n_guests}};

    if (!worker->config.by_program || told.n_reported == told.n_guests) {
        return;
    }
    pthread_mutex_lock(&worker->lock);
    bool idle = worker->n_sessions == 0;
    pthread_mutex_unlock(&worker->lock);
    if (idle) {
        told.n_reported = told.n_guests;
        message.idle.soiled = weir_worker_limits_changed(worker) || weir_cupti_was_used();
        weir_worker_tell(worker, &message);
    }
}

static int wait_ms(struct weir_worker *worker)
{
    bool gone = free_gone(worker), spare = weir_spares_age(worker, weir_clock_now_ns());

    return gone ? GONE_LOOK_MS : spare ? SPARES_LOOK_MS : LOOK_MS;
}

static void loop(struct weir_worker *worker)
{
    uint64_t woken;

    struct pollfd waits[4] = {{worker->link, POLLIN, 0},
                              {worker->wake_fd, POLLIN, 0},
                              {weir_directory_watch_fd(worker), POLLIN, 0},
                              {weir_guests_gone_fd(worker), POLLIN, 0}};

    while (atomic_load(&worker->sticky) == 0) {
        if (poll(waits, 4, wait_ms(worker)) < 0 && errno != EINTR) {
            return;
        }
        if (waits[1].revents != 0) {
            (void)!read(worker->wake_fd, &woken, sizeof woken);
        }
        if (waits[0].revents != 0 && !on_message(worker)) {
            return;
        }
        if (waits[2].revents != 0) {
            weir_exports_look(worker);
        }
        if (waits[3].revents != 0) {
            weir_guests_look(worker);
        }
        report_idle(worker);
    }
}

/* End all sessions; true when they have ended. */
static bool wait_for_sessions(struct weir_worker *worker)
{
    uint64_t end_ns = weir_clock_now_ns() + STOP_WAIT_S * WEIR_NS_PER_S;

    WEIR_LOCKED(&worker->lock);
    while (worker->n_sessions != 0 &&
           weir_thread_condition_wait(&worker->idle, &worker->lock, end_ns)) {
    }
    return worker->n_sessions == 0;
}

/* softgpu runs PTX, so it needs no ptxas unless the configuration asks for one. */
static bool compiler_is_auto(const struct weir_worker *worker)
{
    return strcmp(worker->config.forms.compiler, "auto") == 0;
}

/* Start the compiler's process while processes may be made. Which driver there is, and so whether
 * the process is needed, shows only later. */
static void open_compiler(const struct weir_worker *worker)
{
    bool soft = strcmp(worker->config.driver, "softgpu") == 0;

    weir_compiler_open(soft && compiler_is_auto(worker) ? "driver" : worker->config.forms.compiler,
                       &compiler);
}

/* Give up system calls before there are threads, the driver, or guests. */
static void give_up_calls(const struct weir_worker *worker)
{
    bool serves_tcp = worker->config.listen_tcp[0] != 0;

    if (weir_confine_refuse_calls(serves_tcp ? WEIR_CONFINE_KEEPS_INET : WEIR_CONFINE_KEEPS_NONE) !=
        WEIR_OK) {
        weir_log_warn("worker: this kernel has no system call filters");
    }
}

/* Report the number of SMs: workers whose context has a share of them cannot find it out. */
static void tell_sms(struct weir_worker *worker)
{
    struct weir_link_message message = {.type = WEIR_LINK_SMS};

    if (!worker->config.under_mps || worker->config.sm_share_pct != 0) {
        return;
    }
    message.sms.n = worker->platform.n_devices;
    for (uint32_t i = 0; i < message.sms.n; i++) {
        message.sms.sms[i] = weir_worker_sms(worker, i);
    }
    weir_worker_tell(worker, &message);
}

static int open_worker(struct weir_worker *worker)
{
    struct weir_link_message message;
    int fd;

    if (weir_link_receive(worker->link, &message, &fd) != WEIR_OK ||
        message.type != WEIR_LINK_CONFIG) {
        return WEIR_WORKER_EXIT_USAGE;
    }
    worker->config = message.config;
    weir_start_stage_ends(WEIR_START_EXEC);
    if (weir_spin_page_map(fd, &worker->platform.spin.page) != WEIR_OK) {
        return WEIR_WORKER_EXIT_USAGE;
    }
    close(fd);
    weir_log_for_reader();
    if (weir_log_init(worker->config.log, NULL) != WEIR_OK ||
        weir_prints_create(WEIR_PRINTS_SETTLE_NS, &worker->prints) != WEIR_OK) {
        return WEIR_WORKER_EXIT_FAILED;
    }
    open_compiler(worker);
    give_up_calls(worker);
    worker->guests = weir_guests_create();
    worker->vmm_area = weir_vmm_area_create();
    worker->directory = weir_directory_create(worker->link);
    worker->device_idle = weir_device_idle_create();
    worker->counts.pool = weir_worker_pool_create();
    worker->platform.spares = weir_spares_create();
    if (!worker->guests || !worker->vmm_area || !worker->directory || !worker->device_idle ||
        !worker->counts.pool) {
        return WEIR_WORKER_EXIT_FAILED;
    }
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0) {
        return WEIR_WORKER_EXIT_FAILED;
    }
    enum weir_status status = weir_worker_open_device(worker);
    if (status != WEIR_OK) {
        if (status != WEIR_ERR_NOT_FOUND) { /* a driver that was not found has been logged */
            weir_log_error("worker: the device cannot be used driver=%s why=\"%s\"",
                           worker->config.driver, weir_status_text(status));
        }
        return status == WEIR_ERR_NO_MEMORY ? WEIR_WORKER_EXIT_FULL : WEIR_WORKER_EXIT_DRIVER;
    }
    weir_start_stage_ends(WEIR_START_DESCRIBE);
    if (!worker->platform.real) {
        /* softgpu's processes open each other's events through /proc/PID/fd. */
        (void)prctl(PR_SET_DUMPABLE, 1);
        if (compiler_is_auto(worker)) {
            weir_compiler_close(&compiler);
        }
    }
    worker->platform.program_ptx =
        weir_program_ptx_create(&worker->platform, &worker->config.forms, &compiler);
    if (!worker->platform.driver.cuFuncLoad) {
        weir_log_info("worker: kernels cannot be stopped: the driver is older than CUDA 12.4");
    } else if (worker->platform.devices[0].write_value_ok) {
        if (weir_forms_create(worker, &worker->config.forms, &compiler, &worker->forms) !=
            WEIR_OK) {
            return WEIR_WORKER_EXIT_FAILED;
        }
        worker->hooks = &weir_forms_hooks;
    }
    if (weir_gates_create(worker, &weir_orders_of_runs, WEIR_ORDERS_ROOM) != WEIR_OK) {
        return WEIR_WORKER_EXIT_FAILED;
    }
    weir_start_stage_ends(WEIR_START_FORMS);
    weir_worker_warm_up(worker);
    weir_worker_limits_note(worker);
    weir_start_stage_ends(WEIR_START_WARM);
    message = (struct weir_link_message){.type = WEIR_LINK_READS};
    weir_gates_describe(worker, &message.reads);
    weir_worker_tell(worker, &message);
    told.gate_known = !worker->config.gate_comes;
    while (!told.may_listen || !told.gate_known) {
        if (!on_message(worker)) {
            return WEIR_WORKER_EXIT_FAILED;
        }
    }
    if (weir_guests_listen(worker, told.tcp_fd) != WEIR_OK) {
        return WEIR_WORKER_EXIT_FAILED;
    }
    weir_start_stage_ends(WEIR_START_TOLD);
    weir_start_stages_log(worker->config.started_ns);
    tell_sms(worker);
    memset(&message, 0, sizeof message);
    message.type = WEIR_LINK_READY;
    weir_worker_status_fill(worker, &message.worker);
    return weir_link_send(worker->link, &message, -1) == WEIR_OK ? WEIR_WORKER_EXIT_OK
                                                                 : WEIR_WORKER_EXIT_FAILED;
}

static void close_worker(struct weir_worker *worker)
{
    weir_guests_destroy(worker->guests);
    weir_regions_finish(worker);
    weir_forms_destroy(worker->forms);
    weir_program_ptx_destroy(worker->platform.program_ptx);
    weir_compiler_close(&compiler);
    worker->hooks = NULL;
    worker->forms = NULL; /* tenants are destroyed with an idle device, without the builder */
    for (uint32_t i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (worker->tenants[i]) {
            weir_tenant_destroy(worker->tenants[i]);
        }
    }
    weir_gates_destroy(worker);
    if (worker->platform.real) {
        _exit(WEIR_WORKER_EXIT_OK); /* the driver frees the contexts of a process that ends */
    }
    weir_device_idle_destroy(worker);
    weir_worker_window_finish(worker);
    weir_worker_close_device(worker);
    weir_prints_destroy(worker->prints);
    weir_stats_finish(worker);
    close(worker->wake_fd);
    weir_vmm_area_destroy(worker->vmm_area);
    weir_spares_destroy(worker->platform.spares);
    weir_directory_destroy(worker->directory);
    weir_connections_destroy(worker);
    free(worker->counts.pool);
    pthread_cond_destroy(&worker->idle);
    pthread_mutex_destroy(&worker->counts.sync_lock);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

/* Give up the stack room, which was only needed to keep mappings away. glibc took it as the size of
 * every thread's stack. */
static void give_up_stack_room(void)
{
    struct rlimit limit;
    pthread_attr_t attr;

    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur != WEIR_WORKER_STACK_ROOM) {
        return;
    }
    limit.rlim_cur = STACK_BYTES;
    (void)setrlimit(RLIMIT_STACK, &limit);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)pthread_setattr_default_np(&attr);
    pthread_attr_destroy(&attr);
}

/*
 * Wait to be killed: an MPS client that ends while it has work on the GPU ends the contexts of all
 * others. The supervisor first has the server release this worker.
 */
static void wait_for_kill(const struct weir_worker *worker)
{
    const struct weir_link_message message = {.type = WEIR_LINK_LEFT_BEHIND};

    if (worker->config.by_program && weir_link_send(worker->link, &message, -1) == WEIR_OK) {
        sleep(STOP_WAIT_S);
    }
}

/* Leave because the context is gone, or was given up. */
static _Noreturn void leave(struct weir_worker *worker)
{
    bool overdue = atomic_load(&worker->sticky) == CUDA_ERROR_LAUNCH_TIMEOUT;
    struct timespec pause = {0, LAST_WORDS_NS};

    if (!weir_guests_keep_segments(worker)) {
        nanosleep(&pause, NULL); /* guests read the error before the end of the connection */
    }
    if (overdue) {
        wait_for_kill(worker);
    }
    _exit(overdue ? WEIR_WORKER_EXIT_OVERDUE : WEIR_WORKER_EXIT_STICKY);
}

/* Check the driver for `weir serve --check`, without a host. Words: DRIVER SOFTGPU DEVICES. */
static int probe(struct weir_worker *worker, char **words)
{
    struct weir_diag why = {0};
    uint64_t total_bytes = 0;

    snprintf(worker->config.driver, sizeof worker->config.driver, "%s", words[0]);
    snprintf(worker->config.softgpu, sizeof worker->config.softgpu, "%s", words[1]);
    snprintf(worker->config.devices, sizeof worker->config.devices, "%s", words[2]);
    if (weir_worker_find_devices(worker, &why) != WEIR_OK) {
        fprintf(stderr, "weir serve: %s\n", why.message);
        return WEIR_WORKER_EXIT_DRIVER;
    }
    for (uint32_t i = 0; i < worker->platform.n_devices; i++) {
        size_t bytes = 0;

        (void)worker->platform.driver.cuDeviceTotalMem_v2(&bytes, worker->platform.devices[i].cu);
        total_bytes += bytes;
    }
    printf("%llu %u\n", (unsigned long long)total_bytes,
           weir_platform_n_contexts(&worker->platform, 0));
    return fflush(stdout) == 0 ? WEIR_WORKER_EXIT_OK : WEIR_WORKER_EXIT_FAILED;
}

int weir_worker_main(int argc, char **argv)
{
    struct weir_worker *worker = calloc(1, sizeof *worker);
    int result;

    (void)prctl(PR_SET_NAME, "weir-worker"); /* ps and the kernel's OOM killer show that */
    if (worker && argc == 5 && strcmp(argv[1], WEIR_WORKER_PROBE) == 0) {
        result = probe(worker, argv + 2);
        free(worker);
        return result;
    }
    if (!worker || argc > 1) {
        fprintf(stderr, "weir worker: started by weir serve, not by hand\n");
        free(worker);
        return WEIR_WORKER_EXIT_USAGE;
    }
    give_up_stack_room();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    weir_crash_init();
    weir_bus_guard_init();
    signal(SIGINT, SIG_IGN); /* a terminal and systemd send these to all: the supervisor decides */
    signal(SIGTERM, SIG_IGN);
    worker->link = WEIR_LINK_FD;
    worker->wake_fd = -1;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_mutex_init(&worker->counts.sync_lock, NULL);
    weir_thread_condition_init(&worker->idle);
    result = open_worker(worker);
    if (result != WEIR_WORKER_EXIT_OK) {
        return result;
    }
    loop(worker);
    if (atomic_load(&worker->sticky) != 0) {
        leave(worker);
    }
    /* Do this first. If the supervisor was killed, this worker dies at any moment, and guests would
     * wait for the heartbeat to stop. */
    weir_regions_leave(worker);
    end_sessions(worker, NULL);
    weir_directory_close(worker); /* from here on no thread reads answers */
    if (!wait_for_sessions(worker)) {
        weir_log_warn("worker: sessions do not end, left behind");
        wait_for_kill(worker);
        _exit(WEIR_WORKER_EXIT_OK);
    }
    close_worker(worker);
    return WEIR_WORKER_EXIT_OK;
}
