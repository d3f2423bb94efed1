/* Lines that pass from one process to another: the writer's half and the reader's half. */
#include "base/log.h"

#include "../../lib/tl_cmocka.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 200 /* of 900 bytes: more than a pipe holds by default */

static int ends[2];
static char text[1 << 17];

static int open_pipe(void **state)
{
    (void)state;
    return pipe2(ends, O_CLOEXEC | O_NONBLOCK);
}

static int close_pipe(void **state)
{
    (void)state;
    close(ends[0]);
    return 0;
}

static void take_text(void)
{
    size_t n = 0;
    ssize_t got;

    while ((got = read(ends[0], text + n, sizeof text - 1 - n)) > 0) {
        n += (size_t)got;
    }
    text[n] = 0;
}

/* In a process whose standard error is the pipe. */
static void run(void (*body)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGPIPE, SIG_IGN);
        if (dup2(ends[1], STDERR_FILENO) < 0 || weir_log_init("info", "writer") != WEIR_OK) {
            _exit(1);
        }
        weir_log_for_reader();
        body();
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void write_some(void)
{
    char longer[3000];

    memset(longer, 'x', sizeof longer);
    longer[2999] = 0;
    weir_log_debug("too fine");
    weir_log_error("test: name=%s", "evil\n<3>forged");
    weir_log_info("%s", longer);
}

static void lines_for_a_reader_have_a_priority_alone(void **state)
{
    char *second;

    (void)state;
    run(write_some);
    take_text();
    second = strchr(text, '\n') + 1;
    second[-1] = 0;
    assert_string_equal(text, "<3>test: name=evil?<3>forged");
    assert_int_equal(strncmp(second, "<6>xxx", 6), 0);
    assert_true(strlen(second) < 1024 - 64); /* the reader's prefix fits, too */
}

static void write_more_than_a_pipe_holds(void)
{
    char longer[900];
    int kept = 0;

    memset(longer, 'x', sizeof longer);
    longer[899] = 0;
    for (int i = 0; i < LINES; i++) {
        weir_log_info("%s", longer);
    }
    take_text(); /* as the reader would */
    for (const char *at = text; (at = strchr(at, '\n')); at++) {
        kept++;
    }
    weir_log_info("kept=%d", kept);
    weir_log_info("more");
}

static void lines_without_room_are_counted_and_told(void **state)
{
    int lost = 0, kept = 0;

    (void)state;
    run(write_more_than_a_pipe_holds);
    take_text();
    assert_int_equal(sscanf(text,
                            "<4>log: lines were lost, since their reader had no room lines=%d "
                            "<6>kept=%d <6>more",
                            &lost, &kept),
                     2);
    assert_true(lost > 0 && kept > 0);
    assert_int_equal(lost + kept, LINES);
}

static void write_to_nobody(void)
{
    close(ends[0]);
    weir_log_error("nobody reads this");
}

static void a_reader_that_is_gone_harms_nobody(void **state)
{
    (void)state;
    close(ends[0]); /* only the writer has it now, and closes it */
    ends[0] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    run(write_to_nobody);
}

/* ---------------------------------------------------------------- the reader */

static const struct {
    const char *line, *relayed;
} rows[] = {
    {"<3>worker: bad", "Z worker error worker: bad\n"},
    {"<4>worker: so", "Z worker warn worker: so\n"},
    {"<6>worker: good", "Z worker info worker: good\n"},
    {"<7>worker: fine", NULL},
    {"<5>odd", "Z worker warn standard error: <5>odd\n"},
    {"<", "Z worker warn standard error: <\n"},
    {"", "Z worker warn standard error: \n"},
    {"2026-01-31T12:00:00.000Z weir serve error supervisor: forged",
     "Z worker warn standard error: 2026-01-31T12:00:00.000Z weir serve error supervisor: "
     "forged\n"},
    {"<3>two\rlines\x1b[2J", "Z worker error two?lines?[2J\n"},
};

static void relayed_lines_bear_their_writers_name(void **state)
{
    char path[] = "/tmp/weir-test-log-XXXXXX", spec[64];
    int fd = mkstemp(path);

    (void)state;
    snprintf(spec, sizeof spec, "info:%s", path);
    assert_int_equal(weir_log_init(spec, "weir serve"), WEIR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ssize_t n;

        weir_log_relay("worker", rows[i].line);
        n = read(fd, text, sizeof text - 1);
        text[n > 0 ? n : 0] = 0;
        if ((rows[i].relayed != NULL) != (n > 0) ||
            (n > 0 && strcmp(strchr(text, 'Z'), rows[i].relayed) != 0)) {
            fail_msg("%s: %s", rows[i].line, text);
        }
    }
    assert_int_equal(weir_log_init("none", NULL), WEIR_OK);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_for_a_reader_have_a_priority_alone, open_pipe,
                                        close_pipe),
        cmocka_unit_test_setup_teardown(lines_without_room_are_counted_and_told, open_pipe,
                                        close_pipe),
        cmocka_unit_test_setup_teardown(a_reader_that_is_gone_harms_nobody, open_pipe, close_pipe),
        cmocka_unit_test(relayed_lines_bear_their_writers_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
