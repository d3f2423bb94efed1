/*
 * Persistent: a worker is a block that takes tasks, runs of task_blocks logical blocks, until none
 * is left, it is told to stop, or its SM is no longer in the range or holds more workers than the
 * quota.
 *
 *     start   the leader counts itself in at its SM, and leaves if it is not wanted there
 *     take    the leader asks for the next task and tells it
 *             --- barrier ---
 *             nothing: leave
 *     block   index of the logical block
 *             ... the kernel, its ends led to tail ...
 *     tail    [unified exit's barrier] [cp.async's end]
 *             more blocks in the task: [--- barrier, if blocks could disturb each other ---], block
 *             take
 *     leave   the leader adds what the worker did to done, and counts itself out
 *
 * Telling. The leader is the first thread of the first warp that is through (of the first warp,
 * where barriers keep warps together). It asks while others may still be at work on the last task.
 * So there are two places for the first block of a task, used in turn: one still holds the task
 * under way while the other is written, and between two writes of one place all have passed a
 * barrier behind their last look at it. Nobody keeps in mind which is which: blocks are taken in
 * ascending order, so the task under way is the last one that begins at or before %wn, and the next
 * task the first one behind it. The barrier is also what keeps the kernel's own shared memory from
 * being overwritten while slow threads still read it. Between the blocks of one task it is left out
 * for kernels without shared memory and barriers, whose blocks may overlap.
 *
 * Asking. One addition to the pair of next and ask gives the task and what the host wants. Behind a
 * stop, the leader takes back what it added and leaves. That is right because nobody takes the stop
 * out of ask before done is next, and a worker that has done something adds that to done behind its
 * taking back; one that has not done anything (it may start at any time, seen by nobody) does not
 * take back, but does its one task. Places are another matter, since others go on taking tasks: who
 * finds in ask that there is something to look at does the task, and looks before the next one
 * (SLOT_CAREFUL), as at the start.
 *
 * Cost. A turn is one trip to the L2 cache, which slower warps hide, and one barrier. One register
 * lives through the kernel's body, %wn; the rest is in the slot: the two places, and, for the
 * leader only, the blocks it has taken and a word with its SM. What it has done is added to done
 * once, when it leaves, behind one fence.
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

/* In the slot, behind the two places. */
#define SLOT_TAKEN 8u
#define SLOT_STATE 12u

/* In SLOT_STATE, above the SM. */
#define STATE_SECOND  (1u << 8)  /* the second place is written next */
#define STATE_CAREFUL (1u << 9)  /* look at what the host wants before the next task */
#define STATE_OUT     (1u << 10) /* not counted at its SM any more */
_Static_assert(WEIR_PTX_CONTROL_SMS <= STATE_SECOND, "SMs and flags in one word");

/* The names that live from one text to the next. Only %wn does so through the body. */
static void bind(struct weir_ptx_edit *edit)
{
    static const char *const words[] = {"%wnext", "%wask", "%wtaken", "%wstate"};

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
static void emit_first_leads(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit, ".reg .b32 %%a, %%b;\n"
                             "mov.b32 %%a, %%tid.x;\nmov.b32 %%b, %%tid.y;\nor.b32 %%a, %%a, %%b;\n"
                             "mov.b32 %%b, %%tid.z;\nor.b32 %%a, %%a, %%b;\n"
                             "setp.eq.u32 %%wlead, %%a, 0;\n@!%%wlead bra WAIT;\n"
                             "ld.param.b64 %%wctl, [" WEIR_PTX_ARGS_NAME "];\n");
}

/* The first thread of the first warp that comes here does. All warps come once for each task. */
static void emit_lead(struct weir_ptx_edit *edit)
{
    if (!edit->twin->elects) {
        emit_first_leads(edit);
        return;
    }
    const char *warps = weir_ptx_slot_warps(edit);

    weir_ptx_edit_text(edit,
                       ".reg .b32 %%a, %%b;\n"
                       "mov.b32 %%a, %%laneid;\nsetp.eq.u32 %%wlead, %%a, 0;\n"
                       "@!%%wlead bra WAIT;\n"
                       "mov.b32 %%a, %%ntid.x;\nmov.b32 %%b, %%ntid.y;\n"
                       "mul.lo.u32 %%a, %%a, %%b;\nmov.b32 %%b, %%ntid.z;\n"
                       "mul.lo.u32 %%a, %%a, %%b;\nsub.u32 %%a, %%a, 1;\nshr.u32 %%a, %%a, 5;\n"
                       "atom.shared.inc.u32 %%a, [%s], %%a;\n"
                       "setp.eq.u32 %%wlead, %%a, 0;\n@!%%wlead bra WAIT;\n"
                       "ld.param.b64 %%wctl, [" WEIR_PTX_ARGS_NAME "];\n",
                       warps);
}

static void emit_counter(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%a;\n.reg .b64 %%o;\n"
                       "and.b32 %%a, %%wstate, %u;\nmul.wide.u32 %%o, %%a, 4;\n"
                       "add.u64 %%wcnt, %%wctl, %%o;\n",
                       WEIR_PTX_CONTROL_SMS - 1);
}

/* No task yet is one behind all: both places say so. */
static void emit_start(struct weir_ptx_edit *edit)
{
    const char *task = weir_ptx_slot_task(edit);

    weir_ptx_edit_text(edit, "mov.b32 %%wn, 0;\n");
    emit_first_leads(edit);
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%none;\nmov.b32 %%none, -1;\n"
                       "mov.b32 %%wtaken, 0;\nmov.b32 %%wstate, %%smid;\n"
                       "and.b32 %%wstate, %%wstate, %u;\n"
                       "st.shared.v2.b32 [%s], {%%none, %%none};\n",
                       WEIR_PTX_CONTROL_SMS - 1, task);
    if (edit->twin->elects) {
        weir_ptx_edit_text(edit, "st.shared.b32 [%s], %%wtaken;\n", weir_ptx_slot_warps(edit));
    }
    emit_counter(edit);
    weir_ptx_edit_text(edit, "red.global.add.u32 [%%wcnt+%zu], 1;\nbra LOOK;\n", AT(running));
}

/* At TAKE: to CLAIM, or on to LOOK. */
static void emit_take(struct weir_ptx_edit *edit, const char *task)
{
    emit_lead(edit);
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a;\n"
                       "ld.shared.v2.b32 {%%wtaken, %%wstate}, [%s+%u];\n"
                       "and.b32 %%a, %%wstate, %u;\nsetp.eq.u32 %%p, %%a, 0;\n@%%p bra CLAIM;\n",
                       task, SLOT_TAKEN, STATE_CAREFUL);
    emit_counter(edit);
}

/* At LOOK: whether this worker may go on; to NONE if not, else to CLAIM. */
static void emit_look(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(
        edit,
        ".reg .pred %%p;\n.reg .b32 %%a, %%b, %%first, %%count, %%quota;\n"
        "ld.volatile.global.v2.b32 {%%wnext, %%wask}, [%%wctl];\n"
        "and.b32 %%a, %%wask, %u;\nsetp.ne.u32 %%p, %%a, 0;\n@%%p bra NONE;\n"
        "ld.param.b32 %%a, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.ge.u32 %%p, %%wnext, %%a;\n@%%p bra NONE;\n"
        "and.b32 %%a, %%wstate, %u;\n"
        "shr.u32 %%first, %%wask, 7;\nand.b32 %%first, %%first, 4095;\n"
        "shr.u32 %%count, %%wask, 19;\n"
        "setp.ne.u32 %%p, %%count, 0;\n@%%p bra RANGE;\n"
        "ld.param.b32 %%b, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.eq.u32 %%p, %%b, 0;\n@%%p bra QUOTA;\n"
        "and.b32 %%first, %%b, 65535;\nshr.u32 %%count, %%b, 16;\n"
        "RANGE:\n"
        "sub.u32 %%a, %%a, %%first;\nsetp.ge.u32 %%p, %%a, %%count;\n@%%p bra RETIRE;\n"
        "QUOTA:\n"
        "shr.u32 %%quota, %%wask, 1;\nand.b32 %%quota, %%quota, %u;\n"
        "setp.ne.u32 %%p, %%quota, 0;\n@%%p bra COUNT;\n"
        "ld.param.b32 %%quota, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.eq.u32 %%p, %%quota, 0;\n@%%p bra CLAIM;\n"
        "COUNT:\n"
        "ld.volatile.global.u32 %%a, [%%wcnt+%zu];\n"
        "setp.le.u32 %%p, %%a, %%quota;\n@%%p bra CLAIM;\n"
        "atom.global.add.u32 %%a, [%%wcnt+%zu], -1;\n"
        "setp.gt.u32 %%p, %%a, %%quota;\n@%%p bra GONE;\n"
        "red.global.add.u32 [%%wcnt+%zu], 1;\nbra CLAIM;\n"
        "GONE:\n"
        "or.b32 %%wstate, %%wstate, %u;\n"
        "RETIRE:\n"
        "red.global.add.u32 [%%wctl+%zu], 1;\nbra NONE;\n",
        WEIR_PTX_ASK_STOP, ARG(end), WEIR_PTX_CONTROL_SMS - 1, ARG(sm_range), WEIR_PTX_ASK_NO_QUOTA,
        ARG(quota), AT(running), AT(running), AT(running), STATE_OUT, AT(retired));
}

/* At CLAIM and NONE: the task's first block, or -1, in the place whose turn it is. */
static void emit_claim(struct weir_ptx_edit *edit, const char *task, uint32_t none)
{
    uint32_t tell = weir_ptx_edit_label(edit, "TELL");

    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a, %%t, %%e, %%one;\n.reg .b64 %%d, %%pair;\n"
                       "ld.param.b32 %%t, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "cvt.u64.u32 %%d, %%t;\n"
                       "atom.global.add.u64 %%pair, [%%wctl], %%d;\n"
                       "mov.b64 {%%wnext, %%wask}, %%pair;\n"
                       "ld.param.b32 %%e, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.ge.u32 %%p, %%wnext, %%e;\n@%%p bra NONE;\n"
                       "and.b32 %%wstate, %%wstate, %u;\n"
                       "setp.eq.u32 %%p, %%wask, 0;\n@%%p bra TOOK;\n"
                       "or.b32 %%wstate, %%wstate, %u;\n"
                       "and.b32 %%a, %%wask, %u;\nsetp.eq.u32 %%p, %%a, 0;\n@%%p bra TOOK;\n"
                       "setp.eq.u32 %%p, %%wtaken, 0;\n@%%p bra TOOK;\n"
                       "neg.s64 %%d, %%d;\nred.global.add.u64 [%%wctl], %%d;\nbra NONE;\n"
                       "TOOK:\n"
                       "add.u32 %%a, %%wnext, %%t;\nmin.u32 %%e, %%e, %%a;\n"
                       "ld.param.b32 %%a, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.gt.u32 %%p, %%e, %%a;\nmov.b32 %%one, 1;\n"
                       "@%%p st.volatile.global.b32 [%%wctl+%zu], %%one;\n"
                       "sub.u32 %%e, %%e, %%wnext;\nadd.u32 %%wtaken, %%wtaken, %%e;\n"
                       "bra TELL;\n",
                       ARG(task_blocks), ARG(end), ~STATE_CAREFUL, STATE_CAREFUL, WEIR_PTX_ASK_STOP,
                       ARG(nearly_at), AT(nearly));
    weir_ptx_edit_place(edit, none);
    weir_ptx_edit_text(edit, "mov.b32 %%wnext, -1;\n");
    weir_ptx_edit_place(edit, tell);
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%a, %%b;\n"
                       "mov.b32 %%a, %s;\nshr.u32 %%b, %%wstate, 6;\nand.b32 %%b, %%b, 4;\n"
                       "add.u32 %%a, %%a, %%b;\nst.shared.b32 [%%a], %%wnext;\n"
                       "xor.b32 %%wstate, %%wstate, %u;\n"
                       "st.shared.v2.b32 [%s+%u], {%%wtaken, %%wstate};\n",
                       task, STATE_SECOND, task, SLOT_TAKEN);
}

/* At WAIT: %wn from behind the last task to the next one's first block; without one, leave. */
static void emit_wait(struct weir_ptx_edit *edit, const char *task, uint32_t barrier)
{
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a, %%b;\n"
                       "bar.sync %u;\n"
                       "ld.shared.v2.b32 {%%a, %%b}, [%s];\n"
                       "sub.u32 %%a, %%a, %%wn;\nsub.u32 %%b, %%b, %%wn;\n"
                       "min.u32 %%a, %%a, %%b;\nadd.u32 %%wn, %%wn, %%a;\n"
                       "setp.ne.u32 %%p, %%wn, -1;\n@%%p bra BLOCK;\n"
                       "@!%%wlead bra END;\n"
                       "setp.eq.u32 %%p, %%wtaken, 0;\n@%%p bra OUT;\n"
                       "membar.gl;\n"
                       "atom.global.add.u32 %%b, [%%wctl+%zu], %%wtaken;\n"
                       "add.u32 %%a, %%wtaken, %%b;\n"
                       "ld.param.b32 %%b, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.ne.u32 %%p, %%a, %%b;\n@%%p bra OUT;\n"
                       "membar.sys;\nmov.b32 %%a, 1;\n"
                       "st.volatile.global.b32 [%%wctl+%zu], %%a;\n"
                       "OUT:\n"
                       "and.b32 %%a, %%wstate, %u;\nsetp.ne.u32 %%p, %%a, 0;\n@%%p bra END;\n",
                       barrier, task, AT(done), ARG(total), AT(finished), STATE_OUT);
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

    /* Blocks of the task before %wn: from the nearer of the two places at or before it. */
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a, %%b, %%t, %%e;\n"
                       "bar.warp.sync -1;\n"
                       "ld.param.b32 %%t, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "mov.b32 %%b, %%wn;\nadd.u32 %%wn, %%wn, 1;\n"
                       "setp.eq.u32 %%p, %%t, 1;\n@%%p bra TAKE;\n"
                       "ld.shared.v2.b32 {%%a, %%e}, [%s];\n"
                       "sub.u32 %%a, %%b, %%a;\nsub.u32 %%e, %%b, %%e;\nmin.u32 %%a, %%a, %%e;\n"
                       "add.u32 %%a, %%a, 1;\nsetp.ge.u32 %%p, %%a, %%t;\n@%%p bra TAKE;\n"
                       "ld.param.b32 %%e, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.ge.u32 %%p, %%wn, %%e;\n@%%p bra TAKE;\n",
                       ARG(task_blocks), task, ARG(end));
    if (twin->block_barrier) {
        weir_ptx_edit_text(edit, "bar.sync %u;\n", barrier);
    }
    weir_ptx_edit_text(edit, "bra BLOCK;\n");
}

static void emit_head(struct weir_ptx_edit *edit, uint32_t barrier)
{
    uint32_t take = weir_ptx_edit_label(edit, "TAKE");
    uint32_t block = weir_ptx_edit_label(edit, "BLOCK");
    uint32_t look = weir_ptx_edit_label(edit, "LOOK");
    uint32_t claim = weir_ptx_edit_label(edit, "CLAIM");
    uint32_t none = weir_ptx_edit_label(edit, "NONE");
    uint32_t wait = weir_ptx_edit_label(edit, "WAIT");
    uint32_t end = weir_ptx_edit_label(edit, "END");

    emit_start(edit);
    weir_ptx_edit_place(edit, take);
    const char *task = weir_ptx_slot_task(edit);

    emit_take(edit, task);
    weir_ptx_edit_place(edit, look);
    emit_look(edit);
    weir_ptx_edit_place(edit, claim);
    emit_claim(edit, task, none);
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
    twin->info->barriers = 1;
    return weir_ptx_edit_finish(&edit);
}
