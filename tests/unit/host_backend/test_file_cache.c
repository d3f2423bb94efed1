/* The cache on disk: found again, never believed, never larger than it may be. */
#include "host_backend/config/file_cache.h"

#include "../../lib/tl_cmocka.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES 56u

static struct weir_file_cache cache;
static char dir[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/weir-cache-XXXXXX");
    assert_non_null(mkdtemp(dir));
    weir_file_cache_init(&cache, dir, 4096, ".twins");
    return 0;
}

/* Visits the files; removes them when asked. */
static unsigned files(bool remove, char *ret_one)
{
    DIR *entries = opendir(dir);
    unsigned n = 0;

    assert_non_null(entries);
    for (struct dirent *e; (e = readdir(entries));) {
        if (e->d_name[0] != '.') {
            if (ret_one) {
                snprintf(ret_one, 400, "%s/%s", dir, e->d_name);
            }
            if (remove) {
                unlinkat(dirfd(entries), e->d_name, 0);
            }
            n++;
        }
    }
    closedir(entries);
    return n;
}

static int tear_down(void **state)
{
    (void)state;
    (void)files(true, NULL);
    rmdir(dir);
    weir_file_cache_finish(&cache);
    return 0;
}

static struct weir_hash key_of(unsigned n)
{
    return weir_hash_of(&n, sizeof n);
}

static enum weir_status put(unsigned n, size_t bytes)
{
    struct weir_hash key = key_of(n);
    uint8_t data[4096];

    memset(data, (int)n, sizeof data);
    return weir_file_cache_put(&cache, &key, data, bytes);
}

/* Is it there, with the right content? */
static bool has(unsigned n, size_t want_bytes)
{
    struct weir_hash key = key_of(n);
    size_t bytes;
    uint8_t *data;

    if (weir_file_cache_get(&cache, &key, &data, &bytes) != WEIR_OK) {
        return false;
    }
    assert_int_equal(bytes, want_bytes);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(data[i], n);
    }
    free(data);
    return true;
}

static void get_of_what_was_put_gives_it(void **state)
{
    (void)state;
    assert_false(has(1, 0));
    assert_int_equal(put(1, 100), WEIR_OK);
    assert_int_equal(put(2, 0), WEIR_OK);
    assert_true(has(1, 100));
    assert_true(has(2, 0));
    assert_int_equal(put(1, 200), WEIR_OK); /* again: the newer one */
    assert_true(has(1, 200));
    assert_int_equal(files(false, NULL), 2);
}

static void get_of_damaged_file_removes_it(void **state)
{
    static const struct {
        const char *name;
        off_t at, cut; /* a byte to change, or (cut >= 0) where it ends */
    } rows[] = {{"magic", 0, -1},
                {"version", 8, -1},
                {"key", 16, -1},
                {"length", 32, -1},
                {"hash", 40, -1},
                {"payload", 60, -1},
                {"last byte gone", 0, HEADER_BYTES + 99},
                {"no payload", 0, HEADER_BYTES},
                {"half a header", 0, 20},
                {"empty", 0, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[400];
        uint8_t byte;
        int fd;

        print_message("%s\n", rows[i].name);
        assert_int_equal(put(7, 100), WEIR_OK);
        assert_int_equal(files(false, path), 1);
        fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        if (rows[i].cut >= 0) {
            assert_int_equal(ftruncate(fd, rows[i].cut), 0);
        } else {
            assert_int_equal(pread(fd, &byte, 1, rows[i].at), 1);
            byte ^= 4;
            assert_int_equal(pwrite(fd, &byte, 1, rows[i].at), 1);
        }
        close(fd);
        assert_false(has(7, 100));
        assert_int_equal(files(false, NULL), 0);
    }
}

static void get_of_another_files_content_removes_it(void **state)
{
    char one[400], two[400];

    (void)state;
    assert_int_equal(put(1, 10), WEIR_OK);
    assert_int_equal(files(false, one), 1);
    assert_int_equal(rename(one, "/tmp/weir-cache-moved"), 0);
    assert_int_equal(put(2, 10), WEIR_OK);
    assert_int_equal(files(false, two), 1);
    assert_int_equal(rename("/tmp/weir-cache-moved", two), 0);
    assert_false(has(2, 10));
}

/* Whoever opens one waits for its other end, but for who does not want to. */
static void a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(void **state)
{
    char path[400];

    (void)state;
    assert_int_equal(put(1, 10), WEIR_OK);
    assert_int_equal(files(false, path), 1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(has(1, 10));
    snprintf(path, sizeof path, "%s/tmp.%ld.%lx", dir, (long)getpid(), (long)gettid());
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(put(1, 10), WEIR_ERR_IO);
}

static void put_over_the_limit_removes_the_longest_unused(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 3; n++) {
        struct timespec times[2] = {{1000 + n, 0}, {1000 + n, 0}};
        char path[400];

        assert_int_equal(put(n, 1000), WEIR_OK);
        for (DIR *entries = opendir(dir); entries; closedir(entries), entries = NULL) {
            for (struct dirent *e; (e = readdir(entries));) {
                struct stat info;

                snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
                if (e->d_name[0] != '.' && stat(path, &info) == 0 && info.st_mtime > 10000) {
                    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
                }
            }
        }
    }
    assert_true(has(1, 1000)); /* now 2 is the longest unused */
    assert_int_equal(put(4, 1000), WEIR_OK);
    assert_true(has(1, 1000) && has(3, 1000) && has(4, 1000));
    assert_false(has(2, 1000));
    assert_int_equal(put(5, 4090), WEIR_ERR_TOO_BIG);
    assert_int_equal(put(5, 4000), WEIR_OK); /* alone */
    assert_int_equal(files(false, NULL), 1);
}

static void init_of_folder_that_others_may_write_has_no_cache(void **state)
{
    struct weir_file_cache other;
    struct weir_hash key = key_of(1);

    (void)state;
    assert_int_equal(chmod(dir, 0777), 0);
    weir_file_cache_init(&other, dir, 4096, ".twins");
    assert_string_equal(other.dir, "");
    assert_int_equal(weir_file_cache_put(&other, &key, (const uint8_t *)"a", 1),
                     WEIR_ERR_UNSUPPORTED);
    weir_file_cache_finish(&other);
    weir_file_cache_init(&other, "none", 4096, ".twins");
    assert_string_equal(other.dir, "");
    weir_file_cache_finish(&other);
}

static void init_without_a_name_takes_the_users(void **state)
{
    struct weir_file_cache other;
    char want[100];

    (void)state;
    setenv("XDG_CACHE_HOME", dir, 1);
    weir_file_cache_init(&other, "", 4096, ".twins");
    snprintf(want, sizeof want, "%s/weir", dir);
    assert_string_equal(other.dir, want);
    weir_file_cache_finish(&other);
    assert_int_equal(rmdir(want), 0);
}

/* The owner of what lies in the folder. */
static uid_t owner_of(const char *name)
{
    char path[200];
    struct stat info;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(lstat(path, &info), 0);
    return info.st_uid;
}

static void give_takes_the_files_of_caches_along(void **state)
{
    DIR *entries = opendir(dir);

    (void)state;
    assert_int_equal(put(1, 100), WEIR_OK);
    if (geteuid() == 0) {
        assert_true(weir_file_cache_give(dir, 1234, 1235));
        assert_int_equal(owner_of("."), 1234);
        for (const struct dirent *e; (e = readdir(entries));) {
            assert_true(e->d_name[0] == '.' || owner_of(e->d_name) == 1234);
        }
        assert_true(weir_file_cache_give(dir, 1234, 1235)); /* at the next start */
        assert_false(weir_file_cache_give(dir, 1236, 1235));
    }
    closedir(entries);
    assert_true(geteuid() == 0 || !weir_file_cache_give(dir, 1234, 1235));
}

static void give_leaves_a_folder_alone_that_has_anything_else(void **state)
{
    char path[200];
    int fd;

    (void)state;
    snprintf(path, sizeof path, "%s/shadow", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(put(1, 100), WEIR_OK);
    assert_false(weir_file_cache_give(dir, 1234, 1235));
    assert_int_equal(owner_of("shadow"), geteuid());
    assert_int_equal(owner_of("."), geteuid());
    assert_int_equal(unlink(path), 0);
    assert_int_equal(chmod(dir, 0770), 0);
    assert_false(weir_file_cache_give(dir, 1234, 1235)); /* others may have put something there */
}

/* Whoever the folder was given to must not be able to choose another file, nor another host to
 * write into it at the same time. */
static void a_file_beside_the_folder_is_ours_alone(void **state)
{
    char path[80], other[96], with_slash[80];
    int fd;

    (void)state;
    snprintf(path, sizeof path, "%s.times", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    snprintf(with_slash, sizeof with_slash, "%s/", dir);
    assert_int_equal(weir_file_cache_open_beside("none", ".times"), -1);
    fd = weir_file_cache_open_beside(dir, ".times");
    assert_true(fd >= 0);
    assert_int_equal(weir_file_cache_open_beside(with_slash, ".times"), -1); /* it is in use */
    close(fd);
    assert_int_equal(chmod(path, 0622), 0);
    assert_int_equal(weir_file_cache_open_beside(dir, ".times"), -1);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(weir_file_cache_open_beside(dir, ".times"), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(weir_file_cache_open_beside(dir, ".times"), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(weir_file_cache_open_beside(dir, ".times"), -1);
    assert_int_equal(unlink(path), 0);
    fd = weir_file_cache_open_beside(with_slash, ".times");
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(unlink(path), 0);
}

static void fault_says_what_keeps_a_user_from_it(void **state)
{
    char inner[96], file[80];

    (void)state;
    snprintf(inner, sizeof inner, "%s/later/cache", dir);
    snprintf(file, sizeof file, "%s/file", dir);
    assert_null(weir_file_cache_fault(dir, geteuid()));
    assert_null(weir_file_cache_fault(dir, geteuid() + 1)); /* it is empty, and can be given */
    assert_null(weir_file_cache_fault(inner, geteuid()));   /* it can be made */
    close(open(file, O_CREAT | O_WRONLY, 0600));
    assert_string_equal(weir_file_cache_fault(file, geteuid()), "Not a directory");
    snprintf(inner, sizeof inner, "%s/cache", file);
    assert_string_equal(weir_file_cache_fault(inner, geteuid()), "Not a directory");
    assert_null(weir_file_cache_fault(dir, geteuid()));
    assert_non_null(strstr(weir_file_cache_fault(dir, geteuid() + 1), "other files"));
    assert_int_equal(chmod(dir, 0720), 0);
    assert_string_equal(weir_file_cache_fault(dir, geteuid()), "others may write to it");
    assert_int_equal(access(inner, F_OK), -1); /* nothing was made */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fault_says_what_keeps_a_user_from_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(get_of_what_was_put_gives_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(get_of_damaged_file_removes_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(get_of_another_files_content_removes_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pipe_in_the_place_of_a_file_keeps_nobody_waiting, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(put_over_the_limit_removes_the_longest_unused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(init_of_folder_that_others_may_write_has_no_cache, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(init_without_a_name_takes_the_users, set_up, tear_down),
        cmocka_unit_test_setup_teardown(give_takes_the_files_of_caches_along, set_up, tear_down),
        cmocka_unit_test_setup_teardown(give_leaves_a_folder_alone_that_has_anything_else, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_file_beside_the_folder_is_ours_alone, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
