/*
 * Persistent: a worker is a block that takes tasks, runs of task_blocks logical blocks, until none
 * is left, it is told to stop, or its SM is no longer in the range or holds more workers than the
 * quota.
 *
 *     start   the leader counts itself in at its SM
 *     take    the leader adds what the last task did to done, asks for the next task and tells it
 *             --- barrier ---
 *             nothing: leave
 *     block   index of the logical block
 *             ... the kernel, its ends led to tail ...
 *     tail    [unified exit's barrier] [cp.async's end]
 *             more blocks in the task: --- barrier, if blocks could disturb each other ---, block
 *             --- barrier ---, take
 *     leave   the leader counts itself out
 *
 * The barrier before take keeps the task's place in shared memory, and the kernel's own shared
 * memory, from being overwritten while slow threads still read it. Between the blocks of one task
 * it is left out for kernels without shared memory and barriers, whose blocks may overlap.
 *
 * The SM of a worker is the one it started on; should the hardware move it, the counters still
 * add up. A worker over the quota leaves only if its own decrement shows that there were too many,
 * so that never more than the excess leave.
 */
#include "ptx/pass/twin.h"

#define AT(field) offsetof(struct weir_ptx_control, field)

/* The names that must live from one text to the next. */
static void bind(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_reg(edit, "%wlead", WEIR_PTX_TYPE_PRED);
    weir_ptx_edit_reg(edit, "%wctl", WEIR_PTX_TYPE_B64); /* leader only */
    weir_ptx_edit_reg(edit, "%wsm", WEIR_PTX_TYPE_B32);  /* leader only */
    weir_ptx_edit_reg(edit, "%wcnt", WEIR_PTX_TYPE_B64); /* leader only: its SM's counter */
    weir_ptx_edit_reg(edit, "%whave", WEIR_PTX_TYPE_B32);
    weir_ptx_edit_reg(edit, "%wleft", WEIR_PTX_TYPE_B32);
}

static void emit_start(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(
        edit,
        ".reg .b32 %%a, %%b;\n.reg .b64 %%o;\n"
        "mov.b32 %%a, %%tid.x;\nmov.b32 %%b, %%tid.y;\nor.b32 %%a, %%a, %%b;\n"
        "mov.b32 %%b, %%tid.z;\nor.b32 %%a, %%a, %%b;\n"
        "setp.eq.u32 %%wlead, %%a, 0;\n"
        "mov.b32 %%whave, 0;\n"
        "@!%%wlead bra TAKE;\n"
        "ld.param.b64 %%wctl, [" WEIR_PTX_ARGS_NAME "];\n"
        "mov.b32 %%wsm, %%smid;\n"
        "and.b32 %%a, %%wsm, %u;\n"
        "mul.wide.u32 %%o, %%a, 4;\n"
        "add.u64 %%wcnt, %%wctl, %%o;\n"
        "red.global.add.u32 [%%wcnt+%zu], 1;\n",
        WEIR_PTX_CONTROL_SMS - 1, AT(running));
}

/* Ends at GIVE with the number of blocks in %c, 0 for none; counted out already when it retires. */
static void emit_ask(struct weir_ptx_edit *edit)
{
    weir_ptx_edit_text(
        edit,
        ".reg .pred %%p;\n.reg .b32 %%c, %%f, %%s, %%a, %%b, %%q;\n"
        ".reg .b64 %%n, %%e, %%t, %%d;\n"
        "@!%%wlead bra WAIT;\n"
        "setp.eq.u32 %%p, %%whave, 0;\n@%%p bra ASK;\n"
        "cvt.u64.u32 %%d, %%whave;\n"
        "red.global.add.u64 [%%wctl+%zu], %%d;\n"
        "ASK:\n"
        "mov.b32 %%c, 0;\nmov.b32 %%f, 0;\n"
        "ld.volatile.global.u32 %%s, [%%wctl+%zu];\n"
        "setp.ne.u32 %%p, %%s, 0;\n@%%p bra OUT;\n"
        "ld.volatile.global.u32 %%a, [%%wctl+%zu];\n"
        "ld.volatile.global.u32 %%b, [%%wctl+%zu];\n"
        "setp.lt.u32 %%p, %%wsm, %%a;\n@%%p bra RETIRE;\n"
        "setp.gt.u32 %%p, %%wsm, %%b;\n@%%p bra RETIRE;\n"
        "ld.volatile.global.u32 %%q, [%%wctl+%zu];\n"
        "setp.eq.u32 %%p, %%q, 0;\n@%%p bra NEXT;\n"
        "ld.volatile.global.u32 %%a, [%%wcnt+%zu];\n"
        "setp.le.u32 %%p, %%a, %%q;\n@%%p bra NEXT;\n"
        "atom.global.add.u32 %%a, [%%wcnt+%zu], -1;\n"
        "setp.gt.u32 %%p, %%a, %%q;\n@%%p bra GONE;\n"
        "red.global.add.u32 [%%wcnt+%zu], 1;\n"
        "NEXT:\n"
        "ld.volatile.global.u64 %%e, [%%wctl+%zu];\n"
        "ld.volatile.global.u32 %%a, [%%wctl+%zu];\n"
        "cvt.u64.u32 %%t, %%a;\n"
        "atom.global.add.u64 %%n, [%%wctl+%zu], %%t;\n"
        "setp.ge.u64 %%p, %%n, %%e;\n@%%p bra OUT;\n"
        "sub.u64 %%d, %%e, %%n;\nmin.u64 %%d, %%d, %%t;\n"
        "cvt.u32.u64 %%c, %%d;\ncvt.u32.u64 %%f, %%n;\n"
        "bra GIVE;\n"
        "RETIRE:\n"
        "red.global.add.u32 [%%wcnt+%zu], -1;\n"
        "GONE:\n"
        "mov.b64 %%d, 1;\n"
        "red.global.add.u64 [%%wctl+%zu], %%d;\n"
        "bra GIVE;\n"
        "OUT:\n"
        "red.global.add.u32 [%%wcnt+%zu], -1;\n"
        "GIVE:\n"
        "st.shared.v2.b32 [" WEIR_PTX_TASK_NAME "], {%%f, %%c};\n"
        "WAIT:\n",
        AT(done), AT(stop), AT(sm_first), AT(sm_last), AT(quota), AT(running), AT(running),
        AT(running), AT(end), AT(task_blocks), AT(next), AT(running), AT(retired), AT(running));
}

static void emit_tail(struct weir_ptx_edit *edit, uint32_t barrier)
{
    struct weir_ptx_twin *twin = edit->twin;

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
    if (twin->block_barrier) {
        weir_ptx_edit_text(edit, "bar.sync %u;\n", barrier);
    }
    weir_ptx_edit_text(edit, ".reg .pred %%p;\n"
                             "sub.u32 %%wleft, %%wleft, 1;\n"
                             "add.u32 %%wn, %%wn, 1;\n"
                             "setp.ne.u32 %%p, %%wleft, 0;\n@%%p bra BLOCK;\n");
    if (!twin->block_barrier) {
        weir_ptx_edit_text(edit, "bar.sync %u;\n", barrier);
    }
    weir_ptx_edit_text(edit, "bra TAKE;\n");
}

enum weir_status weir_ptx_pass_persistent(struct weir_ptx_twin *twin)
{
    struct weir_ptx_edit edit;
    uint32_t barrier = (uint32_t)twin->kernel->free_barrier;

    weir_ptx_edit_begin(&edit, twin, twin->entry);
    bind(&edit);
    uint32_t take = weir_ptx_edit_label(&edit, "TAKE");
    uint32_t block = weir_ptx_edit_label(&edit, "BLOCK");

    weir_ptx_grid_emit(&edit);
    emit_start(&edit);
    weir_ptx_edit_place(&edit, take);
    emit_ask(&edit);
    weir_ptx_edit_text(&edit,
                       ".reg .pred %%p;\nbar.sync %u;\n"
                       "ld.shared.v2.b32 {%%wn, %%whave}, [" WEIR_PTX_TASK_NAME "];\n"
                       "mov.b32 %%wleft, %%whave;\n"
                       "setp.ne.u32 %%p, %%whave, 0;\n@%%p bra BLOCK;\nret;\n",
                       barrier);
    weir_ptx_edit_place(&edit, block);
    weir_ptx_index_emit(&edit);
    weir_ptx_edit_keep(&edit, 0, twin->entry->n_insts);
    /* twin->tail stands at the old body's end, which is here. */
    emit_tail(&edit, barrier);
    twin->info->barriers = twin->block_barrier ? 2 : 1;
    return weir_ptx_edit_finish(&edit);
}
