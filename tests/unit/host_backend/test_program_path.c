/* host_backend/config/program_path.c: which program is found on the PATH. */
#include "host_backend/config/program_path.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME "a-program"

static char folder[] = "/tmp/weir-path-XXXXXX", program[64], other[64], path[256];

/* The folder has the program; its folder "other" has one that nobody may run. */
static int set_up(void **state)
{
    FILE *file;

    (void)state;
    if (!mkdtemp(folder)) {
        return 1;
    }
    snprintf(program, sizeof program, "%s/" NAME, folder);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(path, sizeof path, "%s/" NAME, other);
    if (mkdir(other, 0700) != 0 || !(file = fopen(path, "w")) || fclose(file) != 0 ||
        !(file = fopen(program, "w")) || fclose(file) != 0) {
        return 1;
    }
    return chmod(program, 0700);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(program);
    snprintf(path, sizeof path, "%s/" NAME, other);
    unlink(path);
    return rmdir(other) != 0 || rmdir(folder) != 0;
}

static void search(const char *folders, size_t bytes, bool expected)
{
    setenv("PATH", folders, 1);
    assert_int_equal(weir_program_find(NAME, path, bytes), expected);
    if (expected) {
        assert_string_equal(path, program);
    }
}

static void the_first_that_may_be_run_is_found(void **state)
{
    char folders[256];

    (void)state;
    search(folder, sizeof path, true);
    snprintf(folders, sizeof folders, "::/nonexistent:%s:%s:", other, folder);
    search(folders, sizeof path, true);
    search(other, sizeof path, false); /* it is there, but not to be run */
    search("", sizeof path, false);
    unsetenv("PATH");
    assert_false(weir_program_find(NAME, path, sizeof path));
}

static void folders_with_relative_paths_are_left_out(void **state)
{
    (void)state;
    assert_int_equal(chdir(folder), 0);
    search(".", sizeof path, false);
    search("..:.:other", sizeof path, false);
    assert_int_equal(chdir("/"), 0);
}

static void a_path_that_does_not_fit_is_not_found(void **state)
{
    size_t bytes = strlen(program) + 1;

    (void)state;
    search(folder, bytes, true);
    search(folder, bytes - 1, false);
}

static void a_folder_is_no_program(void **state)
{
    (void)state;
    assert_true(weir_is_program(program));
    assert_false(weir_is_program(folder));
    assert_false(weir_is_program("/nonexistent"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_may_be_run_is_found),
        cmocka_unit_test(folders_with_relative_paths_are_left_out),
        cmocka_unit_test(a_path_that_does_not_fit_is_not_found),
        cmocka_unit_test(a_folder_is_no_program),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
