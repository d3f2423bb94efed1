/* Parts of a device on softgpu: their sizes, streams' order as they move, and where kernels run. */
#include "../lib/tl_cmocka.h"
#include "host_backend/worker/device/part.h"
#include "host_backend/worker/device/streams.h"
#include "proto/driver_table.h"
#include "tests/integration/soft_driver.h"
#include <pthread.h>
#include <stdlib.h>

#define SMS    8 /* softgpu's, by WEIR_SOFTGPU_SMS; cut by two */
#define PART   4
#define BLOCKS 2048
#define TRIES  1000

/* where: each block leaves a mark for its SM. */
static const char where_ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                                ".visible .entry where(.param .u64 marks)\n{\n"
                                "    .reg .b32 %r<3>;\n    .reg .b64 %d<3>;\n"
                                "    ld.param.u64 %d0, [marks];\n"
                                "    mov.u32 %r0, %smid;\n    mov.u32 %r1, 1;\n"
                                "    mul.wide.u32 %d1, %r0, 4;\n    add.s64 %d2, %d0, %d1;\n"
                                "    st.global.u32 [%d2], %r1;\n    ret;\n}\n";

static struct fixture {
    struct weir_driver driver;
    CUmodule module;
    CUfunction where;
    CUdeviceptr words; /* the gate, what was written behind it, and a mark for each SM */
    struct weir_parts *parts;
    struct weir_part *part; /* the first four SMs */
    struct weir_host_stream stream;
} f;

#define GATE      0u
#define WORD      4u
#define MARKS     64u
#define DRV(call) assert_int_equal(f.driver.call, CUDA_SUCCESS)

static int set_up_group(void **state)
{
    (void)state;
    (void)soft_driver_open(&f.driver);
    DRV(cuModuleLoadData(&f.module, where_ptx));
    DRV(cuModuleGetFunction(&f.where, f.module, "where"));
    DRV(cuMemAlloc_v2(&f.words, 4096));
    return 0;
}

static int tear_down_group(void **state)
{
    (void)state;
    DRV(cuMemFree_v2(f.words));
    DRV(cuModuleUnload(f.module));
    soft_driver_close(&f.driver);
    return 0;
}

static int set_up(void **state)
{
    CUstream native;

    (void)state;
    f.parts = weir_parts_create(&f.driver, 0);
    assert_non_null(f.parts);
    assert_null(weir_parts_find(f.parts, 0, PART));
    assert_int_equal(weir_parts_make(f.parts, 0, PART, &f.part), WEIR_OK);
    DRV(cuStreamCreate(&native, CU_STREAM_NON_BLOCKING));
    f.stream = (struct weir_host_stream){.o.native = native};
    DRV(cuMemsetD32_v2(f.words, 0, 1024));
    DRV(cuCtxSynchronize()); /* streams that do not block do not wait for it */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_part_stream_gone(&f.driver, &f.stream);
    if (f.stream.join) {
        DRV(cuEventDestroy_v2(f.stream.join));
    }
    DRV(cuStreamDestroy_v2(f.stream.o.native));
    weir_part_put(f.part);
    weir_parts_destroy(f.parts);
    return 0;
}

static void move(bool in)
{
    assert_int_equal(weir_part_move(&f.driver, &f.stream, in ? f.part : NULL, 0), CUDA_SUCCESS);
}

static uint32_t word_at(uint32_t at)
{
    CUstream other;
    uint32_t word;

    DRV(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRV(cuMemcpyDtoHAsync_v2(&word, f.words + at, sizeof word, other));
    DRV(cuStreamSynchronize(other));
    DRV(cuStreamDestroy_v2(other));
    return word;
}

static void write(CUstream stream, uint32_t at, uint32_t value)
{
    DRV(cuStreamWriteValue32_v2(stream, f.words + at, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

/* What is given behind the move waits for what was given before it, wherever the stream was. */
static void order_holds_from(bool from, bool to)
{
    CUstream before, other;

    move(from);
    before = weir_host_stream_at(&f.stream);
    write(before, GATE, 0);
    write(before, WORD, 0);
    DRV(cuStreamSynchronize(before));
    DRV(cuStreamWaitValue32_v2(before, f.words + GATE, 1, CU_STREAM_WAIT_VALUE_GEQ));
    move(to);
    assert_int_equal(before == weir_host_stream_at(&f.stream), from == to);
    write(weir_host_stream_at(&f.stream), WORD, 7);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(word_at(WORD), 0);
    }
    DRV(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    write(other, GATE, 1);
    DRV(cuStreamSynchronize(weir_host_stream_at(&f.stream)));
    assert_int_equal(word_at(WORD), 7);
    DRV(cuStreamDestroy_v2(other));
}

static void order_holds_as_a_stream_moves(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        order_holds_from(way / 2 != 0, way % 2 != 0);
    }
}

/* Where a grid of many blocks has been: a bit for each SM. */
static uint32_t sms_seen(void)
{
    CUdeviceptr marks = f.words + MARKS;
    void *params[] = {&marks};
    uint32_t mark[64], seen = 0;

    DRV(cuMemsetD32Async(marks, 0, 64, weir_host_stream_at(&f.stream)));
    DRV(cuLaunchKernel(f.where, BLOCKS, 1, 1, 32, 1, 1, 0, weir_host_stream_at(&f.stream), params,
                       NULL));
    DRV(cuStreamSynchronize(weir_host_stream_at(&f.stream)));
    DRV(cuMemcpyDtoH_v2(mark, marks, sizeof mark));
    for (unsigned i = 0; i < 64; i++) {
        seen |= i < 32 && mark[i] != 0 ? 1u << i : 0;
    }
    return seen;
}

static uint32_t sms_used(void)
{
    return (uint32_t)__builtin_popcount(sms_seen());
}

/* On more SMs than the part has. Which take blocks is a matter of who gets a processor
 * first, so one that is late may find none: then look again. */
static void assert_uses_all(void)
{
    uint32_t used = 0;

    for (int i = 0; i < TRIES && used <= 4; i++) {
        used = sms_used();
        assert_in_range(used, 1, SMS);
    }
    assert_in_range(used, 5, SMS);
}

static void kernels_have_the_part_that_their_stream_is_in(void **state)
{
    (void)state;
    assert_uses_all();
    move(true);
    assert_in_range(sms_used(), 1, 4);
    move(false);
    assert_uses_all();
    assert_ptr_equal(weir_host_stream_at(&f.stream), f.stream.o.native);
}

static CUresult refuse_event(CUstream stream, CUevent event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult refuse_to_split(CUdevResource *groups, unsigned *n, const CUdevResource *of,
                                CUdevResource *rest, unsigned flags, unsigned least)
{
    (void)groups;
    (void)of;
    (void)rest;
    (void)flags;
    (void)least;
    *n = 0;
    return CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

static enum weir_status make_with(const struct weir_driver *driver, uint32_t first, uint32_t sms)
{
    struct weir_parts *parts = weir_parts_create(driver, 0);
    struct weir_part *part = NULL;
    enum weir_status status = weir_parts_make(parts, first, sms, &part);

    assert_int_equal(part != NULL, status == WEIR_OK);
    weir_part_put(part);
    weir_parts_destroy(parts);
    return status;
}

/* By single SMs. */
static CUresult split_finely(CUdevResource *groups, unsigned *n, const CUdevResource *of,
                             CUdevResource *rest, unsigned flags, unsigned least)
{
    return f.driver.cuDevSmResourceSplitByCount(
        groups, n, of, rest, flags | CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, least);
}

static void drivers_that_cannot_are_told_from_those_that_can(void **state)
{
    struct weir_driver lacks = f.driver, refuses = f.driver, keeps_whole = f.driver;

    (void)state;
    lacks.cuGreenCtxStreamCreate =
        (CUresult(*)(CUstream *, CUgreenCtx, unsigned, int))(void (*)(void))weir_driver_absent;
    refuses.cuStreamWaitEvent = refuse_event;
    keeps_whole.cuDevSmResourceSplitByCount = refuse_to_split;
    assert_int_equal(make_with(&lacks, 0, PART), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(make_with(&refuses, 0, PART), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(make_with(&keeps_whole, 0, PART), WEIR_ERR_UNSUPPORTED);
    assert_true(weir_part_is_possible(&f.driver, 0, PART));
    assert_false(weir_part_is_possible(&keeps_whole, 0, PART));
    assert_false(weir_part_is_possible(&f.driver, 0, SMS));
    assert_int_equal(make_with(&f.driver, 0, PART), WEIR_OK);
    assert_int_equal(make_with(&f.driver, 0, SMS), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(make_with(&f.driver, 0, PART - 1), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(make_with(&f.driver, PART, SMS - PART - 2), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(make_with(&f.driver, PART, SMS - PART), WEIR_OK);
}

/* So two processes that have one each share no SM. */
static void the_first_part_and_the_rest_are_the_device(void **state)
{
    uint32_t first = 0, rest = 0;
    struct weir_part *other;

    (void)state;
    for (uint32_t n = 2; n < SMS; n += 2) {
        assert_int_equal(weir_parts_make(f.parts, 0, n, &other), WEIR_OK);
        assert_int_equal(weir_part_sms(other), n);
        assert_int_equal(weir_part_move(&f.driver, &f.stream, other, 0), CUDA_SUCCESS);
        first = sms_seen();
        move(false);
        weir_part_stream_gone(&f.driver, &f.stream);
        weir_part_put(other);
        assert_int_equal(weir_parts_make(f.parts, n, SMS - n, &other), WEIR_OK);
        assert_int_equal(weir_part_sms(other), SMS - n);
        assert_int_equal(weir_part_move(&f.driver, &f.stream, other, 0), CUDA_SUCCESS);
        rest = sms_seen();
        move(false);
        weir_part_stream_gone(&f.driver, &f.stream);
        weir_part_put(other);
        assert_int_not_equal(first, 0);
        assert_int_not_equal(rest, 0);
        assert_int_equal(first & rest, 0);
    }
}

static void the_part_that_was_unused_for_longest_goes(void **state)
{
    struct weir_part *part[WEIR_PARTS_MAX], *more = NULL;
    struct weir_driver fine = f.driver;
    struct weir_parts *parts;

    (void)state;
    fine.cuDevSmResourceSplitByCount = split_finely;
    parts = weir_parts_create(&fine, 0);
    for (uint32_t i = 0; i < WEIR_PARTS_MAX; i++) {
        uint32_t n = 1 + i / 2;

        assert_int_equal(weir_parts_make(parts, i % 2 ? n : 0, i % 2 ? SMS - n : n, &part[i]),
                         WEIR_OK);
    }
    assert_int_equal(weir_parts_make(parts, 0, 5, &more), WEIR_ERR_AGAIN);
    assert_ptr_equal(weir_parts_oldest(parts), part[0]);
    assert_ptr_equal(weir_parts_find(parts, 0, 1), part[0]);
    weir_part_put(part[0]);
    assert_ptr_equal(weir_parts_oldest(parts), part[1]);
    weir_part_put(part[0]);
    weir_part_put(part[3]); /* not used any more, and found before the first was again */
    assert_int_equal(weir_parts_make(parts, 0, 5, &more), WEIR_OK);
    assert_null(weir_parts_find(parts, 2, SMS - 2));
    assert_ptr_equal(weir_parts_find(parts, 0, 5), more);
    assert_ptr_equal(weir_parts_find(parts, 0, 1), part[0]);
    weir_parts_destroy(parts);
}

#define THREADS 4
#define MOVES   60

struct mover {
    const struct weir_driver *driver;
    struct weir_parts *parts;
    CUcontext context;
    CUdeviceptr word;
    uint32_t seed, moves;
};

/* As a session's thread: one stream, from part to part; each move's work comes behind the last. */
static void *move_about(void *user)
{
    struct mover *m = user;
    struct weir_host_stream stream = {.legacy = false};
    CUstream native;

    assert_int_equal(m->driver->cuCtxSetCurrent(m->context), CUDA_SUCCESS);
    assert_int_equal(m->driver->cuStreamCreate(&native, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    stream.o.native = native;
    for (uint32_t i = 0; i < MOVES; i++) {
        uint32_t draw = (m->seed = m->seed * 1664525 + 1013904223) >> 8;
        uint32_t n = 1 + draw % (SMS - 1), first = draw >> 8 & 1 ? n : 0;
        struct weir_part *part = weir_parts_find(m->parts, first, first != 0 ? SMS - n : n);

        assert_int_equal(weir_part_move(m->driver, &stream, NULL, 0), CUDA_SUCCESS);
        weir_part_stream_gone(m->driver, &stream);
        if (part || weir_parts_make(m->parts, first, first != 0 ? SMS - n : n, &part) == WEIR_OK) {
            assert_int_equal(weir_part_sms(part), first != 0 ? SMS - n : n);
            assert_int_equal(weir_part_move(m->driver, &stream, part, 0), CUDA_SUCCESS);
            weir_part_put(part);
            m->moves++;
        }
        assert_int_equal(m->driver->cuMemsetD32Async(m->word, i, 1, weir_host_stream_at(&stream)),
                         CUDA_SUCCESS);
    }
    assert_int_equal(weir_part_move(m->driver, &stream, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(m->driver->cuStreamSynchronize(native), CUDA_SUCCESS);
    weir_part_stream_gone(m->driver, &stream);
    (void)m->driver->cuEventDestroy_v2(stream.join);
    (void)m->driver->cuStreamDestroy_v2(native);
    return NULL;
}

static void threads_have_parts_of_a_device_at_once(void **state)
{
    struct weir_driver fine = f.driver;
    struct mover mover[THREADS];
    pthread_t thread[THREADS];
    struct weir_parts *parts;
    CUcontext context;

    (void)state;
    fine.cuDevSmResourceSplitByCount = split_finely;
    parts = weir_parts_create(&fine, 0);
    DRV(cuCtxGetCurrent(&context));
    for (uint32_t i = 0; i < THREADS; i++) {
        mover[i] = (struct mover){&fine, parts, context, f.words + 4 * i, i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, move_about, &mover[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(mover[i].moves, MOVES); /* four streams keep four parts at most */
        assert_int_equal(word_at(4 * i), MOVES - 1);
    }
    weir_parts_destroy(parts);
}

/* Where it cannot follow it stays, and what it is given then is done. */
static void a_stream_that_cannot_move_stays(void **state)
{
    CUresult (*wait)(CUstream, CUevent, unsigned) = f.driver.cuStreamWaitEvent;

    (void)state;
    f.driver.cuStreamWaitEvent = refuse_event;
    assert_int_equal(weir_part_move(&f.driver, &f.stream, f.part, 0), CUDA_ERROR_INVALID_HANDLE);
    f.driver.cuStreamWaitEvent = wait;
    assert_ptr_equal(weir_host_stream_at(&f.stream), f.stream.o.native);
    assert_uses_all();
    move(true);
    assert_in_range(sms_used(), 1, 4);
}

static void the_stream_there_has_the_priority_that_was_asked_for_last(void **state)
{
    int priority = 1;

    (void)state;
    for (int asked = 0; asked >= -2; asked--) {
        assert_int_equal(weir_part_move(&f.driver, &f.stream, f.part, asked), CUDA_SUCCESS);
        DRV(cuStreamGetPriority(weir_host_stream_at(&f.stream), &priority));
        assert_int_equal(priority, asked);
    }
}

static unsigned long long domain_there(void)
{
    CUlaunchAttributeValue value = {{0}};

    DRV(cuStreamGetAttribute(f.stream.part.stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
    return value.memSyncDomain;
}

static void set_domain(CUlaunchMemSyncDomain domain)
{
    CUlaunchAttributeValue value = {.memSyncDomain = domain};

    DRV(cuStreamSetAttribute(f.stream.o.native, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
    weir_part_attribute_set(&f.stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN);
}

static void the_stream_there_has_the_attributes_that_were_set(void **state)
{
    (void)state;
    set_domain(CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    move(true);
    assert_int_equal(domain_there(), CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    set_domain(CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT); /* while it is there */
    move(true);
    assert_int_equal(domain_there(), CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT);
    set_domain(CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
    move(false);
    move(true);
    assert_int_equal(domain_there(), CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(order_holds_as_a_stream_moves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(kernels_have_the_part_that_their_stream_is_in, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(drivers_that_cannot_are_told_from_those_that_can, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_first_part_and_the_rest_are_the_device, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_part_that_was_unused_for_longest_goes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(threads_have_parts_of_a_device_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_that_cannot_move_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_stream_there_has_the_priority_that_was_asked_for_last,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_stream_there_has_the_attributes_that_were_set, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
