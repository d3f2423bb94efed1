/* base/memfd.c */
#include "base/memfd.h"

#include "../../lib/tl_cmocka.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void a_file_has_its_size(void **state)
{
    struct stat info;
    int fd = weir_memfd_sealed("test", 12345);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_size, 12345);
    assert_int_not_equal(ftruncate(fd, 1), 0);
    close(fd);
}

/* The signal would end the process. */
static void one_that_is_too_large_is_refused_without_a_signal(void **state)
{
    struct rlimit before, small;
    sigset_t mask, pending;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    errno = 0;
    assert_int_equal(weir_memfd_sealed("test", 8192), -1);
    assert_int_equal(errno, EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(sigpending(&pending), 0);
    assert_false(sigismember(&pending, SIGXFSZ));
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    assert_false(sigismember(&mask, SIGXFSZ));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_its_size),
        cmocka_unit_test(one_that_is_too_large_is_refused_without_a_signal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
