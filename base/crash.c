#include "base/crash.h"

#include "base/log.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FRAMES_MAX  24
#define STACK_BYTES 65536 /* of the handler in the main thread, whose own stack may be full */
#define ALARM_S     2

static _Alignas(16) char stack[STACK_BYTES];

static const char *file_of(const Dl_info *info)
{
    const char *name = strrchr(info->dli_fname, '/');

    return name ? name + 1 : info->dli_fname;
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    void *frame[FRAMES_MAX];
    char text[768] = "";
    size_t n = 0;

    (void)context;
    alarm(ALARM_S); /* what crashed may hold a lock that is needed here */
    int count = backtrace(frame, FRAMES_MAX);
    for (int i = 1; i < count && n < sizeof text; i++) { /* the first is this function */
        Dl_info where;

        if (dladdr(frame[i], &where) != 0 && where.dli_fname) {
            n += (size_t)snprintf(
                text + n, sizeof text - n, " %.40s+0x%llx", file_of(&where),
                (unsigned long long)((uintptr_t)frame[i] - (uintptr_t)where.dli_fbase));
        }
    }
    weir_log_error("crash: signal=%d address=%p at:%s", number, info->si_addr, text);
    raise(number); /* SA_RESETHAND: it ends the process now */
}

void weir_crash_init(void)
{
    static const int numbers[] = {SIGSEGV, SIGILL, SIGFPE, SIGABRT};
    const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_crash,
                               .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_ONSTACK)};
    void *frame[1];

    (void)backtrace(frame, 1); /* loads what it needs while nothing is wrong */
    (void)sigaltstack(&alternative, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old;

        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            (void)sigaction(numbers[i], &action, NULL);
        }
    }
}
