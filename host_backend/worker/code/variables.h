/*
 * The variables of a module that its kernels reach, and a copy of what they hold
 * (docs/design/rebuild.md).
 *
 * Session thread only.
 */
#pragma once

#include "base/account.h"
#include "base/status.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/code/modules.h"

struct weir_variable {
    char *name;
    uint64_t bytes;
    CUdeviceptr at; /* 0: not known yet */
    bool managed;   /* of those that were asked for */
};

struct weir_variables {
    const char *why; /* no other worker can have them; static; NULL: one can */
    bool fixed;      /* somebody may know their addresses: they must come out equal there */
    struct weir_variable *of;
    uint32_t n;
    uint64_t bytes;               /* of all */
    uint8_t *data;                /* the copy, one behind the other; NULL: none yet */
    struct weir_account *account; /* the copy is charged there */
};

/**
 * Find out which variables the kernels of an image reach, and which the program may have written.
 * What neither reaches is as it was loaded. Parses PTX. If a kernel may have stored an address, if
 * there is only machine code, or if the program has asked for an address, all variables are listed
 * and fixed.
 *
 * @param module  has an image.
 * @param sm      the device's compute capability times ten.
 * @param real    the driver takes machine code; false: softgpu.
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_variables_find(const struct weir_host_module *module, uint32_t sm, bool real,
                                     struct weir_variables **ret_variables) WEIR_MUST_CHECK;

/**
 * The guest asks for a variable's address.
 * @param variable  all but its name.
 * @param name      copied.
 * @param ret_first  has it not asked before?
 * @return WEIR_OK, WEIR_ERR_NO_MEMORY
 */
enum weir_status weir_variables_ask(struct weir_host_module *module,
                                    const struct weir_variable *variable, const char *name,
                                    bool *ret_first) WEIR_MUST_CHECK;
/** Forget what was asked for, and the variables. */
void weir_variables_forget(struct weir_host_module *module);

/** Make room for the copy, if there is none yet, and charge it as host memory.
 * @param account  the tenant's, which must outlive the variables.
 * @return WEIR_OK, WEIR_ERR_QUOTA, WEIR_ERR_NO_MEMORY */
enum weir_status weir_variables_take_room(struct weir_variables *variables,
                                          struct weir_account *account) WEIR_MUST_CHECK;

/** Accepts NULL. */
void weir_variables_destroy(struct weir_variables *variables);
