/*
 * Persistent: each block is a worker that takes tasks (task_blocks consecutive logical blocks). It
 * ends when no task is left, the host stops it, or its SM is no longer in the range or holds more
 * workers than the block limit.
 *
 *     start   the leader increments its SM's counter, and leaves if it may not run there
 *     take    the leader asks for the next task
 *             --- barrier ---, the leader passes it on, --- barrier ---
 *             nothing: leave
 *     block   index of the logical block
 *             ... the kernel, whose ends go to tail ...
 *     tail    [votes of the warp] [cp.async's end]
 *             more blocks in the task: [--- barrier, if blocks could disturb each other ---], block
 *             take
 *     leave   the leader adds the worker's blocks to done, and decrements the counters
 *
 * Passing on a task. The leader takes the next task when its own warp has finished, while other
 * warps may still work. It passes the task on between two barriers: behind the first one no thread
 * reads the last task any more. This barrier also keeps the kernel's own shared memory from being
 * overwritten while slow threads still read it. Between the blocks of one task there is a barrier
 * only for kernels with shared memory or barriers, whose blocks must not overlap.
 *
 * Asking. One addition to the pair of next and ask returns the task and the host's request. If the
 * request is a stop, the leader subtracts what it added and leaves. This is safe because nobody
 * removes the stop from ask while a worker is counted in workers, and a worker is counted from
 * before its first addition until after the subtraction. Requests to move need no such order, since
 * other workers go on taking tasks: a worker that finds one in ask does the task, and checks its
 * place before the next one (STATE_CAREFUL), as at the start. If tasks are so long that one more
 * would matter, the host makes a request that changes nothing (WEIR_PTX_ASK_LOOK) from the start.
 *
 * Cost. The work for each block matters most: in short kernels ten instructions are 5 %. So a
 * block's end costs one read of shared memory, and a task one access to the L2 cache and two
 * barriers. Only one register, %wn, stays live through the kernel's body; the rest is in the slot:
 * first block, end, and, for the leader only, its number of blocks taken and a word with its SM.
 * The worker adds its blocks to done once, when it leaves, behind one fence.
 *
 * Order. All threads have arrived at take's barrier before the leader leaves, so its fence orders
 * all their writes before its addition to done. A worker that finds done equal to total has seen
 * all workers' additions, and a system-wide fence orders all their writes before finished.
 *
 * A worker's SM is the one on which it started; even if the hardware moved it, the counters would
 * add up. A worker over the block limit leaves by a compare-and-swap of exactly the count that is
 * too high, so that of the workers that come to an SM at the same time exactly the limit stays.
 * (Adding, and subtracting again if the count was too high, let in other workers meanwhile: up to
 * four where two were allowed.)
 */
#include "ptx/pass/passes.h"
#include "ptx/twin/editor.h"

#define AT(field)  offsetof(struct weir_ptx_control, field)
#define ARG(field) offsetof(struct weir_ptx_form_args, field)

/* In the slot, behind the task's first block. */
#define SLOT_END   4u
#define SLOT_TAKEN 8u

/* In the slot's last word, above the SM. */
#define STATE_CAREFUL (1u << 8) /* read the host's request before the next task */
#define STATE_OUT     (1u << 9) /* not counted at its SM any more */
_Static_assert(WEIR_PTX_CONTROL_SMS <= STATE_CAREFUL, "SMs and flags in one word");

/* Bind the registers that several emit_ functions share. Only %wn is live through the body. */
static void bind(struct weir_ptx_edit *edit)
{
    static const char *const words[] = {"%wnext", "%wend", "%wask", "%wtaken", "%wstate", "%wzero"};

    weir_ptx_edit_reg(edit, "%wlead", WEIR_PTX_TYPE_PRED);
    weir_ptx_edit_reg(edit, "%wctl", WEIR_PTX_TYPE_B64);
    weir_ptx_edit_reg(edit, "%wcnt", WEIR_PTX_TYPE_B64); /* its SM's counter, less AT(running) */
    for (uint32_t i = 0; i < WEIR_COUNT(words); i++) {
        weir_ptx_edit_reg(edit, words[i], WEIR_PTX_TYPE_B32);
    }
}

/*
 * The thread of index 0 (the leader) acts for all; the others go to MEET. The leader is found again
 * for each task, which costs less than a register that stays live through the body.
 *
 * What the leader adds to a counter has %wzero in it, which is 0 in the leader. The compiler cannot
 * know that. If the amount were a constant, the compiler would add code that sums up the additions
 * of all threads of a warp, though only one thread makes any.
 */
static void emit_lead(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit, ".reg .b32 %%b;\n"
                             "mov.b32 %%wzero, %%tid.x;\nmov.b32 %%b, %%tid.y;\n"
                             "or.b32 %%wzero, %%wzero, %%b;\n"
                             "mov.b32 %%b, %%tid.z;\nor.b32 %%wzero, %%wzero, %%b;\n"
                             "setp.eq.u32 %%wlead, %%wzero, 0;\n@!%%wlead bra MEET;\n"
                             "ld.param.b64 %%wctl, [" WEIR_PTX_ARGS_NAME "];\n");
}

static void emit_counter(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%a;\n.reg .b64 %%o;\n"
                       "and.b32 %%a, %%wstate, %u;\nmul.wide.u32 %%o, %%a, 4;\n"
                       "add.u64 %%wcnt, %%wctl, %%o;\n",
                       WEIR_PTX_CONTROL_SMS - 1);
}

/* Count the worker before its first look, and make the count visible: then a reader that sees no
 * worker has seen all of their work. */
static void emit_start(struct weir_ptx_edit *edit)
{
    emit_lead(edit);
    weir_ptx_edit_text(edit,
                       "mov.b32 %%wtaken, 0;\nmov.b32 %%wstate, %%smid;\n"
                       "and.b32 %%wstate, %%wstate, %u;\n",
                       WEIR_PTX_CONTROL_SMS - 1);
    emit_counter(edit);
    weir_ptx_edit_text(edit,
                       ".reg .b32 %%a;\n.reg .b64 %%d;\n"
                       "red.global.add.u32 [%%wcnt+%zu], 1;\n"
                       "mov.b32 %%a, 1;\nmov.b64 %%d, {%%wtaken, %%a};\n"
                       "red.global.add.u64 [%%wctl+%zu], %%d;\n"
                       "membar.gl;\nbra LOOK;\n",
                       AT(running), AT(done));
}

/* Code at TAKE: go to CLAIM, or on to LOOK. */
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

/* Code at LOOK: may this worker continue? If not, go to NONE, else to CLAIM. */
static void emit_look(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(
        edit,
        ".reg .pred %%p;\n.reg .b32 %%a, %%b, %%first, %%count, %%block_limit;\n"
        "ld.volatile.global.v2.b32 {%%wnext, %%wask}, [%%wctl+%zu];\n"
        "and.b32 %%a, %%wask, %u;\nsetp.ne.u32 %%p, %%a, 0;\n@%%p bra NONE;\n"
        "ld.param.b32 %%a, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.ge.u32 %%p, %%wnext, %%a;\n@%%p bra NONE;\n"
        "and.b32 %%a, %%wstate, %u;\n"
        "shr.u32 %%first, %%wask, 7;\nand.b32 %%first, %%first, 4095;\n"
        "shr.u32 %%count, %%wask, 19;\n"
        "setp.ne.u32 %%p, %%count, 0;\n@%%p bra RANGE;\n"
        "ld.param.b32 %%b, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.eq.u32 %%p, %%b, 0;\n@%%p bra LIMIT;\n"
        "and.b32 %%first, %%b, 65535;\nshr.u32 %%count, %%b, 16;\n"
        "RANGE:\n"
        "sub.u32 %%a, %%a, %%first;\nsetp.ge.u32 %%p, %%a, %%count;\n@%%p bra RETIRE;\n"
        "LIMIT:\n"
        "shr.u32 %%block_limit, %%wask, 1;\nand.b32 %%block_limit, %%block_limit, %u;\n"
        "setp.ne.u32 %%p, %%block_limit, 0;\n@%%p bra COUNT;\n"
        "ld.param.b32 %%block_limit, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
        "setp.eq.u32 %%p, %%block_limit, 0;\n@%%p bra CLAIM;\n"
        "COUNT:\n"
        "ld.volatile.global.u32 %%b, [%%wcnt+%zu];\n"
        "EXCESS:\n"
        "mov.b32 %%a, %%b;\nsetp.le.u32 %%p, %%a, %%block_limit;\n@%%p bra CLAIM;\n"
        "sub.u32 %%b, %%a, 1;\n"
        "atom.global.cas.b32 %%b, [%%wcnt+%zu], %%a, %%b;\n"
        "setp.ne.u32 %%p, %%a, %%b;\n@%%p bra EXCESS;\n"
        "or.b32 %%wstate, %%wstate, %u;\n"
        "RETIRE:\n"
        "red.global.add.u32 [%%wctl+%zu], 1;\nbra NONE;\n",
        AT(next), WEIR_PTX_ASK_STOP, ARG(end), WEIR_PTX_CONTROL_SMS - 1, ARG(sm_range),
        WEIR_PTX_ASK_NO_BLOCK_LIMIT, ARG(block_limit), AT(running), AT(running), STATE_OUT,
        AT(retired));
}

/* Code at CLAIM and NONE: put the task into %wnext and %wend; none if they are equal. */
static void emit_claim(struct weir_ptx_edit *edit, uint32_t none)
{
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a, %%t, %%one;\n.reg .b64 %%d, %%pair;\n"
                       "ld.param.b32 %%t, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "add.u32 %%a, %%t, %%wzero;\ncvt.u64.u32 %%d, %%a;\n"
                       "atom.global.add.u64 %%pair, [%%wctl+%zu], %%d;\n"
                       "mov.b64 {%%wnext, %%wask}, %%pair;\n"
                       "and.b32 %%wstate, %%wstate, %u;\n"
                       "setp.eq.u32 %%p, %%wask, 0;\n@%%p bra TOOK;\n"
                       "or.b32 %%wstate, %%wstate, %u;\n"
                       "and.b32 %%a, %%wask, %u;\nsetp.eq.u32 %%p, %%a, 0;\n@%%p bra TOOK;\n"
                       "neg.s64 %%d, %%d;\nred.global.add.u64 [%%wctl+%zu], %%d;\nbra NONE;\n"
                       "TOOK:\n"
                       "ld.param.b32 %%wend, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.ge.u32 %%p, %%wnext, %%wend;\n@%%p bra NONE;\n"
                       "add.u32 %%a, %%wnext, %%t;\nmin.u32 %%wend, %%wend, %%a;\n"
                       "ld.param.b32 %%a, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.gt.u32 %%p, %%wend, %%a;\nmov.b32 %%one, 1;\n"
                       "@%%p st.volatile.global.b32 [%%wctl+%zu], %%one;\n"
                       "sub.u32 %%a, %%wend, %%wnext;\nadd.u32 %%wtaken, %%wtaken, %%a;\n"
                       "bra MEET;\n",
                       ARG(task_blocks), AT(next), ~STATE_CAREFUL, STATE_CAREFUL, WEIR_PTX_ASK_STOP,
                       AT(next), ARG(end), ARG(nearly_at), AT(nearly));
    weir_ptx_edit_place(edit, none);
    weir_ptx_edit_text(edit, "mov.b32 %%wnext, 0;\nmov.b32 %%wend, 0;\n");
}

/* Code at MEET: pass the task to all threads, in %wn and the slot. */
static void emit_tell(struct weir_ptx_edit *edit, const char *task, uint32_t barrier)
{
    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a;\n"
                       "bar.sync %u;\n"
                       "@%%wlead st.shared.v4.b32 [%s], {%%wnext, %%wend, %%wtaken, %%wstate};\n"
                       "bar.sync %u;\n"
                       "ld.shared.v2.b32 {%%wn, %%a}, [%s];\n"
                       "setp.ne.u32 %%p, %%wn, %%a;\n@%%p bra BLOCK;\n",
                       barrier, task, barrier, task);
}

/*
 * Without a task all threads leave, and the leader decrements the number of workers. A reader that
 * sees this must also see the writes of the worker's blocks and its subtraction, so the decrement
 * is a release; on older GPUs that needs a full fence.
 */
static void emit_leave(struct weir_ptx_edit *edit)
{
    const char *fence = edit->twin->module->sm >= 70 ? "fence.acq_rel.gpu" : "membar.gl";

    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a;\n.reg .b64 %%d, %%e;\n"
                       "@!%%wlead bra END;\n"
                       "%s;\n"
                       /* taken to done, -1 to workers */
                       "mov.b32 %%a, -1;\nadd.u32 %%a, %%a, %%wzero;\n"
                       "mov.b64 %%d, {%%wtaken, %%a};\n"
                       "atom.global.add.u64 %%e, [%%wctl+%zu], %%d;\n"
                       "cvt.u32.u64 %%a, %%e;\nadd.u32 %%a, %%a, %%wtaken;\n"
                       "setp.eq.u32 %%p, %%wtaken, 0;\n@%%p bra OUT;\n"
                       "ld.param.b32 %%wend, [" WEIR_PTX_ARGS_NAME "+%zu];\n"
                       "setp.ne.u32 %%p, %%a, %%wend;\n@%%p bra OUT;\n"
                       "membar.sys;\nmov.b32 %%a, 1;\n"
                       "st.volatile.global.b32 [%%wctl+%zu], %%a;\n"
                       "OUT:\n"
                       "and.b32 %%a, %%wstate, %u;\nsetp.ne.u32 %%p, %%a, 0;\n@%%p bra END;\n",
                       fence, AT(done), ARG(total), AT(finished), STATE_OUT);
    emit_counter(edit);
    weir_ptx_edit_text(edit, "red.global.add.u32 [%%wcnt+%zu], -1;\n", AT(running));
}

static void emit_tail(struct weir_ptx_edit *edit, uint32_t barrier)
{
    struct weir_ptx_twin *twin = edit->twin;

    if (twin->warp_votes) {
        weir_ptx_warp_tail_emit(edit);
    }
    if (weir_ptx_kernel_has(twin->kernel, WEIR_PTX_FACT_CP_ASYNC)) {
        weir_ptx_edit_text(edit, "cp.async.wait_all;\n");
    }
    const char *task = weir_ptx_slot_task(edit);

    weir_ptx_edit_text(edit,
                       ".reg .pred %%p;\n.reg .b32 %%a;\n"
                       "add.u32 %%wn, %%wn, 1;\nld.shared.b32 %%a, [%s+%u];\n"
                       "bar.warp.sync -1;\n"
                       "setp.eq.u32 %%p, %%wn, %%a;\n@%%p bra TAKE;\n",
                       task, SLOT_END);
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
    uint32_t meet = weir_ptx_edit_label(edit, "MEET");
    uint32_t end = weir_ptx_edit_label(edit, "END");

    (void)weir_ptx_slot_task(edit);
    emit_start(edit);
    weir_ptx_edit_place(edit, take);
    const char *task = weir_ptx_slot_task(edit);

    emit_take(edit, task);
    weir_ptx_edit_place(edit, look);
    emit_look(edit);
    weir_ptx_edit_place(edit, claim);
    emit_claim(edit, none);
    weir_ptx_edit_place(edit, meet);
    emit_tell(edit, task, barrier);
    emit_leave(edit);
    weir_ptx_edit_place(edit, end);
    weir_ptx_edit_text(edit, "ret;\n");
    weir_ptx_edit_place(edit, block);
}

/* Find the lowest free barrier number: the highest number in use decides how many of the SM's
 * barriers a block takes. */
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
    /* twin->tail is at the old body's end, which is here. */
    emit_tail(&edit, barrier);
    twin->info->barriers = 2;
    return weir_ptx_edit_finish(&edit);
}
