/*
 * Runs on softgpu, as the scheduler sees them: each block of the kernel works for a while and
 * counts itself, so that what was done, and that nothing was done twice, can be read from memory at
 * any time.
 */
#include "host_backend/worker/runs/run.h"

#include "../lib/tl_cmocka.h"
#include "base/clock.h"
#include "host_backend/worker/runs/run_private.h"
#include "host_backend/worker/runs/run_streams.h"
#include "proto/driver_table.h"
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"
#include "tests/integration/soft_driver.h"
#include "tests/lib/tl_await.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS      64u
#define ROUNDS      15000u /* of a block: some tenths of a millisecond */
#define WAIT_NS     (40 * WEIR_NS_PER_S)
#define LONG_NS     (60 * WEIR_NS_PER_S)
#define SMS         8u /* softgpu's default */
#define CONNECTIONS 3u /* so two streams of a program may be at work */

static const char kernel[] = ".version 7.5\n.target sm_75\n.address_size 64\n"
                             ".visible .entry work(.param .u64 counts, .param .u32 rounds)\n{\n"
                             ".reg .pred %p;\n.reg .b32 %r<5>;\n.reg .b64 %rd<4>;\n"
                             "ld.param.u64 %rd1, [counts];\nld.param.u32 %r1, [rounds];\n"
                             "mov.u32 %r2, %ctaid.x;\nmul.wide.u32 %rd2, %r2, 4;\n"
                             "add.u64 %rd3, %rd1, %rd2;\n"
                             "LOOP:\nsub.u32 %r1, %r1, 1;\nsetp.ne.u32 %p, %r1, 0;\n"
                             "@%p bra LOOP;\n"
                             "red.global.add.u32 [%rd3], 1;\nret;\n}\n";

/* Who waits for an event of a run. */
struct seen {
    atomic_uint events[WEIR_RUN_DOES_NOT_STOP + 1];
    atomic_uint ended;
};

static struct fixture {
    struct weir_driver driver;
    CUcontext context;
    CUmodule module;
    CUfunction twins[WEIR_PTX_FORM_COUNT], finish;
    uint32_t args_offset[WEIR_PTX_FORM_COUNT], param_bytes[WEIR_PTX_FORM_COUNT];
    struct weir_runs *runs;
    CUstream stream;
    struct weir_run_streams *streams;
    CUdeviceptr counts;
    struct seen seen;
    uint32_t rounds; /* of each block */
    bool look_always;
    atomic_bool opened; /* lets wait_opened() return */
} f;

#define DRV(call) assert_int_equal(f.driver.call, CUDA_SUCCESS)

static void load_twins(void)
{
    struct weir_ptx_twin_want want = {.forms = WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_TICKET) |
                                               WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT)};
    struct weir_ptx_twins twins;
    struct weir_ptx_module *module;
    char *text;

    assert_int_equal(weir_ptx_parse(kernel, strlen(kernel), 0, NULL, &module), WEIR_OK);
    assert_int_equal(weir_ptx_twins(module, &want, 1, &twins), WEIR_OK);
    assert_int_equal(twins.n_made, 2);
    assert_int_equal(weir_ptx_print_buffer(module, &text, NULL), WEIR_OK);
    DRV(cuModuleLoadDataEx(&f.module, text, 0, NULL, NULL));
    for (uint32_t i = 0; i < twins.n_infos; i++) {
        const struct weir_ptx_twin_info *info = &twins.infos[i];

        DRV(cuModuleGetFunction(&f.twins[info->form], f.module, info->name));
        f.args_offset[info->form] = info->args_offset;
        f.param_bytes[info->form] = info->param_bytes;
    }
    DRV(cuModuleGetFunction(&f.finish, f.module, WEIR_PTX_FINISH_NAME));
    free(text);
    weir_ptx_destroy(module);
}

static int set_up_group(void **state)
{
    (void)state;
    f.context = soft_driver_open(&f.driver);
    load_twins();
    DRV(cuStreamCreate(&f.stream, CU_STREAM_NON_BLOCKING));
    DRV(cuMemAlloc_v2(&f.counts, (size_t)BLOCKS * 1000 * sizeof(uint32_t)));
    return 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    DRV(cuMemFree_v2(f.counts));
    DRV(cuStreamDestroy_v2(f.stream));
    DRV(cuModuleUnload(f.module));
    soft_driver_close(&f.driver);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    memset(&f.seen, 0, sizeof f.seen);
    f.rounds = ROUNDS;
    f.look_always = false;
    atomic_store(&f.opened, false);
    DRV(cuMemsetD32Async(f.counts, 0, (size_t)BLOCKS * 1000, f.stream));
    DRV(cuStreamSynchronize(f.stream));
    f.streams = weir_run_streams_create(&f.driver, CONNECTIONS);
    assert_non_null(f.streams);
    assert_int_equal(weir_runs_create(&f.driver, f.context, SMS, f.streams, &f.runs), WEIR_OK);
    return 0;
}

/* Let everything go on that a test has held and, if it failed, has not let go on itself. */
static void open_all(void)
{
    CUstream other;

    atomic_store(&f.opened, true);
    DRV(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cuMemsetD32Async(f.counts, 100, BLOCKS + 1, other)); /* the words that streams wait for */
    DRV(cuStreamSynchronize(other));
    DRV(cuStreamDestroy_v2(other));
}

static int tear_down(void **state)
{
    (void)state;
    open_all();
    assert_true(weir_runs_wait(f.runs, NULL, WAIT_NS));
    weir_runs_destroy(f.runs);
    weir_run_streams_destroy(f.streams);
    return 0;
}

static void on_event(void *user, struct weir_run *run, enum weir_run_event event)
{
    struct seen *seen = user;

    (void)run;
    atomic_fetch_add(&seen->events[event], 1);
}

static void on_ended(void *user)
{
    struct seen *seen = user;

    atomic_fetch_add(&seen->ended, 1);
}

/* Wait for so many events of a kind. */
static void await(enum weir_run_event event, unsigned count)
{
    tl_await(atomic_load(&f.seen.events[event]) >= count);
}

static enum weir_run_state state_of(struct weir_run *run, uint32_t *ret_done)
{
    struct weir_run_info info;

    weir_run_query(run, &info);
    if (ret_done) {
        *ret_done = info.done_blocks;
    }
    return info.state;
}

static CUresult start(enum weir_ptx_form form, uint32_t blocks, uint32_t first_count,
                      struct weir_run_place place, struct weir_run **ret_run)
{
    CUdeviceptr counts = f.counts + (CUdeviceptr)first_count * sizeof(uint32_t);
    uint32_t rounds = f.rounds;
    uint8_t arguments[12];
    struct weir_run_params p = {.form = form,
                                .twin = f.twins[form],
                                .finish = f.finish,
                                .args_offset = f.args_offset[form],
                                .param_bytes = f.param_bytes[form],
                                .grid = {blocks, 1, 1},
                                .block = {1, 1, 1},
                                .look_always = f.look_always,
                                .blocks_per_sm = 2,
                                .arguments = arguments,
                                .argument_bytes = sizeof arguments,
                                .stream = f.stream,
                                .place = place,
                                .owner = &f,
                                .user = &f.seen,
                                .notify = on_event,
                                .ended = on_ended};

    memcpy(arguments, &counts, sizeof counts);
    memcpy(arguments + 8, &rounds, sizeof rounds);
    return weir_run_start(f.runs, &p, ret_run);
}

/* How many of the blocks have counted; none may have done so twice. */
static uint32_t counted(uint32_t first, uint32_t blocks)
{
    uint32_t *host = calloc(blocks, sizeof *host), n = 0;
    CUstream other;

    DRV(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cuMemcpyDtoHAsync_v2(host, f.counts + (CUdeviceptr)first * sizeof(uint32_t),
                             blocks * sizeof *host, other));
    DRV(cuStreamSynchronize(other));
    DRV(cuStreamDestroy_v2(other));
    for (uint32_t i = 0; i < blocks; i++) {
        assert_in_range(host[i], 0, 1);
        n += host[i];
    }
    free(host);
    return n;
}

static const enum weir_ptx_form forms[] = {WEIR_PTX_FORM_PERSISTENT, WEIR_PTX_FORM_TICKET};

static void start_alone_runs_every_block_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(start(forms[i], BLOCKS, (uint32_t)i * BLOCKS,
                               (struct weir_run_place){.task_blocks = 3}, NULL),
                         CUDA_SUCCESS);
    }
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 2 * BLOCKS), 2 * BLOCKS);
    await(WEIR_RUN_HAS_FINISHED, 2);
    assert_true(weir_runs_wait(f.runs, &f, WAIT_NS));
    assert_int_equal(atomic_load(&f.seen.ended), 2);
}

static void stop_says_what_is_done_and_holds_the_stream(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint32_t first = (uint32_t)i * 1000, done, again;
        struct weir_run *run;

        memset(&f.seen, 0, sizeof f.seen);
        assert_int_equal(
            start(forms[i], 1000, first, (struct weir_run_place){.task_blocks = 2}, &run),
            CUDA_SUCCESS);
        while (counted(first, 1000) == 0) {
        }
        assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
        await(WEIR_RUN_HAS_STOPPED, 1);
        assert_int_equal(state_of(run, &done), WEIR_RUN_STOPPED);
        assert_in_range(done, 1, 999);
        assert_int_equal(counted(first, 1000), done);
        assert_int_equal(f.driver.cuStreamQuery(f.stream), CUDA_ERROR_NOT_READY);
        assert_int_equal(counted(first, 1000), done);
        assert_int_equal(weir_run_resume(run), CUDA_SUCCESS);
        DRV(cuStreamSynchronize(f.stream));
        assert_int_equal(counted(first, 1000), 1000);
        await(WEIR_RUN_HAS_FINISHED, 1);
        assert_int_equal(state_of(run, &again), WEIR_RUN_FINISHED);
        assert_int_equal(again, 1000);
        assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_ERROR_NOT_PERMITTED);
        weir_run_put(run);
    }
}

static void stop_before_it_begins_keeps_the_order_of_the_stream(void **state)
{
    struct weir_run *first, *second;

    (void)state;
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 500, 0, (struct weir_run_place){0}, &first),
                     CUDA_SUCCESS);
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 10, 500, (struct weir_run_place){0}, &second),
                     CUDA_SUCCESS);
    assert_int_equal(weir_run_stop(second, LONG_NS), CUDA_SUCCESS);
    assert_int_equal(weir_run_stop(first, LONG_NS), CUDA_SUCCESS);
    await(WEIR_RUN_HAS_STOPPED, 2);
    assert_int_equal(weir_run_resume(second), CUDA_SUCCESS); /* its turn has not come */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(counted(500, 10), 0);
    }
    assert_int_equal(weir_run_resume(first), CUDA_SUCCESS);
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 510), 510);
    weir_run_put(first);
    weir_run_put(second);
}

static void lease_that_is_over_resumes(void **state)
{
    struct weir_runs_counts counts;
    struct weir_run *run;

    (void)state;
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 500, 0, (struct weir_run_place){0}, &run),
                     CUDA_SUCCESS);
    assert_int_equal(weir_run_stop(run, WEIR_NS_PER_MS), CUDA_SUCCESS);
    weir_run_put(run); /* whoever stopped it is gone */
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 500), 500);
    weir_runs_count(f.runs, &counts);
    assert_int_equal(counts.stops, 1);
    assert_int_equal(counts.leases, 1);
}

static void resize_moves_shrinks_and_grows(void **state)
{
    struct weir_runs_counts counts;
    struct weir_run *run;

    (void)state;
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 1000, 0,
                           (struct weir_run_place){.sm_first = 2, .sm_count = 3}, &run),
                     CUDA_SUCCESS);
    for (uint32_t i = 0; i < 12 && state_of(run, NULL) != WEIR_RUN_FINISHED; i++) {
        struct weir_run_place place = {
            .sm_first = i % SMS, .sm_count = i % 3 == 0 ? 0 : 1 + i % 2, .block_limit = i % 4};

        if (place.sm_first + place.sm_count > SMS) {
            place.sm_count = SMS - place.sm_first;
        }
        assert_int_equal(weir_run_resize(run, &place), CUDA_SUCCESS);
        (void)counted(0, 1000);
    }
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 1000), 1000);
    weir_runs_count(f.runs, &counts);
    assert_true(counts.resizes > 0);
    weir_run_put(run);
}

static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, CUstream, void **, void **);
static atomic_uint launches;

static CUresult count_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned x, unsigned y, unsigned z, unsigned shared_bytes,
                             CUstream stream, void **params, void **extra)
{
    atomic_fetch_add(&launches, 1);
    return launch(function, grid_x, grid_y, grid_z, x, y, z, shared_bytes, stream, params, extra);
}

/* Where a run had no blocks beside others', it gets some once both have a limit. */
static void resize_to_a_block_limit_fills_all_sms(void **state)
{
    struct weir_run *run;

    (void)state;
    launch = f.driver.cuLaunchKernel;
    f.driver.cuLaunchKernel = count_launch;
    atomic_store(&launches, 0);
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 1000, 0,
                           (struct weir_run_place){.block_limit = 1024}, &run),
                     CUDA_SUCCESS);
    tl_await(counted(0, 1000) != 0);
    assert_int_equal(atomic_load(&launches), 1);
    assert_int_equal(weir_run_resize(run, &(struct weir_run_place){.block_limit = 1}),
                     CUDA_SUCCESS);
    tl_await(atomic_load(&launches) == 2);
    DRV(cuStreamSynchronize(f.stream));
    f.driver.cuLaunchKernel = launch;
    assert_int_equal(counted(0, 1000), 1000);
    weir_run_put(run);
}

static bool is_all_asked(struct weir_run *run)
{
    bool all;

    pthread_mutex_lock(&f.runs->lock);
    all = !run->want.ask && weir_run_lanes_are_reached_locked(run);
    pthread_mutex_unlock(&f.runs->lock);
    return all;
}

/* What is asked of a run, once all that was written has come to the device. */
static uint32_t asked(struct weir_run *run)
{
    uint32_t word = 0;

    tl_await(is_all_asked(run));

    DRV(cuMemcpyDtoHAsync_v2(&word, weir_run_control(run) + offsetof(struct weir_ptx_control, ask),
                             sizeof word, f.runs->control));
    DRV(cuStreamSynchronize(f.runs->control));
    return word;
}

/* Whatever is asked in between, workers find something asked, and nothing that it is not. */
static void look_always_is_asked_from_start_to_end(void **state)
{
    struct weir_run_place all = {0}, some = {.sm_first = 1, .sm_count = 2, .block_limit = 1};
    struct weir_run *run;

    (void)state;
    f.look_always = true;
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 1000, 0, all, &run), CUDA_SUCCESS);
    assert_int_equal(asked(run), WEIR_PTX_ASK_LOOK);
    assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
    assert_int_equal(asked(run), WEIR_PTX_ASK_LOOK | WEIR_PTX_ASK_STOP);
    await(WEIR_RUN_HAS_STOPPED, 1);
    assert_int_equal(weir_run_resume(run), CUDA_SUCCESS);
    assert_int_equal(asked(run), WEIR_PTX_ASK_LOOK);
    assert_int_equal(weir_run_resize(run, &some), CUDA_SUCCESS);
    assert_int_equal(asked(run), WEIR_PTX_ASK(1, 2, 1));
    assert_int_equal(weir_run_resize(run, &all), CUDA_SUCCESS);
    assert_int_equal(asked(run), WEIR_PTX_ASK_LOOK);
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 1000), 1000);
    weir_run_put(run);
}

static void release_resumes_and_forbids_stopping(void **state)
{
    struct weir_run *run, *other;

    (void)state;
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 500, 0, (struct weir_run_place){0}, &run),
                     CUDA_SUCCESS);
    assert_int_equal(start(WEIR_PTX_FORM_TICKET, 500, 500, (struct weir_run_place){0}, &other),
                     CUDA_SUCCESS);
    assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
    await(WEIR_RUN_HAS_STOPPED, 1);
    assert_int_equal(weir_run_stop(other, LONG_NS), CUDA_SUCCESS); /* has not begun */
    weir_runs_release(f.runs, &f);
    assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_ERROR_NOT_PERMITTED);
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 1000), 1000);
    weir_run_put(run);
    weir_run_put(other);
}

/* Of runs that run, are stopped, and have not begun; the stream goes on behind them. */
static void withdraw_leaves_blocks_undone_and_lets_the_stream_on(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint32_t first = (uint32_t)i * 1000;
        struct weir_run *run;

        memset(&f.seen, 0, sizeof f.seen);
        assert_int_equal(start(forms[i], 900, first, (struct weir_run_place){0}, &run),
                         CUDA_SUCCESS);
        assert_int_equal(start(forms[i], 100, first + 900, (struct weir_run_place){0}, NULL),
                         CUDA_SUCCESS);
        while (counted(first, 900) == 0) {
        }
        if (i == 0) {
            assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
            await(WEIR_RUN_HAS_STOPPED, 1);
        }
        weir_runs_withdraw(f.runs, &f);
        assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_ERROR_NOT_PERMITTED);
        assert_int_equal(weir_run_resume(run), CUDA_SUCCESS); /* too late */
        DRV(cuStreamSynchronize(f.stream));
        assert_in_range(counted(first, 900), 1, 899);
        assert_int_equal(counted(first + 900, 100), 0);
        assert_true(weir_runs_wait(f.runs, &f, WAIT_NS));
        assert_int_equal(atomic_load(&f.seen.ended), 2);
        weir_run_put(run);
    }
}

static void device_idle_resumes_and_refuses_to_stop(void **state)
{
    struct weir_run *run, *second;

    (void)state;
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 1000, 0, (struct weir_run_place){0}, &run),
                     CUDA_SUCCESS);
    assert_int_equal(start(WEIR_PTX_FORM_TICKET, 10, 1000, (struct weir_run_place){0}, &second),
                     CUDA_SUCCESS);
    assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
    assert_int_equal(weir_run_stop(second, LONG_NS), CUDA_SUCCESS);
    assert_true(weir_runs_device_idle_begin(f.runs, WAIT_NS));
    assert_int_not_equal(state_of(run, NULL), WEIR_RUN_STOPPED);
    assert_int_not_equal(state_of(second, NULL), WEIR_RUN_STOPPED);
    assert_int_not_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
    assert_int_equal(weir_run_resize(run, &(struct weir_run_place){.sm_count = 1}),
                     CUDA_ERROR_NOT_READY);
    DRV(cuStreamSynchronize(f.stream)); /* nobody resumes anything */
    weir_runs_device_idle_end(f.runs);
    assert_int_equal(counted(0, 1010), 1010);
    weir_run_put(run);
    weir_run_put(second);
}

/* Workers that meet an SM outside of their range leave; in the end somebody must start others. */
static void device_idle_lifts_restrictions(void **state)
{
    struct weir_run *run, *second;
    struct weir_run_info info;

    (void)state;
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 600, 0,
                           (struct weir_run_place){.sm_first = 1, .sm_count = 1}, &run),
                     CUDA_SUCCESS);
    assert_true(weir_runs_device_idle_begin(f.runs, WAIT_NS));
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 400, 600,
                           (struct weir_run_place){.sm_first = 1, .sm_count = 1}, &second),
                     CUDA_SUCCESS);
    DRV(cuStreamSynchronize(f.stream));
    weir_runs_device_idle_end(f.runs);
    weir_run_query(second, &info);
    assert_true(info.plain);
    assert_int_equal(counted(0, 1000), 1000);
    weir_run_put(run);
    weir_run_put(second);
}

/* A host function that holds the stream. */
static void CUDA_CB wait_opened(void *user)
{
    struct timespec pause = {0, 50 * 1000};

    (void)user;
    while (!atomic_load(&f.opened)) {
        nanosleep(&pause, NULL);
    }
}

/* What opens the stream may be the very caller's to bring about. */
static void device_idle_does_not_wait_for_what_its_stream_has_not_reached(void **state)
{
    static const struct weir_run_place somewhere = {.sm_first = 1, .sm_count = 1};
    struct weir_run *runs[4];

    (void)state;
    DRV(cuLaunchHostFunc(f.stream, wait_opened, NULL));
    for (uint32_t i = 0; i < 4; i++) { /* restricted; stopped; both; of the other form */
        enum weir_ptx_form form = i == 3 ? WEIR_PTX_FORM_TICKET : WEIR_PTX_FORM_PERSISTENT;

        assert_int_equal(start(form, 100, i * 100,
                               i == 0 || i == 2 ? somewhere : (struct weir_run_place){0}, &runs[i]),
                         CUDA_SUCCESS);
        if (i != 0) {
            assert_int_equal(weir_run_stop(runs[i], LONG_NS), CUDA_SUCCESS);
        }
    }
    assert_true(weir_runs_device_idle_begin(f.runs, WAIT_NS));
    assert_int_equal(f.driver.cuStreamQuery(f.stream), CUDA_ERROR_NOT_READY);
    assert_int_equal(counted(0, 400), 0);
    atomic_store(&f.opened, true);
    DRV(cuStreamSynchronize(f.stream)); /* nobody resumes anything */
    weir_runs_device_idle_end(f.runs);
    assert_int_equal(counted(0, 400), 400);
    for (uint32_t i = 0; i < 4; i++) {
        weir_run_put(runs[i]);
    }
}

/* The wish for an idle device is over before the stream goes on: what was found sure then may be
 * stopped again. */
static void stop_of_what_device_idle_has_left_alone_holds_it(void **state)
{
    struct weir_run *run;

    (void)state;
    DRV(cuLaunchHostFunc(f.stream, wait_opened, NULL));
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 100, 0, (struct weir_run_place){0}, &run),
                     CUDA_SUCCESS);
    assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
    assert_true(weir_runs_device_idle_begin(f.runs, WAIT_NS));
    weir_runs_device_idle_end(f.runs);
    assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
    await(WEIR_RUN_HAS_STOPPED, 2);
    atomic_store(&f.opened, true);
    assert_int_equal(weir_run_resume(run), CUDA_SUCCESS);
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 100), 100);
    weir_run_put(run);
}

/* What is asked of runs cannot be written for now, so the one that was restricted needs us. */
static void device_idle_gives_up_at_its_limit(void **state)
{
    static const struct weir_run_place somewhere = {.sm_first = 1, .sm_count = 1};

    (void)state;
    DRV(cuLaunchHostFunc(f.runs->control, wait_opened, NULL));
    assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, 100, 0, somewhere, NULL), CUDA_SUCCESS);
    assert_false(weir_runs_device_idle_begin(f.runs, WEIR_NS_PER_MS));
    atomic_store(&f.opened, true);
    assert_true(weir_runs_device_idle_begin(f.runs, WAIT_NS));
    weir_runs_device_idle_end(f.runs);
    weir_runs_device_idle_end(f.runs);
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 100), 100);
}

/* More than there are slots in a chunk: they are zeroed and used again. */
static void start_many_uses_slots_again(void **state)
{
    struct weir_runs_counts counts;

    (void)state;
    f.rounds = 50;
    for (uint32_t i = 0; i < 2000; i++) {
        CUresult result;

        do { /* a launch for which there is no slot yet would be an original */
            result = start(forms[i % 2], 2, i * 2, (struct weir_run_place){0}, NULL);
        } while (result == CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(result, CUDA_SUCCESS);
    }
    DRV(cuStreamSynchronize(f.stream));
    assert_int_equal(counted(0, 4000), 4000);
    assert_true(weir_runs_wait(f.runs, NULL, WAIT_NS));
    weir_runs_count(f.runs, &counts);
    assert_int_equal(counts.started, 2000);
    assert_int_equal(counts.finished, 2000);
}

static void start_of_what_cannot_be_launched_says_so(void **state)
{
    struct weir_run_params p = {.form = WEIR_PTX_FORM_PERSISTENT,
                                .twin = f.twins[WEIR_PTX_FORM_PERSISTENT],
                                .args_offset = f.args_offset[WEIR_PTX_FORM_PERSISTENT],
                                .param_bytes = f.param_bytes[WEIR_PTX_FORM_PERSISTENT],
                                .grid = {1, 1, 1},
                                .block = {2048, 1, 1}, /* too many threads */
                                .blocks_per_sm = 1,
                                .arguments = (const uint8_t *)"",
                                .stream = f.stream,
                                .user = &f.seen,
                                .ended = on_ended};

    (void)state;
    assert_int_not_equal(weir_run_start(f.runs, &p, NULL), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&f.seen.ended), 1);
    DRV(cuStreamSynchronize(f.stream));
}

/* Two streams may be at work beside runs that stop. Who gives work to a third one, or a graph, lets
 * them go on first; and while three are at work, a kernel is no run. */
static void a_run_leaves_a_connection_to_go_on(void **state)
{
    const struct weir_run_place anywhere = {.task_blocks = 1};

    (void)state;
    for (int graph = 0; graph < 2; graph++) {
        uint32_t value = 7;
        struct weir_run *run;
        struct weir_stream_told told[3] = {{0}};
        CUstream other[2];

        for (int i = 0; i < 2; i++) {
            DRV(cuStreamCreate(&other[i], CU_STREAM_NON_BLOCKING));
        }
        DRV(cuMemsetD32Async(f.counts, 0, BLOCKS + 1, f.stream));
        DRV(cuStreamSynchronize(f.stream));
        weir_run_streams_given(f.streams, f.runs, &told[2], f.stream, false);
        atomic_store(&f.opened, false);
        DRV(cuLaunchHostFunc(f.stream, wait_opened, NULL)); /* it cannot end before it is stopped */
        assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, BLOCKS, 0, anywhere, &run), CUDA_SUCCESS);
        assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_SUCCESS);
        await(WEIR_RUN_HAS_STOPPED, (unsigned)graph + 1);
        atomic_store(&f.opened, true);
        weir_run_streams_given(f.streams, f.runs, &told[0], other[0], false);
        DRV(cuStreamWaitValue32_v2(other[0], f.counts + BLOCKS * sizeof(uint32_t), 7,
                                   CU_STREAM_WAIT_VALUE_GEQ));
        assert_int_equal(state_of(run, NULL), WEIR_RUN_STOPPED);
        weir_run_streams_given(f.streams, f.runs, &told[graph ? 2 : 1], graph ? f.stream : other[1],
                               graph);
        tl_await(state_of(run, NULL) != WEIR_RUN_STOPPED); /* at once, on an idle machine */
        DRV(cuStreamSynchronize(f.stream));
        assert_int_equal(weir_run_stop(run, LONG_NS), CUDA_ERROR_NOT_PERMITTED);
        weir_run_put(run);
        weir_run_streams_given(f.streams, f.runs, &told[1], other[1], false);
        DRV(cuStreamWaitValue32_v2(other[1], f.counts + BLOCKS * sizeof(uint32_t), 7,
                                   CU_STREAM_WAIT_VALUE_GEQ));
        assert_int_equal(start(WEIR_PTX_FORM_PERSISTENT, BLOCKS, 1000, anywhere, NULL),
                         CUDA_ERROR_NOT_PERMITTED);
        DRV(cuMemcpyHtoDAsync_v2(f.counts + BLOCKS * sizeof(uint32_t), &value, sizeof value,
                                 f.stream));
        DRV(cuStreamSynchronize(other[0]));
        DRV(cuStreamSynchronize(other[1]));
        tl_await(start(WEIR_PTX_FORM_PERSISTENT, 1, 1000, anywhere, NULL) == CUDA_SUCCESS);
        DRV(cuStreamSynchronize(f.stream));
        weir_run_streams_gone(f.streams, &told[0]);
        weir_run_streams_gone(f.streams, &told[1]);
        DRV(cuStreamDestroy_v2(other[0]));
        DRV(cuStreamDestroy_v2(other[1]));
    }
    assert_true(f.runs->counts.crowded >= 2);
}

/* Have a stream at work until a word is `value`. */
static void have_at_work(struct weir_run_streams *streams, struct weir_stream_told *told,
                         CUstream stream, uint32_t word, uint32_t value)
{
    weir_run_streams_given(streams, NULL, told, stream, false);
    DRV(cuStreamWaitValue32_v2(stream, f.counts + word * sizeof value, value,
                               CU_STREAM_WAIT_VALUE_GEQ));
}

static void have_ended(CUstream stream, uint32_t word, uint32_t value)
{
    DRV(cuMemcpyHtoD_v2(f.counts + word * sizeof value, &value, sizeof value));
    DRV(cuStreamSynchronize(stream));
}

/* With two connections there are no runs any more once two streams were at work, until both are
 * idle at the same time, or gone. */
static void with_two_connections_one_stream_has_runs(void **state)
{
    const struct timespec until_looked_again = {.tv_nsec = WEIR_NS_PER_MS};
    struct weir_run_streams *streams = weir_run_streams_create(&f.driver, 2);
    struct weir_stream_told told[2] = {{0}};
    CUstream other;

    (void)state;
    assert_non_null(streams);
    DRV(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cuMemsetD32Async(f.counts, 0, 2, f.stream));
    DRV(cuStreamSynchronize(f.stream));
    weir_run_streams_given(streams, NULL, &told[0], f.stream, false);
    have_at_work(streams, &told[1], other, 1, 7); /* the first one is idle */
    assert_false(weir_run_streams_are_many(streams, other));
    have_at_work(streams, &told[0], f.stream, 0, 7);
    assert_true(weir_run_streams_are_many(streams, f.stream));
    have_ended(other, 1, 7); /* now one is at work, but two were */
    nanosleep(&until_looked_again, NULL);
    assert_true(weir_run_streams_are_many(streams, f.stream));
    have_ended(f.stream, 0, 7);
    tl_await(!weir_run_streams_are_many(streams, f.stream));
    have_at_work(streams, &told[0], f.stream, 0, 8);
    have_at_work(streams, &told[1], other, 1, 8);
    assert_true(weir_run_streams_are_many(streams, other));
    weir_run_streams_gone(streams, &told[0]);
    weir_run_streams_gone(streams, &told[1]);
    assert_false(weir_run_streams_are_many(streams, f.stream));
    have_ended(f.stream, 0, 8);
    have_ended(other, 1, 8);
    DRV(cuStreamDestroy_v2(other));
    weir_run_streams_destroy(streams);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(start_alone_runs_every_block_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_says_what_is_done_and_holds_the_stream, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(stop_before_it_begins_keeps_the_order_of_the_stream, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(lease_that_is_over_resumes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(resize_moves_shrinks_and_grows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(resize_to_a_block_limit_fills_all_sms, set_up, tear_down),
        cmocka_unit_test_setup_teardown(look_always_is_asked_from_start_to_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(release_resumes_and_forbids_stopping, set_up, tear_down),
        cmocka_unit_test_setup_teardown(withdraw_leaves_blocks_undone_and_lets_the_stream_on,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(device_idle_resumes_and_refuses_to_stop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(device_idle_lifts_restrictions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            device_idle_does_not_wait_for_what_its_stream_has_not_reached, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_of_what_device_idle_has_left_alone_holds_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(device_idle_gives_up_at_its_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(start_many_uses_slots_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(start_of_what_cannot_be_launched_says_so, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_run_leaves_a_connection_to_go_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(with_two_connections_one_stream_has_runs, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
