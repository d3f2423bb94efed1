/* The keeper: its rows, its messages, and what the next supervisor gets of them. */
#include "keeper_fixture.h"

#include "base/log.h"
#include "host_backend/config/control.h"
#include "host_backend/keeper/book.h"
#include "host_backend/keeper/spawn.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define OWNER          WEIR_BOOK_CHUNK
#define OUT_OF_THE_WAY 16 /* as in spawn.c */

static struct weir_supervisor sup;
static char folder[] = "/tmp/weir-test-keeper-XXXXXX";
static pid_t keeper;

static int set_up(void **state)
{
    (void)state;
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    memset(&sup, 0, sizeof sup);
    sup.config.linger_s = 60;
    (void)!weir_log_init("error", NULL);
    return mkdtemp(folder) && (keeper = start_keeper(&sup, folder)) > 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    weir_book_close(&sup, true);
    return waitpid(keeper, NULL, 0) == keeper && rmdir(folder) == 0 ? 0 : -1;
}

static void next_supervisor(void)
{
    weir_book_close(&sup, false);
    assert_true(weir_book_open(&sup));
}

/* ---------------------------------------------------------------- rows */

static void rows_are_found_replaced_and_dropped(void **state)
{
    static struct weir_keep_book book;
    struct weir_fds fds = {.fd = {dup(0)}, .n = 1};
    int first = fds.fd[0];
    struct weir_keep_row *row;
    uint32_t n = 0;

    (void)state;
    for (uint64_t key = 0; key < 3 * WEIR_KEEP_BUCKETS; key++) {
        struct weir_fds none = {.n = 0};

        assert_non_null(weir_keep_book_put(&book, 1, key, (const uint8_t *)"a", 1, &none));
    }
    row = weir_keep_book_put(&book, 2, 5, (const uint8_t *)"bc", 2, &fds);
    assert_int_equal(fds.n, 0); /* they are the row's */
    assert_ptr_equal(weir_keep_book_find(&book, 2, 5), row);
    row->pid = 77;
    fds = (struct weir_fds){.n = 0};
    assert_ptr_equal(weir_keep_book_put(&book, 2, 5, (const uint8_t *)"d", 1, &fds), row);
    assert_int_equal(row->bytes, 1);
    assert_int_equal(row->pid, 77); /* a process stays with its row */
    assert_int_equal(fcntl(first, F_GETFD), -1);
    for (row = NULL; (row = weir_keep_book_next(&book, row));) {
        n++;
    }
    assert_int_equal(n, 3 * WEIR_KEEP_BUCKETS + 1);
    while ((row = weir_keep_book_next(&book, NULL))) {
        weir_keep_book_drop(&book, row);
    }
    assert_null(weir_keep_book_find(&book, 2, 5));
}

static void the_next_supervisor_gets_the_rows(void **state)
{
    struct weir_book_row *row;
    int ends[2], fd;
    char byte;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    weir_book_put(&sup, OWNER, 1, "one", 3, (int[]){-1, ends[0]}, 2);
    weir_book_put(&sup, OWNER, 2, "two", 3, NULL, 0);
    weir_book_put(&sup, OWNER, 1, "three", 5, (int[]){-1, ends[0]}, 2);
    weir_book_drop(&sup, OWNER, 2);
    weir_book_listens(&sup, "here", ends[1]);
    close(ends[0]);
    close(ends[1]);
    next_supervisor();
    row = weir_book_adopt(&sup, OWNER);
    assert_non_null(row);
    assert_int_equal(row->key, 1);
    assert_int_equal(row->bytes, 5);
    assert_memory_equal(row->data, "three", 5);
    fd = weir_book_take_fd(row, 0);
    assert_true(fd >= 0);
    assert_null(weir_book_adopt(&sup, OWNER));
    ends[1] = weir_book_listener(&sup, "here");
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(fd, &byte, 1), 1); /* the same pipe */
    assert_int_equal(weir_book_listener(&sup, "here"), -1);
    close(fd);
    close(ends[1]);
    weir_book_settle(&sup);
}

static void what_nobody_adopts_goes(void **state)
{
    (void)state;
    weir_book_put(&sup, OWNER, 1, "one", 3, NULL, 0);
    next_supervisor();
    weir_book_settle(&sup);
    next_supervisor();
    assert_null(weir_book_adopt(&sup, OWNER));
}

/* A row of another version is shorter or longer. */
static void a_row_is_read_as_far_as_it_goes(void **state)
{
    uint32_t both[2] = {1, 2}, one = 0;

    (void)state;
    weir_book_put(&sup, OWNER, 1, both, sizeof both, NULL, 0);
    weir_book_put(&sup, WEIR_BOOK_PORT, 1, both, sizeof one, NULL, 0);
    next_supervisor();
    weir_book_read(weir_book_adopt(&sup, OWNER), &one, sizeof one);
    assert_int_equal(one, 1);
    weir_book_read(weir_book_adopt(&sup, WEIR_BOOK_PORT), both, sizeof both);
    assert_int_equal(both[0], 1);
    assert_int_equal(both[1], 0);
}

/* ---------------------------------------------------------------- messages */

static void a_torn_message_does_not_end_the_keeper(void **state)
{
    static struct weir_keep_message message = {.type = WEIR_KEEP_PUT, .bytes = 100};
    static const uint32_t lone_type = WEIR_KEEP_SPAWN;
    int fd, fds[WEIR_FDS_MAX + 2];
    struct weir_fds got;

    (void)state;
    weir_book_close(&sup, false);
    fd = keeper_connect(folder);
    assert_int_equal(send(fd, "x", 1, 0), 1);
    assert_int_equal(send(fd, &lone_type, sizeof lone_type, 0), (int)sizeof lone_type);
    assert_int_equal(send(fd, &message, 50, 0), 50); /* it promises more bytes */
    message.type = 99;
    message.bytes = 0;
    assert_true(weir_keep_send(fd, &message, NULL, 0));
    message.type = WEIR_KEEP_SPAWN; /* of nothing */
    assert_true(weir_keep_send(fd, &message, NULL, 0));
    assert_true(weir_keep_receive(fd, &message, &got));
    assert_int_equal(message.type, WEIR_KEEP_SPAWNED);
    assert_int_equal(message.pid, -1);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        fds[i] = fd;
    }
    assert_false(weir_keep_send(fd, &message, fds, WEIR_FDS_MAX + 1));
    close(fd);
    assert_true(weir_book_open(&sup)); /* it lives */
    assert_null(weir_book_adopt(&sup, OWNER));
}

static void a_spawn_that_is_not_whole_is_none(void **state)
{
    static struct weir_keep_message message;
    struct weir_keep_spawn spawn = {.n_fds = 1, .row_bytes = 3, .n_argv = 2}, got;
    uint32_t whole = (uint32_t)sizeof spawn + 3 + 10;

    (void)state;
    memcpy(message.data, &spawn, sizeof spawn);
    memcpy(message.data + sizeof spawn,
           "row"
           "true\0A=1\0",
           12);
    message.data[whole - 1] = 0;
    message.bytes = whole;
    assert_non_null(weir_keep_spawn_row(&message, &got));
    assert_int_equal(got.n_argv, 2);
    for (message.bytes = 0; message.bytes < sizeof spawn + 3; message.bytes++) {
        assert_null(weir_keep_spawn_row(&message, &got));
    }
    message.bytes = whole - 3; /* the last word has no end */
    assert_null(weir_keep_spawn_row(&message, &got));
    message.bytes = whole;
    spawn.row_bytes = UINT32_MAX;
    memcpy(message.data, &spawn, sizeof spawn);
    assert_null(weir_keep_spawn_row(&message, &got));
    spawn.row_bytes = 3;
    spawn.n_argv = 90;
    memcpy(message.data, &spawn, sizeof spawn);
    assert_null(weir_keep_spawn_row(&message, &got));
    spawn.n_argv = 1;
    spawn.n_fds = WEIR_FDS_MAX + 1;
    memcpy(message.data, &spawn, sizeof spawn);
    assert_null(weir_keep_spawn_row(&message, &got));
}

/* ---------------------------------------------------------------- processes */

static pid_t spawn_shell(const char *command, uint64_t key)
{
    const struct weir_keep_spawn spawn = {.death_signal = SIGKILL};
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    const char *const env[][2] = {{"WEIR_TEST_ONE", "1"}, {"HOME", NULL}, {NULL, NULL}};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct weir_book_process process = {.spawn = &spawn,
                                        .argv = argv,
                                        .env = env,
                                        .fds = (int[]){null, null},
                                        .n_fds = 2,
                                        .row = "row",
                                        .row_bytes = 3};
    pid_t pid = weir_book_spawn(&sup, WEIR_BOOK_WORKER, key, &process);

    close(null);
    return pid;
}

static int status_of(pid_t pid)
{
    int status;

    while (!weir_book_changed(&sup, pid, &status)) {
        weir_book_wait(&sup, 1000);
    }
    return status;
}

static void a_process_has_its_environment_and_a_status(void **state)
{
    pid_t pid = spawn_shell("test \"$WEIR_TEST_ONE\" = 1 && test -z \"$HOME\" && exit 3", 1);
    int status;

    (void)state;
    assert_true(pid > 0);
    status = status_of(pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 3);
    next_supervisor();
    assert_null(weir_book_adopt(&sup, WEIR_BOOK_WORKER)); /* its row has gone with it */
}

/* The end of a process in the gap is told to the next supervisor; its number is nobody else's until
 * then. */
static void an_end_between_two_supervisors_is_told(void **state)
{
    pid_t pid = spawn_shell("exec sleep 600", 7);
    const struct weir_book_row *row;

    (void)state;
    assert_true(pid > 0);
    weir_book_close(&sup, false);
    assert_int_equal(kill(pid, SIGTERM), 0);
    poll(NULL, 0, 20);
    assert_int_equal(kill(pid, 0), 0); /* it is a zombie */
    assert_true(weir_book_open(&sup));
    row = weir_book_adopt(&sup, WEIR_BOOK_WORKER);
    assert_non_null(row);
    assert_int_equal(row->pid, pid);
    assert_int_equal(row->key, 7);
    assert_int_equal(status_of(pid), SIGTERM);
}

static void a_stop_and_a_continuation_are_told(void **state)
{
    pid_t pid = spawn_shell("exec sleep 600", 1);
    int status;

    (void)state;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    status = status_of(pid);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(kill(pid, SIGCONT), 0);
    status = status_of(pid);
    assert_true(WIFCONTINUED(status));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(status_of(pid), SIGKILL);
}

/* What a guest would do that has taken over a worker of the host's own user. @return exit status */
static int play_supervisor(const char *to)
{
    static struct weir_keep_message message = {.type = WEIR_KEEP_HELLO};
    struct weir_fds fds;
    int fd = keeper_connect(to);

    (void)weir_keep_send(fd, &message, NULL, 0);
    return weir_keep_receive(fd, &message, &fds) ? 1 : 42;
}

static void a_process_that_it_has_started_is_no_supervisor(void **state)
{
    char program[256], command[512];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    int status = 0;
    pid_t pid;

    (void)state;
    assert_true(n > 0);
    program[n] = 0;
    snprintf(command, sizeof command, "exec %s supervisor %s", program, folder);
    pid = spawn_shell(command, 1);
    do {
        poll(NULL, 0, 5); /* without a supervisor the next connection is looked at */
        next_supervisor();
        assert_non_null(weir_book_adopt(&sup, WEIR_BOOK_WORKER));
        weir_book_wait(&sup, 1);
    } while (!weir_book_changed(&sup, pid, &status));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
}

static void the_end_of_the_keeper_is_the_end_of_all(void **state)
{
    pid_t pid = spawn_shell("exec sleep 600", 1);

    (void)state;
    weir_book_close(&sup, true);
    assert_int_equal(waitpid(keeper, NULL, 0), keeper);
    while (kill(pid, 0) == 0) {
        poll(NULL, 0, 1);
    }
    keeper = start_keeper(&sup, folder); /* for tear_down() */
}

/* With so many descriptors free to put others out of the way: how does a process end that would
 * execute true? */
static int status_with_descriptors_left(int n)
{
    const struct weir_keep_spawn spawn = {.death_signal = SIGKILL, .n_fds = 3, .n_argv = 1};
    char words[] = "/bin/true";
    int fds[3], status, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct rlimit before, few;
    pid_t pid;

    fds[0] = fds[1] = null;
    fds[2] = fcntl(null, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    assert_true(fds[2] >= 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)fds[2] + 1 + (rlim_t)n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    pid = weir_keep_fork(&spawn, words, words + sizeof words, fds);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(fds[2]);
    close(null);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* One that went on without its listener would take another file for it, and close that. */
static void a_process_without_room_for_its_descriptors_does_not_start(void **state)
{
    (void)state;
    for (int n = 0; n < 3; n++) {
        int status = status_with_descriptors_left(n);

        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), WEIR_WORKER_EXIT_NO_FD);
    }
    assert_int_equal(status_with_descriptors_left(3), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_replaced_and_dropped),
        cmocka_unit_test_setup_teardown(the_next_supervisor_gets_the_rows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_nobody_adopts_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_row_is_read_as_far_as_it_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_torn_message_does_not_end_the_keeper, set_up, tear_down),
        cmocka_unit_test(a_spawn_that_is_not_whole_is_none),
        cmocka_unit_test_setup_teardown(a_process_has_its_environment_and_a_status, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_end_between_two_supervisors_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_and_a_continuation_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_process_that_it_has_started_is_no_supervisor, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_the_keeper_is_the_end_of_all, set_up, tear_down),
        cmocka_unit_test(a_process_without_room_for_its_descriptors_does_not_start),
    };

    return argc == 3 ? play_supervisor(argv[2]) : cmocka_run_group_tests(tests, NULL, NULL);
}
