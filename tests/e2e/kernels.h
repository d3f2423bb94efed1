/*
 * The kernels of the end-to-end tests' guests, as PTX text that every driver takes.
 *
 *     mix(p, n, a, b)    p[i] = p[i] * a + b
 *     spin(p, rounds)    every thread counts to rounds, thread 0 stores the count at p
 */
#ifndef WEIR_TESTS_E2E_KERNELS_H
#define WEIR_TESTS_E2E_KERNELS_H

static const char e2e_ptx[] __attribute__((unused)) =
    ".version 6.4\n"
    ".target sm_75\n"
    ".address_size 64\n"
    ".visible .entry mix(.param .u64 p, .param .u32 n, .param .u32 a, .param .u32 b)\n"
    "{\n"
    "    .reg .pred %q;\n"
    "    .reg .b32 %r<10>;\n"
    "    .reg .b64 %d<4>;\n"
    "    ld.param.u64 %d0, [p];\n"
    "    ld.param.u32 %r0, [n];\n"
    "    ld.param.u32 %r1, [a];\n"
    "    ld.param.u32 %r2, [b];\n"
    "    mov.u32 %r3, %ctaid.x;\n"
    "    mov.u32 %r4, %ntid.x;\n"
    "    mov.u32 %r5, %tid.x;\n"
    "    mad.lo.s32 %r6, %r3, %r4, %r5;\n"
    "    setp.ge.u32 %q, %r6, %r0;\n"
    "    @%q bra done;\n"
    "    cvta.to.global.u64 %d1, %d0;\n"
    "    mul.wide.u32 %d2, %r6, 4;\n"
    "    add.s64 %d3, %d1, %d2;\n"
    "    ld.global.u32 %r7, [%d3];\n"
    "    mad.lo.s32 %r8, %r7, %r1, %r2;\n"
    "    st.global.u32 [%d3], %r8;\n"
    "done:\n"
    "    ret;\n"
    "}\n"
    ".visible .entry spin(.param .u64 p, .param .u32 rounds)\n"
    "{\n"
    "    .reg .pred %q<2>;\n"
    "    .reg .b32 %r<4>;\n"
    "    .reg .b64 %d<2>;\n"
    "    ld.param.u64 %d0, [p];\n"
    "    ld.param.u32 %r0, [rounds];\n"
    "    mov.u32 %r1, 0;\n"
    "again:\n"
    "    add.u32 %r1, %r1, 1;\n"
    "    setp.lt.u32 %q0, %r1, %r0;\n"
    "    @%q0 bra again;\n"
    "    mov.u32 %r2, %tid.x;\n"
    "    setp.ne.u32 %q1, %r2, 0;\n"
    "    @%q1 bra done;\n"
    "    cvta.to.global.u64 %d1, %d0;\n"
    "    st.global.u32 [%d1], %r1;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

#endif
