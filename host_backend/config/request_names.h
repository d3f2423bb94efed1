/*
 * The variables by which a program or a container asks for a share on demand: WEIR_MEMORY and so
 * on.
 *
 * Weir would ignore a misspelt one, and the program would silently have more than its user wanted.
 * So readers of requests refuse a variable that seems meant for Weir but is not known. Names with
 * only the prefix in common pass: Kubernetes makes WEIR_PORT and WEIR_SERVICE_HOST for a service
 * named weir.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>

/* A variable, and the key of the setting that it requests. */
struct weir_request_name {
    const char *variable, *key;
};

/** All variables, ended by a row without one. */
extern const struct weir_request_name weir_request_names[];

/**
 * Look at one variable of an environment.
 *
 * @param assignment  "NAME=VALUE"; an empty value counts as not set. Borrowed.
 * @param ret_row     the row of the setting that it asks for; NULL: it asks for none.
 * @param ret_value   in assignment, if it asks for one.
 * @param ret_diag    filled on failure: names the variable, and the one that may be meant.
 * @return WEIR_OK, WEIR_ERR_INVALID (a misspelt variable)
 * @thread any
 */
enum weir_status weir_request_variable(const char *assignment,
                                       const struct weir_request_name **ret_row,
                                       const char **ret_value,
                                       struct weir_diag *ret_diag) WEIR_MUST_CHECK;
