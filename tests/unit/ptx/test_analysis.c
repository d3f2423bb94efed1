/*
 * What kernels contain. One row per fact, from the smallest text that has it: the facts of kernel k
 * must be those of the row and no others, and its forms what facts.def says they allow.
 */
#include "ptx/analysis.h"
#include "ptx/ptx.h"
#include "tests/lib/tl_cmocka.h"

#include <string.h>

#define HEAD ".version 9.0\n.target sm_90a\n.address_size 64\n"
#define REGS                                                                                       \
    ".reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %d<16>; .reg .f32 %f<16>; .reg .pred %p<8>;\n"

struct row {
    enum weir_ptx_fact fact;
    const char *before; /* at module scope */
    const char *body;
    uint64_t also; /* other facts that such a text cannot do without */
};

#define F(name) (1ull << WEIR_PTX_FACT_##name)
#define ROW(name, ...)                                                                             \
    {                                                                                              \
        WEIR_PTX_FACT_##name, __VA_ARGS__                                                          \
    }
#define BODY(name, text)    ROW(name, "", text, 0)
#define BAR(name, text)     ROW(name, "", text, F(BARRIER))
#define COPY(text, ...)     ROW(BULK, "", text, __VA_ARGS__)
#define FUNC(name, text, b) ROW(name, text, b, 0)

static const struct row rows[] = {
    ROW(GRID_SYNC, "", "mov.u32 %r1, %envreg2;", 0),
    ROW(GRID_SYNC, ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 a);\n",
        "{ .param .b32 a; .param .b64 x; call.uni (x), cudaCGGetIntrinsicHandle, (a); }", 0),
    ROW(POLL, "", "L: ld.volatile.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
        F(STRONG_ACCESS)),
    BODY(CLUSTER, "barrier.cluster.arrive; barrier.cluster.wait;"),
    BODY(CLUSTER, "mapa.u64 %d1, %d2, %r1;"),
    ROW(CLUSTER, "", "mov.u32 %r1, %cluster_ctarank;", F(CLUSTER_SREG)),
    ROW(LAUNCH_CONTROL, "",
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
        "[%d1], [%d2];",
        0),
    BODY(PDL, "griddepcontrol.wait;"),
    ROW(CHILD_LAUNCH, ".extern .func (.param .b32 r) cudaLaunchDevice (.param .b64 a);\n",
        "{ .param .b64 a; .param .b32 x; call.uni (x), cudaLaunchDevice, (a); }", 0),
    BODY(GRID_ID, "mov.u64 %d1, %gridid;"),
    BODY(ENVREG, "mov.u32 %r1, %envreg7;"),
    ROW(UNKNOWN_CALL, ".extern .func elsewhere ();\n", "call elsewhere, ();", 0),
    ROW(INDIRECT_GRID,
        ".visible .func f () { .reg .b32 %r<2>; mov.u32 %r1, %ctaid.x; ret; }\n"
        ".global .u64 table[1] = {f};\n",
        "ld.global.u64 %d1, [table]; P: .callprototype _ (); call %d1, (), P;",
        F(INDIRECT_CALL) | F(CTAID) | F(GRID_IN_FUNC) | F(GLOBAL_VAR)),
    ROW(TEXREF, ".global .texref t;\n", "tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [t, {%r5}];",
        F(TEXTURE) | F(GLOBAL_VAR)),
    BODY(MBARRIER, "mbarrier.init.shared.b64 [%d1], 1;"),
    COPY("cp.async.bulk.prefetch.L2.global [%d1], 128;", 0),
    COPY("cp.async.bulk.global.shared::cta.bulk_group [%d1], [%d2], 128;", 0),
    COPY("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%d1], %r1, [%d2];", 0),
    ROW(WGMMA, "", "wgmma.fence.sync.aligned;", 0),
    BODY(SETMAXNREG, "setmaxnreg.inc.sync.aligned.u32 96;"),
    ROW(EXIT_IN_FUNC, ".func f () { exit; }\n", "call f, ();", 0),
    ROW(ALLOCA, "", "alloca.u64 %d1, 16;", 0),
    BAR(BARRIER_DYNAMIC, "barrier.sync %r1;"),
    BAR(NO_FREE_BARRIER,
        "bar.sync 0; bar.sync 1; bar.sync 2; bar.sync 3; bar.sync 4; bar.sync 5; bar.sync 6;"
        "bar.sync 7; bar.sync 8; bar.sync 9; bar.sync 10; bar.sync 11; bar.sync 12; bar.sync 13;"
        "bar.sync 14; bar.sync 15;"),
    ROW(BARRIER_ARRIVE, "", "bar.arrive 1, 64;", F(BARRIER) | F(BARRIER_COUNTED)),
    ROW(EARLY_EXIT_RED, "",
        "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret; bar.red.or.pred %p2, 0, %p1;",
        F(EARLY_EXIT) | F(BARRIER) | F(BARRIER_RED)),
    ROW(EARLY_EXIT_INDIRECT,
        ".visible .func f () { bar.sync 0; ret; }\n.global .u64 table[1] = {f};\n",
        "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret; ld.global.u64 %d1, [table];"
        "P: .callprototype _ (); call %d1, (), P;",
        F(EARLY_EXIT) | F(BARRIER) | F(INDIRECT_CALL) | F(GLOBAL_VAR)),
    ROW(EARLY_EXIT_SEVERAL, "",
        "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret; bar.sync 0; bar.sync 1;",
        F(EARLY_EXIT) | F(BARRIER)),
    ROW(EARLY_EXIT_MASK, "",
        "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret;\n"
        "shfl.sync.down.b32 %r2, %r3, 1, 31, 0xffff;",
        F(EARLY_EXIT_WARP)),
    ROW(EARLY_EXIT_BOTH, "",
        "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret; bar.sync 0;\n"
        "shfl.sync.down.b32 %r2, %r3, 1, 31, -1;",
        F(EARLY_EXIT_WARP) | F(EARLY_EXIT) | F(BARRIER)),
    ROW(EARLY_EXIT_WARP, "",
        "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret;\n"
        "shfl.sync.down.b32 %r2, %r3, 1, 31, -1;",
        0),
    BODY(BARRIER, "bar.sync 0;"),
    BAR(BARRIER_COUNTED, "bar.sync 1, 64;"),
    BAR(BARRIER_RED, "barrier.red.popc.u32 %r1, 0, %p1;"),
    BODY(BARRIER_WARP, "bar.warp.sync -1;"),
    BAR(EARLY_EXIT, "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret; bar.sync 0;"),
    BODY(CP_ASYNC, "cp.async.ca.shared.global [%d1], [%d2], 16;"),
    BODY(CTAID, "mov.u32 %r1, %ctaid.y;"),
    BODY(NCTAID, "mov.u32 %r1, %nctaid.x;"),
    ROW(GRID_IN_FUNC, ".func f () { .reg .b32 %r<2>; mov.u32 %r1, %nctaid.x; ret; }\n",
        "call f, ();", F(NCTAID)),
    ROW(GRID_VECTOR, "", "mov.v4.u32 {%r1, %r2, %r3, %r4}, %ctaid;", F(CTAID)),
    BODY(CLUSTER_SREG, "mov.pred %p1, %is_explicit_cluster;"),
    BODY(SMID, "mov.u32 %r1, %smid;"),
    BODY(CLOCK, "mov.u64 %d1, %globaltimer;"),
    ROW(INDIRECT_CALL, ".visible .func f () { ret; }\n",
        "mov.u64 %d1, f; P: .callprototype _ (); call %d1, (), P;", 0),
    ROW(RECURSION,
        ".func f ();\n.func g () { call f, (); ret; }\n.func f () { call g, (); ret; }\n",
        "call f, ();", 0),
    BODY(GLOBAL_ATOMIC, "red.global.add.u32 [%d1], 1;"),
    BODY(STRONG_ACCESS, "st.release.gpu.global.u32 [%d1], %r1;"),
    FUNC(GLOBAL_VAR, ".global .u32 g;\n", "ld.global.u32 %r1, [g];"),
    ROW(MANAGED_VAR, ".global .attribute(.managed) .u32 g;\n", "ld.global.u32 %r1, [g];",
        F(GLOBAL_VAR)),
    FUNC(DYNAMIC_SHARED, ".extern .shared .align 16 .b8 s[];\n", "ld.shared.u32 %r1, [s];"),
    BODY(LOCAL, "{ .local .align 4 .b8 l[16]; st.local.u32 [l], %r1; }"),
    BODY(TEXTURE, "tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d1, {%r5}];"),
    BODY(SURFACE_STORE, "sust.b.1d.b32.trap [%d1, {%r1}], %r2;"),
    ROW(PRINTF, ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n",
        "{ .param .b64 a; .param .b64 b; .param .b32 r; call.uni (r), vprintf, (a, b); }", 0),
    ROW(HEAP, ".extern .func free (.param .b64 a);\n", "{ .param .b64 a; call free, (a); }", 0),
    ROW(ASSERT, ".extern .func __assertfail (.param .b64 a);\n",
        "{ .param .b64 a; call __assertfail, (a); }", 0),
    BODY(TRAP, "@%p1 trap;"),
    BODY(BRKPT, "@%p1 brkpt;"),
    BODY(NANOSLEEP, "nanosleep.u32 100;"),
};

/* Analyse a text; the module is kept in *ret_module. */
static struct weir_ptx_analysis *analyse(const char *text, uint32_t flags,
                                         struct weir_ptx_module **ret_module)
{
    struct weir_ptx_analysis *analysis = NULL;
    struct weir_diag diag = {0};

    if (weir_ptx_parse(text, strlen(text), 0, &diag, ret_module) != WEIR_OK) {
        fail_msg("%u:%u: %s\n%s", diag.line, diag.column, diag.message, text);
    }
    assert_int_equal(weir_ptx_analyze(*ret_module, flags, &analysis), WEIR_OK);
    return analysis;
}

/* Kernel k of a module made of head, what comes before and a body. */
struct one {
    struct weir_ptx_module *module;
    struct weir_ptx_analysis *analysis;
    const struct weir_ptx_kernel *kernel;
};

static struct one one_kernel(const char *before, const char *body, uint32_t flags)
{
    char text[8192];
    struct one one;

    snprintf(text, sizeof(text),
             "%s%s.visible .entry k(.param .u64 a, .param .u32 n)\n{ %s%s\nret; }\n", HEAD, before,
             REGS, body);
    one.analysis = analyse(text, flags, &one.module);
    one.kernel = weir_ptx_analysis_find(one.analysis, "k");
    assert_non_null(one.kernel);
    return one;
}

static void finish(struct one *one)
{
    weir_ptx_analysis_destroy(one->analysis);
    weir_ptx_destroy(one->module);
}

static uint64_t facts_of(const char *before, const char *body)
{
    struct one one = one_kernel(before, body, 0);
    uint64_t facts = one.kernel->facts;

    finish(&one);
    return facts;
}

static bool polls(const char *body)
{
    return (facts_of("", body) & F(POLL)) != 0;
}

static void show(const char *what, uint64_t facts)
{
    print_message("%s:", what);
    for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
        if (facts >> i & 1) {
            print_message(" %s", weir_ptx_fact_info((enum weir_ptx_fact)i)->key);
        }
    }
    print_message("\n");
}

static void check_forms(const struct weir_ptx_kernel *kernel)
{
    for (int form = 0; form < WEIR_PTX_FORM_COUNT; form++) {
        bool refused = false;

        for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
            refused |= (kernel->facts >> i & 1) &&
                       (weir_ptx_fact_info((enum weir_ptx_fact)i)->refuses >> form & 1);
        }
        assert_int_equal(weir_ptx_kernel_admits(kernel, (enum weir_ptx_form)form), !refused);
        assert_int_equal(weir_ptx_kernel_why_not(kernel, (enum weir_ptx_form)form) != NULL,
                         refused);
    }
}

static void analyze_text_of_each_fact_has_it_and_no_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct weir_ptx_fact_info *info = weir_ptx_fact_info(rows[i].fact);
        struct one one = one_kernel(rows[i].before, rows[i].body, 0);
        uint64_t want = 1ull << rows[i].fact | rows[i].also;
        const struct weir_ptx_place *place = &one.kernel->places[rows[i].fact];

        if (one.kernel->facts != want) {
            show("wanted", want);
            show("found", one.kernel->facts);
            fail_msg("%s", info->key);
        }
        assert_non_null(place->func);
        assert_true(place->count > 0);
        assert_true(place->inst == WEIR_PTX_NONE || place->inst < place->func->n_insts);
        check_forms(one.kernel);
        finish(&one);
    }
}

static void facts_table_has_a_row_here_for_each(void **state)
{
    uint64_t seen = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        seen |= 1ull << rows[i].fact;
    }
    /* tcgen05 needs another target: analyze_tensor_memory_is_found() */
    seen |= F(TENSOR_MEMORY);
    if (seen != (1ull << WEIR_PTX_FACT_COUNT) - 1) {
        show("no test for", ~seen & ((1ull << WEIR_PTX_FACT_COUNT) - 1));
        fail();
    }
}

static void facts_table_has_a_sentence_where_it_refuses(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
        const struct weir_ptx_fact_info *info = weir_ptx_fact_info((enum weir_ptx_fact)i);

        assert_true(info->key[0] && info->says[0]);
        assert_int_equal(info->why != NULL, info->refuses != 0);
        assert_false(info->refuses & 1u << WEIR_PTX_FORM_ORIGINAL);
        assert_null(strpbrk(info->says, "\"\\"));
        assert_null(info->why ? strpbrk(info->why, "\"\\") : NULL);
    }
}

static void form_text_is_found_again(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_PTX_FORM_COUNT; i++) {
        assert_int_equal(weir_ptx_form_from_text(weir_ptx_form_text((enum weir_ptx_form)i)), i);
    }
    assert_int_equal(weir_ptx_form_from_text("sliced"), WEIR_PTX_FORM_COUNT);
}

static void analyze_cluster_directive_is_found(void **state)
{
    struct weir_ptx_module *module;
    struct weir_ptx_analysis *analysis = analyse(
        HEAD ".entry k() .reqnctapercluster 2, 1, 1 { ret; }\n.entry o() { ret; }\n", 0, &module);

    (void)state;
    assert_int_equal(analysis->n_kernels, 2);
    assert_int_equal(analysis->kernels[0].facts, F(CLUSTER));
    assert_int_equal(analysis->kernels[0].places[WEIR_PTX_FACT_CLUSTER].inst, WEIR_PTX_NONE);
    assert_int_equal(analysis->kernels[1].facts, 0);
    assert_int_equal(analysis->kernels[1].forms, (1u << WEIR_PTX_FORM_COUNT) - 1);
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
}

static void analyze_tensor_memory_is_found(void **state)
{
    struct weir_ptx_module *module;
    struct weir_ptx_analysis *analysis =
        analyse(".version 9.0\n.target sm_100a\n.address_size 64\n.entry k() {\n"
                "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; ret; }\n",
                0, &module);

    (void)state;
    assert_int_equal(analysis->kernels[0].facts, F(TENSOR_MEMORY));
    check_forms(&analysis->kernels[0]);
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
}

/* Loops that wait, and loops that only look as if they did. */

static void analyze_loops_that_wait_are_found(void **state)
{
    static const char *const texts[] = {
        /* a lock */
        "L: atom.global.cas.b32 %r1, [%d1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;",
        /* one thread polls, the others are told through shared memory */
        "mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0;\n"
        "L: @%p1 bra M; ld.acquire.gpu.global.u32 %r1, [%d1]; st.shared.u32 [%d2], %r1;\n"
        "M: bar.sync 0; ld.shared.u32 %r3, [%d2]; setp.eq.u32 %p2, %r3, 0; @%p2 bra L;",
        /* ... through a vote */
        "L: ld.relaxed.gpu.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0;\n"
        "vote.sync.any.pred %p2, %p1, -1; @%p2 bra L;",
        /* plain loads of one place */
        "L: ld.global.u32 %r1, [%d1]; membar.gl; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
        /* ... counting what does not matter */
        "mov.u32 %r2, 0;\n"
        "L: ld.global.u32 %r1, [%d1]; add.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
        /* ... of one place after the other, in two loops with one head */
        "mov.u32 %r2, 0;\n"
        "L: mul.wide.u32 %d2, %r2, 4; add.u64 %d2, %d1, %d2; ld.global.u32 %r1, [%d2];\n"
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra L; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 9;\n"
        "@%p2 bra L;",
        /* ... by a function */
        "L: { .param .b32 r; call (r), get, (); ld.param.u32 %r1, [r]; }\n"
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
        /* leaving a loop in the middle */
        "mov.u32 %r2, 0; L: ld.volatile.global.u32 %r1, [%d1]; setp.ne.u32 %p1, %r1, 0;\n"
        "@%p1 bra M; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 100; @%p2 bra L; M:",
        /* many places in turn, again and again */
        "mov.u32 %r2, 0;\n"
        "L: add.u32 %r2, %r2, 4; and.b32 %r2, %r2, 63; cvt.u64.u32 %d2, %r2;\n"
        "add.u64 %d2, %d1, %d2; ld.volatile.global.u32 %r1, [%d2]; setp.eq.u32 %p1, %r1, 0;\n"
        "@%p1 bra L;",
        /* a compare-and-swap, tried only when the lock looks free */
        "L: ld.volatile.global.u32 %r1, [%d1]; setp.ne.u32 %p1, %r1, 0; @%p1 bra L;\n"
        "atom.global.cas.b32 %r2, [%d1], %r1, 1; setp.ne.u32 %p2, %r2, %r1; @%p2 bra L;",
        /* a compare-and-swap whose expectation is not renewed */
        "L: atom.global.cas.b32 %r2, [%d1], %r1, 1; setp.ne.u32 %p2, %r2, %r1; @%p2 bra L;",
        /* ... and one that goes on while it succeeds */
        "L: atom.global.cas.b32 %r2, [%d1], %r1, 1; setp.eq.u32 %p2, %r2, %r1; mov.u32 %r1, %r2;\n"
        "@%p2 bra L;",
        /* two counters, each waiting for the other */
        "L: atom.global.add.u32 %r1, [%d1], 1; ld.volatile.global.u32 %r2, [%d2];\n"
        "setp.lt.u32 %p1, %r1, %r2; @%p1 bra L;",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (!(facts_of(".global .u32 g;\n.func (.param .b32 r) get () { .reg .b32 %r<2>;\n"
                       "ld.global.u32 %r1, [g]; st.param.b32 [r], %r1; ret; }\n",
                       texts[i]) &
              F(POLL))) {
            fail_msg("not found: %s", texts[i]);
        }
    }
}

static void analyze_loops_that_end_by_themselves_are_left_out(void **state)
{
    static const char *const texts[] = {
        /* over data, left early because of it */
        "mov.u32 %r2, 0;\n"
        "L: mul.wide.u32 %d2, %r2, 4; add.u64 %d2, %d1, %d2; ld.global.u32 %r1, [%d2];\n"
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra M; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 9;\n"
        "@%p2 bra L; M:",
        /* along a list */
        "L: ld.global.u64 %d1, [%d1+8]; setp.ne.u64 %p1, %d1, 0; @%p1 bra L;",
        /* a bisection */
        "mov.u32 %r1, 0; mov.u32 %r2, 64;\n"
        "L: add.u32 %r3, %r1, %r2; shr.u32 %r3, %r3, 1; mul.wide.u32 %d2, %r3, 4;\n"
        "add.u64 %d2, %d1, %d2; ld.global.u32 %r4, [%d2]; setp.lt.u32 %p1, %r4, 7;\n"
        "@%p1 bra A; add.u32 %r2, %r3, -1; bra.uni B; A: add.u32 %r1, %r3, 1;\n"
        "B: setp.lt.u32 %p2, %r1, %r2; @%p2 bra L;",
        /* a bound that is loaded each time */
        "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; st.global.u32 [%d2], %r2;\n"
        "ld.global.u32 %r1, [%d1]; setp.lt.u32 %p1, %r2, %r1; @%p1 bra L;",
        /* atomics whose results are stored only */
        "mov.u32 %r2, 0; L: atom.global.exch.b32 %r1, [%d1], %r2; st.global.u32 [%d2], %r1;\n"
        "add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 9; @%p1 bra L;",
        /* ... or choose what one turn does */
        "mov.u32 %r2, 0; L: atom.global.exch.b32 %r1, [%d1], %r2; setp.eq.u32 %p2, %r1, 0;\n"
        "@%p2 bra M; mov.u32 %r3, 1; M: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 9;\n"
        "@%p1 bra L;",
        /* a queue of work */
        "L: atom.global.add.u32 %r1, [%d1], 1; setp.ge.u32 %p1, %r1, 100; @%p1 bra M;\n"
        "mul.wide.u32 %d2, %r1, 4; st.global.u32 [%d2], %r1; bra.uni L; M:",
        /* compare-and-swap with what was found */
        "ld.global.u32 %r1, [%d1]; L: add.u32 %r2, %r1, 3;\n"
        "atom.global.cas.b32 %r3, [%d1], %r1, %r2; setp.ne.u32 %p1, %r3, %r1; mov.u32 %r1, %r3;\n"
        "@%p1 bra L;",
        /* ... left early, too */
        "ld.global.u32 %r1, [%d1]; L: setp.gt.u32 %p2, %r1, %r4; @%p2 bra M;\n"
        "atom.global.cas.b32 %r3, [%d1], %r1, %r4; setp.ne.u32 %p1, %r1, %r3; mov.u32 %r1, %r3;\n"
        "@%p1 bra L; M:",
        /* ... or with what is loaded again */
        "L: ld.relaxed.gpu.global.u32 %r1, [%d1]; add.u32 %r2, %r1, 3;\n"
        "atom.global.cas.b32 %r3, [%d1], %r1, %r2; setp.eq.u32 %p1, %r3, %r1; @!%p1 bra L;",
        /* ... in a loop over data */
        "mov.u32 %r5, 0; N: ld.global.u32 %r1, [%d1]; L: add.u32 %r2, %r1, 3;\n"
        "atom.global.cas.b32 %r3, [%d1], %r1, %r2; setp.ne.u32 %p1, %r3, %r1; mov.u32 %r1, %r3;\n"
        "@%p1 bra L; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 9; @%p2 bra N;",
        /* a barrier object of the block */
        "L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%d1], 0; @!%p1 bra L;",
        /* shared memory, which only the block writes */
        "L: bar.sync 0; ld.volatile.shared.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;",
        /* a clock */
        "L: mov.u64 %d2, %clock64; ld.global.u64 %d3, [%d1]; setp.lt.u64 %p1, %d2, %d3;\n"
        "@%p1 bra L;",
        /* parameters and constants stay as they are */
        "mov.u32 %r2, 0; L: ld.param.u32 %r1, [n]; ld.global.u32 %r3, [%d1];\n"
        "add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra L;",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (polls(texts[i])) {
            fail_msg("found: %s", texts[i]);
        }
    }
}

static void analyze_recursion_that_looks_is_a_wait(void **state)
{
    (void)state;
    assert_int_equal(facts_of(".func f () { .reg .b32 %r<2>; .reg .b64 %d<2>;\n"
                              "ld.volatile.global.u32 %r1, [%d1]; call f, (); ret; }\n",
                              "call f, ();"),
                     F(POLL) | F(RECURSION) | F(STRONG_ACCESS));
}

/* Early exits */

static void analyze_early_exit_needs_parted_threads(void **state)
{
    static const struct {
        const char *name, *body;
        bool early;
    } cases[] = {
        {"by parameter", "ld.param.u32 %r1, [n]; setp.eq.u32 %p1, %r1, 0; @%p1 ret; bar.sync 0;",
         false},
        {"by block", "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 exit; bar.sync 0;",
         false},
        {"by thread", "mov.u32 %r1, %laneid; setp.eq.u32 %p1, %r1, 0; @%p1 exit; bar.sync 0;",
         true},
        {"by memory", "ld.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 exit; bar.sync 0;",
         true},
        {"by carry",
         "mov.u32 %r1, %tid.x; add.cc.u32 %r2, %r1, -5; addc.u32 %r3, 0, 0;\n"
         "setp.eq.u32 %p1, %r3, 0; @%p1 exit; bar.sync 0;",
         true},
        {"after the barrier", "bar.sync 0; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 ret;",
         false},
        {"joined before it",
         "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra L; add.u32 %r2, %r2, 1;\n"
         "L: bar.sync 0;",
         false},
        {"by what was written while parted",
         "mov.u32 %r2, 0; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 bra L;\n"
         "mov.u32 %r2, 1; L: setp.eq.u32 %p2, %r2, 0; @%p2 ret; bar.sync 0;",
         true},
        {"by turns of a loop",
         "mov.u32 %r2, 0; mov.u32 %r1, %tid.x; L: add.u32 %r2, %r2, 1;\n"
         "setp.lt.u32 %p1, %r2, %r1; @%p1 bra L; setp.eq.u32 %p2, %r2, 3; @%p2 ret; bar.sync 0;",
         true},
        {"counted only", "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 ret; bar.sync 1, 32;",
         false},
        {"endless",
         "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 bra M;\n"
         "L: bar.sync 0; bra L; M:",
         true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (((facts_of("", cases[i].body) & F(EARLY_EXIT)) != 0) != cases[i].early) {
            fail_msg("%s", cases[i].name);
        }
    }
}

static void analyze_masks_after_early_exits_are_told_apart(void **state)
{
    static const char part[] = "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9;\n";
    static const char functions[] =
        ".func f () { bar.warp.sync -1; ret; }\n"
        ".func g () { .reg .b32 r; .reg .pred p; mov.u32 r, %tid.x; setp.eq.u32 p, r, 1;\n"
        "@p bra L; bar.warp.sync -1; L: ret; }\n";
    static const uint64_t warp = F(EARLY_EXIT_WARP),
                          other = F(EARLY_EXIT_WARP) | F(EARLY_EXIT_MASK);
    const struct {
        const char *name, *body;
        uint64_t facts;
    } cases[] = {
        {"full mask", "@%p1 ret; vote.sync.all.pred %p2, %p3, -1;", warp},
        {"full mask in a register", "@%p1 ret; mov.b32 %r2, -1; bar.warp.sync %r2;", warp},
        {"mask from memory", "ld.global.u32 %r2, [%d1]; @%p1 ret; bar.warp.sync %r2;", other},
        {"active threads", "@%p1 ret; activemask.b32 %r2; redux.sync.add.s32 %r3, %r4, %r2;", warp},
        {"ballot", "@%p1 ret; vote.sync.ballot.b32 %r2, %p3, -1; bar.warp.sync %r2;", warp},
        {"match", "@%p1 ret; match.any.sync.b32 %r2, %r3, -1; elect.sync %r5|%p2, %r2;", warp},
        {"ballot before the exit",
         "vote.sync.ballot.b32 %r2, %p3, -1; @%p1 ret; bar.warp.sync %r2;", other},
        {"changed ballot",
         "@%p1 ret; vote.sync.ballot.b32 %r2, %p3, -1; or.b32 %r2, %r2, 255; bar.warp.sync %r2;",
         other},
        {"by some only", "@%p1 ret; activemask.b32 %r2; @%p2 bar.warp.sync %r2;", other},
        {"before", "bar.warp.sync -1; @%p1 ret; add.u32 %r2, %r2, 1;", 0},
        {"by block", "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 1; @%p2 ret; bar.warp.sync -1;",
         0},
        {"return at the end", "@%p1 bra L; bar.warp.sync -1; L:", warp},
        {"parted, some may run ahead", "@%p1 bra L; bar.warp.sync 255; L: add.u32 %r2, %r2, 1;",
         other},
        {"parted, all wait for a barrier", "@%p1 bra L; bar.warp.sync 255; L: bar.sync 0;", 0},
        {"parted, all wait for the warp", "@%p1 bra L; bar.warp.sync 255; L: bar.warp.sync -1;", 0},
        {"parted, some wait",
         "@%p1 bra L; bar.warp.sync 255; L: @%p2 bra M; bar.sync 0; M:", other},
        {"parted in a function", "call g, (); bar.sync 0;", warp},
        {"in a function", "@%p1 ret; call f, ();", warp},
        {"in a function before", "call f, (); @%p1 ret; add.u32 %r2, %r2, 1;", 0},
        {"matrices", "@%p1 ret; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[512];

        snprintf(body, sizeof(body), "%s%s", part, cases[i].body);
        if ((facts_of(functions, body) & other) != cases[i].facts) {
            fail_msg("%s", cases[i].name);
        }
    }
}

static void analyze_function_called_by_some_threads_is_parted(void **state)
{
    static const char func[] = ".func f () { bar.sync 0; ret; }\n";
    static const char part[] = "mov.u32 %r1, %tid.x; setp.gt.u32 %p1, %r1, 9; @%p1 bra L;\n"
                               "call f, (); L:";

    (void)state;
    assert_int_equal(facts_of(func, "call f, ();"), F(BARRIER));
    assert_int_equal(facts_of(func, part), F(BARRIER) | F(EARLY_EXIT));
}

static void analyze_parameters_of_functions_vary(void **state)
{
    static const char func[] = ".func f (.reg .u32 n) { .reg .pred p; setp.eq.u32 p, n, 0;\n"
                               "@p bra L; bar.sync 0; L: ret; }\n";

    (void)state;
    assert_true(facts_of(func, "call f, (%r1);") & F(EARLY_EXIT));
}

/* Calls */

static void analyze_pointers_of_own_module_admit_more(void **state)
{
    static const char before[] =
        ".visible .func f () { .reg .b32 %r<2>; mov.u32 %r1, %ctaid.x; bar.sync 0; ret; }\n";
    static const char body[] = "mov.u64 %d1, f; P: .callprototype _ (); call %d1, (), P;";
    struct one one = one_kernel(before, body, 0);

    (void)state;
    assert_true(weir_ptx_kernel_has(one.kernel, WEIR_PTX_FACT_INDIRECT_GRID));
    assert_true(weir_ptx_kernel_has(one.kernel, WEIR_PTX_FACT_EARLY_EXIT_INDIRECT));
    assert_int_equal(one.kernel->forms, 1u << WEIR_PTX_FORM_ORIGINAL);
    finish(&one);
    one = one_kernel(before, body, WEIR_PTX_ASSUME_OWN_POINTERS);
    assert_false(weir_ptx_kernel_has(one.kernel, WEIR_PTX_FACT_INDIRECT_GRID));
    assert_true(weir_ptx_kernel_has(one.kernel, WEIR_PTX_FACT_EARLY_EXIT_INDIRECT));
    assert_int_equal(one.kernel->forms,
                     (1u << WEIR_PTX_FORM_COUNT) - 1 - (1u << WEIR_PTX_FORM_PERSISTENT));
    assert_int_equal(one.kernel->n_funcs, 2);
    finish(&one);
}

static void analyze_pointer_to_nothing_known_is_refused(void **state)
{
    (void)state;
    assert_int_equal(facts_of("", "P: .callprototype _ (); call %d1, (), P;"),
                     F(INDIRECT_CALL) | F(UNKNOWN_CALL));
    assert_int_equal(facts_of(".extern .func e ();\n.global .u64 t[1] = {e};\n",
                              "ld.global.u64 %d1, [t]; P: .callprototype _ (); call %d1, (), P;"),
                     F(INDIRECT_CALL) | F(UNKNOWN_CALL) | F(GLOBAL_VAR));
}

static void analyze_kernel_has_facts_of_what_it_calls_only(void **state)
{
    struct weir_ptx_module *module;
    struct weir_ptx_analysis *analysis = analyse(
        HEAD
        ".shared .align 8 .b8 s[24];\n.shared .align 16 .b8 u[8];\n"
        ".func h () { .reg .b32 r; .local .b8 x[12]; ld.shared.u32 r, [s]; bar.sync 3; ret; }\n"
        ".func g () { call h, (); ret; }\n.func i ();\n.alias i, g;\n"
        ".entry a() { .reg .b32 r; .shared .b32 w; ld.shared.u32 r, [u];\n"
        "ld.shared.u32 r, [u+4]; call i, (); call g, (); ret; }\n"
        ".entry b(.param .b64 x) { bar.sync 1, 64; bar.sync 1, 64; ret; }\n",
        0, &module);
    const struct weir_ptx_kernel *a = weir_ptx_analysis_find(analysis, "a");
    const struct weir_ptx_kernel *b = weir_ptx_analysis_find(analysis, "b");

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    assert_null(weir_ptx_analysis_find(analysis, "g"));
    assert_int_equal(a->facts, F(BARRIER) | F(LOCAL));
    assert_int_equal(a->n_funcs, 3);
    assert_ptr_equal(a->funcs[0], a->entry);
    assert_string_equal(a->places[WEIR_PTX_FACT_BARRIER].func->name, "h");
    assert_int_equal(a->barriers[3].n_sync, 1);
    assert_int_equal(a->barriers_used, 1u << 3);
    assert_int_equal(a->free_barrier, 15);
    assert_int_equal(a->local_bytes, 12);
    /* w 4 bytes, u at 16, s at 24 */
    assert_int_equal(a->shared_static_bytes, 48);
    assert_int_equal(a->shared_align, 16);
    assert_int_equal(a->n_insts, 5 + 2 + 3);
    assert_int_equal(a->n_exits, 1);
    assert_int_equal(b->facts, F(BARRIER) | F(BARRIER_COUNTED));
    assert_int_equal(b->barriers[1].n_sync, 2);
    assert_int_equal(b->barriers[1].n_counted, 2);
    assert_int_equal(b->barriers[1].threads, 64);
    assert_int_equal(b->params_size_bytes, 8);
    assert_int_equal(b->params_max_bytes, 32764);
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
}

static void analyze_barriers_are_counted_by_number(void **state)
{
    struct one one =
        one_kernel("",
                   "bar.sync 15; bar.sync 2, 64; barrier.sync 2, 96; bar.arrive 2, 64;\n"
                   "bar.red.popc.u32 %r1, 2, 32, %p1; bar.sync 14, %r1;",
                   0);

    (void)state;
    assert_int_equal(one.kernel->barriers[2].n_sync, 2);
    assert_int_equal(one.kernel->barriers[2].n_arrive, 1);
    assert_int_equal(one.kernel->barriers[2].n_red, 1);
    assert_int_equal(one.kernel->barriers[2].n_counted, 4);
    assert_int_equal(one.kernel->barriers[2].threads, 0);
    assert_int_equal(one.kernel->barriers[14].n_counted, 1);
    assert_int_equal(one.kernel->barriers_used, 1u << 15 | 1u << 14 | 1u << 2);
    assert_int_equal(one.kernel->free_barrier, 13);
    finish(&one);
}

static void analyze_old_version_has_small_parameters(void **state)
{
    struct weir_ptx_module *module;
    struct weir_ptx_analysis *analysis =
        analyse(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n", 0, &module);

    (void)state;
    assert_int_equal(analysis->kernels[0].params_max_bytes, 4352);
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
}

static void analyze_module_without_kernels_is_empty(void **state)
{
    struct weir_ptx_module *module;
    struct weir_ptx_analysis *analysis =
        analyse(HEAD ".func f () { ret; }\n.entry k();\n", 0, &module);

    (void)state;
    assert_int_equal(analysis->n_kernels, 0);
    assert_null(weir_ptx_analysis_find(analysis, "f"));
    weir_ptx_analysis_destroy(analysis);
    weir_ptx_destroy(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(analyze_text_of_each_fact_has_it_and_no_other),
        cmocka_unit_test(facts_table_has_a_row_here_for_each),
        cmocka_unit_test(facts_table_has_a_sentence_where_it_refuses),
        cmocka_unit_test(form_text_is_found_again),
        cmocka_unit_test(analyze_cluster_directive_is_found),
        cmocka_unit_test(analyze_tensor_memory_is_found),
        cmocka_unit_test(analyze_loops_that_wait_are_found),
        cmocka_unit_test(analyze_loops_that_end_by_themselves_are_left_out),
        cmocka_unit_test(analyze_recursion_that_looks_is_a_wait),
        cmocka_unit_test(analyze_early_exit_needs_parted_threads),
        cmocka_unit_test(analyze_masks_after_early_exits_are_told_apart),
        cmocka_unit_test(analyze_function_called_by_some_threads_is_parted),
        cmocka_unit_test(analyze_parameters_of_functions_vary),
        cmocka_unit_test(analyze_pointers_of_own_module_admit_more),
        cmocka_unit_test(analyze_pointer_to_nothing_known_is_refused),
        cmocka_unit_test(analyze_kernel_has_facts_of_what_it_calls_only),
        cmocka_unit_test(analyze_barriers_are_counted_by_number),
        cmocka_unit_test(analyze_old_version_has_small_parameters),
        cmocka_unit_test(analyze_module_without_kernels_is_empty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
