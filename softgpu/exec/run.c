/*
 * Devices, their SM threads, and grids.
 *
 * A core (struct weir_x_core) is a host thread that runs blocks. It holds the blocks it has begun
 * in a list and gives each a few quanta in turn. It takes another block when it has none, or when a
 * whole turn finished none (they may be waiting for blocks not begun yet), up to what occupancy
 * allows; so short blocks run one after the other in a warm cache, and blocks that wait for each
 * other all become resident. Blocks are handed out in ascending order under the device's lock;
 * grids take turns.
 *
 * A grid of one or two blocks is run by the thread that launches it: waking an SM thread would cost
 * more than the work. A grid is over when no block is active and none is left (or it was stopped).
 */
#include "softgpu/exec/internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_ROUNDS  8u
#define CALLER_BLOCKS 2u
/* Of one thread, with all that it calls. */
#define MAX_LOCAL_BYTES (1u << 20)
/* What the hardware keeps of each block's shared memory for itself. */
#define RESERVED_SHARED_BYTES 1024u

static pthread_once_t windows_once = PTHREAD_ONCE_INIT;

/* Three windows of addresses that nothing else can ever have. */
static void reserve_windows(void)
{
    size_t bytes = WEIR_X_WINDOW_BYTES * 4;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return;
    }
    uint64_t at = ((uintptr_t)base + WEIR_X_WINDOW_BYTES - 1) & ~(WEIR_X_WINDOW_BYTES - 1);
    weir_x_window_shared = at;
    weir_x_window_local = at + WEIR_X_WINDOW_BYTES;
    weir_x_window_param = at + WEIR_X_WINDOW_BYTES * 2;
}

enum weir_status weir_exec_device_create(const struct weir_exec_device_params *params,
                                         struct weir_exec_device **ret_device)
{
    if (params->sm_count == 0 || params->sm_count > 256 || params->thread_count == 0 ||
        params->thread_count > params->sm_count || params->max_threads_per_sm < 32 ||
        params->max_blocks_per_sm == 0) {
        return WEIR_ERR_INVALID;
    }
    pthread_once(&windows_once, reserve_windows);
    struct weir_exec_device *device = calloc(1, sizeof *device);
    if (device == NULL || weir_x_window_shared == 0) {
        free(device);
        return WEIR_ERR_NO_MEMORY;
    }
    device->params = *params;
    device->threads = calloc(params->thread_count, sizeof *device->threads);
    device->cores = calloc(params->thread_count, sizeof *device->cores);
    if (device->threads == NULL || device->cores == NULL) {
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
    if (device == NULL) {
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
    while (device->spare_cores != NULL) {
        struct weir_x_core *core = device->spare_cores;
        device->spare_cores = core->next;
        weir_x_core_finish(core);
        free(core);
    }
    while (device->spare_blocks != NULL) {
        struct weir_x_block *block = device->spare_blocks;
        device->spare_blocks = block->next;
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

static uint32_t resident_of(const struct weir_x_core *core, const struct weir_x_grid *grid)
{
    uint32_t n = 0;
    for (const struct weir_x_block *b = core->resident; b != NULL; b = b->next) {
        n += b->grid == grid;
    }
    return n;
}

static bool has_block_locked(const struct weir_x_core *core, const struct weir_x_grid *grid)
{
    return grid->next_block < grid->n_blocks &&
           __atomic_load_n(&grid->stop, __ATOMIC_RELAXED) == 0 &&
           resident_of(core, grid) < grid->max_resident;
}

/* The next block for a core, of `only` or of any grid; the grid goes to the end of the line. */
static struct weir_x_grid *take_block_locked(struct weir_x_core *core, struct weir_x_grid *only,
                                             uint64_t *ret_linear)
{
    struct weir_exec_device *device = core->device;
    struct weir_x_grid *grid = only;
    if (only == NULL) {
        struct weir_x_grid **p = &device->grids;
        while (*p != NULL && !has_block_locked(core, *p)) {
            p = &(*p)->next;
        }
        grid = *p;
        if (grid != NULL && grid->next != NULL) {
            *p = grid->next;
            grid->next = NULL;
            struct weir_x_grid **end = p;
            while (*end != NULL) {
                end = &(*end)->next;
            }
            *end = grid;
        }
    } else if (!has_block_locked(core, only)) {
        grid = NULL;
    }
    if (grid != NULL) {
        *ret_linear = grid->next_block++;
        grid->active++;
    }
    return grid;
}

static void block_over(struct weir_x_grid *grid)
{
    struct weir_exec_device *device = grid->device;
    pthread_mutex_lock(&device->lock);
    grid->active--;
    bool left =
        grid->next_block < grid->n_blocks && __atomic_load_n(&grid->stop, __ATOMIC_RELAXED) == 0;
    if (grid->active == 0 && !left) {
        grid->done = true;
        pthread_cond_signal(&grid->wake);
    }
    pthread_mutex_unlock(&device->lock);
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

/* The block that a launch with a seed begins in place of block `linear`: each of them once. */
static uint64_t in_order(const struct weir_x_grid *grid, uint64_t linear)
{
    uint64_t n = grid->n_blocks, seed = grid->launch->order_seed;
    if (seed == 0 || n > UINT32_MAX) {
        return linear;
    }
    uint64_t step = seed % n;
    while (common_divisor(step, n) != 1) {
        step = (step + 1) % n;
    }
    return (linear * step + (seed >> 32) % n) % n;
}

static void begin_block(struct weir_x_core *core, struct weir_x_grid *grid, uint64_t linear)
{
    const struct weir_exec_device_params *params = &core->device->params;
    uint32_t per_core = params->sm_count / params->thread_count;
    core->sm = core->index + params->thread_count * (core->turn++ % (per_core == 0 ? 1 : per_core));
    struct weir_x_block *block = weir_x_block_start(core, grid, in_order(grid, linear));
    if (block == NULL) {
        no_memory(grid);
        block_over(grid);
        return;
    }
    block->next = core->resident;
    core->resident = block;
    core->n_resident++;
}

static void check_cancel(struct weir_x_grid *grid)
{
    const uint32_t *cancel = grid->launch->cancel;
    if (cancel != NULL && __atomic_load_n(cancel, __ATOMIC_RELAXED) != 0) {
        __atomic_store_n(&grid->stop, 1, __ATOMIC_RELEASE);
    }
}

/* A turn for every resident block. True when one was finished. */
static bool run_resident(struct weir_x_core *core)
{
    bool finished = false;
    struct weir_x_block **p = &core->resident;
    while (*p != NULL) {
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
        weir_x_block_finish(block);
        block_over(grid);
    }
    return finished;
}

static bool any_work_locked(const struct weir_x_core *core)
{
    for (const struct weir_x_grid *g = core->device->grids; g != NULL; g = g->next) {
        if (has_block_locked(core, g)) {
            return true;
        }
    }
    return false;
}

static void *sm_main(void *arg)
{
    struct weir_x_core *core = arg;
    struct weir_exec_device *device = core->device;
    bool hungry = false;
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
        if (grid != NULL) {
            begin_block(core, grid, linear);
        }
        hungry = !run_resident(core);
        if (hungry && grid == NULL) {
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
        if (own != NULL) {
            begin_block(core, grid, linear);
        }
        hungry = !run_resident(core);
        if (hungry && own == NULL) {
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
        core->device = device;
        core->index = device->n_threads;
        if (pthread_create(&device->threads[device->n_threads], NULL, sm_main, core) != 0) {
            return device->n_threads != 0;
        }
        device->n_threads++;
    }
    return true;
}

static enum weir_status run_on_pool(struct weir_x_grid *grid)
{
    struct weir_exec_device *device = grid->device;
    pthread_mutex_lock(&device->lock);
    if (!start_threads_locked(device)) {
        pthread_mutex_unlock(&device->lock);
        return WEIR_ERR_NO_MEMORY;
    }
    struct weir_x_grid **end = &device->grids;
    while (*end != NULL) {
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
    pthread_mutex_unlock(&device->lock);
    return WEIR_OK;
}

static struct weir_x_core *core_get(struct weir_exec_device *device)
{
    pthread_mutex_lock(&device->lock);
    struct weir_x_core *core = device->spare_cores;
    if (core != NULL) {
        device->spare_cores = core->next;
    }
    pthread_mutex_unlock(&device->lock);
    if (core == NULL) {
        core = calloc(1, sizeof *core);
        if (core != NULL) {
            core->device = device;
        }
    }
    return core;
}

static void core_put(struct weir_exec_device *device, struct weir_x_core *core)
{
    pthread_mutex_lock(&device->lock);
    core->next = device->spare_cores;
    device->spare_cores = core;
    pthread_mutex_unlock(&device->lock);
}

static enum weir_status run_grid(struct weir_x_grid *grid)
{
    if (grid->n_blocks > CALLER_BLOCKS) {
        return run_on_pool(grid);
    }
    struct weir_x_core *core = core_get(grid->device);
    if (core == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
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
    limit = by_threads < limit ? by_threads : limit;
    limit = by_shared < limit ? by_shared : limit;
    limit = by_registers < limit ? by_registers : limit;
    return (uint32_t)limit;
}

uint32_t weir_exec_occupancy(const struct weir_exec_device *device,
                             const struct weir_exec_kernel *kernel, uint32_t threads_per_block,
                             uint32_t dynamic_shared_bytes)
{
    if (weir_exec_kernel_info(kernel)->unsupported != NULL && kernel->entry == NULL) {
        return 0;
    }
    return occupancy(device, kernel, threads_per_block, dynamic_shared_bytes);
}

static uint64_t rounded(uint64_t bytes)
{
    return (bytes + 63u) & ~63ull;
}

/* Geometry into the grid; false when it can never run. */
static bool measure(struct weir_x_grid *grid)
{
    const struct weir_exec_launch *launch = grid->launch;
    const struct weir_exec_kernel *kernel = grid->kernel;
    const struct weir_exec_device_params *params = &grid->device->params;
    uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    if (launch->params_bytes < kernel->info.param_bytes || threads == 0 || threads > 1024) {
        return false;
    }
    grid->threads = (uint32_t)threads;
    grid->n_warps = (grid->threads + WEIR_X_LANES - 1) / WEIR_X_LANES;
    if (__builtin_mul_overflow((uint64_t)launch->grid[0] * launch->grid[1], launch->grid[2],
                               &grid->n_blocks) ||
        grid->n_blocks == 0) {
        return false;
    }
    uint32_t fit = occupancy(grid->device, kernel, grid->threads, launch->dynamic_shared_bytes);
    if (fit == 0 || (launch->cooperative && grid->n_blocks > (uint64_t)fit * params->sm_count)) {
        return false;
    }
    grid->max_resident =
        fit * ((params->sm_count + params->thread_count - 1) / params->thread_count);
    if (grid->n_blocks <= CALLER_BLOCKS) {
        grid->max_resident = CALLER_BLOCKS;
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

/* The counter that cooperative groups' grid barrier uses: a page that kernels may touch. */
static enum weir_status make_workspace(struct weir_x_grid *grid)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return WEIR_ERR_NO_MEMORY;
    }
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
    if (grid->workspace != NULL && weir_soft_memory_remove((uintptr_t)grid->workspace) == WEIR_OK) {
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
    /* Decoding fills a kernel that callers hold as constant; its lock makes that invisible. */
    struct weir_exec_kernel *kernel = (struct weir_exec_kernel *)(uintptr_t)launch->kernel;
    enum weir_status status = weir_x_kernel_decode(kernel);
    if (status != WEIR_OK) {
        return status;
    }
    if (kernel->info.unsupported != NULL) {
        return WEIR_ERR_UNSUPPORTED;
    }
    struct weir_x_grid grid = {.launch = launch, .kernel = kernel, .device = device};
    if (!measure(&grid)) {
        return WEIR_ERR_INVALID;
    }
    grid.id = __atomic_add_fetch(&device->n_grids, 1, __ATOMIC_RELAXED);
    if (launch->cooperative) {
        status = make_workspace(&grid);
        if (status != WEIR_OK) {
            return status;
        }
    }
    pthread_cond_init(&grid.wake, NULL);
    weir_x_textures_enter();
    status = run_grid(&grid);
    weir_x_textures_leave();
    pthread_cond_destroy(&grid.wake);
    drop_workspace(&grid);
    return status == WEIR_OK ? outcome(&grid, ret_fault) : status;
}
