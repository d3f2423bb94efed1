/* Resources of a device: its SMs, how they are cut, and what is refused. */
#include "support.h"

#define SMS 8u /* WEIR_SOFTGPU_SMS */

static void resources_tell_their_sms(void **state)
{
    (void)state;
    CUdevResource all = sms_whole(), same;
    CUcontext ctx;
    assert_int_equal(all.type, CU_DEV_RESOURCE_TYPE_SM);
    assert_int_equal(all.sm.smCount, SMS);
    assert_int_equal(all.sm.minSmPartitionSize, 2);
    assert_int_equal(all.sm.smCoscheduledAlignment, 2);
    OK(cuCtxGetCurrent(&ctx));
    OK(cuCtxGetDevResource(ctx, &same, CU_DEV_RESOURCE_TYPE_SM));
    assert_memory_equal(&same, &all, sizeof(all));
    assert_int_equal(cuDeviceGetDevResource(9, &all, CU_DEV_RESOURCE_TYPE_SM),
                     CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDeviceGetDevResource(0, NULL, CU_DEV_RESOURCE_TYPE_SM),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_INVALID),
                     CUDA_ERROR_INVALID_RESOURCE_TYPE);
    assert_int_equal(cuCtxGetDevResource((CUcontext)(uintptr_t)0x1234, &all, 1),
                     CUDA_ERROR_INVALID_CONTEXT);
}

static const struct {
    const char *what;
    unsigned flags, least, wanted; /* wanted 0: only asked */
    CUresult result;
    unsigned groups, size, remaining;
} cuts[] = {
    {"the least there is", 0, 0, 8, CUDA_SUCCESS, 4, 2, 0},
    {"one SM is made two", 0, 1, 8, CUDA_SUCCESS, 4, 2, 0},
    {"three SMs are made four", 0, 3, 8, CUDA_SUCCESS, 2, 4, 0},
    {"what is left over", 0, 6, 8, CUDA_SUCCESS, 1, 6, 2},
    {"all of them", 0, 8, 8, CUDA_SUCCESS, 1, 8, 0},
    {"fewer than there could be", 0, 2, 1, CUDA_SUCCESS, 1, 2, 6},
    {"a question", 0, 3, 0, CUDA_SUCCESS, 2, 4, 0},
    {"single ones", CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 1, 8, CUDA_SUCCESS, 8, 1, 0},
    {"three each", CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, 3, 8, CUDA_SUCCESS, 2, 3, 2},
    {"for clusters", CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE, 4, 8, CUDA_SUCCESS, 2, 4,
     0},
    {"more than there are", 0, 9, 8, CUDA_ERROR_INVALID_VALUE, 0, 0, 0},
    {"an unknown flag", 8, 2, 8, CUDA_ERROR_INVALID_VALUE, 0, 0, 0},
};

static void cuts_are_as_asked(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        CUdevResource all = sms_whole(), groups[SMS], rest;
        unsigned n = cuts[i].wanted;
        CUresult result = cuDevSmResourceSplitByCount(n == 0 ? NULL : groups, &n, &all, &rest,
                                                      cuts[i].flags, cuts[i].least);
        if (result != cuts[i].result || (result == CUDA_SUCCESS && n != cuts[i].groups)) {
            fail_msg("%s: result %d, %u groups", cuts[i].what, result, n);
        }
        for (unsigned g = 0; result == CUDA_SUCCESS && g < n && cuts[i].wanted != 0; g++) {
            assert_int_equal(groups[g].type, CU_DEV_RESOURCE_TYPE_SM);
            assert_int_equal(groups[g].sm.smCount, cuts[i].size);
        }
        if (result == CUDA_SUCCESS) {
            assert_int_equal(rest.type, cuts[i].remaining != 0 ? CU_DEV_RESOURCE_TYPE_SM
                                                               : CU_DEV_RESOURCE_TYPE_INVALID);
            assert_int_equal(rest.sm.smCount, cuts[i].remaining);
        }
    }
}

static void descriptors_of_one_cut(void **state)
{
    (void)state;
    CUdevResource groups[4], others[4], two[2];
    CUdevResourceDesc desc, same;
    assert_int_equal(sms_cut(groups, 4, 2), 4);
    assert_int_equal(sms_cut(others, 4, 2), 4);
    OK(cuDevResourceGenerateDesc(&desc, groups, 3));
    OK(cuDevResourceGenerateDesc(&same, others, 3)); /* nothing ends them: there is one */
    assert_ptr_equal(same, desc);
    two[0] = two[1] = groups[0];
    assert_int_equal(cuDevResourceGenerateDesc(&desc, two, 2),
                     CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    two[1] = others[1];
    assert_int_equal(cuDevResourceGenerateDesc(&desc, two, 2),
                     CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    OK(cuDeviceGetDevResource(0, &two[0], CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDeviceGetDevResource(1, &two[1], CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(cuDevResourceGenerateDesc(&desc, two, 2),
                     CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    assert_int_equal(cuDevResourceGenerateDesc(&desc, groups, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDevResourceGenerateDesc(&desc, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDevResourceGenerateDesc(NULL, groups, 1), CUDA_ERROR_INVALID_VALUE);
}

static void resources_that_nobody_made_are_refused(void **state)
{
    (void)state;
    CUdevResource all = sms_whole(), bad, groups[SMS];
    CUdevResourceDesc desc;
    unsigned n = SMS;
    memset(&bad, 0, sizeof(bad));
    assert_int_equal(cuDevSmResourceSplitByCount(groups, &n, &bad, NULL, 0, 2),
                     CUDA_ERROR_INVALID_RESOURCE_TYPE);
    assert_int_equal(cuDevResourceGenerateDesc(&desc, &bad, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    /* Every byte of a good one made another: refused or as if it were good, and nothing breaks. */
    for (size_t i = 0; i < sizeof(bad); i++) {
        bad = all;
        ((unsigned char *)&bad)[i] ^= 0xff;
        n = SMS;
        CUresult result = cuDevSmResourceSplitByCount(groups, &n, &bad, NULL, 0, 2);
        assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE ||
                    result == CUDA_ERROR_INVALID_RESOURCE_TYPE ||
                    result == CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    bad = all;
    bad.sm.smCount = 100;
    assert_int_equal(cuDevResourceGenerateDesc(&desc, &bad, 1), CUDA_ERROR_INVALID_VALUE);
    n = 0;
    assert_int_equal(cuDevSmResourceSplitByCount(groups, &n, &all, NULL, 0, 2),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDevSmResourceSplitByCount(groups, NULL, &all, NULL, 0, 2),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDevSmResourceSplitByCount(groups, &n, NULL, NULL, 0, 2),
                     CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resources_tell_their_sms),
        cmocka_unit_test(cuts_are_as_asked),
        cmocka_unit_test(descriptors_of_one_cut),
        cmocka_unit_test(resources_that_nobody_made_are_refused),
    };
    return cmocka_run_group_tests(tests, enter_context, leave_context);
}
