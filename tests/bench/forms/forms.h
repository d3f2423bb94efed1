/* A kernel in all its forms, loaded, and starting them. */
#pragma once

#include "ptx/twin/control_block.h"
#include "tests/bench/forms/work.h"

/* The forms, and the persistent one once more with its registers limited, to what lets it fit an SM
 * as often as the original or to what that has; and once more with the original's share of an SM's
 * memory for shared variables, where the form's own few bytes would take more of it off the cache;
 * and with more registers than the original has, for which fewer blocks may fit on an SM. */
enum weir_forms_build {
    WEIR_FORMS_ORIGINAL,
    WEIR_FORMS_TICKET,
    WEIR_FORMS_PERSISTENT,
    WEIR_FORMS_CAPPED,
    WEIR_FORMS_CARVED,
    WEIR_FORMS_ROOMY,
    WEIR_FORMS_BUILD_COUNT
};

/* "original" .. */
extern const char *const weir_forms_build_names[WEIR_FORMS_BUILD_COUNT];

/* Plain data: lives in memory that processes share. */
struct weir_forms_facts {
    bool there;
    char reason[160]; /* why it is not */
    int32_t registers;
    int32_t shared_bytes; /* static */
    int32_t local_bytes;
    int32_t per_sm; /* blocks */
};

struct weir_forms_set {
    const struct weir_forms_kernel *kernel;
    CUmodule original;
    CUmodule twins;
    CUmodule capped, roomy;
    CUfunction functions[WEIR_FORMS_BUILD_COUNT];
    uint32_t dynamic_shared[WEIR_FORMS_BUILD_COUNT];
    int32_t carveout[WEIR_FORMS_BUILD_COUNT]; /* attribute, in percent; -1 for the default */
    struct weir_forms_facts facts[WEIR_FORMS_BUILD_COUNT];
    volatile uint32_t *started; /* told which form was started last; borrowed, may be NULL */
    double make_ms;             /* parsing, passes, printing */
    double load_ms;             /* the driver's compiler, for the module of twins */
};

/** Tell how much of an SM's memory can be shared variables. */
void weir_forms_shared_init(uint32_t max_bytes);

/** Load a kernel and make its twins. False when not even the original could be loaded: a form that
 * is not there says why in its facts. weir_forms_set_finish() is due in any case. */
bool weir_forms_set_init(struct weir_forms_set *set, const struct weir_forms_kernel *kernel);

/** Unload. Accepts zeroes. */
void weir_forms_set_finish(struct weir_forms_set *set);

/** Make the control blocks: count of them, one after another. */
bool weir_forms_controls_init(uint32_t count);

/** Address of a control block. */
CUdeviceptr weir_forms_control(uint32_t index);

/** Zero the first count control blocks, in a stream. */
bool weir_forms_controls_clear(uint32_t count, CUstream stream);

/** Let a stream write one of the words of a control block that are the host's. */
bool weir_forms_control_write(uint32_t index, size_t offset, uint32_t value, CUstream stream);

/** Address of a word of a control block. */
CUdeviceptr weir_forms_control_word(uint32_t index, size_t offset);

/** Copy a control block to the host now. */
bool weir_forms_control_read(uint32_t index, struct weir_ptx_control *ret_control);

/**
 * Start a form: the original whole, the others with a control block.
 *
 * @param blocks  of the start; not read for the original.
 */
bool weir_forms_start(const struct weir_forms_set *set, enum weir_forms_build build,
                      struct weir_forms_work *work, struct weir_ptx_form_args *args,
                      uint32_t blocks, CUstream stream);
