/*
 * The block that the guest's kernel looks for in an NVDIMM, read as that kernel reads it
 * (drivers/nvdimm/pfn_devs.c): by offsets, not by the structure under test.
 */
#include "host_backend/config/control.h"
#include "host_backend/supervisor/machines/dax_info.h"
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MIB            (UINT64_C(1) << 20)
#define OFFSET_UUID    16
#define OFFSET_PARENT  32
#define OFFSET_VERSION 52
#define OFFSET_DATA    56
#define OFFSET_PAGES   64
#define OFFSET_MODE    72
#define OFFSET_PAD     76
#define OFFSET_TRUNC   80
#define OFFSET_ALIGN   84
#define OFFSET_PAGE    88
#define OFFSET_STRUCT  92
#define OFFSET_SUM     4088

static uint64_t number(const uint8_t *block, size_t at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= (uint64_t)block[at + i] << (8 * i);
    }
    return value;
}

/* Fletcher's sum by its definition: the sum of the words, and the sum of those sums. */
static uint64_t sum_of(const uint8_t *block)
{
    uint64_t low = 0, high = 0;
    for (size_t at = 0; at < WEIR_DAX_INFO_BYTES; at += 4) {
        low = (low + (at < OFFSET_SUM ? number(block, at, 4) : 0)) % (UINT64_C(1) << 32);
        high = (high + low) % (UINT64_C(1) << 32);
    }
    return high << 32 | low;
}

static void block_says_what_the_kernel_reads(void **state)
{
    (void)state;
    uint8_t block[WEIR_DAX_INFO_BYTES];
    weir_dax_info_make(1024 * MIB, 2 * MIB, "vm1", block);
    assert_memory_equal(block, "NVDIMM_DAX_INFO\0", 16);
    assert_int_equal(number(block, OFFSET_VERSION, 2), 1);
    assert_int_equal(number(block, OFFSET_VERSION + 2, 2), 4);
    assert_int_equal(number(block, OFFSET_DATA, 8), 2 * MIB);
    assert_int_equal(number(block, OFFSET_PAGES, 8), 1022 * MIB / 4096);
    assert_int_equal(number(block, OFFSET_MODE, 4), 1);
    assert_int_equal(number(block, OFFSET_PAD, 4), 0);
    assert_int_equal(number(block, OFFSET_TRUNC, 4), 0);
    assert_int_equal(number(block, OFFSET_ALIGN, 4), 4096);
    assert_int_equal(number(block, OFFSET_PAGE, 4), 4096);
    assert_int_equal(number(block, OFFSET_STRUCT, 2), 64);
    assert_int_equal(number(block, OFFSET_SUM, 8), sum_of(block));
}

static void names_tell_blocks_apart(void **state)
{
    (void)state;
    static const uint8_t none[16];
    uint8_t one[WEIR_DAX_INFO_BYTES], again[WEIR_DAX_INFO_BYTES], other[WEIR_DAX_INFO_BYTES];
    weir_dax_info_make(64 * MIB, 2 * MIB, "vm1", one);
    weir_dax_info_make(64 * MIB, 2 * MIB, "vm1", again);
    weir_dax_info_make(64 * MIB, 2 * MIB, "vm2", other);
    assert_memory_equal(one, again, sizeof one); /* it may be written while a guest reads it */
    assert_memory_not_equal(one + OFFSET_UUID, other + OFFSET_UUID, 16);
    assert_memory_not_equal(one + OFFSET_UUID, none, 16); /* the kernel takes none for no block */
    assert_memory_equal(one + OFFSET_PARENT, none, 16);   /* an NVDIMM without labels */
}

static void each_host_has_a_folder_of_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *run_dir, *path;
    } cases[] = {
        {"/run/weir", "/dev/shm/weir/vm1.nvdimm"},
        {"/tmp/a/run", "/dev/shm/weir-tmp-a-run/vm1.nvdimm"},
        {"/run/user/1000/weir", "/dev/shm/weir-run-user-1000-weir/vm1.nvdimm"},
        {"/tmp/a/b-c", "/dev/shm/weir-tmp-a-b_-c/vm1.nvdimm"}, /* all of them others' */
        {"/tmp/a/b/c", "/dev/shm/weir-tmp-a-b-c/vm1.nvdimm"},
        {"/tmp/a/b_/c", "/dev/shm/weir-tmp-a-b__-c/vm1.nvdimm"},
        {"/tmp/a/b/_c", "/dev/shm/weir-tmp-a-b-__c/vm1.nvdimm"},
        {"run", NULL}, /* of which folder? */
    };
    char text[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool made = weir_control_vm_memory(cases[i].run_dir, "vm1", text, sizeof text);
        assert_int_equal(made, cases[i].path != NULL);
        if (made) {
            assert_string_equal(text, cases[i].path);
        }
    }
    assert_false(weir_control_vm_memory("/run/weir", "vm1", text, sizeof "/dev/shm/weir/vm1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_says_what_the_kernel_reads),
        cmocka_unit_test(names_tell_blocks_apart),
        cmocka_unit_test(each_host_has_a_folder_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
