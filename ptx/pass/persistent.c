/*
 * Persistent: a worker is a block that takes tasks, runs of task_blocks logical blocks, until none
 * is left, it is told to stop, or its SM is no longer in the range or holds more workers than the
 * quota.
 *
 *     start   the leader counts itself in at its SM, and leaves if it is not wanted there
 *     take    the leader looks at the host's words, asks for the next task and tells it
 *             --- barrier ---
 *             nothing: leave
 *     block   index of the logical block
 *             ... the kernel, its ends led to tail ...
 *     tail    [unified exit's barrier] [cp.async's end]
 *             more blocks in the task: --- barrier, if blocks could disturb each other ---, block
 *             --- barrier ---, take
 *     leave   the leader adds what the worker did to done, and counts itself out
 *
 * The barrier before take keeps the task's place in shared memory, and the kernel's own shared
 * memory, from being overwritten while slow threads still read it. Between the blocks of one task
 * it is left out for kernels without shared memory and barriers, whose blocks may overlap.
 *
 * Cost. The three host's words are zero nearly always, and one load and one test see that; the
 * parameter's range and quota are looked at once, as a worker keeps its SM. One register lives
 * through the kernel's body, %wn; the rest is in the task's slot: first block, end, and, for the
 * leader only, the blocks it has taken and its SM (-1 once it is counted out). What it has done is
 * added to done once, when it leaves, behind one fence.
 *
 * Order. All threads have come to take's barrier before the leader leaves; its fence, then, puts
 * all they have written before its addition to done. Whoever finds that done is total has so seen
 * all workers' additions, and a fence of the system puts all of it before finished.
 *
 * The SM of a worker is the one it started on; should the hardware move it, the counters still
 * add up. A worker over the quota leaves only if its own decrement shows that there were too many:
 * of those that come to an SM at the same time, as many stay as the quota allows.
 */
#include "ptx/pass/twin.h"

#define AT(field)  offsetof(struct weir_ptx_control, field)
#define ARG(field) offsetof(struct weir_ptx_form_args, field)

/* In the task's slot, behind its first block. */
#define SLOT_END   4u
#define SLOT_TAKEN 8u
#define SLOT_SM    12u

/* The names that live from one text to the next. Only %wn does so through the body. */
static void bind(struct weir_ptx_edit *edit)
{
    static const char *const words[] = {"%wsm", "%wstop", "%wrange", "%wquota"};

    weir_ptx_edit_reg(edit, "%wlead", WEIR_PTX_TYPE_PRED);
    weir_ptx_edit_reg(edit, "%wctl", WEIR_PTX_TYPE_B64);
    weir_ptx_edit_reg(edit, "%wcnt", WEIR_PTX_TYPE_B64); /* counter of its SM, less AT(running) */
    for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        weir_ptx_edit_reg(edit, words[i], WEIR_PTX_TYPE_B32);
    }
}

/*
 * The thread of index 0 asks for all; the others go to WAIT. Found out again for each task, which
 * costs less than a register through the body.
 */
static void emit_lead(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit, ".reg .b32 %%a, %%b;\n"
                             "mov.b32 %%a, %%tid.x;\nmov.b32 %%b, %%tid.y;\nor.b32 %%a, %%a, %%b;\n"
                             "mov.b32 %%b, %%tid.z;\nor.b32 %%a, %%a, %%b;\n"
                             "setp.eq.u32 %%wlead, %%a, 0;\n@!%%wlead bra WAIT;\n"
                             "ld.param.b64 %%wctl, [" WEIR_PTX_ARGS_NAME "];\n");
}

static void emit_counter(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%a;\n.reg .b64 %%o;\n"
                       "and.b32 %%a, %%wsm, %u;\nmul.wide.u32 %%o, %%a, 4;\n"
                       "add.u64 %%wcnt, %%wctl, %%o;\n",
                       WEIR_PTX_CONTROL_SMS - 1);
}

static void emit_start(struct weir_ptx_edit *edit)
{
    const char *task = weir_ptx_slot_task(edit);

    emit_lead(edit);
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%z;\nmov.b32 %%z, 0;\nmov.b32 %%wsm, %%smid;\n"
                       "st.shared.v2.b32 [%s+%u], {%%z, %%wsm};\n",
                       task, SLOT_TAKEN);
    emit_counter(edit);
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%x;\n"
                       "red.global.add.u32 [%%wcnt+%zu], 1;\n"
                       "ld.volatile.global.v4.b32 {%%wstop, %%wrange, %%wquota, %%x}, [%%wctl];\n"
                       "bra CHECK;\n",
                       AT(running));
}

/* At TAKE: to NEXT when the host has said nothing, else on to CHECK. */
static void emit_poll(struct weir_ptx_edit *edit, const char *task)
{
    emit_lead(edit);
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a, %%x;\n"
                       "ld.volatile.global.v4.b32 {%%wstop, %%wrange, %%wquota, %%x}, [%%wctl];\n"
                       "or.b32 %%a, %%wstop, %%wrange;\nor.b32 %%a, %%a, %%wquota;\n"
                       "setp.eq.u32 %%p, %%a, 0;\n@%%p bra NEXT;\n"
                       "ld.shared.b32 %%wsm, [%s+%u];\n",
                       task, SLOT_SM);
    emit_counter(edit);
}

/* At CHECK: whether this worker may go on; to NONE if not, else to NEXT. */
static void emit_check(struct weir_ptx_edit *edit, const char *task)
{
    weir_ptx_edit_text(
        edit,
        ".reg .pred %%p;\n.reg .b32 %%a, %%b;\n"
        "setp.ne.u32 %%p, %%wstop, 0;\n@%%p bra NONE;\n"
        "setp.ne.u32 %%p, %%wrange, 0;\n@%%p bra RANGE;\n"
        "ld.param.b32 %%wrange, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.eq.u32 %%p, %%wrange, 0;\n@%%p bra QUOTA;\n"
        "RANGE:\n"
        "and.b32 %%a, %%wrange, 65535;\nsub.u32 %%a, %%wsm, %%a;\nshr.u32 %%b, %%wrange, 16;\n"
        "setp.ge.u32 %%p, %%a, %%b;\n@%%p bra RETIRE;\n"
        "QUOTA:\n"
        "setp.ne.u32 %%p, %%wquota, 0;\n@%%p bra COUNT;\n"
        "ld.param.b32 %%wquota, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.eq.u32 %%p, %%wquota, 0;\n@%%p bra NEXT;\n"
        "COUNT:\n"
        "ld.volatile.global.u32 %%a, [%%wcnt+%zu];\n"
        "setp.le.u32 %%p, %%a, %%wquota;\n@%%p bra NEXT;\n"
        "atom.global.add.u32 %%a, [%%wcnt+%zu], -1;\n"
        "setp.gt.u32 %%p, %%a, %%wquota;\n@%%p bra GONE;\n"
        "red.global.add.u32 [%%wcnt+%zu], 1;\nbra NEXT;\n"
        "GONE:\n"
        "mov.b32 %%a, -1;\nst.shared.b32 [%s+%u], %%a;\n"
        "RETIRE:\n"
        "red.global.add.u32 [%%wctl+%zu], 1;\nbra NONE;\n",
        ARG(sm_range), ARG(quota), AT(running), AT(running), AT(running), task, SLOT_SM,
        AT(retired));
}

/* At NEXT and NONE: the task, in its slot; then, at WAIT, known to all in %wn and %wto. */
static void emit_next(struct weir_ptx_edit *edit, const char *task)
{
    weir_ptx_edit_text(
        edit,
        ".reg .pred %%p;\n.reg .b32 %%n, %%t, %%e, %%k, %%one;\n"
        "ld.param.b32 %%t, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "atom.global.add.u32 %%n, [%%wctl+%zu], %%t;\n"
        "ld.param.b32 %%e, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.ge.u32 %%p, %%n, %%e;\n@%%p bra NONE;\n"
        "add.u32 %%k, %%n, %%t;\nmin.u32 %%e, %%e, %%k;\n"
        "st.shared.v2.b32 [%s], {%%n, %%e};\n"
        "ld.param.b32 %%k, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.gt.u32 %%p, %%e, %%k;\nmov.b32 %%one, 1;\n"
        "@%%p st.volatile.global.b32 [%%wctl+%zu], %%one;\n"
        "ld.shared.b32 %%k, [%s+%u];\nsub.u32 %%e, %%e, %%n;\nadd.u32 %%k, %%k, %%e;\n"
        "st.shared.b32 [%s+%u], %%k;\n"
        "bra WAIT;\n",
        ARG(task_blocks), AT(next), ARG(end), task, ARG(nearly_at), AT(nearly), task, SLOT_TAKEN,
        task, SLOT_TAKEN);
}

/* At WAIT: who has nothing to do leaves. */
static void emit_wait(struct weir_ptx_edit *edit, const char *task, uint32_t barrier)
{
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a, %%b;\n.reg .b32 %%to;\n"
                       "bar.sync %u;\n"
                       "ld.shared.v2.b32 {%%wn, %%to}, [%s];\n"
                       "setp.ne.u32 %%p, %%wn, %%to;\n@%%p bra BLOCK;\n"
                       "@!%%wlead bra END;\n"
                       "ld.shared.v2.b32 {%%a, %%wsm}, [%s+%u];\n"
                       "setp.eq.u32 %%p, %%a, 0;\n@%%p bra OUT;\n"
                       "membar.gl;\n"
                       "atom.global.add.u32 %%b, [%%wctl+%zu], %%a;\n"
                       "add.u32 %%a, %%a, %%b;\nld.param.b32 %%b, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.ne.u32 %%p, %%a, %%b;\n@%%p bra OUT;\n"
                       "membar.sys;\nmov.b32 %%a, 1;\n"
                       "st.volatile.global.b32 [%%wctl+%zu], %%a;\n"
                       "OUT:\n"
                       "setp.eq.s32 %%p, %%wsm, -1;\n@%%p bra END;\n",
                       barrier, task, task, SLOT_TAKEN, AT(done), ARG(total), AT(finished));
    emit_counter(edit);
    weir_ptx_edit_text(edit, "red.global.add.u32 [%%wcnt+%zu], -1;\n", AT(running));
}

static void emit_tail(struct weir_ptx_edit *edit, uint32_t barrier)
{
    struct weir_ptx_twin *twin = edit->twin;

    if (twin->warp_votes) {
        weir_ptx_warp_tail_emit(edit);
    }
    if (twin->exit_barrier != WEIR_PTX_NONE) {
        weir_ptx_edit_text(edit,
                           ".reg .pred %%f, %%p;\n.reg .b32 %%z;\nmov.b32 %%z, 0;\n"
                           "setp.ne.u32 %%f, %%z, 0;\n"
                           "AGAIN:\nbarrier.red.or.pred %%p, %u, %%f;\n@%%p bra AGAIN;\n",
                           twin->exit_barrier);
    }
    if (weir_ptx_kernel_has(twin->kernel, WEIR_PTX_FACT_CP_ASYNC)) {
        weir_ptx_edit_text(edit, "cp.async.wait_all;\n");
    }
    const char *task = weir_ptx_slot_task(edit);

    weir_ptx_edit_reg(edit, "%wto", WEIR_PTX_TYPE_B32);
    weir_ptx_edit_text(edit, "add.u32 %%wn, %%wn, 1;\nld.shared.b32 %%wto, [%s+%u];\n", task,
                       SLOT_END);
    weir_ptx_edit_text(edit, "bar.warp.sync -1;\n");
    if (twin->block_barrier) {
        weir_ptx_edit_text(edit, "bar.sync %u;\n", barrier);
    }
    weir_ptx_edit_text(edit, ".reg .pred %%p;\n"
                             "setp.ne.u32 %%p, %%wn, %%wto;\n@%%p bra BLOCK;\n");
    if (!twin->block_barrier) {
        weir_ptx_edit_text(edit, "bar.sync %u;\n", barrier);
    }
    weir_ptx_edit_text(edit, "bra TAKE;\n");
}

static void emit_head(struct weir_ptx_edit *edit, uint32_t barrier)
{
    uint32_t take = weir_ptx_edit_label(edit, "TAKE");
    uint32_t block = weir_ptx_edit_label(edit, "BLOCK");
    uint32_t check = weir_ptx_edit_label(edit, "CHECK");
    uint32_t next = weir_ptx_edit_label(edit, "NEXT");
    uint32_t none = weir_ptx_edit_label(edit, "NONE");
    uint32_t wait = weir_ptx_edit_label(edit, "WAIT");
    uint32_t end = weir_ptx_edit_label(edit, "END");

    emit_start(edit);
    weir_ptx_edit_place(edit, take);
    const char *task = weir_ptx_slot_task(edit);

    emit_poll(edit, task);
    weir_ptx_edit_place(edit, check);
    emit_check(edit, task);
    weir_ptx_edit_place(edit, next);
    emit_next(edit, task);
    weir_ptx_edit_place(edit, none);
    weir_ptx_edit_text(
        edit, ".reg .b32 %%z;\nmov.b32 %%z, 0;\nst.shared.v2.b32 [%s], {%%z, %%z};\n", task);
    weir_ptx_edit_place(edit, wait);
    emit_wait(edit, task, barrier);
    weir_ptx_edit_place(edit, end);
    weir_ptx_edit_text(edit, "ret;\n");
    weir_ptx_edit_place(edit, block);
}

/* The lowest: a block takes as many barriers of its SM as its highest number says. */
static uint32_t free_barrier(const struct weir_ptx_kernel *kernel)
{
    uint32_t id = 0;

    while (id + 1 < WEIR_PTX_BARRIERS && kernel->barriers_used >> id & 1) {
        id++;
    }
    return id;
}

enum weir_status weir_ptx_pass_persistent(struct weir_ptx_twin *twin)
{
    struct weir_ptx_edit edit;
    uint32_t barrier = free_barrier(twin->kernel);

    weir_ptx_edit_begin(&edit, twin, twin->entry);
    bind(&edit);
    weir_ptx_grid_emit(&edit);
    emit_head(&edit, barrier);
    weir_ptx_index_emit(&edit);
    weir_ptx_edit_keep(&edit, 0, twin->entry->n_insts);
    /* twin->tail stands at the old body's end, which is here. */
    emit_tail(&edit, barrier);
    twin->info->barriers = twin->block_barrier ? 2 : 1;
    return weir_ptx_edit_finish(&edit);
}
