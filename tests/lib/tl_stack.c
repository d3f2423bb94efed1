#include "tests/lib/tl_stack.h"

#include "tests/lib/tl_await.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Windows in memory that the sanitizer leaves to programs, and no larger than they need be. */
#ifdef __SANITIZE_THREAD__
#define WINDOW_BASE "0x4000000000"
#else
#define WINDOW_BASE "0x200000000000"
#endif
static const char config_text[] =
    "[host]\n"
    "window_base = " WINDOW_BASE "\n"
    "window_bytes = \"4GiB\"\n"
    "[[tenant]]\nname = \"alice\"\nmemory = \"64MiB\"\nisolation = \"group\"\ngroup = \"g\"\n"
    "[[tenant]]\nname = \"bob\"\nisolation = \"group\"\ngroup = \"g\"\n";

static bool is_serving(const struct tl_stack *stack)
{
    struct weir_status_report *report;
    assert_int_equal(waitpid(stack->supervisor, NULL, WNOHANG), 0);
    if (weir_control_status(stack->run_dir, &report) != WEIR_OK) {
        return false;
    }
    bool ready = report->n_workers == 1 && report->workers[0].device[0] != '\0';
    weir_status_report_destroy(report);
    return ready;
}

void tl_stack_start(struct tl_stack *stack)
{
    char path[128];
    char url[128];
    snprintf(stack->folder, sizeof(stack->folder), "/tmp/weir-stack-XXXXXX");
    assert_non_null(mkdtemp(stack->folder));
    snprintf(stack->run_dir, sizeof(stack->run_dir), "%s/run", stack->folder);
    snprintf(path, sizeof(path), "%s/weir.toml", stack->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(config_text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    stack->supervisor = fork();
    assert_true(stack->supervisor >= 0);
    if (stack->supervisor == 0) {
        execl(WEIR_TEST_PROGRAM, "weir", "serve", "--config", path, "--run-dir", stack->run_dir,
              "--driver", "softgpu", "--log", "warn", (char *)NULL);
        _exit(127);
    }
    tl_await(is_serving(stack));
    snprintf(url, sizeof(url), "ipc://%s/alice.sock", stack->run_dir);
    assert_int_equal(setenv("WEIR_HOST", url, 1), 0);
}

/* So many, and nothing held when there are none. */
static bool has_sessions(const struct tl_stack *stack, size_t n_sessions)
{
    struct weir_status_report *report;
    assert_int_equal(weir_control_status(stack->run_dir, &report), WEIR_OK);
    assert_int_equal(report->n_workers, 1);
    assert_int_equal(report->workers[0].restarts, 0);
    const struct weir_status_worker *w = &report->workers[0];
    bool good = report->n_sessions == n_sessions &&
                (n_sessions || (w->objects == 0 && w->chunks == 0 && w->chunk_bytes == 0 &&
                                report->kept_fds == 0));
    weir_status_report_destroy(report);
    return good;
}

void tl_stack_wait_sessions(const struct tl_stack *stack, size_t n_sessions)
{
    tl_await(has_sessions(stack, n_sessions));
}

void tl_stack_stop(struct tl_stack *stack)
{
    char path[128];
    int status = -1;
    assert_int_equal(kill(stack->supervisor, SIGINT), 0); /* SIGTERM would leave what runs */
    assert_int_equal(waitpid(stack->supervisor, &status, 0), stack->supervisor);
    assert_int_equal(status, 0);
    snprintf(path, sizeof(path), "%s/weir.toml", stack->folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(stack->run_dir), 0); /* no socket is left in it */
    assert_int_equal(rmdir(stack->folder), 0);
}
