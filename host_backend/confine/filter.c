/*
 * The list of refused system calls as a program of classic BPF, which the kernel runs at each call.
 *
 * The program first turns away calls of other architectures (32-bit and x32 ones have other
 * numbers), then compares the number with one row after the other. A row whose call depends on an
 * argument compares it. Calls without a row are allowed, since the calls of NVIDIA's driver are not
 * documented. A filter cannot follow pointers.
 *
 * Nothing kills: a worker under MPS that dies with work on the GPU ends the work of the server's
 * other clients.
 */
#include "host_backend/confine/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#define X32_CALLS 0x40000000u
#define NAMESPACES                                                                                 \
    ((uint32_t)(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |      \
                CLONE_NEWPID | CLONE_NEWNET))
#define ALLOW       SECCOMP_RET_ALLOW
#define REFUSE(why) (SECCOMP_RET_ERRNO | (why))
#define CODE_MAX    512

/* Constants that some systems' headers lack. */
#define DUPFD_QUERY        1027 /* F_DUPFD_QUERY */
#define SCHED_CORE         62   /* PR_SCHED_CORE */
#define IOPRIO_WHO_PROCESS 1

#ifdef ARCH

struct program {
    struct sock_filter code[CODE_MAX];
    unsigned short n;
};

static void add(struct program *p, struct sock_filter instruction)
{
    if (p->n < CODE_MAX) {
        p->code[p->n] = instruction;
    }
    p->n++;
}

static void load(struct program *p, uint32_t offset)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
}

static void answer(struct program *p, uint32_t what)
{
    add(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* Skip `count` instructions unless the value is this one. */
static void unless_equal_skip(struct program *p, uint32_t value, uint8_t count)
{
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count));
}

/* Skip the next instruction unless the value has one of these bits. */
static void unless_any_bit_skip(struct program *p, uint32_t bits, uint8_t count)
{
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, count));
}

static void refuse(struct program *p, uint32_t call, uint32_t why)
{
    unless_equal_skip(p, call, 1);
    answer(p, REFUSE(why));
}

/* Load the lower half of an argument, which comes first: both architectures are little-endian. The
 * kernel uses only this half of the arguments that are looked at here. */
static void load_argument(struct program *p, unsigned argument)
{
    load(p, (uint32_t)(offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t)));
}

/* Begin the rows of a call. end_call() must follow, and sets where other calls continue. */
static unsigned short begin_call(struct program *p, uint32_t call)
{
    unless_equal_skip(p, call, 0);
    return p->n;
}

static void end_call(struct program *p, unsigned short begin, uint32_t what)
{
    answer(p, what);
    if (begin <= CODE_MAX) {
        p->code[begin - 1].jf = (uint8_t)(p->n - begin); /* it fits: no call has 256 instructions */
    }
}

/* Return one answer for these values of the argument. Other values continue. */
static void answer_values(struct program *p, unsigned argument, const uint32_t *values, unsigned n,
                          uint32_t what)
{
    load_argument(p, argument);
    for (unsigned i = 0; i < n; i++) {
        unless_equal_skip(p, values[i], 1);
        answer(p, what);
    }
}

static void refuse_unless(struct program *p, uint32_t call, unsigned argument,
                          const uint32_t *values, unsigned n)
{
    unsigned short begin = begin_call(p, call);

    answer_values(p, argument, values, n, ALLOW);
    end_call(p, begin, REFUSE(EPERM));
}

static void refuse_if(struct program *p, uint32_t call, unsigned argument, const uint32_t *values,
                      unsigned n)
{
    unsigned short begin = begin_call(p, call);

    answer_values(p, argument, values, n, REFUSE(EPERM));
    end_call(p, begin, ALLOW);
}

static void refuse_other_architectures(struct program *p)
{
    load(p, offsetof(struct seccomp_data, arch));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
    answer(p, REFUSE(EPERM));
    load(p, offsetof(struct seccomp_data, nr));
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_CALLS, 0, 1));
    answer(p, REFUSE(EPERM));
}

/*
 * Refuse new processes: a worker has threads only. Processes could outlive it, and with
 * CLONE_PARENT they would be the supervisor's children. A process that executes programs may make
 * processes, but only as its own children.
 */
static void refuse_processes(struct program *p, bool executes)
{
    const uint32_t never = NAMESPACES | CLONE_PARENT;

    refuse(p, __NR_clone3, ENOSYS); /* its flags are in memory, which a filter cannot read */
#ifdef __SANITIZE_ADDRESS__
    executes = true; /* this build's leak checker inspects its process from another process */
#endif
#ifdef __NR_fork
    if (!executes) {
        refuse(p, __NR_fork, EPERM);
        refuse(p, __NR_vfork, EPERM);
    }
#endif
    unsigned short begin = begin_call(p, __NR_clone);
    load_argument(p, 0);
    unless_any_bit_skip(p, never, 1);
    answer(p, REFUSE(EPERM));
    if (!executes) {
        unless_any_bit_skip(p, CLONE_THREAD, 1);
    }
    answer(p, ALLOW);
    end_call(p, begin, REFUSE(EPERM));
}

/* Refuse sockets. Netlink is kept: C libraries ask it for the machine's addresses. */
static void refuse_sockets(struct program *p, bool inet)
{
    const uint32_t families[] = {AF_UNIX, AF_NETLINK, AF_INET, AF_INET6};

    refuse_unless(p, __NR_socket, 0, families, inet ? 4 : 2);
    refuse_unless(p, __NR_socketpair, 0, families, 1);
}

/* Refuse to set owners. The kernel signals a descriptor's owner, so a process that chooses the
 * owner could send any signal to any process of the same user. */
static void refuse_owners(struct program *p)
{
    static const uint32_t commands[] = {F_DUPFD,      F_GETFD,      F_SETFD,     F_GETFL,
                                        F_GETLK,      F_SETLK,      F_SETLKW,    F_OFD_GETLK,
                                        F_OFD_SETLK,  F_OFD_SETLKW, DUPFD_QUERY, F_DUPFD_CLOEXEC,
                                        F_SETPIPE_SZ, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS};
    static const uint32_t requests[] = {FIOSETOWN, SIOCSPGRP, FIOASYNC,  TIOCSTI,
                                        TIOCLINUX, TIOCSIG,   TIOCSPGRP, TIOCSCTTY};
    unsigned short begin = begin_call(p, __NR_fcntl);

    answer_values(p, 1, commands, WEIR_COUNT(commands), ALLOW);
    unless_equal_skip(p, F_SETFL, 4);
    load_argument(p, 2);
    unless_any_bit_skip(p, O_ASYNC, 1); /* with O_ASYNC a terminal sets an owner by itself */
    answer(p, REFUSE(EPERM));
    answer(p, ALLOW);
    end_call(p, begin, REFUSE(EPERM));
    refuse_if(p, __NR_ioctl, 1, requests, WEIR_COUNT(requests));
}

/* Refuse a call of two arguments unless the first is this value and the second names this process,
 * or is 0: the thread that calls. */
static void refuse_unless_own(struct program *p, uint32_t call, uint32_t kind)
{
    const uint32_t self[] = {(uint32_t)getpid(), 0};
    unsigned short begin = begin_call(p, call);

    load_argument(p, 0);
    unless_equal_skip(p, kind, 5);
    answer_values(p, 1, self, 2, ALLOW);
    end_call(p, begin, REFUSE(EPERM));
}

/* Refuse to schedule other processes, and to move their memory. A thread names itself by 0: a
 * filter does not know the numbers of a process's threads. */
static void refuse_scheduling(struct program *p)
{
    static const uint32_t calls[] = {__NR_sched_setaffinity, __NR_sched_setparam,
                                     __NR_sched_setattr, __NR_migrate_pages, __NR_move_pages};
    static const uint32_t usual[] = {SCHED_OTHER};
    const uint32_t self[] = {(uint32_t)getpid(), 0};
    unsigned short begin = begin_call(p, __NR_sched_setscheduler);

    answer_values(p, 0, self, 2, ALLOW);
    answer_values(p, 1, usual, 1, ALLOW); /* libzmq's threads set what all threads have set */
    end_call(p, begin, REFUSE(EPERM));

    for (size_t i = 0; i < WEIR_COUNT(calls); i++) {
        refuse_unless(p, calls[i], 0, self, 2);
    }
    refuse_unless_own(p, __NR_setpriority, PRIO_PROCESS);
    refuse_unless_own(p, __NR_ioprio_set, IOPRIO_WHO_PROCESS);
}

/* All workers have one user: refuse what would let them kill each other, or evade their own end by
 * the death of their parent or the kill of their group. */
static void refuse_others(struct program *p)
{
    static const uint32_t options[] = {PR_SET_PDEATHSIG, SCHED_CORE};
    const uint32_t self[] = {(uint32_t)getpid(), 0}; /* only prlimit64 accepts 0 for the caller */

    refuse_unless(p, __NR_kill, 0, self, 1);
    refuse_unless(p, __NR_tgkill, 0, self, 1);
    refuse_unless(p, __NR_rt_sigqueueinfo, 0, self, 1);
    refuse_unless(p, __NR_rt_tgsigqueueinfo, 0, self, 1);
    refuse_unless(p, __NR_prlimit64, 0, self, 2);
    refuse_if(p, __NR_prctl, 0, options, WEIR_COUNT(options));
    refuse(p, __NR_setpgid, EPERM);
    refuse(p, __NR_setsid, EPERM);
}

static void make(struct program *p, unsigned keeps)
{
    refuse_other_architectures(p);
    refuse_owners(p); /* comes first, since the driver makes many of these calls */
#define WEIR_REFUSED(name) refuse(p, __NR_##name, EPERM);
#include "host_backend/confine/refused.def"
#undef WEIR_REFUSED
    if ((keeps & WEIR_CONFINE_KEEPS_EXEC) == 0) {
        refuse(p, __NR_execve, EPERM);
        refuse(p, __NR_execveat, EPERM);
    }
    refuse_processes(p, (keeps & WEIR_CONFINE_KEEPS_EXEC) != 0);
    refuse_sockets(p, (keeps & WEIR_CONFINE_KEEPS_INET) != 0);
    refuse_scheduling(p);
    if ((keeps & WEIR_CONFINE_KEEPS_OTHERS) == 0) {
        refuse_others(p);
    }
    answer(p, ALLOW);
}

enum weir_status weir_confine_refuse_calls(unsigned keeps)
{
    struct program p = {.n = 0};
    struct sock_fprog loaded = {.filter = p.code};

    make(&p, keeps);
    loaded.len = p.n;
    if (p.n > CODE_MAX || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &loaded) != 0) {
        return WEIR_ERR_UNSUPPORTED;
    }
    return WEIR_OK;
}

#else

enum weir_status weir_confine_refuse_calls(unsigned keeps)
{
    (void)keeps;
    return WEIR_ERR_UNSUPPORTED;
}

#endif
