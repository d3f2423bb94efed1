/*
 * WEIR_TEST_LIMIT_S bounds a program's run: then it says where its first thread is, and ends.
 * ctest's own limit, a little later, kills without a word. In every program that weir_test() makes.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAMES 64

static char limit[16];

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

/* Functions and lines of the program's own frames, where there is an addr2line. */
static void say_lines(void *const *frames, int n)
{
    static char text[FRAMES][24], tool[] = "addr2line", options[] = "-fpe", program[64];
    char *argv[FRAMES + 4] = {tool, options, program};
    int used = 3;
    Dl_info own, info;

    snprintf(program, sizeof program, "/proc/%d/exe", (int)getpid());
    if (dladdr((void *)(uintptr_t)say, &own) == 0) {
        return;
    }
    for (int i = 0; i < n; i++) {
        if (dladdr(frames[i], &info) != 0 && info.dli_fbase == own.dli_fbase) {
            snprintf(text[i], sizeof text[i], "%#zx",
                     (size_t)((char *)frames[i] - (char *)own.dli_fbase) - 1);
            argv[used++] = text[i];
        }
    }
    pid_t child = _Fork();
    if (child == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execvp(argv[0], argv);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

static void on_limit(int number)
{
    void *frames[FRAMES];

    if (gettid() != getpid()) {
        tgkill(getpid(), getpid(), number); /* whoever waits is the first thread */
        return;
    }
    int n = backtrace(frames, FRAMES);
    say("the test has not ended after ");
    say(limit);
    say(" s; it waits here:\n");
    backtrace_symbols_fd(frames, n, STDERR_FILENO);
    say_lines(frames, n);
    _exit(1);
}

__attribute__((constructor)) static void watch(void)
{
    const char *given = getenv("WEIR_TEST_LIMIT_S");
    struct sigaction action = {.sa_handler = on_limit};
    void *frame;

    if (!given || atoi(given) <= 0) {
        return;
    }
    snprintf(limit, sizeof limit, "%d", atoi(given));
    (void)backtrace(&frame, 1); /* loads what it needs */
    sigaction(SIGALRM, &action, NULL);
    alarm((unsigned)atoi(given));
}
