/* A part of a device on softgpu: its size, a stream's order as it moves, and which SMs it gets. */
#include "../lib/tl_cmocka.h"
#include "host_backend/worker/device/part.h"
#include "host_backend/worker/device/streams.h"
#include "proto/driver_table.h"
#include "tests/integration/soft_driver.h"
#include <stdlib.h>

#define SMS    8 /* softgpu's, by WEIR_SOFTGPU_SMS; cut by two */
#define PART   3 /* asked for; it is 4 */
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
    struct weir_part *part;
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
    assert_int_equal(weir_part_create(&f.driver, 0, PART, &f.part), WEIR_OK);
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
    weir_part_destroy(f.part);
    return 0;
}

static void move(bool in)
{
    assert_int_equal(weir_part_move(f.part, &f.stream, in, 0), CUDA_SUCCESS);
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

/* SMs that a grid of many blocks has been on. */
static uint32_t sms_used(void)
{
    CUdeviceptr marks = f.words + MARKS;
    void *params[] = {&marks};
    uint32_t mark[64], used = 0;

    DRV(cuMemsetD32Async(marks, 0, 64, weir_host_stream_at(&f.stream)));
    DRV(cuLaunchKernel(f.where, BLOCKS, 1, 1, 32, 1, 1, 0, weir_host_stream_at(&f.stream), params,
                       NULL));
    DRV(cuStreamSynchronize(weir_host_stream_at(&f.stream)));
    DRV(cuMemcpyDtoH_v2(mark, marks, sizeof mark));
    for (int i = 0; i < 64; i++) {
        used += mark[i] != 0;
    }
    return used;
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

static void drivers_that_cannot_are_told_from_those_that_can(void **state)
{
    struct weir_driver lacks = f.driver, refuses = f.driver, keeps_whole = f.driver;
    struct weir_part *part = NULL;

    (void)state;
    lacks.cuGreenCtxStreamCreate =
        (CUresult(*)(CUstream *, CUgreenCtx, unsigned, int))(void (*)(void))weir_driver_absent;
    refuses.cuStreamWaitEvent = refuse_event;
    keeps_whole.cuDevSmResourceSplitByCount = refuse_to_split;
    assert_int_equal(weir_part_create(&lacks, 0, PART, &part), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(weir_part_create(&refuses, 0, PART, &part), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(weir_part_create(&keeps_whole, 0, PART, &part), WEIR_ERR_UNSUPPORTED);
    assert_true(weir_part_is_possible(&f.driver, 0, PART));
    assert_false(weir_part_is_possible(&keeps_whole, 0, PART));
    assert_false(weir_part_is_possible(&f.driver, 0, SMS - 1));
    assert_int_equal(weir_part_create(&f.driver, 0, SMS, &part), WEIR_ERR_UNSUPPORTED);
    assert_int_equal(weir_part_create(&f.driver, 0, SMS - 1, &part), WEIR_ERR_UNSUPPORTED);
    assert_null(part);
}

/* Where it cannot follow it stays, and what it is given then is done. */
static void a_stream_that_cannot_move_stays(void **state)
{
    CUresult (*wait)(CUstream, CUevent, unsigned) = f.driver.cuStreamWaitEvent;

    (void)state;
    f.driver.cuStreamWaitEvent = refuse_event;
    assert_int_equal(weir_part_move(f.part, &f.stream, true, 0), CUDA_ERROR_INVALID_HANDLE);
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
        assert_int_equal(weir_part_move(f.part, &f.stream, true, asked), CUDA_SUCCESS);
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
        cmocka_unit_test_setup_teardown(a_stream_that_cannot_move_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_stream_there_has_the_priority_that_was_asked_for_last,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_stream_there_has_the_attributes_that_were_set, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
