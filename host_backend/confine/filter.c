/*
 * The list of refused system calls as a program of classic BPF, which the kernel runs at each call.
 *
 * The program first turns away calls of other architectures (32-bit and x32 ones have other
 * numbers), then compares the number with one row after the other. A row whose call depends on an
 * argument looks at it and decides. What no row names is allowed: the calls of NVIDIA's driver are
 * not known here. Arguments that are pointers cannot be looked at.
 *
 * Nothing kills: a worker under MPS that dies with work on the GPU ends the work of the server's
 * other clients.
 */
#include "host_backend/confine/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
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
#define CODE_MAX    256

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

/* The next instruction is for values that are equal; others skip so many. */
static void unless_equal_skip(struct program *p, uint32_t value, uint8_t count)
{
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count));
}

static void refuse(struct program *p, uint32_t call, uint32_t why)
{
    unless_equal_skip(p, call, 1);
    answer(p, REFUSE(why));
}

/* The lower half of an argument, which comes first: both architectures are little-endian. */
static void load_argument(struct program *p, unsigned argument)
{
    load(p, (uint32_t)(offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t)));
}

/* A call is refused unless the argument is one of these values. */
static void refuse_unless(struct program *p, uint32_t call, unsigned argument,
                          const uint32_t *values, uint8_t n)
{
    unless_equal_skip(p, call, (uint8_t)(2 * n + 2));
    load_argument(p, argument);
    for (uint8_t i = 0; i < n; i++) {
        unless_equal_skip(p, values[i], 1);
        answer(p, ALLOW);
    }
    answer(p, REFUSE(EPERM));
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

static void refuse_namespaces(struct program *p)
{
    refuse(p, __NR_clone3, ENOSYS); /* its flags lie in memory */
    unless_equal_skip(p, __NR_clone, 4);
    load_argument(p, 0);
    add(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1));
    answer(p, REFUSE(EPERM));
    answer(p, ALLOW);
}

/* Netlink is kept: C libraries ask it for the machine's addresses. */
static void refuse_sockets(struct program *p, bool inet)
{
    const uint32_t families[] = {AF_UNIX, AF_NETLINK, AF_INET, AF_INET6};

    refuse_unless(p, __NR_socket, 0, families, inet ? 4 : 2);
}

/* All workers are one user, so the kernel alone would let them kill each other. */
static void refuse_others(struct program *p)
{
    const uint32_t self[] = {(uint32_t)getpid(), 0}; /* 0 means oneself only to prlimit64 */

    refuse_unless(p, __NR_kill, 0, self, 1);
    refuse_unless(p, __NR_tgkill, 0, self, 1);
    refuse_unless(p, __NR_rt_sigqueueinfo, 0, self, 1);
    refuse_unless(p, __NR_rt_tgsigqueueinfo, 0, self, 1);
    refuse_unless(p, __NR_prlimit64, 0, self, 2);
}

static void make(struct program *p, unsigned keeps)
{
    refuse_other_architectures(p);
#define WEIR_REFUSED(name) refuse(p, __NR_##name, EPERM);
#include "host_backend/confine/refused.def"
#undef WEIR_REFUSED
    if ((keeps & WEIR_CONFINE_KEEPS_EXEC) == 0) {
        refuse(p, __NR_execve, EPERM);
        refuse(p, __NR_execveat, EPERM);
    }
    refuse_namespaces(p);
    refuse_sockets(p, (keeps & WEIR_CONFINE_KEEPS_INET) != 0);
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
