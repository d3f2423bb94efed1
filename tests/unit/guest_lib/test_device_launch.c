/* Which programs' files have kernels that launch kernels: this one, and others made of it. */
#include "guest_lib/device_launch.h"

#include "../../lib/tl_cmocka.h"
#include "../../lib/tl_device_launch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    char *bytes;
    size_t n;
} own;

static int read_own(void **state)
{
    struct stat about;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    (void)state;
    assert_true(fd >= 0 && fstat(fd, &about) == 0);
    own.n = (size_t)about.st_size;
    own.bytes = malloc(own.n);
    assert_non_null(own.bytes);
    assert_int_equal(read(fd, own.bytes, own.n), own.n);
    close(fd);
    return 0;
}

static int forget_own(void **state)
{
    (void)state;
    free(own.bytes);
    return 0;
}

static bool is_in(const char *bytes, size_t n)
{
    char path[64];
    int fd = memfd_create("program", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool is = weir_device_launch_is_in(path);
    close(fd);
    return is;
}

/* A copy of this program's file, with one place of it changed. @return the place in the copy */
static void *changed(char **ret_copy, const void *place, size_t bytes)
{
    *ret_copy = malloc(own.n);
    assert_non_null(*ret_copy);
    memcpy(*ret_copy, own.bytes, own.n);
    void *found = memmem(*ret_copy, own.n, place, bytes);
    assert_non_null(found);
    return found;
}

static void a_program_with_such_a_kernel_is_known(void **state)
{
    (void)state;
    assert_true(weir_device_launch_is_in("/proc/self/exe"));
    assert_true(is_in(own.bytes, own.n));
    assert_false(weir_device_launch_is_in("/bin/sh"));
    assert_false(weir_device_launch_is_in("/proc/self/maps"));
    assert_false(weir_device_launch_is_in("/nonexistent"));
}

/* Other functions of the device's runtime are no launch, and a name may only look like it. */
static void others_are_not(void **state)
{
    static const char *const names[] = {"__cuda_syscall_cnpv2GetDevice",
                                        "__cudaCDP2LaunchDeviceV2__________",
                                        "my_LaunchDevice_______________"};
    char *copy;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tl_fatbin *fatbin = changed(&copy, &tl_device_launch, sizeof tl_device_launch);
        memset(fatbin->cubin.names, 0, sizeof fatbin->cubin.names);
        strcpy(fatbin->cubin.names + 1, names[i]);
        assert_false(is_in(copy, own.n));
        free(copy);
    }
    struct tl_fatbin *fatbin = changed(&copy, &tl_device_launch, sizeof tl_device_launch);
    fatbin->flags = 0x8011; /* compressed: nobody looks inside */
    assert_false(is_in(copy, own.n));
    free(copy);
    /* Not linked by nvlink: no section of that name; the name is in code, too. */
    char *name;
    (void)changed(&copy, "__nv_relfatbin", 15);
    while ((name = memmem(copy, own.n, "__nv_relfatbin", 15))) {
        name[5] = 'x';
    }
    assert_false(is_in(copy, own.n));
    free(copy);
}

static void damaged_files_are_no_harm(void **state)
{
    char *copy;
    (void)state;
    for (size_t n = 0; n < own.n; n += own.n / 97 + 1) {
        assert_false(is_in(own.bytes, n));
    }
    /* Each word of the fat binary and of its cubin's headers. */
    for (size_t at = 0; at < offsetof(struct tl_fatbin, cubin.section_names); at += 8) {
        struct tl_fatbin *fatbin = changed(&copy, &tl_device_launch, sizeof tl_device_launch);
        memset((char *)fatbin + at, 0xff, 8);
        (void)is_in(copy, own.n);
        memset((char *)fatbin + at, 0, 8);
        (void)is_in(copy, own.n);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_with_such_a_kernel_is_known),
        cmocka_unit_test(others_are_not),
        cmocka_unit_test(damaged_files_are_no_harm),
    };
    return cmocka_run_group_tests(tests, read_own, forget_own);
}
