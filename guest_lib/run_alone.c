/*
 * Stops the process's threads from outside, as a debugger does.
 *
 * No thread can stop the others of its own process, so a task of its own does: clone() without
 * CLONE_THREAD, with the same memory. It attaches to each thread by ptrace, runs the function, and
 * detaches; if the task dies, the kernel detaches it. CLONE_VFORK parks the caller in the kernel
 * until the task has ended, so nothing runs on the caller's stack, no signal handler either. The
 * task shares the caller's thread-local storage, which is why it may use errno.
 *
 * A stopped thread is about to return to user mode. Its system call has finished, or was
 * interrupted and restarts afterwards. Linux restarts most calls by itself; for the others, which
 * would return EINTR, the task requests it. A waiter on a futex queues up again, so it is found
 * although its page was replaced.
 *
 * Kernel threads that belong to the process (io_uring's workers) cannot be stopped: then this
 * fails.
 *
 * Source: ptrace(2), signal(7) "Interruption of system calls and library functions by stop signals"
 */
#include "guest_lib/run_alone.h"
#include "base/clock.h"
#include "base/status.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_BYTES (64u << 10)
#define THREADS_MAX 65536u
/* A thread may be in the middle of reading from a disk, or wait for a processor. */
#define STOP_LIMIT_NS  (10 * WEIR_NS_PER_S)
#define NAP_NS         (20 * (long)WEIR_NS_PER_US)
#define ERESTARTNOHAND 514 /* internal to the kernel; in no header */
/* System calls that older headers do not define. */
#define CALL_IO_URING_ENTER 426
#define CALL_EPOLL_PWAIT2   441

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer takes clone() for a fork of its own. */
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
#define clone __clone
#endif

struct thread {
    pid_t tid;
    int16_t signal; /* signal that the thread was about to take; delivered at the detach */
    bool stopped;
};

/* In a mapping of its own, followed by the task's stack. */
struct alone {
    void (*fn)(void *user);
    void *user;
    int threads_fd; /* the list of threads, /proc/self/task */
    pid_t caller;
    bool denied; /* ptrace is refused */
    const char *why;
    uint32_t n;
    struct thread threads[THREADS_MAX];
    uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));
};

struct entry { /* an entry of getdents64(2) */
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

/* Has the thread ended ('Z' or 'X')? A dead first thread stays listed while others live. */
static bool is_dead(const struct alone *alone, pid_t tid)
{
    char path[32] = "", text[512];
    char *at = path + sizeof path - sizeof "/stat";
    memcpy(at, "/stat", sizeof "/stat");
    for (; tid; tid /= 10) {
        *--at = (char)('0' + tid % 10);
    }
    long fd = syscall(SYS_openat, alone->threads_fd, at, O_RDONLY | O_CLOEXEC);
    long got = fd >= 0 ? syscall(SYS_read, fd, text, sizeof text - 1) : 0;
    if (fd >= 0) {
        syscall(SYS_close, fd);
    }
    text[got > 0 ? got : 0] = 0;
    const char *name_end = strrchr(text, ')'); /* "TID (NAME) STATE ..." */
    return !name_end || name_end[1] == 0 || strchr("ZX", name_end[2]);
}

static bool is_known(const struct alone *alone, pid_t tid)
{
    return WEIR_ANY(i, alone->n, alone->threads[i].tid == tid);
}

static bool attach(struct alone *alone, pid_t tid)
{
    if (alone->n == THREADS_MAX) {
        alone->why = "the process has too many threads";
        return false;
    }
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0) {
        alone->denied = errno == EPERM && !is_dead(alone, tid);
        alone->why = alone->denied ? "its threads may not be stopped (ptrace)" : alone->why;
        return !alone->denied;
    }
    (void)ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
    alone->threads[alone->n++] = (struct thread){.tid = tid};
    return true;
}

/* Attach to the threads that are not known yet. The caller must be among all threads. */
static bool attach_all(struct alone *alone)
{
    char room[4096] __attribute__((aligned(8)));
    bool found = false;
    long got;
    (void)syscall(SYS_lseek, alone->threads_fd, 0L, SEEK_SET);
    while ((got = syscall(SYS_getdents64, alone->threads_fd, room, sizeof room)) > 0) {
        for (long at = 0; at < got;) {
            const struct entry *entry = (const void *)(room + at);
            pid_t tid = (pid_t)strtol(entry->name, NULL, 10);
            at += entry->bytes;
            found |= tid == alone->caller;
            if (tid > 0 && tid != alone->caller && !is_known(alone, tid) && !attach(alone, tid)) {
                return false;
            }
        }
    }
    if (!found) {
        alone->why = "/proc shows another process";
    }
    return found;
}

#if defined(__x86_64__)
/* Does this call return EINTR when interrupted, without having done anything? */
static bool may_begin_anew(unsigned long call)
{
    static const uint16_t calls[] = {
        SYS_epoll_wait, SYS_epoll_pwait,     CALL_EPOLL_PWAIT2, SYS_rt_sigtimedwait, SYS_semop,
        SYS_semtimedop, CALL_IO_URING_ENTER, SYS_io_getevents,  SYS_io_pgetevents,   SYS_read,
        SYS_readv,      SYS_write,           SYS_writev,        SYS_recvfrom,        SYS_recvmsg,
        SYS_recvmmsg,   SYS_sendto,          SYS_sendmsg,       SYS_accept,          SYS_accept4};
    return WEIR_ANY(i, WEIR_COUNT(calls), calls[i] == call);
}

/* Restart the call. It still returns EINTR if a signal has come for which the program has a
 * handler. */
static void begin_anew(pid_t tid)
{
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &registers) == 0 && (long)registers.rax == -EINTR &&
        may_begin_anew(registers.orig_rax)) {
        registers.rax = (unsigned long)-ERESTARTNOHAND;
        (void)ptrace(PTRACE_SETREGS, tid, NULL, &registers);
    }
}
#else
static void begin_anew(pid_t tid) /* on other processors such calls return EINTR */
{
    (void)tid;
}
#endif

static bool await_stop(struct thread *thread, uint64_t end_ns)
{
    static const struct timespec nap = {0, NAP_NS};
    int status = 0;
    long got;
    while ((got = syscall(SYS_wait4, thread->tid, &status, __WALL | WNOHANG, NULL)) == 0) {
        if (weir_clock_now_ns() > end_ns) {
            return false;
        }
        (void)syscall(SYS_nanosleep, &nap, NULL);
    }
    thread->stopped = got > 0 && WIFSTOPPED(status); /* otherwise the thread has ended */
    if (thread->stopped && status >> 16 == 0) {
        thread->signal = (int16_t)WSTOPSIG(status);
    } else if (thread->stopped) {
        begin_anew(thread->tid);
    }
    return true;
}

/* Stop all threads. Repeat, as a thread that was not stopped yet may have started another. */
static bool stop_all(struct alone *alone)
{
    uint64_t end_ns = weir_clock_now_ns() + STOP_LIMIT_NS;
    uint32_t stopped = 0;
    bool more = true;
    while (more) {
        WEIR_FAIL_IF(!attach_all(alone), false);
        more = stopped != alone->n;
        for (; stopped < alone->n; stopped++) {
            if (!await_stop(&alone->threads[stopped], end_ns)) {
                alone->why = "one of its threads does not leave the kernel";
                return false;
            }
        }
    }
    return true;
}

/* The task. Its end releases threads that have not stopped yet. */
static int task_main(void *arg)
{
    struct alone *alone = arg;
    if (stop_all(alone)) {
        alone->fn(alone->user);
        alone->why = NULL;
    }
    for (uint32_t i = 0; i < alone->n; i++) {
        struct thread *thread = &alone->threads[i];
        if (thread->stopped) {
            (void)ptrace(PTRACE_DETACH, thread->tid, NULL, (void *)(intptr_t)thread->signal);
        }
    }
    return 0;
}

static void run_task(struct alone *alone)
{
    sigset_t all, before;
    alone->n = 0;
    alone->denied = false;
    alone->why = "the task that does it has died";
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* the task begins with the caller's mask */
    int pid = clone(task_main, alone->stack + sizeof alone->stack,
                    CLONE_VM | CLONE_VFORK | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, alone);
    if (pid < 0) {
        alone->why = "it may start no further process";
    } else {
        (void)syscall(SYS_wait4, pid, NULL, __WALL, NULL);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool weir_run_alone(void (*fn)(void *user), void *user, const char **ret_why)
{
    struct alone *alone = mmap(NULL, sizeof *alone, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (alone == MAP_FAILED) {
        *ret_why = "it has no memory for it";
        return false;
    }
    alone->fn = fn;
    alone->user = user;
    alone->caller = (pid_t)syscall(SYS_gettid);
    alone->threads_fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (alone->threads_fd < 0) {
        alone->why = "it has no /proc";
    } else {
        run_task(alone);
        /* Yama only lets ancestors trace a process, and those that it names, but the task's number
         * is not known yet. */
        if (alone->denied && prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0) {
            run_task(alone);
            (void)prctl(PR_SET_PTRACER, 0, 0, 0, 0);
        }
        close(alone->threads_fd);
    }
    *ret_why = alone->why;
    (void)munmap(alone, sizeof *alone);
    return !*ret_why;
}
