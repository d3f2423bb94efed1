/* Kernels, and looks at the program's own mappings, for the programs with registered memory. */
#pragma once

#include "tests/cuda/check_driver.h"
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE   4096
#define MAPPED CU_MEMHOSTREGISTER_DEVICEMAP

struct scenario {
    const char *name;
    void (*run)(void);
};

CHECK_UNUSED static const char registered_ptx[] =
    ".version 6.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry mix(.param .u64 p, .param .u32 n, .param .u32 a, .param .u32 b)\n{\n"
    ".reg .pred %q; .reg .b32 %r<9>; .reg .b64 %d<4>;\n"
    "ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n]; ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b];\n"
    "mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n"
    "mad.lo.u32 %r6, %r3, %r4, %r5; setp.ge.u32 %q, %r6, %r0; @%q ret;\n"
    "mul.wide.u32 %d1, %r6, 4; add.u64 %d2, %d0, %d1;\n"
    "ld.global.u32 %r7, [%d2]; mad.lo.u32 %r8, %r7, %r1, %r2; st.global.u32 [%d2], %r8; ret;\n}\n"
    ".visible .entry await(.param .u64 flag, .param .u64 out, .param .u32 v)\n{\n"
    ".reg .pred %q; .reg .b32 %r<3>; .reg .b64 %d<2>;\n"
    "ld.param.u64 %d0, [flag]; ld.param.u64 %d1, [out]; ld.param.u32 %r0, [v];\n"
    "L: ld.volatile.global.u32 %r1, [%d0]; setp.eq.u32 %q, %r1, 0; @%q bra L;\n"
    "st.volatile.global.u32 [%d1], %r0; ret;\n}\n"
    /* The address is in memory, or in a structure that is passed by value. */
    ".visible .entry follow(.param .u64 table)\n{\n"
    ".reg .b32 %r<2>; .reg .b64 %d<3>;\n"
    "ld.param.u64 %d0, [table]; ld.global.u64 %d1, [%d0];\n"
    "ld.global.u32 %r0, [%d1]; add.u32 %r1, %r0, 1; st.global.u32 [%d1], %r1; ret;\n}\n"
    ".visible .entry member(.param .align 8 .b8 s[24])\n{\n"
    ".reg .b32 %r<2>; .reg .b64 %d<2>;\n"
    "ld.param.u64 %d1, [s+16]; ld.global.u32 %r0, [%d1]; add.u32 %r1, %r0, 1;\n"
    "st.global.u32 [%d1], %r1; ret;\n}\n";

static CUmodule registered_module;
static CUfunction registered_mix; /* found before any stream waits: that may load code */

CHECK_UNUSED static CUfunction kernel(const char *name)
{
    return driver_function(registered_module, name);
}

/* Whole pages of the heap, all bytes 0. */
CHECK_UNUSED static char *pages(size_t n)
{
    void *at = NULL;

    if (posix_memalign(&at, PAGE, n * PAGE) != 0) {
        check_die("no memory");
    }
    return memset(at, 0, n * PAGE);
}

/* p[i] = p[i] * a + b for n words; the launch's result. */
CHECK_UNUSED static CUresult mix(CUdeviceptr p, unsigned n, unsigned a, unsigned b, CUstream stream)
{
    void *params[] = {&p, &n, &a, &b};

    return cu.LaunchKernel(registered_mix, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, params,
                           NULL);
}

/* A kernel that waits for the processor: *out = value when *flag is not 0. */
CHECK_UNUSED static void await_flag(CUdeviceptr flag, CUdeviceptr out, unsigned value,
                                    CUstream stream)
{
    void *params[] = {&flag, &out, &value};

    driver_launch(kernel("await"), 1, 1, stream, params);
}

/* Is a memory file of this name mapped there? */
CHECK_UNUSED static bool is_of_file(const void *at, const char *name)
{
    unsigned long from, to;
    bool found = false;
    char line[512];
    FILE *file = fopen("/proc/self/maps", "re");

    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (unsigned long)at >= from &&
            (unsigned long)at < to) {
            found = strstr(line, name) != NULL;
        }
    }
    if (file) {
        fclose(file);
    }
    return found;
}

/* Does memory of the worker's lie there? */
CHECK_UNUSED static bool is_replaced(const void *at)
{
    return is_of_file(at, "weir-registered");
}

/* Is it the program's own from now on: private, and zero after MADV_DONTNEED? */
CHECK_UNUSED static void check_private(char *at, size_t bytes, const char *label)
{
    char line[128];
    int good = !is_replaced(at) && !is_replaced(at + bytes - 1);

    memset(at, 7, bytes);
    good &= madvise(at, bytes, MADV_DONTNEED) == 0;
    for (size_t i = 0; i < bytes; i += 512) {
        good &= at[i] == 0;
    }
    snprintf(line, sizeof line, "%s: private memory again", label);
    check_true(good, line);
}

/* A child does something; its exit status. */
CHECK_UNUSED static int in_child(void (*fn)(void *), void *user)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        fn(user);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        check_die("no child");
    }
    return status;
}

/* Run the scenario that the first argument names. */
CHECK_UNUSED static int run_scenario(int argc, char **argv, const struct scenario *scenarios,
                                     size_t n)
{
    driver_begin("e2e_registered");
    DRV(cu.ModuleLoadData(&registered_module, registered_ptx));
    registered_mix = kernel("mix");
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && strcmp(scenarios[i].name, argv[1]) == 0) {
            scenarios[i].run();
            return check_end();
        }
    }
    check_die("no such scenario");
}
