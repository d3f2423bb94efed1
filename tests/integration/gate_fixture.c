#include "tests/integration/gate_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_NS  (40 * WEIR_NS_PER_S)
#define MARKS_MAX 4096u

struct gate_fixture fx;
struct run_log runs;
struct part_log part;

/* ---------------------------------------------------------------- the clock */

/* It stands still. An hour ahead: who sleeps until a time is woken, and then finds it has come. */
static atomic_uint_fast64_t time_ns;

uint64_t __real_weir_clock_now_ns(void);
uint64_t __wrap_weir_clock_now_ns(void);

uint64_t __wrap_weir_clock_now_ns(void)
{
    return atomic_load(&time_ns);
}

void clock_forward(uint64_t ns)
{
    settle(); /* what was posted is of the time before */
    atomic_fetch_add(&time_ns, ns);
    settle();
}

uint64_t await_begin(void)
{
    return __real_weir_clock_now_ns() + AWAIT_NS;
}

void await_pause(uint64_t end_ns, const char *what, const char *file, int line)
{
    struct timespec pause = {0, 50 * 1000};

    if (__real_weir_clock_now_ns() > end_ns) {
        print_error("%s:%d: it never came to this: %s\n", file, line, what);
        fail();
    }
    nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------- the device */

struct mark {
    CUstream stream;
    uint32_t *word;
    uint32_t value;
    bool reached;
};

static struct {
    pthread_mutex_t lock;
    struct mark mark[MARKS_MAX];
    uint32_t n;
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUresult write_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&device.lock);
    if (device.n == MARKS_MAX) { /* any thread: nothing of cmocka's */
        abort();
    }
    device.mark[device.n++] =
        (struct mark){.stream = stream, .word = (uint32_t *)(uintptr_t)at, .value = value};
    pthread_mutex_unlock(&device.lock);
    return CUDA_SUCCESS;
}

static bool is_of(const struct guest *guest, CUstream stream)
{
    return stream == guest->stream.o.native || (stream == guest->stream.part.stream && stream);
}

uint32_t marks_in(const struct guest *guest)
{
    uint32_t n = 0;

    pthread_mutex_lock(&device.lock);
    for (uint32_t i = 0; i < device.n; i++) {
        n += is_of(guest, device.mark[i].stream);
    }
    pthread_mutex_unlock(&device.lock);
    return n;
}

void device_reaches_some(struct guest *guest, uint32_t marks)
{
    pthread_mutex_lock(&device.lock);
    for (uint32_t i = 0; i < device.n && marks != 0; i++) {
        struct mark *m = &device.mark[i];

        if (is_of(guest, m->stream) && !m->reached) {
            m->reached = true;
            marks--;
            __atomic_store_n(m->word, m->value, __ATOMIC_RELEASE); /* meets A1 in watch.c */
        }
    }
    pthread_mutex_unlock(&device.lock);
}

void device_reaches(struct guest *guest)
{
    device_reaches_some(guest, UINT32_MAX);
}

/* ---------------------------------------------------------------- sleeps that take time */

static struct {
    struct guest *guest; /* NULL: the clock stands still in sleeps, too */
    uint64_t ends_ns;    /* of the clock: then all that the guest has given is done */
} sleeps;
static __thread bool in_gate;

int __real_nanosleep(const struct timespec *time, struct timespec *ret_left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left)
{
    uint64_t ns = (uint64_t)time->tv_sec * WEIR_NS_PER_S + (uint64_t)time->tv_nsec;

    if (!in_gate || !sleeps.guest) {
        return __real_nanosleep(time, ret_left);
    }
    if (atomic_fetch_add(&time_ns, ns) + ns >= sleeps.ends_ns) {
        device_reaches(sleeps.guest);
    }
    return 0;
}

uint64_t launch_while_device_works(struct guest *guest, struct weir_gate_work work, uint64_t ns)
{
    uint64_t begin_ns = atomic_load(&time_ns);

    sleeps.ends_ns = begin_ns + ns;
    sleeps.guest = guest;
    launch_once(guest, work);
    sleeps.guest = NULL;
    return atomic_load(&time_ns) - begin_ns;
}

/* The clock stands still while a session's thread sleeps until the gate process answers. So it has
 * answered when the sleep is over, however slow the machine is. */
bool __real_weir_futex_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);
bool __wrap_weir_futex_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);

bool __wrap_weir_futex_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    bool woken = __real_weir_futex_wait(word, expected, timeout_ns);

    if (in_gate) {
        settle();
    }
    return woken;
}

static CUresult host_alloc(void **ret, size_t bytes, unsigned flags)
{
    (void)flags;
    *ret = aligned_alloc(4096, bytes);
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult host_pointer(CUdeviceptr *ret, void *memory, unsigned flags)
{
    (void)flags;
    *ret = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult host_free(void *memory)
{
    free(memory);
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult total_memory(size_t *ret_bytes, CUdevice d)
{
    (void)ret_bytes;
    (void)d;
    return CUDA_ERROR_NOT_SUPPORTED;
}

struct priority_log priorities;

static CUresult set_attribute(CUstream stream, CUstreamAttrID attribute,
                              const CUstreamAttrValue *value)
{
    (void)stream;
    assert_int_equal(attribute, CU_LAUNCH_ATTRIBUTE_PRIORITY);
    priorities.last = value->priority;
    priorities.sets++;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- the part of the device */

static bool cannot_be_divided; /* the device of the gate that is about to be opened */

static CUresult resource_of(CUdevice d, CUdevResource *ret, CUdevResourceType type)
{
    (void)d;
    *ret = (CUdevResource){.type = type, .sm.smCount = GATE_SMS};
    return CUDA_SUCCESS;
}

static CUresult split(CUdevResource *groups, unsigned *n, const CUdevResource *of,
                      CUdevResource *rest, unsigned flags, unsigned least)
{
    (void)of;
    (void)flags;
    if (cannot_be_divided) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *n = 1;
    groups[0].sm.smCount = least;
    rest->sm.smCount = GATE_SMS - least;
    return CUDA_SUCCESS;
}

static CUresult describe(CUdevResourceDesc *ret, CUdevResource *groups, unsigned n)
{
    *ret = (CUdevResourceDesc)(uintptr_t)(n * groups->sm.smCount);
    return CUDA_SUCCESS;
}

static CUresult green_create(CUgreenCtx *ret, CUdevResourceDesc desc, CUdevice d, unsigned flags)
{
    (void)d;
    *ret = (CUgreenCtx)(uintptr_t)desc;
    part.made++;
    return flags == CU_GREEN_CTX_DEFAULT_STREAM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult green_context(CUcontext *ret, CUgreenCtx ctx)
{
    *ret = (CUcontext)ctx;
    return CUDA_SUCCESS;
}

static CUresult green_destroy(CUgreenCtx ctx)
{
    (void)ctx;
    return CUDA_SUCCESS;
}

static CUresult green_stream(CUstream *ret, CUgreenCtx ctx, unsigned flags, int priority)
{
    *ret = malloc(1);
    part.priority = priority;
    part.sms = (uint32_t)(uintptr_t)ctx;
    return flags == CU_STREAM_NON_BLOCKING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult stream_create(CUstream *ret, unsigned flags)
{
    (void)flags;
    *ret = malloc(1);
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream)
{
    free(stream);
    return CUDA_SUCCESS;
}

static CUresult stream_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = malloc(1);
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)event;
    part.from = stream;
    return CUDA_SUCCESS;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
    (void)event;
    (void)flags;
    part.to = stream;
    return CUDA_SUCCESS;
}

static void have_part(struct weir_driver *d)
{
    d->cuDeviceGetDevResource = resource_of;
    d->cuDevSmResourceSplitByCount = split;
    d->cuDevResourceGenerateDesc = describe;
    d->cuGreenCtxCreate = green_create;
    d->cuCtxFromGreenCtx = green_context;
    d->cuGreenCtxDestroy = green_destroy;
    d->cuGreenCtxStreamCreate = green_stream;
    d->cuStreamCreate = stream_create;
    d->cuStreamDestroy_v2 = stream_destroy;
    d->cuStreamSynchronize = stream_synchronize;
    d->cuEventCreate = event_create;
    d->cuEventDestroy_v2 = event_destroy;
    d->cuEventRecord = event_record;
    d->cuStreamWaitEvent = wait_event;
}

/* ---------------------------------------------------------------- runs */

CUresult __wrap_weir_run_stop(struct weir_run *run, uint64_t lease_ns);
CUresult __wrap_weir_run_resume(struct weir_run *run);
CUresult __wrap_weir_run_resize(struct weir_run *run, const struct weir_run_place *place);
void __wrap_weir_run_query(struct weir_run *run, struct weir_run_info *ret_info);
void __wrap_weir_run_put(struct weir_run *run);

CUresult __wrap_weir_run_stop(struct weir_run *run, uint64_t lease_ns)
{
    (void)run;
    (void)lease_ns;
    atomic_fetch_add(&runs.stops, 1);
    return (CUresult)atomic_load(&runs.stop_says);
}

CUresult __wrap_weir_run_resume(struct weir_run *run)
{
    (void)run;
    atomic_fetch_add(&runs.resumes, 1);
    return CUDA_SUCCESS;
}

CUresult __wrap_weir_run_resize(struct weir_run *run, const struct weir_run_place *place)
{
    (void)run;
    atomic_store(&runs.sm_count, place->sm_count);
    atomic_fetch_add(&runs.resizes, 1);
    return CUDA_SUCCESS;
}

void __wrap_weir_run_query(struct weir_run *run, struct weir_run_info *ret_info)
{
    (void)run;
    *ret_info = (struct weir_run_info){.done_blocks = 1};
}

void __wrap_weir_run_put(struct weir_run *run)
{
    (void)run;
    atomic_fetch_add(&runs.puts, 1);
}

void orders_taken(void)
{
    struct weir_gate_orders *orders = &fx.worker.gates[0]->client->port->orders[0];

    settle();
    await(atomic_load(&orders->head) == atomic_load(&orders->tail));
    (void)locked(0); /* it takes them with the lock */
}

void run_says(struct weir_gate_item *item, struct weir_run *run, enum weir_run_event event)
{
    struct weir_forms_order *order = weir_gate_item_room(item);

    order->notify(order->item, run, event);
}

void run_ends(struct weir_gate_item *item)
{
    struct weir_forms_order *order = weir_gate_item_room(item);

    order->ended(order->item);
}

/* ---------------------------------------------------------------- worker, tenants */

static void make_tenant(uint32_t index, const char *name, enum weir_priority priority)
{
    struct weir_tenant *tenant = &fx.tenants[index];

    memset(tenant, 0, sizeof *tenant);
    tenant->worker = &fx.worker;
    tenant->index = index;
    snprintf(tenant->name, sizeof tenant->name, "%s", name);
    weir_tenant_config_default(&tenant->config, name);
    tenant->config.priority = priority;
    fx.worker.tenants[index] = tenant;
}

static struct weir_spin_page spin_page = {.level = WEIR_SPIN_ALL};
static uint32_t share_pct; /* of the gate that is about to be opened */

/* In the process: what the supervisor tells it of a worker, its GPU and its tenants. */
static void tell_process(void *user)
{
    const int *fds = user;
    struct weir_link_reads reads;

    weir_gates_describe(&fx.worker, &reads);
    reads.gpu[0].real = false; /* or it would spin on until the clock goes on */
    weir_gate_process_gpu(host.process, &reads.gpu[0]);
    assert_int_equal(weir_gate_process_port_add(host.process, 1, -1, 1, fds[0], fds[1]), WEIR_OK);
    for (uint32_t i = 0; i < 3; i++) {
        weir_gate_process_tenant_set(host.process, i, &fx.tenants[i].config);
        weir_gate_process_port_tenant(host.process, 1, i);
    }
}

static void attach(void)
{
    int fds[2];

    assert_int_equal(weir_gate_port_create(&fds[0], &fds[1]), WEIR_OK);
    in_process(tell_process, fds);
    weir_gates_attach(&fx.worker, fds[0], fds[1]);
    close(fds[0]);
    settle();
}

static void tell_settings(void *user)
{
    const struct weir_tenant *tenant = user;

    weir_gate_process_tenant_set(host.process, tenant->index, &tenant->config);
}

void set_limit(uint32_t tenant, uint32_t percent)
{
    fx.tenants[tenant].config.sm_limit_pct = percent;
    in_process(tell_settings, &fx.tenants[tenant]);
    settle();
}

static void remove_tenants(void *user)
{
    (void)user;
    for (uint32_t i = 0; i < 3; i++) {
        weir_gate_process_tenant_remove(host.process, i);
    }
}

static void open_gate(const char *policy, bool levels, enum weir_sched_fill fill)
{
    struct weir_worker *w = &fx.worker;

    memset(&fx, 0, sizeof fx);
    w->link = -1;
    w->platform.real = levels;
    w->platform.spin.page = &spin_page;
    atomic_store(&time_ns, __real_weir_clock_now_ns() + 3600 * WEIR_NS_PER_S);
    memset(&runs, 0, sizeof runs);
    device.n = 0;
    fx.driver.cuStreamWriteValue32_v2 = write_value;
    fx.driver.cuMemHostAlloc = host_alloc;
    fx.driver.cuMemHostGetDevicePointer_v2 = host_pointer;
    fx.driver.cuMemFreeHost = host_free;
    fx.driver.cuCtxSetCurrent = set_current;
    fx.driver.cuDeviceTotalMem_v2 = total_memory;
    fx.driver.cuStreamSetAttribute = set_attribute;
    have_part(&fx.driver);
    w->platform.driver = fx.driver;
    w->platform.devices[0].write_value_ok = true;
    w->platform.devices[0].share_pct = share_pct;
    atomic_store(&w->platform.devices[0].is_open, true);
    w->platform.n_devices = 1;
    fx.attributes[0] = (struct weir_device_attribute){
        .id = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, .value = GATE_SMS};
    w->platform.devices[0].about.attributes = fx.attributes;
    w->platform.devices[0].about.n_attributes = 1;
    w->platform.devices[0].about.stream_priority_greatest = -5;
    w->config.scheduler = weir_sched_settings_default();
    w->config.scheduler.starve_ms = 60000;
    w->config.scheduler.fill = fill;
    snprintf(w->config.scheduler.policy, sizeof w->config.scheduler.policy, "%s", policy);
    pthread_mutex_init(&w->lock, NULL);
    w->device_idle = weir_device_idle_create();
    assert_non_null(w->device_idle);
    make_tenant(0, "normal", WEIR_PRIORITY_NORMAL);
    make_tenant(1, "high", WEIR_PRIORITY_HIGH);
    make_tenant(2, "other", WEIR_PRIORITY_NORMAL);
    assert_int_equal(weir_gates_create(w, &weir_orders_of_runs, WEIR_ORDERS_ROOM), WEIR_OK);
    fx.gate = w->gates[0]->gate;
    host_open(&w->config.scheduler, &spin_page);
    attach();
}

void gate_open(const char *policy)
{
    open_gate(policy, false, WEIR_SCHED_FILL_NONE);
}

void gate_open_share(const char *policy, uint32_t percent)
{
    share_pct = percent;
    open_gate(policy, false, WEIR_SCHED_FILL_NONE);
    share_pct = 0;
}

void gate_open_leveled(const char *policy)
{
    open_gate(policy, true, WEIR_SCHED_FILL_NONE);
}

void gate_open_filling(const char *policy)
{
    open_gate(policy, true, WEIR_SCHED_FILL_ALL);
}

void gate_open_undivided(const char *policy)
{
    cannot_be_divided = true;
    gate_open_filling(policy);
    cannot_be_divided = false;
}

void gate_close(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        weir_gates_tenant_gone(&fx.tenants[i]);
    }
    in_process(remove_tenants, NULL);
    assert_int_equal(locked(fx.gate->n_items), 0);
    assert_int_equal(counts_now().items, 0);
    weir_gates_destroy(&fx.worker);
    host_close();
    weir_device_idle_destroy(&fx.worker);
    pthread_mutex_destroy(&fx.worker.lock);
}

/* ---------------------------------------------------------------- guests */

/* It is not gone. Asked by who waits in the gate, each time that it looks up. */
static bool peer_is_there(struct weir_transport *t)
{
    struct guest *guest = (struct guest *)(void *)((char *)t - offsetof(struct guest, transport));

    atomic_fetch_add(&guest->looks, 1);
    return false;
}

static const struct weir_transport_ops transport_ops = {.name = "none", .peer_gone = peer_is_there};

struct guest *guest_new(uint32_t tenant, uint32_t sm_pct)
{
    struct guest *guest = calloc(1, sizeof *guest);

    assert_non_null(guest);
    guest->transport.ops = &transport_ops;
    guest->session.worker = &fx.worker;
    guest->session.tenant = &fx.tenants[tenant];
    guest->session.platform = &fx.worker.platform;
    guest->session.driver = &fx.worker.platform.driver;
    guest->channel.transport = &guest->transport;
    guest->session.channel = &guest->channel;
    guest->about.wish.sm_pct = sm_pct;
    guest->session.about = &guest->about;
    guest->session.handles = &guest->handles;
    guest->session.idle = weir_session_idle_create();
    assert_non_null(guest->session.idle);
    guest->stream.o.native = guest; /* any name */
    return guest;
}

struct weir_gate_queue *queue_of(const struct guest *guest)
{
    return weir_admission_queue(&guest->session, 0);
}

void finish(struct guest *guest)
{
    struct weir_gate_queue *q = queue_of(guest);

    weir_admission_idle(&guest->session);
    device_reaches(guest);
    weir_gate_look(q);
    await(locked(q->n == 0 && q->unmarked_started == 0) &&
          atomic_load(&q->done_ns) == atomic_load(&q->given_ns));
    settle();
}

void guest_gone(struct guest *guest)
{
    weir_admission_session_ends(&guest->session);
    device_reaches(guest);
    weir_admission_stream_gone(&guest->session, &guest->stream);
    weir_part_stream_gone(&fx.worker.platform.driver, &guest->stream);
    if (guest->stream.join) {
        (void)fx.worker.platform.driver.cuEventDestroy_v2(guest->stream.join);
    }
    weir_admission_session_gone(&guest->session);
    weir_session_idle_destroy(guest->session.idle);
    free(guest);
}

/* ---------------------------------------------------------------- launches */

static void *go_through(void *user)
{
    struct launch *l = user;
    struct timespec pause = {0, 20 * 1000};

    in_gate = true;
    l->result =
        weir_admission_enter(&l->guest->session, &l->guest->stream, &l->work, NULL, &l->admission);
    in_gate = false;
    atomic_store(&l->state, LAUNCH_GIVEN);
    while (!atomic_load(&l->may_leave)) {
        nanosleep(&pause, NULL);
    }
    if (l->result == CUDA_SUCCESS) {
        if (l->run) {
            weir_orders_begin(&l->admission.pass)->run = l->run;
        }
        weir_admission_leave(&l->admission, l->driver_says);
    }
    atomic_store(&l->state, LAUNCH_LEFT);
    return NULL;
}

void launch_begin(struct launch *launch, struct guest *guest, struct weir_gate_work work)
{
    *launch = (struct launch){.guest = guest, .work = work};
    assert_int_equal(pthread_create(&launch->thread, NULL, go_through, launch), 0);
}

void launch_await_given(struct launch *launch)
{
    await(atomic_load(&launch->state) == LAUNCH_GIVEN);
    settle(); /* others hear of it */
}

void launch_await_given_in_time(struct launch *launch)
{
    uint64_t end_ns = await_begin();

    while (atomic_load(&launch->state) != LAUNCH_GIVEN) {
        clock_forward(WEIR_NS_PER_MS);
        await_pause(end_ns, "the launch is given as time goes on", __FILE__, __LINE__);
    }
}

/* It has an item that the gate process does not grant. */
static bool waits(const struct weir_gate_queue *queue)
{
    const struct weir_gate_item *item = queue->waiting;

    return item && atomic_load(&item->slot->granted) != item->sequence;
}

void launch_await_waiting(const struct launch *launch)
{
    await(queue_of(launch->guest) && locked(queue_of(launch->guest)->waiting != NULL));
    settle();
    assert_true(locked(waits(queue_of(launch->guest))));
    assert_int_equal(atomic_load(&((struct launch *)(uintptr_t)launch)->state), LAUNCH_COMES);
}

void launch_leave(struct launch *launch)
{
    atomic_store(&launch->may_leave, true);
    pthread_join(launch->thread, NULL);
}

void launch_end(struct launch *launch)
{
    launch_await_given(launch);
    launch_leave(launch);
}

void launch_once(struct guest *guest, struct weir_gate_work work)
{
    struct launch launch;

    launch_begin(&launch, guest, work);
    launch_leave(&launch);
    assert_int_equal(launch.result, CUDA_SUCCESS);
    settle();
}

struct lesson {
    const struct weir_gate_work *work;
    uint64_t took_ns;
};

/* In the process: it learns this of all tenants' kernels of the key. */
static void teach_process(void *user)
{
    const struct lesson *lesson = user;
    struct served_gpu *gpu = &host.process->gpus[0];

    for (uint32_t i = 0; i < 3; i++) {
        weir_predict_learn(gpu->predict, lesson->work->class,
                           lesson->work->key | served_owner_of(gpu, i), lesson->work->blocks,
                           lesson->took_ns);
    }
}

void teach(const struct weir_gate_work *work, uint64_t took_ns)
{
    struct lesson lesson = {work, took_ns};

    pthread_mutex_lock(&fx.gate->lock);
    weir_predict_learn(fx.gate->predict, work->class, work->key, work->blocks, took_ns);
    pthread_mutex_unlock(&fx.gate->lock);
    in_process(teach_process, &lesson);
}

struct weir_gate_work kernel_of(uint64_t key, uint64_t predicted_ns)
{
    struct weir_gate_work work = {.class = WEIR_SCHED_KERNEL, .key = key, .blocks = 1000};

    if (predicted_ns != 0) {
        teach(&work, predicted_ns);
    }
    return work;
}

bool is_alone(const struct guest *guest)
{
    settle();
    return queue_of(guest) && weir_gate_may_pass(queue_of(guest));
}

void make_alone(struct guest *guest)
{
    launch_once(guest, kernel_of(1, 0));
    finish(guest);
    for (unsigned tries = 0; !is_alone(guest); tries++) {
        if (tries == 10000) {
            fail_msg("not alone after %u launches", tries);
        }
        clock_forward(5 * WEIR_NS_PER_MS);
        launch_once(guest, kernel_of(1, 0));
        finish(guest);
    }
}

void looks_up(const struct launch *launch)
{
    struct guest *guest = launch->guest;
    unsigned looks = atomic_load(&guest->looks);

    weir_session_gates_wake(&guest->session);
    await(atomic_load(&guest->looks) >= looks + 2);
    assert_int_equal(atomic_load(&((struct launch *)(uintptr_t)launch)->state), LAUNCH_COMES);
}
