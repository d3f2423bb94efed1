/*
 * A twin while passes run on it, and the editor that the passes use for bodies. Private to ptx/.
 *
 * A pass rebuilds a body from front to back: it copies the instructions it keeps, and writes new
 * ones as PTX text, which the module's own parser turns into instructions. Names in that text that
 * were bound with weir_ptx_edit_reg() and weir_ptx_edit_label() are the same register or label in
 * every text; others are local to it. The variables of struct weir_ptx_twin have the names below.
 */
#pragma once

#include "base/status.h"
#include "ptx/ir.h"
#include "ptx/ptx.h"
#include "ptx/twin/control_block.h"
#include "ptx/twin/twin.h"

#define WEIR_PTX_ARGS_NAME    "weir$args"    /* parameter: struct weir_ptx_form_args */
#define WEIR_PTX_TASK_NAME    "weir$task"    /* shared: the task's first block, and form values */
#define WEIR_PTX_INDEX_NAME   "weir$index"   /* shared: block index and grid size, .v4 each */
#define WEIR_PTX_DYNAMIC_NAME "weir$dynamic" /* the dynamic shared memory */

#define WEIR_PTX_SLOT_ALIGN  16u
#define WEIR_PTX_TASK_BYTES  16u
#define WEIR_PTX_INDEX_BYTES 32u

/* Registers of the twin's entry that every pass may name; b32. */
enum weir_ptx_virtual {
    WEIR_PTX_VIRTUAL_X, /* %wx %wy %wz: the logical block index */
    WEIR_PTX_VIRTUAL_Y,
    WEIR_PTX_VIRTUAL_Z,
    WEIR_PTX_VIRTUAL_GX, /* %wgx %wgy %wgz: the logical grid */
    WEIR_PTX_VIRTUAL_GY,
    WEIR_PTX_VIRTUAL_GZ,
    WEIR_PTX_VIRTUAL_N, /* %wn: the linear index */
    WEIR_PTX_VIRTUAL_COUNT
};

/* Owner thread only; lives for one weir_ptx_twin(). */
struct weir_ptx_twin {
    struct weir_ptx_module *module;
    const struct weir_ptx_kernel *kernel; /* analysis of the original kernel */
    struct weir_ptx_func *entry;          /* the twin */
    enum weir_ptx_form form;
    /* Functions that the twin calls: copies, or originals that were changed in place. */
    struct weir_ptx_func **funcs;
    uint32_t n_funcs;
    bool in_place; /* some of the functions are not copies */
    struct weir_ptx_var *args;
    struct weir_ptx_var *task;  /* ticket, persistent: weir$task or weir$dynamic */
    struct weir_ptx_var *index; /* variable from which called functions read the index, else NULL */
    struct weir_ptx_var *binds; /* weir$binds, in the pass that makes it */
    bool slot_dynamic;          /* task and index lie at the end of the dynamic shared memory */
    uint32_t virtuals[WEIR_PTX_VIRTUAL_COUNT]; /* ids of the virtual registers in entry */
    uint32_t tail;                             /* persistent: label that ends a logical block */
    bool block_barrier; /* persistent: logical blocks of one task must not overlap */
    bool warp_votes;    /* persistent: warp-wide instructions in a parted warp need a vote */
    struct weir_ptx_twin_info *info;
};

struct weir_ptx_flow;

struct weir_ptx_edit_name {
    char text[16];
    uint8_t type; /* type of a register; WEIR_PTX_TYPE_NONE for a label */
    uint32_t id;
};

#define WEIR_PTX_EDIT_NAMES 32u

/* A body being rebuilt; on the heap until weir_ptx_edit_finish(). */
struct weir_ptx_edit {
    struct weir_ptx_twin *twin;
    struct weir_ptx_func *func;
    enum weir_status status; /* the first failure; later calls do nothing */
    struct weir_ptx_inst *insts;
    uint32_t n_insts;
    uint32_t cap_insts;
    struct weir_ptx_reg *regs;
    uint32_t n_regs;
    uint32_t cap_regs;
    struct weir_ptx_label *labels; /* for old labels, inst still refers to the old body */
    uint32_t n_labels;
    uint32_t cap_labels;
    uint32_t n_old_labels;
    uint32_t *moved; /* new place of each old instruction, and of the end */
    struct weir_ptx_edit_name names[WEIR_PTX_EDIT_NAMES];
    uint32_t n_names;
};

/** Begin with an empty new body. The virtual registers are bound when func is the twin's entry. */
void weir_ptx_edit_begin(struct weir_ptx_edit *edit, struct weir_ptx_twin *twin,
                         struct weir_ptx_func *func);

/** Note that the new body's end is the place of old instruction i (n_insts: the end): its labels
 * come here. */
void weir_ptx_edit_mark(struct weir_ptx_edit *edit, uint32_t i);

/** Append an instruction; its operands are borrowed from the module. @return it, NULL on failure */
struct weir_ptx_inst *weir_ptx_edit_add(struct weir_ptx_edit *edit,
                                        const struct weir_ptx_inst *inst);

/** Make a new register bound to a name. */
uint32_t weir_ptx_edit_reg(struct weir_ptx_edit *edit, const char *name, enum weir_ptx_type type);

/** Is a name bound to a register now? */
bool weir_ptx_edit_is_bound(const struct weir_ptx_edit *edit, const char *name);

/** Bind an existing register. */
void weir_ptx_edit_bind(struct weir_ptx_edit *edit, const char *name, enum weir_ptx_type type,
                        uint32_t reg);

/** Make a new label bound to a name; define it with weir_ptx_edit_place(). */
uint32_t weir_ptx_edit_label(struct weir_ptx_edit *edit, const char *name);

/** Define a label here. */
void weir_ptx_edit_place(struct weir_ptx_edit *edit, uint32_t label);

/** Append instructions written as PTX, with printf's conversions. */
void weir_ptx_edit_text(struct weir_ptx_edit *edit, const char *fmt, ...) WEIR_PRINTF(2, 3);

/** Install the new body in the function, or fail. Frees the editor's memory in any case. */
enum weir_status weir_ptx_edit_finish(struct weir_ptx_edit *edit) WEIR_MUST_CHECK;

/** Copy old instructions first .. end - 1, each at its mark. */
void weir_ptx_edit_keep(struct weir_ptx_edit *edit, uint32_t first, uint32_t end);

/* clone.c */

/** Copy a function under a name of its own, and add it to the module behind the original. */
enum weir_status weir_ptx_clone(struct weir_ptx_module *module, struct weir_ptx_func *func,
                                const char *name, struct weir_ptx_func **ret_clone);

/** Append a parameter to an entry that nobody else uses. */
enum weir_status weir_ptx_add_args(struct weir_ptx_module *module, struct weir_ptx_func *entry,
                                   struct weir_ptx_var **ret_args);

/** Find or make the module's shared variable of a name; 0 bytes: dynamic. */
enum weir_status weir_ptx_shared_var(struct weir_ptx_module *module, const char *name,
                                     uint32_t bytes, struct weir_ptx_var **ret_var);

/** Add a variable to the module, before all others: a copy of var with an id. NULL: no memory. */
struct weir_ptx_var *weir_ptx_add_var(struct weir_ptx_module *module,
                                      const struct weir_ptx_var *from);

/** Add a new entry without parameters and instructions, behind all others. NULL: no memory. */
struct weir_ptx_func *weir_ptx_add_entry(struct weir_ptx_module *module, const char *name);

/** Does a body declare variables that outlive a block? */
bool weir_ptx_func_has_static(const struct weir_ptx_func *func);

/** Is an entry a twin? */
bool weir_ptx_is_twin(const struct weir_ptx_func *entry);

/** Allocate text in the module's arena; NULL: no memory. */
char *weir_ptx_pass_text(struct weir_ptx_module *module, const char *fmt, ...) WEIR_PRINTF(2, 3);

/* reach.c */

/** Does an instruction read the block index or the grid's size, as written or changed? */
bool weir_ptx_inst_loads_index(const struct weir_ptx_inst *inst);

/** Does an instruction read the special registers of the block index or the grid's size? */
bool weir_ptx_inst_reads_index(const struct weir_ptx_inst *inst);

/** Must a special register be replaced in a twin? */
bool weir_ptx_sreg_is_index(uint16_t sreg);

/** Is any instruction of a function one of those? */
bool weir_ptx_func_has(const struct weir_ptx_func *func,
                       bool (*is)(const struct weir_ptx_inst *inst));

/**
 * Does is() hold in some function of the kernel that a pointer can reach? The twin cannot have its
 * own copy of such a function.
 */
enum weir_status weir_ptx_pointed_has(struct weir_ptx_module *module,
                                      const struct weir_ptx_kernel *kernel,
                                      bool (*is)(const struct weir_ptx_inst *inst),
                                      bool *ret_has) WEIR_MUST_CHECK;

/**
 * Fill twin->funcs: copies of the functions for which is() holds somewhere, and of their callers;
 * calls in the twin go to the copies. Functions that a pointer can reach are not copied.
 */
enum weir_status
weir_ptx_copy_reached(struct weir_ptx_twin *twin,
                      bool (*is)(const struct weir_ptx_inst *inst)) WEIR_MUST_CHECK;

/* warp_exit.c */

/**
 * Does a kernel's twin that loops need votes for instructions that wait for other threads of their
 * warp (weir_ptx_inst_is_warp_sync())?
 *
 * @param ret_why_not  NULL, or the reason why the kernel cannot have such a twin.
 */
enum weir_status weir_ptx_warp_exits(const struct weir_ptx_kernel *kernel, bool *ret_votes,
                                     const char **ret_why_not) WEIR_MUST_CHECK;

/* State for the warp instructions of one body that is being rewritten. */
struct weir_ptx_warp_edit {
    struct weir_ptx_flow *flow; /* flow of the old body */
    uint32_t *writes;           /* the only instruction that writes each register */
    bool on;
    bool is_entry;
    uint32_t mask;  /* register with the last vote, WEIR_PTX_NONE: none yet */
    uint32_t block; /* block in which the vote was taken */
};

/** Begin; before weir_ptx_edit_finish() of the same body, call weir_ptx_warp_edit_finish(). */
enum weir_status weir_ptx_warp_edit_begin(struct weir_ptx_warp_edit *we, struct weir_ptx_twin *twin,
                                          struct weir_ptx_func *func) WEIR_MUST_CHECK;
void weir_ptx_warp_edit_finish(struct weir_ptx_warp_edit *we);

/** Write old instruction i with a vote, if it needs one. @return whether it was written */
bool weir_ptx_warp_edit_inst(struct weir_ptx_warp_edit *we, struct weir_ptx_edit *edit, uint32_t i);

/** Write the part of the tail that answers votes. */
void weir_ptx_warp_tail_emit(struct weir_ptx_edit *edit);

/* slot.c */

/** Do a kernel's twins have their slot at the end of the dynamic shared memory? */
bool weir_ptx_slot_is_dynamic(const struct weir_ptx_module *module,
                              const struct weir_ptx_kernel *kernel);

/** Is there room for that slot? A kernel must not read the size that it would change. */
bool weir_ptx_slot_has_room(const struct weir_ptx_module *module,
                            const struct weir_ptx_kernel *kernel);

/** Make the variable for a part of the slot. @param name WEIR_PTX_TASK_NAME or
 * WEIR_PTX_INDEX_NAME. */
enum weir_status weir_ptx_slot_make(struct weir_ptx_twin *twin, const char *name, uint32_t bytes,
                                    struct weir_ptx_var **ret_var) WEIR_MUST_CHECK;

/**
 * The address of a part of the slot for the next texts: a name, or a register, which is loaded
 * here.
 */
const char *weir_ptx_slot_task(struct weir_ptx_edit *edit);
const char *weir_ptx_slot_index(struct weir_ptx_edit *edit);

/* ptx/pass/virtual_index.c */

/** Load the logical grid into %wgx .. %wgz. */
void weir_ptx_grid_emit(struct weir_ptx_edit *edit);

/** Write the index of block %wn into %wx .. %wz (and where functions read it). */
void weir_ptx_index_emit(struct weir_ptx_edit *edit);

/* strip.c */

/** Remove everything but twins and what they use. Uses in initialisers do not count. */
enum weir_status weir_ptx_strip(struct weir_ptx_module *module) WEIR_MUST_CHECK;

/** Remove the variables in .global space. */
void weir_ptx_drop_globals(struct weir_ptx_module *module);

/** Make every .const variable a visible one of this module, without initialiser. */
void weir_ptx_define_consts(struct weir_ptx_module *module);

/* bind.c */

/**
 * Replace the addresses of .global variables by values of the table WEIR_PTX_BINDS_NAME.
 *
 * @param ret_names  the names, in the order of the table.
 */
enum weir_status weir_ptx_bind(struct weir_ptx_module *module, const char *const **ret_names,
                               uint32_t *ret_n) WEIR_MUST_CHECK;

/* ptx/pass/passes.c */

/** Apply the passes of the twin's form, in the order of passes.def. */
enum weir_status weir_ptx_passes_run(struct weir_ptx_twin *twin) WEIR_MUST_CHECK;
