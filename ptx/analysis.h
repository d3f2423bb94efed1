/*
 * What kernels contain, and in which forms they may therefore be launched.
 *
 * An analysis is made of a whole module, because a kernel is its entry and all that can be called
 * from it. Facts are rows of ptx/facts.def: bits, with the place where each was first seen. Which
 * forms a kernel admits follows from its facts alone, by the table.
 *
 * The launcher must check what PTX does not contain: a launch with the attributes cooperative,
 * cluster dimension, programmatic serialisation or event, or from a device-updatable graph node
 * runs in its original form, whatever the analysis says.
 */
#pragma once

#include "base/status.h"
#include "ptx/ir.h"

#define WEIR_PTX_BARRIERS 16 /* number of barriers of a block (PTX ISA, barrier) */

/*
 * Bounds time and memory for hostile texts: the sum over a module's kernels of what each reaches
 * (functions, their calls and variables). A kernel that calls nothing costs 256.
 */
#define WEIR_PTX_MAX_ANALYSIS_VISITS (16u << 20)

enum weir_ptx_form {
#define WEIR_PTX_FORM_ROW(name, text) WEIR_PTX_FORM_##name,
#include "ptx/forms.def"
#undef WEIR_PTX_FORM_ROW
    WEIR_PTX_FORM_COUNT
};

enum weir_ptx_fact {
#define WEIR_PTX_FACT_ROW(name, key, refuses, says, why) WEIR_PTX_FACT_##name,
#include "ptx/facts.def"
#undef WEIR_PTX_FACT_ROW
    WEIR_PTX_FACT_COUNT
};
_Static_assert(WEIR_PTX_FACT_COUNT <= 64, "facts are bits of a uint64_t");

struct weir_ptx_fact_info {
    const char *key;  /* "early_exit" */
    const char *says; /* the fact, as a sentence that begins with "this kernel" */
    const char *why;  /* reason why the form is refused; NULL if `refuses` is 0 */
    uint8_t refuses;  /* bit per form that the fact refuses */
};

enum weir_ptx_analyze_flag {
    /*
     * Functions that a kernel calls through pointers are those of the same copy of the module: a
     * twin never calls a pointer that the original has stored. Then INDIRECT_GRID is not found.
     * Only for a caller that makes the twin the only copy.
     */
    WEIR_PTX_ASSUME_OWN_POINTERS = 1u << 0,
};

/* Where a fact was first seen: in source order of the entry, then of the functions in funcs. */
struct weir_ptx_place {
    const struct weir_ptx_func *func; /* NULL: the fact does not hold */
    uint32_t inst;  /* index in func->insts, WEIR_PTX_NONE for the whole function */
    uint32_t count; /* number of instructions with the fact; 1 for a function */
};

/* Instructions that use one barrier number. */
struct weir_ptx_barrier_use {
    uint32_t n_sync; /* number of sync without a reduction; arrive and red do not count */
    uint32_t n_arrive;
    uint32_t n_red;
    uint32_t n_counted; /* how many of these sync have a thread count */
    uint32_t threads;   /* the thread count, if all of these have the same constant; else 0 */
};

/* One entry. Immutable; points into the module. */
struct weir_ptx_kernel {
    const struct weir_ptx_func *entry;
    uint64_t facts; /* bit per enum weir_ptx_fact */
    uint8_t forms;  /* bit per enum weir_ptx_form; ORIGINAL is always set */
    struct weir_ptx_place places[WEIR_PTX_FACT_COUNT];

    /* The entry, then every function with a body that can be called from it. */
    const struct weir_ptx_func *const *funcs;
    uint32_t n_funcs;

    struct weir_ptx_barrier_use barriers[WEIR_PTX_BARRIERS]; /* those with constant numbers */
    uint16_t barriers_used; /* bit per number; all of them when BARRIER_DYNAMIC */
    int8_t free_barrier;    /* the highest number not used, -1 for none */
    uint32_t n_insts;       /* number of instructions of all funcs */
    uint32_t n_exits;       /* number of ret in the entry, and of exit anywhere */
    uint64_t params_size_bytes;
    uint64_t params_max_bytes;    /* limit of parameters, by version and target: 4352 or 32764 */
    uint64_t shared_static_bytes; /* sum of the used .shared variables, each aligned, in order */
    uint32_t shared_align;        /* largest alignment of those and the dynamic memory; 0: none */
    uint64_t local_bytes;         /* sum of all funcs' .local variables, each once */
};

/* Immutable once made; any thread. Points into the module, which must outlive it unchanged. */
struct weir_ptx_analysis {
    const struct weir_ptx_module *module;
    struct weir_ptx_kernel *kernels; /* the entries with a body, in source order */
    uint32_t n_kernels;
};

/**
 * Analyse all kernels of a module.
 *
 * Time and memory are bounded: near linear in the module. If a hostile text would need more in some
 * step, that step answers "may" for the rest.
 *
 * @param module        checked (as parsed, or weir_ptx_check() after a pass); borrowed until
 *                      weir_ptx_analysis_destroy(), and not to be changed until then.
 * @param flags         enum weir_ptx_analyze_flag, or 0.
 * @param ret_analysis  gives the analysis.
 * @return WEIR_OK
 * @return WEIR_ERR_TOO_BIG    more than WEIR_PTX_MAX_ANALYSIS_VISITS.
 * @return WEIR_ERR_NO_MEMORY
 * @thread any; the module is only read
 * @source docs/design/kernel-forms.md
 */
enum weir_status weir_ptx_analyze(const struct weir_ptx_module *module, uint32_t flags,
                                  struct weir_ptx_analysis **ret_analysis) WEIR_MUST_CHECK;

/** Free an analysis. Accepts NULL. @thread any, once */
void weir_ptx_analysis_destroy(struct weir_ptx_analysis *analysis);

/** Find the kernel of a name; NULL: none. Linear. @thread any */
const struct weir_ptx_kernel *weir_ptx_analysis_find(const struct weir_ptx_analysis *analysis,
                                                     const char *name);

/** Whether a fact holds. @thread any */
static inline bool weir_ptx_kernel_has(const struct weir_ptx_kernel *kernel,
                                       enum weir_ptx_fact fact)
{
    return kernel->facts >> fact & 1;
}

/** Whether a kernel may be launched in a form. @thread any */
static inline bool weir_ptx_kernel_admits(const struct weir_ptx_kernel *kernel,
                                          enum weir_ptx_form form)
{
    return kernel->forms >> form & 1;
}

/** The facts that refuse a form to a kernel, a bit each; 0 when it is admitted. @thread any */
uint64_t weir_ptx_kernel_refusals(const struct weir_ptx_kernel *kernel, enum weir_ptx_form form);

/**
 * The reason why a form is refused, as a sentence without capital and full stop, from the first
 * fact of facts.def that refuses it. NULL: the form is admitted.
 * @thread any
 */
const char *weir_ptx_kernel_why_not(const struct weir_ptx_kernel *kernel, enum weir_ptx_form form);

/** The row of a fact in facts.def. @param fact below WEIR_PTX_FACT_COUNT. @thread any */
const struct weir_ptx_fact_info *weir_ptx_fact_info(enum weir_ptx_fact fact);

/** The name of a form: "original", "ticket" .. @param form below WEIR_PTX_FORM_COUNT.
 * @thread any */
const char *weir_ptx_form_text(enum weir_ptx_form form);

/** Find the form of a name; WEIR_PTX_FORM_COUNT: there is none. @thread any */
enum weir_ptx_form weir_ptx_form_from_text(const char *text);
