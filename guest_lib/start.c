/*
 * The life of the process's session: from the environment to a running channel, in forked children,
 * and at exit. It calls the other parts; none of them calls it.
 */
#include "guest_lib/start.h"
#include "base/addresses.h"
#include "base/log.h"
#include "base/text.h"
#include "guest_lib/callback.h"
#include "guest_lib/calls.h"
#include "guest_lib/calls_log.h"
#include "guest_lib/device_launch.h"
#include "guest_lib/entry.h"
#include "guest_lib/export_tables.h"
#include "guest_lib/limits.h"
#include "guest_lib/memory.h"
#include "guest_lib/module.h"
#include "guest_lib/profile.h"
#include "guest_lib/stream.h"
#include "guest_lib/visible.h"
#include "guest_lib/vmm.h"
#include "proto/wire/address.h"
#include "proto/wire/connect.h"
#include "proto/wire/discover.h"
#include "proto/wire/keys.h"
#include "proto/wire/op_hash.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* On PLENTY_CPUS cores or more a wait for a real GPU spins as long as in NVIDIA's driver. */
#define PLENTY_CPUS     8
#define PLENTY_SPIN_NS  (2 * WEIR_NS_PER_MS)
#define PLENTY_YIELD_NS (20 * WEIR_NS_PER_MS)
#define SLICE_MIN_NS    (50 * WEIR_NS_PER_US)
#define SLICE_MAX_NS    (500 * WEIR_NS_PER_US)

static bool window_reserved;
static bool starting; /* cuInit is running; a child that is forked now cannot continue it */

static void set_phase(enum weir_guest_phase phase)
{
    /* S4: publishes what cuInit made; meets S1. */
    __atomic_store_n(&weir_guest.phase, phase, __ATOMIC_RELEASE);
}

static void in_forked_child(void)
{
    weir_guest_profile_in_child();
    weir_calls_in_child();
    if (weir_guest_phase_now() == WEIR_PHASE_READY || starting) {
        struct weir_transport *transport = weir_guest.channel.transport;
        set_phase(WEIR_PHASE_FORKED);
        if (transport) {
            transport->ops->abandon(transport);
        }
    }
    pthread_mutex_init(&weir_guest.init_lock, NULL);
}

__attribute__((destructor)) static void at_exit(void)
{
    weir_calls_report();
    weir_calls_log_finish();
    if (weir_guest_phase_now() == WEIR_PHASE_READY) {
        struct weir_transport *transport = weir_guest.channel.transport;
        set_phase(WEIR_PHASE_GONE);
        if (transport->ops->leave) {
            transport->ops->leave(transport);
        }
    }
}

/* ---------------------------------------------------------------- start */

static struct weir_wait_policy choose_policy(const struct weir_welcome *welcome, int n_cpus)
{
    bool plenty = n_cpus >= PLENTY_CPUS && welcome->devices[0].real;
    struct weir_wait_policy policy = {.spin_ns = plenty ? PLENTY_SPIN_NS : WEIR_FEW_SPIN_NS,
                                      .yield_ns = plenty ? PLENTY_YIELD_NS : 0,
                                      .slice_min_ns = SLICE_MIN_NS,
                                      .slice_max_ns = SLICE_MAX_NS};
    if (welcome->spin_ns) {
        policy.spin_ns = welcome->spin_ns;
    }
    return policy;
}

static int count_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    return CPU_COUNT(&set);
}

static bool flag_is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

/* Keep other mappings of this process out of the tenant's addresses. */
static CUresult reserve_window(const struct weir_welcome *welcome)
{
    weir_guest.window_base = welcome->window_base;
    weir_guest.window_bytes = welcome->window_bytes;
    weir_guest.granularity_bytes = 0;
    /* Use the largest granularity of all devices, as the host does. */
    for (uint32_t i = 0; i < welcome->n_devices; i++) {
        uint64_t bytes = welcome->devices[i].granularity_bytes;
        bytes = bytes ? bytes : 2 << 20;
        weir_guest.granularity_bytes = WEIR_MAX(bytes, weir_guest.granularity_bytes);
    }
    if (weir_guest.same_process || !welcome->window_bytes) {
        return CUDA_SUCCESS;
    }
    if (weir_addresses_hold(welcome->window_base, welcome->window_bytes)) {
        window_reserved = true;
        return CUDA_SUCCESS;
    }
    if (errno == ENOMEM) {
        weir_log_error(
            "guest: this process may not have the window's addresses: raise its limit of "
            "address space (ulimit -v) bytes=%llu",
            (unsigned long long)welcome->window_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    weir_log_error(
        "guest: this process has something at the addresses that the host uses: a second "
        "copy of libcuda.so.1? It may have one. base=%p bytes=%llu errno=%d",
        (void *)(uintptr_t)welcome->window_base, (unsigned long long)welcome->window_bytes, errno);
    return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
}

/* Returns the device for the calling thread's records. If an operation names a context or a stream,
 * the host uses the device of that instead. */
static uint8_t device_of_thread(void)
{
    return (uint8_t)weir_guest.devices[weir_device_current()].host_ordinal;
}

static void context_gone(struct weir_guest_ctx *ctx)
{
    weir_pools_context_gone(ctx);
    weir_mem_context_gone(ctx);
    weir_modules_context_gone(ctx);
    weir_arrays_context_gone(ctx);
}

static CUresult stream_gone(struct weir_guest_stream *stream)
{
    return weir_guest_capture_leave(stream, 0);
}

static CUresult make_primaries(void)
{
    for (int i = 0; i < weir_guest.n_devices; i++) {
        WEIR_TRY(weir_ctx_new(i, true, 0, &weir_guest.devices[i].primary));
    }
    return CUDA_SUCCESS;
}

static CUresult start_parts(const struct weir_welcome *welcome)
{
    WEIR_TRY(reserve_window(welcome));
    WEIR_TRY(weir_guest_objects_init(&weir_guest.objects) == WEIR_OK ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(weir_words_init());
    WEIR_TRY(weir_staging_init(weir_guest.channel.arena_bytes));
    return make_primaries();
}

CUresult weir_guest_start(struct weir_transport *transport, const struct weir_welcome *welcome)
{
    weir_guest.session++;
    weir_guest.tell.context_gone = context_gone;
    weir_guest.tell.stream_gone = stream_gone;
    weir_guest.tell.pool_forget = weir_pool_forget;
    weir_guest.tell.pools_give_back = weir_pools_give_back;
    weir_inside_init();
    weir_guest.n_cpus = count_cpus();
    weir_guest.same_process = strcmp(transport->ops->name, "loop") == 0;
    weir_guest.launch_blocking =
        flag_is_set("WEIR_LAUNCH_BLOCKING") || flag_is_set("CUDA_LAUNCH_BLOCKING");
    struct weir_wait_policy policy = choose_policy(welcome, weir_guest.n_cpus);
    weir_guest.channel.notify = weir_callback_notify;
    if (weir_channel_init(&weir_guest.channel, transport, &policy) != WEIR_OK) {
        weir_log_error("guest: the host's segment makes no sense");
        return CUDA_ERROR_NO_DEVICE;
    }
    weir_guest.n_devices =
        weir_visible_devices(welcome, getenv("CUDA_VISIBLE_DEVICES"), weir_guest.devices,
                             !weir_guest.channel.remote, weir_guest.channel.passes_fds);
    if (weir_guest.n_devices == 0) {
        weir_log_info("guest: CUDA_VISIBLE_DEVICES leaves no device");
        return CUDA_ERROR_NO_DEVICE;
    }
    if (welcome->n_devices > 1) {
        weir_guest.channel.device_of_thread = device_of_thread;
    }
    WEIR_TRY(start_parts(welcome));
    weir_guest_export_tables_start();
    weir_calls_session(transport->ops->view(transport)->stats);
    set_phase(WEIR_PHASE_READY);
    return CUDA_SUCCESS;
}

static void free_context(weir_handle handle, void *object, void *user)
{
    (void)handle;
    (void)user;
    struct weir_guest_ctx *ctx = object;
    weir_ctx_storage_finish(&ctx->storage);
    free(ctx->coredump);
    free(ctx);
}

void weir_guest_stop(void)
{
    set_phase(WEIR_PHASE_NEW);
    weir_calls_session_over();
    weir_callbacks_finish();
    weir_pools_finish();
    weir_mem_finish();
    weir_guest_vmm_finish();
    weir_staging_finish();
    if (weir_guest.objects.tables[WEIR_KIND_CONTEXT]) {
        weir_id_table_visit(weir_guest.objects.tables[WEIR_KIND_CONTEXT], free_context, NULL);
    }
    memset(weir_guest.devices, 0, sizeof weir_guest.devices);
    weir_guest.n_devices = 0;
    weir_streams_finish();
    weir_events_finish();
    weir_words_finish();
    weir_guest_objects_finish(&weir_guest.objects);
    weir_channel_finish(&weir_guest.channel);
    if (window_reserved) {
        munmap((void *)(uintptr_t)weir_guest.window_base, weir_guest.window_bytes);
        window_reserved = false;
    }
}

/* ---------------------------------------------------------------- cuInit */

static const char *host_url(char room[WEIR_ROUTE_URL_BYTES])
{
    return weir_discover_host(getenv("WEIR_HOST"), room);
}

/*
 * CUDA has no error for a host that refuses: the program gets "no device", and may go on without a
 * GPU. So the library prints one line for the user. It prints none if the user named no host and
 * the default folder does not exist: the program then looks for a GPU on a machine without one. It
 * also prints none if WEIR_LOG is set: then the log has a line, or the user wants none.
 */
#define DEFAULT_PLACE                                                                              \
    "/run/weir" /* folder of WEIR_DEFAULT_HOST: the host's, or a container's mount */

static bool is_host_expected(void)
{
    const char *asked = getenv("WEIR_HOST");
    return (asked && *asked) || access(DEFAULT_PLACE, F_OK) == 0;
}

/* Name the usual cause, if no host has given a reason. */
static const char *likely_cause(enum weir_status status, const char *host)
{
    const char *place;
    enum weir_scheme scheme = weir_address_scheme(host, &place);
    if (scheme == WEIR_SCHEME_IPC) {
        return status == WEIR_ERR_NOT_FOUND ? " (the host is down, or has no such tenant)"
               : status == WEIR_ERR_DENIED  ? " (this user may not be that tenant)"
                                            : "";
    }
    if (scheme == WEIR_SCHEME_TCP) {
        return status == WEIR_ERR_NOT_FOUND   ? " (no host listens there)"
               : status == WEIR_ERR_DENIED    ? " (the host does not know WEIR_KEY, or "
                                                "WEIR_SERVER_KEY is not its key)"
               : status == WEIR_ERR_TIMED_OUT ? " (nobody answers at this address)"
                                              : "";
    }
    return "";
}

static void tell_user(enum weir_status status, const char *host, const char *said)
{
    static bool told;
    char line[800], program[WEIR_PROGRAM_BYTES], visible[3][256];
    bool answered = *said || status == WEIR_ERR_DENIED;
    int flags = fcntl(STDERR_FILENO, F_GETFL);
    const char *log = getenv("WEIR_LOG");
    if (told || (log && *log) || !(answered || is_host_expected()) || flags < 0 ||
        (flags & O_ACCMODE) == O_RDONLY) {
        return;
    }
    told = true;
    weir_program_name(program);
    int n = snprintf(
        line, sizeof line, "weir: %s gets no GPU from %s: %s%s\n",
        weir_text_visible(program, visible[0], sizeof visible[0]),
        weir_text_visible(host, visible[1], sizeof visible[1]),
        weir_text_visible(*said ? said : weir_status_text(status), visible[2], sizeof visible[2]),
        status == WEIR_ERR_VERSION && !strstr(said, "weir restart")
            ? " (after an upgrade, weir restart has the new version serve)" /* an older host */
        : *said ? ""
                : likely_cause(status, host));
    (void)!write(STDERR_FILENO, line, (size_t)n);
}

static CUresult connect_failed(enum weir_status status, const struct weir_welcome *welcome)
{
    char url[WEIR_ROUTE_URL_BYTES];
    const char *host = host_url(url), *said = welcome ? welcome->message : "";
    const char *problem = weir_address_problem(host);
    if (status == WEIR_ERR_INVALID && problem) {
        said = problem;
    }
    weir_log_error("guest: no session, host=%s reason=\"%s\" said=\"%s\"", host,
                   weir_status_text(status), said);
    tell_user(status, host, said);
    return CUDA_ERROR_NO_DEVICE;
}

enum weir_status weir_guest_connect(bool monitor, struct weir_transport **ret_transport,
                                    struct weir_welcome **ret_welcome)
{
    const char *key = getenv("WEIR_KEY");
    char secret[WEIR_KEY_PATH_BYTES];
    char program[WEIR_PROGRAM_BYTES];
    char url[WEIR_ROUTE_URL_BYTES];
    struct weir_limit_wish wish;
    struct weir_op_hashes *ops = malloc(sizeof *ops); /* the stack may be small */
    *ret_welcome = NULL;
    WEIR_FAIL_IF(!ops, WEIR_ERR_NO_MEMORY);
    weir_op_hashes(ops);
    weir_program_name(program);
    weir_limits_read(getenv, &wish);
    wish.launches_on_device = !monitor && weir_device_launch_is_in("/proc/self/exe");
    struct weir_connect_params params = {.host = host_url(url),
                                         .transport = getenv("WEIR_TRANSPORT"),
                                         .program = program,
                                         .version = WEIR_VERSION,
                                         .ops = ops,
                                         .monitor = monitor,
                                         .wish = &wish,
                                         .secret_key = key,
                                         .public_key = weir_key_public_path(key, secret),
                                         .server_key = getenv("WEIR_SERVER_KEY")};
    enum weir_status status = weir_connect(&params, ret_transport, ret_welcome);
    free(ops);
    return status;
}

/* Log once that this is Weir, and as which tenant the program uses it. */
static void log_welcome(const struct weir_welcome *welcome)
{
    char url[WEIR_ROUTE_URL_BYTES], quota[16], visible[3][256];
    weir_log_info("cuda: this is Weir " WEIR_VERSION " tenant=%s quota=\"%s\" weight=%s "
                  "transport=%s host=%s",
                  weir_text_visible(welcome->tenant, visible[0], sizeof visible[0]),
                  weir_human_bytes(welcome->memory_quota_bytes, quota),
                  weir_text_visible(welcome->weight, visible[2], sizeof visible[2]),
                  weir_guest.channel.transport->ops->name,
                  weir_text_visible(host_url(url), visible[1], sizeof visible[1]));
}

static CUresult connect_and_start(void)
{
    struct weir_transport *transport = NULL;
    struct weir_welcome *welcome = NULL;
    weir_calls_mark_waiting();
    enum weir_status status = weir_guest_connect(false, &transport, &welcome);
    CUresult result =
        status == WEIR_OK ? weir_guest_start(transport, welcome) : connect_failed(status, welcome);
    if (result == CUDA_SUCCESS) {
        log_welcome(welcome);
    }
    weir_welcome_destroy(welcome);
    return result;
}

static void init_log(void)
{
    /* The level is invalid, so stay silent: there is no log to complain in. */
    enum weir_status status = weir_log_init(getenv("WEIR_LOG"), "libcuda");
    (void)status;
}

static CUresult init_locked(void)
{
    static bool prepared;
    if (!prepared) {
        init_log();
        pthread_atfork(NULL, NULL, in_forked_child);
        atexit(weir_calls_push_last);
        prepared = true;
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    WEIR_FAIL_IF(visible && !*visible, CUDA_ERROR_NO_DEVICE); /* no need to ask a host */
    starting = true;
    CUresult result = connect_and_start();
    starting = false;
    if (result != CUDA_SUCCESS) {
        weir_guest_stop();
    } else {
        weir_guest_profile_start();
    }
    return result;
}

CUresult weir_guest_init(void)
{
    WEIR_GUEST_KEEP_ERRNO;
    enum weir_guest_phase phase = weir_guest_phase_now();
    if (phase == WEIR_PHASE_NEW) {
        pthread_mutex_lock(&weir_guest.init_lock);
        phase = weir_guest_phase_now();
        CUresult result = phase == WEIR_PHASE_NEW ? init_locked() : weir_guest_phase_error(phase);
        pthread_mutex_unlock(&weir_guest.init_lock);
        return result;
    }
    return weir_guest_phase_error(phase);
}
