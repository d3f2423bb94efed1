/*
 * What kernels contain, and in which forms they may therefore be launched.
 *
 * An analysis is made of a whole module, because a kernel is its entry and all that can be called
 * from it. Facts are rows of ptx/facts.def: bits, with the place where each was first seen. Which
 * forms a kernel admits follows from its facts alone, by the table.
 *
 * What is not in PTX is not seen here and is for the launcher to check: a launch with the
 * attributes cooperative, cluster dimension, programmatic serialisation or event, or from a
 * device-updatable graph node runs in its original form, whatever the analysis says.
 */
#ifndef WEIR_PTX_ANALYSIS_H
#define WEIR_PTX_ANALYSIS_H

#include "base/status.h"
#include "ptx/ir.h"

#define WEIR_PTX_BARRIERS 16 /* of a block (PTX ISA, barrier) */

/*
 * Kernels times what they reach (functions, their calls and variables), per module: a bound on time
 * and memory for hostile texts. A kernel that calls nothing costs 256.
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
    const char *says; /* completes "this kernel ..." */
    const char *why;  /* why the form is refused; NULL where refuses is 0 */
    uint8_t refuses;  /* bit per form that the fact refuses */
};

enum weir_ptx_analyze_flag {
    /*
     * The functions that a kernel calls through pointers are those of the same copy of the module:
     * no pointer was stored by the original for a twin to call. Then INDIRECT_GRID is not found.
     * Right for a caller that makes the twin the only copy.
     */
    WEIR_PTX_ASSUME_OWN_POINTERS = 1u << 0,
};

/* Where a fact was seen first: in source order of the entry, then of the functions in funcs. */
struct weir_ptx_place {
    const struct weir_ptx_func *func; /* NULL: the fact does not hold */
    uint32_t inst;  /* index in func->insts, WEIR_PTX_NONE for the whole function */
    uint32_t count; /* number of instructions for which it holds; 1 for whole functions */
};

/* Instructions that use one barrier number. */
struct weir_ptx_barrier_use {
    uint32_t n_sync; /* sync without a reduction; arrive and red are not among them */
    uint32_t n_arrive;
    uint32_t n_red;
    uint32_t n_counted; /* how many of these have a thread count */
    uint32_t threads;   /* the count, if all of these have the same constant one; else 0 */
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

    struct weir_ptx_barrier_use barriers[WEIR_PTX_BARRIERS]; /* with constant numbers */
    uint16_t barriers_used; /* bit per number; all of them when BARRIER_DYNAMIC */
    int8_t free_barrier;    /* the highest number not used, -1 for none */
    uint32_t n_insts;       /* of all funcs */
    uint32_t n_exits;       /* ret in the entry, exit anywhere */
    uint64_t params_size_bytes;
    uint64_t params_max_bytes;    /* for this version and target: 4352 or 32764 */
    uint64_t shared_static_bytes; /* of the .shared variables used, each aligned, in order */
    uint32_t shared_align;        /* the largest alignment among them, dynamic included; 0: none */
    uint64_t local_bytes; /* of the .local variables of all funcs: what is declared, not depth */
};

/* Immutable once made; any thread. Points into the module, which must outlive it unchanged. */
struct weir_ptx_analysis {
    const struct weir_ptx_module *module;
    struct weir_ptx_kernel *kernels; /* entries with a body, in source order */
    uint32_t n_kernels;
};

/**
 * Analyse all kernels of a module.
 *
 * Time and memory are bounded: near linear in the module, and where a hostile text would make a
 * step more than that, the step answers "may" for the rest.
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

/** The kernel of that name, or NULL. Linear. @thread any */
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
 * Why a form is refused, in one sentence without capital and full stop: that of the first fact of
 * facts.def that refuses it. NULL when the form is admitted.
 * @thread any
 */
const char *weir_ptx_kernel_why_not(const struct weir_ptx_kernel *kernel, enum weir_ptx_form form);

/** Row of facts.def. @param fact  below WEIR_PTX_FACT_COUNT. @thread any */
const struct weir_ptx_fact_info *weir_ptx_fact_info(enum weir_ptx_fact fact);

/** "original", "ticket" .. @param form  below WEIR_PTX_FORM_COUNT. @thread any */
const char *weir_ptx_form_text(enum weir_ptx_form form);

/** The form of that text, WEIR_PTX_FORM_COUNT when there is none. @thread any */
enum weir_ptx_form weir_ptx_form_from_text(const char *text);

#endif
