/* What a kernel that may assert or print costs its guest: by the kernel, not by the module. */
#include "session_fixture.h"

#include "host_backend/worker/code/images.h"
#include "proto/wire/bundle.h"
#include <stdio.h>
#include <stdlib.h>

#define FILE_BYTES 65536u

static CUresult load(CUmodule *ret, const void *image, unsigned n, CUjit_option *options,
                     void **values)
{
    (void)image;
    (void)n;
    (void)options;
    (void)values;
    *ret = (CUmodule)1;
    return CUDA_SUCCESS;
}

static CUresult unload(CUmodule module)
{
    (void)module;
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *ret, CUmodule module, const char *name)
{
    (void)module;
    *ret = (CUfunction)(uintptr_t)name[0];
    return CUDA_SUCCESS;
}

static CUresult no_parameter(CUfunction function, size_t i, size_t *offset, size_t *bytes)
{
    (void)function;
    (void)i;
    (void)offset;
    (void)bytes;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult no_attribute(int *ret, CUfunction_attribute id, CUfunction function)
{
    (void)ret;
    (void)id;
    (void)function;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
                       void **extra)
{
    (void)function, (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared;
    (void)stream, (void)params, (void)extra;
    return CUDA_SUCCESS;
}

static void with_kernels(void)
{
    struct weir_driver *d = &f.worker.platform.driver;

    f.worker.config.under_mps = true;
    f.worker.platform.sm = 90;
    weir_account_limit_set(&f.tenant->account, WEIR_ACCOUNT_HOST_MEMORY, 1 << 20);
    d->cuModuleLoadDataEx = load;
    d->cuModuleUnload = unload;
    d->cuModuleGetFunction = get_function;
    d->cuFuncGetParamInfo = no_parameter;
    d->cuFuncGetAttribute = no_attribute;
    d->cuLaunchKernel = launch;
}

static int set_up_with_kernels(void **state)
{
    prepare = with_kernels;
    return set_up(state);
}

/* Into the tenant's store, as an upload would. */
static struct weir_op_module_load_in store(const char *file)
{
    struct weir_op_module_load_in in = {.m = name(WEIR_KIND_MODULE, 1),
                                        .c = name(WEIR_KIND_CONTEXT, 1)};
    uint8_t *data = calloc(1, FILE_BYTES + WEIR_IMAGE_TAIL_BYTES);
    struct weir_host_image *image;
    struct weir_hash hash;
    char path[4096];
    FILE *from;

    snprintf(path, sizeof path, "%s/asserts/%s.fatbin", WEIR_TEST_DATA, file);
    from = fopen(path, "rb");
    assert_true(data && from);
    in.bytes = fread(data, 1, FILE_BYTES, from);
    fclose(from);
    hash = weir_hash_of(data, in.bytes);
    memcpy(in.hash, hash.bytes, sizeof in.hash);
    assert_int_equal(weir_image_reserve(&f.tenant->images, in.bytes), WEIR_OK);
    assert_int_equal(weir_image_add(&f.tenant->images, &hash, data, in.bytes, &image), WEIR_OK);
    weir_image_put(&f.tenant->images, image);
    return in;
}

/* Launch a kernel; is the guest to ask then? */
static bool asks_after(uint32_t index, const char *kernel)
{
    struct weir_op_module_function_in function = {
        .m = name(WEIR_KIND_MODULE, 1), .f = name(WEIR_KIND_FUNCTION, index), .name = kernel};
    struct weir_op_launch_in in = {
        .f = function.f, .grid = {1, 1, 1}, .block = {1, 1, 1}, .s = name(WEIR_KIND_STREAM, 2)};
    uint32_t error;

    assert_int_equal(call(WEIR_OP_module_function, &function, NULL), CUDA_SUCCESS);
    assert_int_equal(call(WEIR_OP_launch, &in, NULL), CUDA_SUCCESS);
    (void)deferred(&error);
    return __atomic_load_n(&f.guest->ops->view(f.guest)->header->unchecked, __ATOMIC_RELAXED) != 0;
}

/* A launch of one that may would wait for the device's printf buffer, which is not there. */
static void kernel_that_cannot_print_is_launched_beside_one_that_can(void **state)
{
    struct weir_op_module_load_in in = store("sm90");

    (void)state;
    make_context();
    make_stream(2);
    assert_int_equal(call(WEIR_OP_module_load, &in, NULL), CUDA_SUCCESS);
    assert_false(asks_after(1, "plain"));
}

static void guest_asks_after_kernels_that_may_assert(void **state)
{
    struct weir_op_module_load_in in = store("sm90_other");

    (void)state;
    make_context();
    make_stream(2);
    assert_int_equal(call(WEIR_OP_module_load, &in, NULL), CUDA_SUCCESS);
    assert_false(asks_after(1, "sets"));
    assert_true(asks_after(2, "plain"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(guest_asks_after_kernels_that_may_assert,
                                        set_up_with_kernels, tear_down),
        cmocka_unit_test_setup_teardown(kernel_that_cannot_print_is_launched_beside_one_that_can,
                                        set_up_with_kernels, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
