/* The facts of one function, without those of its callees. Private to ptx/. */
#pragma once

#include "ptx/analysis.h"

struct weir_ptx_seen {
    uint32_t fact; /* enum weir_ptx_fact */
    uint32_t inst; /* the first instruction with the fact */
    uint32_t count;
};

struct weir_ptx_edge {
    uint32_t func; /* callee's id; module->n_funcs: through a pointer */
    uint32_t inst;
    bool parted; /* called at a place where threads may have parted */
    bool ended;  /* like parted, and some threads may have left */
};

/* One function with a body. Owned by the analysis while it works. */
struct weir_ptx_scan {
    uint64_t facts;
    struct weir_ptx_seen *seen;
    uint32_t n_seen;
    struct weir_ptx_edge *edges;
    uint32_t n_edges;
    uint32_t *shared; /* ids of the module's .shared variables that the function names */
    uint32_t n_shared;
    /* One for each of WEIR_PTX_BARRIERS; NULL: the function uses no barrier. */
    struct weir_ptx_barrier_use *barriers;
    uint32_t n_exits;
    uint32_t n_full;   /* number of barriers of all threads, which have no count */
    uint32_t full;     /* the first of these barriers */
    uint32_t n_parted; /* number of these barriers where threads may have parted */
    uint32_t parted;
    /* Counts of warp-wide instructions (ptx/warp.h). [1]: those where threads may have left the
     * function. */
    struct weir_ptx_warp_use {
        uint32_t n;
        uint32_t first;
        uint32_t n_other; /* number of these whose mask may name threads that have ended */
        uint32_t other;
    } warp[2];
    bool has_red; /* one of these barriers reduces */
    /* An access sees other blocks' writes; later this includes called functions. */
    bool sees;
};

/**
 * Scan a function.
 *
 * @param module    borrowed.
 * @param func      with a body.
 * @param taken     one for each function of the module; set if its address is taken here.
 * @param stamps    one for each variable of the module: the last function that named it, for the
 *                  scanner; zeros at first.
 * @param ret_scan  zeroed; filled. To be freed with weir_ptx_scan_finish(), also on failure.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 * @thread any
 */
enum weir_status weir_ptx_scan_func(const struct weir_ptx_module *module,
                                    const struct weir_ptx_func *func, bool *taken, uint32_t *stamps,
                                    struct weir_ptx_scan *ret_scan) WEIR_MUST_CHECK;

/** Note a fact of an instruction, or of the function (WEIR_PTX_NONE). @return false: no memory */
bool weir_ptx_scan_note(struct weir_ptx_scan *scan, enum weir_ptx_fact fact, uint32_t inst);

/** Is an instruction a barrier of all threads of the block? @thread any */
bool weir_ptx_is_full_barrier(const struct weir_ptx_inst *inst);

/** The fact of a function without body: one of the device runtime's, or UNKNOWN_CALL. */
enum weir_ptx_fact weir_ptx_fact_of_extern(const char *name);

/** Free what a scan holds. @thread any */
void weir_ptx_scan_finish(struct weir_ptx_scan *scan);

/** A function, or the one of which it is an alias. @thread any */
const struct weir_ptx_func *weir_ptx_func_of(const struct weir_ptx_func *func);
