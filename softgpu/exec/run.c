/*
 * Devices, their SM threads, and grids.
 *
 * A core (struct weir_x_core) is a host thread that runs blocks. It holds the blocks it has begun
 * in a list and gives each a few quanta in turn. It takes another block when it has none, or when
 * no block finished in a whole turn (they may wait for blocks that have not begun), up to the
 * occupancy limit. So short blocks run one after the other in a warm cache, and blocks that wait
 * for each other all become resident. Blocks are handed out in ascending order under the device's
 * lock; grids take turns. A core acts as several SMs and gives them blocks in turn. A grid that is
 * limited to some SMs only uses cores that act as one of them, with as many blocks as those SMs
 * hold.
 *
 * A grid of one or two blocks is run by the thread that launches it: waking an SM thread would cost
 * more than the work. A grid is over when no block is active and none is left (or it was stopped).
 */
#include "softgpu/exec/internal.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define BLOCK_ROUNDS  8u
#define CALLER_BLOCKS 2u
/* Most local memory of one thread, with everything that it calls. */
#define MAX_LOCAL_BYTES (1u << 20)
/* Shared memory that the hardware reserves in each block. */
#define RESERVED_SHARED_BYTES 1024u

static pthread_once_t windows_once = PTHREAD_ONCE_INIT;

/* Reserve the windows of generic addresses, so that no other memory can lie there. */
static void reserve_windows(void)
{
    size_t bytes = WEIR_X_WINDOW_BYTES * (WEIR_X_MAX_CLUSTER + 4);
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return;
    }
    uint64_t at = ((uintptr_t)base + WEIR_X_WINDOW_BYTES - 1) & ~(WEIR_X_WINDOW_BYTES - 1);
    weir_x_window_shared = at;
    weir_x_window_local = at + WEIR_X_WINDOW_BYTES * (WEIR_X_MAX_CLUSTER + 1);
    weir_x_window_param = at + WEIR_X_WINDOW_BYTES * (WEIR_X_MAX_CLUSTER + 2);
}

enum weir_status weir_exec_device_create(const struct weir_exec_device_params *params,
                                         struct weir_exec_device **ret_device)
{
    if (params->sm_count == 0 || params->sm_count > WEIR_EXEC_MAX_SMS ||
        params->thread_count == 0 || params->thread_count > params->sm_count ||
        params->max_threads_per_sm < 32 || params->max_blocks_per_sm == 0) {
        return WEIR_ERR_INVALID;
    }
    pthread_once(&windows_once, reserve_windows);
    struct weir_exec_device *device = calloc(1, sizeof *device);
    if (!device || weir_x_window_shared == 0) {
        free(device);
        return WEIR_ERR_NO_MEMORY;
    }
    device->params = *params;
    device->threads = calloc(params->thread_count, sizeof *device->threads);
    device->cores = calloc(params->thread_count, sizeof *device->cores);
    if (!device->threads || !device->cores) {
        free(device->threads);
        free(device->cores);
        free(device);
        return WEIR_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->heap_lock, NULL);
    pthread_cond_init(&device->work, NULL);
    *ret_device = device;
    return WEIR_OK;
}

void weir_exec_device_destroy(struct weir_exec_device *device)
{
    if (!device) {
        return;
    }
    pthread_mutex_lock(&device->lock);
    device->stopping = true;
    pthread_cond_broadcast(&device->work);
    pthread_mutex_unlock(&device->lock);
    for (uint32_t t = 0; t < device->n_threads; t++) {
        pthread_join(device->threads[t], NULL);
        weir_x_core_finish(&device->cores[t]);
    }
    for (struct weir_x_core *core; (core = WEIR_POP(device->spare_cores));) {
        weir_x_core_finish(core);
        free(core);
    }
    for (struct weir_x_block *block; (block = WEIR_POP(device->spare_blocks));) {
        free(block);
    }
    weir_x_heap_destroy(device);
    pthread_cond_destroy(&device->work);
    pthread_mutex_destroy(&device->heap_lock);
    pthread_mutex_destroy(&device->lock);
    free(device->threads);
    free(device->cores);
    free(device);
}

static void core_init(struct weir_x_core *core, struct weir_exec_device *device, uint32_t index)
{
    core->device = device;
    core->sms = weir_x_sms_of_thread(device, index);
}

/* The SM of the next block: the core's SMs in turn, as far as the grid may use them. A launching
 * thread runs small grids itself, on any SMs. */
static uint32_t next_sm(struct weir_x_core *core, const struct weir_x_grid *grid)
{
    struct weir_exec_sms sms = weir_x_sms_common(&core->sms, &grid->sms);
    uint32_t n = weir_exec_sms_count(&sms);
    if (n == 0) {
        sms = grid->sms;
        n = weir_exec_sms_count(&sms);
    }
    return weir_x_sms_at(&sms, core->turn++ % n);
}

/* Most blocks of a grid on a core at once; 0 if the core acts as none of the grid's SMs. */
static uint32_t room_of(const struct weir_x_core *core, const struct weir_x_grid *grid)
{
    uint32_t room = CALLER_BLOCKS;
    if (grid->n_blocks > CALLER_BLOCKS) {
        struct weir_exec_sms sms = weir_x_sms_common(&core->sms, &grid->sms);
        room = grid->per_sm * weir_exec_sms_count(&sms);
    }
    return room != 0 && room < grid->cluster_blocks ? grid->cluster_blocks : room;
}

static uint32_t resident_of(const struct weir_x_core *core, const struct weir_x_grid *grid)
{
    uint32_t n = 0;
    for (const struct weir_x_block *b = core->resident; b; b = b->next) {
        n += b->grid == grid;
    }
    return n;
}

static bool has_block_locked(const struct weir_x_core *core, const struct weir_x_grid *grid)
{
    return grid->next_block < grid->n_blocks &&
           __atomic_load_n(&grid->stop, __ATOMIC_RELAXED) == 0 &&
           resident_of(core, grid) + grid->cluster_blocks <= room_of(core, grid);
}

/* Take the next block, of `only` or of any grid. The grid goes to the end of the queue. */
static struct weir_x_grid *take_block_locked(struct weir_x_core *core, struct weir_x_grid *only,
                                             uint64_t *ret_linear)
{
    struct weir_exec_device *device = core->device;
    struct weir_x_grid *grid = only;
    if (!only) {
        struct weir_x_grid **p = &device->grids;
        while (*p && !has_block_locked(core, *p)) {
            p = &(*p)->next;
        }
        grid = *p;
        if (grid && grid->next) {
            *p = grid->next;
            grid->next = NULL;
            struct weir_x_grid **end = p;
            while (*end) {
                end = &(*end)->next;
            }
            *end = grid;
        }
    } else if (!has_block_locked(core, only)) {
        grid = NULL;
    }
    if (grid) {
        *ret_linear = grid->next_block;
        grid->next_block += grid->cluster_blocks;
        grid->active += grid->cluster_blocks;
    }
    return grid;
}

static void blocks_over(struct weir_x_grid *grid, uint32_t n)
{
    struct weir_exec_device *device = grid->device;
    WEIR_LOCKED(&device->lock);
    grid->active -= n;
    bool left =
        grid->next_block < grid->n_blocks && __atomic_load_n(&grid->stop, __ATOMIC_RELAXED) == 0;
    if (grid->active == 0 && !left) {
        grid->done = true;
        pthread_cond_signal(&grid->wake);
    }
}

static void no_memory(struct weir_x_grid *grid)
{
    if (__atomic_exchange_n(&grid->faulted, 1, __ATOMIC_ACQ_REL) == 0) {
        grid->fault.code = 719;
        strcpy(grid->fault.message, "no memory for a block");
        __atomic_store_n(&grid->stop, 1, __ATOMIC_RELEASE);
    }
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns the cluster that a launch with a seed begins as its i-th. Each cluster occurs once. */
static uint64_t in_order(const struct weir_x_grid *grid, uint64_t i)
{
    uint64_t n = grid->n_blocks / grid->cluster_blocks, seed = grid->launch->order_seed;
    if (seed == 0 || n > UINT32_MAX) {
        return i;
    }
    uint64_t step = seed % n;
    while (common_divisor(step, n) != 1) {
        step = (step + 1) % n;
    }
    return (i * step + (seed >> 32) % n) % n;
}

static void join_cluster(struct weir_x_block **blocks, uint32_t n)
{
    assert(blocks[0]);
    struct weir_x_cluster *cluster = &blocks[0]->own_cluster;
    cluster->n_blocks = n;
    cluster->live_threads = n * blocks[0]->live_threads;
    for (uint32_t b = 0; b < n; b++) {
        cluster->blocks[b] = blocks[b];
        blocks[b]->cluster = cluster;
    }
}

/* Begin a whole cluster: one block, if there are no clusters. */
static void begin_blocks(struct weir_x_core *core, struct weir_x_grid *grid, uint64_t linear)
{
    core->sm = next_sm(core, grid);
    struct weir_x_block *blocks[WEIR_X_MAX_CLUSTER] = {NULL};
    uint32_t n = 0;
    uint64_t first = in_order(grid, linear / grid->cluster_blocks) * grid->cluster_blocks;
    while (n < grid->cluster_blocks && (blocks[n] = weir_x_block_start(core, grid, first + n))) {
        n++;
    }
    if (n < grid->cluster_blocks) {
        while (n-- > 0) {
            weir_x_block_finish(blocks[n]);
        }
        no_memory(grid);
        blocks_over(grid, grid->cluster_blocks);
        return;
    }
    join_cluster(blocks, n);
    /* The first one comes first. */
    while (n-- > 0) {
        blocks[n]->next = core->resident;
        core->resident = blocks[n];
        core->n_resident++;
    }
}

static void check_cancel(struct weir_x_grid *grid)
{
    const uint32_t *cancel = grid->launch->cancel;
    if (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED) != 0) {
        __atomic_store_n(&grid->stop, 1, __ATOMIC_RELEASE);
    }
}

/* End a block. Its memory is released with the last block of its cluster. */
static void end_block(struct weir_x_block *block)
{
    struct weir_x_grid *grid = block->grid;
    struct weir_x_cluster cluster = *block->cluster;
    if (++block->cluster->n_over < cluster.n_blocks) {
        return;
    }
    for (uint32_t b = 0; b < cluster.n_blocks; b++) {
        weir_x_block_finish(cluster.blocks[b]);
    }
    blocks_over(grid, cluster.n_blocks);
}

/* Give every resident block a turn. Returns true if a block finished. */
static bool run_resident(struct weir_x_core *core)
{
    bool finished = false;
    struct weir_x_block **p = &core->resident;
    while (*p) {
        struct weir_x_block *block = *p;
        struct weir_x_grid *grid = block->grid;
        check_cancel(grid);
        enum weir_x_block_state state = __atomic_load_n(&grid->stop, __ATOMIC_RELAXED) != 0
                                            ? WEIR_X_BLOCK_STOPPED
                                            : weir_x_block_run(block, BLOCK_ROUNDS);
        if (state == WEIR_X_BLOCK_RUNNING) {
            p = &block->next;
            continue;
        }
        *p = block->next;
        core->n_resident--;
        finished = true;
        end_block(block);
    }
    return finished;
}

static bool any_work_locked(const struct weir_x_core *core)
{
    return WEIR_LINKED(g, core->device->grids, has_block_locked(core, g)) != NULL;
}

static void *sm_main(void *arg)
{
    struct weir_x_core *core = arg;
    struct weir_exec_device *device = core->device;
    bool hungry = false;
    (void)prctl(PR_SET_NAME, "softgpu-sm");
    pthread_mutex_lock(&device->lock);
    for (;;) {
        while (!device->stopping && core->n_resident == 0 && !any_work_locked(core)) {
            pthread_cond_wait(&device->work, &device->lock);
        }
        if (device->stopping && core->n_resident == 0) {
            break;
        }
        uint64_t linear = 0;
        struct weir_x_grid *grid = NULL;
        if (core->n_resident == 0 || hungry) {
            grid = take_block_locked(core, NULL, &linear);
        }
        pthread_mutex_unlock(&device->lock);
        if (grid) {
            begin_blocks(core, grid, linear);
        }
        hungry = !run_resident(core);
        if (hungry && !grid) {
            sched_yield();
        }
        pthread_mutex_lock(&device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

/* Run all of a small grid on the calling thread. */
static void run_here(struct weir_x_grid *grid, struct weir_x_core *core)
{
    struct weir_exec_device *device = grid->device;
    bool hungry = false;
    pthread_mutex_lock(&device->lock);
    while (!grid->done) {
        uint64_t linear = 0;
        struct weir_x_grid *own = NULL;
        if (core->n_resident == 0 || hungry) {
            own = take_block_locked(core, grid, &linear);
        }
        pthread_mutex_unlock(&device->lock);
        if (own) {
            begin_blocks(core, grid, linear);
        }
        hungry = !run_resident(core);
        if (hungry && !own) {
            sched_yield();
        }
        pthread_mutex_lock(&device->lock);
    }
    pthread_mutex_unlock(&device->lock);
}

static bool start_threads_locked(struct weir_exec_device *device)
{
    while (device->n_threads < device->params.thread_count) {
        struct weir_x_core *core = &device->cores[device->n_threads];
        core_init(core, device, device->n_threads);
        if (pthread_create(&device->threads[device->n_threads], NULL, sm_main, core) != 0) {
            return device->n_threads != 0;
        }
        device->n_threads++;
    }
    return true;
}

/* Is there a thread that can run the grid? Some threads may have failed to start. */
static bool has_core_locked(const struct weir_x_grid *grid)
{
    const struct weir_exec_device *device = grid->device;
    return WEIR_ANY(t, device->n_threads, room_of(&device->cores[t], grid) != 0);
}

static enum weir_status run_on_pool(struct weir_x_grid *grid)
{
    struct weir_exec_device *device = grid->device;
    WEIR_LOCKED(&device->lock);
    WEIR_FAIL_IF(!start_threads_locked(device) || !has_core_locked(grid), WEIR_ERR_NO_MEMORY);
    struct weir_x_grid **end = &device->grids;
    while (*end) {
        end = &(*end)->next;
    }
    *end = grid;
    pthread_cond_broadcast(&device->work);
    while (!grid->done) {
        pthread_cond_wait(&grid->wake, &device->lock);
    }
    struct weir_x_grid **p = &device->grids;
    while (*p != grid) {
        p = &(*p)->next;
    }
    *p = grid->next;
    return WEIR_OK;
}

static struct weir_x_core *core_get(struct weir_exec_device *device)
{
    pthread_mutex_lock(&device->lock);
    struct weir_x_core *core = device->spare_cores;
    if (core) {
        device->spare_cores = core->next;
    }
    pthread_mutex_unlock(&device->lock);
    if (!core) {
        core = calloc(1, sizeof *core);
        if (core) {
            core_init(core, device, 0);
        }
    }
    return core;
}

static void core_put(struct weir_exec_device *device, struct weir_x_core *core)
{
    WEIR_LOCKED(&device->lock);
    WEIR_PUSH(device->spare_cores, core);
}

static enum weir_status run_grid(struct weir_x_grid *grid)
{
    if (grid->n_blocks > CALLER_BLOCKS) {
        return run_on_pool(grid);
    }
    struct weir_x_core *core = core_get(grid->device);
    WEIR_FAIL_IF(!core, WEIR_ERR_NO_MEMORY);
    run_here(grid, core);
    core_put(grid->device, core);
    return WEIR_OK;
}

static uint64_t shared_bytes(const struct weir_exec_kernel *kernel, uint32_t dynamic)
{
    uint64_t at = kernel->info.static_shared_bytes;
    if (dynamic != 0) {
        at = kernel->dynamic_at > at ? kernel->dynamic_at : (at + 15u) & ~15ull;
    }
    return at + dynamic;
}

static uint32_t occupancy(const struct weir_exec_device *device,
                          const struct weir_exec_kernel *kernel, uint32_t threads, uint32_t dynamic)
{
    const struct weir_exec_device_params *p = &device->params;
    if (threads == 0 || threads > 1024 || threads > kernel->info.max_threads) {
        return 0;
    }
    uint32_t warps = (threads + 31) / 32;
    uint64_t shared = shared_bytes(kernel, dynamic) + RESERVED_SHARED_BYTES;
    uint32_t per_warp = (kernel->info.registers * 32 + 255u) & ~255u;
    uint64_t limit = p->max_blocks_per_sm;
    uint64_t by_threads = p->max_threads_per_sm / (warps * 32);
    uint64_t by_shared = p->shared_bytes_per_sm / shared;
    uint64_t by_registers = p->registers_per_sm / ((uint64_t)warps * per_warp);
    limit = WEIR_MIN(by_threads, limit);
    limit = WEIR_MIN(by_shared, limit);
    limit = WEIR_MIN(by_registers, limit);
    return (uint32_t)limit;
}

uint32_t weir_exec_occupancy(const struct weir_exec_device *device,
                             const struct weir_exec_kernel *kernel, uint32_t threads_per_block,
                             uint32_t dynamic_shared_bytes)
{
    if (weir_exec_kernel_info(kernel)->unsupported && !kernel->entry) {
        return 0;
    }
    return occupancy(device, kernel, threads_per_block, dynamic_shared_bytes);
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 63u) & ~63ull;
}

/* Set the cluster size: the launch's, or else the kernel's, or one block. */
static bool take_cluster(struct weir_x_grid *grid)
{
    const struct weir_exec_launch *launch = grid->launch;
    const uint32_t *required = grid->kernel->info.required_cluster;
    uint64_t n = 1;
    grid->explicit_cluster = launch->cluster[0] != 0 || required[0] != 0;
    for (uint32_t d = 0; d < 3; d++) {
        uint32_t size = launch->cluster[d] != 0 ? launch->cluster[d] : required[d];
        size = size == 0 ? 1 : size;
        if ((required[d] != 0 && size != required[d]) || launch->grid[d] % size != 0) {
            return false;
        }
        grid->cluster[d] = size;
        n *= size;
        WEIR_FAIL_IF(n > WEIR_X_MAX_CLUSTER, false);
    }
    grid->cluster_blocks = (uint32_t)n;
    return true;
}

/* Set the grid's geometry; false: it can never run. */
static bool measure(struct weir_x_grid *grid)
{
    const struct weir_exec_launch *launch = grid->launch;
    const struct weir_exec_kernel *kernel = grid->kernel;
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    if (launch->params_bytes < kernel->info.param_bytes || threads == 0 || threads > 1024 ||
        !take_cluster(grid)) {
        return false;
    }
    grid->threads = (uint32_t)threads;
    grid->n_warps = (grid->threads + WEIR_X_LANES - 1) / WEIR_X_LANES;
    if (__builtin_mul_overflow((uint64_t)launch->grid[0] * launch->grid[1], launch->grid[2],
                               &grid->n_blocks) ||
        grid->n_blocks == 0) {
        return false;
    }
    grid->sms = weir_x_sms_of_launch(grid->device, launch);
    uint32_t n_sms = weir_exec_sms_count(&grid->sms);
    grid->per_sm = occupancy(grid->device, kernel, grid->threads, launch->dynamic_shared_bytes);
    if (grid->per_sm == 0 || n_sms == 0 ||
        (launch->cooperative && grid->n_blocks > (uint64_t)grid->per_sm * n_sms)) {
        return false;
    }
    grid->shared_bytes = shared_bytes(kernel, launch->dynamic_shared_bytes);
    grid->local_bytes = (kernel->stack_bytes + 15u) & ~15ull;
    grid->arena_bytes = rounded(sizeof(struct weir_x_block)) +
                        rounded(grid->n_warps * sizeof(struct weir_x_warp *)) +
                        grid->n_warps * rounded(sizeof(struct weir_x_warp)) +
                        rounded(grid->shared_bytes) +
                        rounded(grid->n_warps * (uint64_t)WEIR_X_LANES * grid->local_bytes);
    return grid->local_bytes <= MAX_LOCAL_BYTES;
}

/* Allocate the counter of cooperative groups' grid barrier, in a page that kernels may access. */
static enum weir_status make_workspace(struct weir_x_grid *grid)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WEIR_FAIL_IF(page == MAP_FAILED, WEIR_ERR_NO_MEMORY);
    enum weir_status status =
        weir_soft_memory_add((uintptr_t)page, 4096, WEIR_SOFT_READ | WEIR_SOFT_WRITE);
    if (status != WEIR_OK) {
        munmap(page, 4096);
        return status;
    }
    grid->workspace = page;
    return WEIR_OK;
}

static void drop_workspace(struct weir_x_grid *grid)
{
    if (grid->workspace && weir_soft_memory_remove((uintptr_t)grid->workspace) == WEIR_OK) {
        munmap(grid->workspace, 4096);
    }
}

static enum weir_status outcome(const struct weir_x_grid *grid, struct weir_exec_fault *ret_fault)
{
    if (__atomic_load_n(&grid->faulted, __ATOMIC_ACQUIRE) != 0) {
        *ret_fault = grid->fault;
        return WEIR_ERR_DRIVER;
    }
    return __atomic_load_n(&grid->stop, __ATOMIC_ACQUIRE) != 0 ? WEIR_ERR_CLOSED : WEIR_OK;
}

enum weir_status weir_exec_run(struct weir_exec_device *device,
                               const struct weir_exec_launch *launch,
                               struct weir_exec_fault *ret_fault)
{
    /* Decoding changes a kernel that is const for callers; the kernel's lock hides that. */
    struct weir_exec_kernel *kernel = (struct weir_exec_kernel *)(uintptr_t)launch->kernel;
    WEIR_TRY(weir_x_kernel_decode(kernel));
    WEIR_FAIL_IF(kernel->info.unsupported, WEIR_ERR_UNSUPPORTED);
    struct weir_x_grid grid = {.launch = launch, .kernel = kernel, .device = device};
    WEIR_FAIL_IF(!measure(&grid), WEIR_ERR_INVALID);
    grid.id = __atomic_add_fetch(&device->n_grids, 1, __ATOMIC_RELAXED);
    if (launch->cooperative) {
        WEIR_TRY(make_workspace(&grid));
    }
    pthread_cond_init(&grid.wake, NULL);
    weir_x_textures_enter();
    enum weir_status status = run_grid(&grid);
    weir_x_textures_leave();
    pthread_cond_destroy(&grid.wake);
    drop_workspace(&grid);
    return status == WEIR_OK ? outcome(&grid, ret_fault) : status;
}
