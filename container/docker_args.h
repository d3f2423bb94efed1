/* A container's edits as arguments of `docker run`, for engines that do not know CDI (Docker before
 * 25). */
#pragma once

#include "container/edits.h"
#include <stdio.h>

/**
 * Write the arguments, on one line with blanks between them, fit for $(...) in a shell.
 *
 * The shell splits the line at blanks and docker reads each --mount as comma-separated values, so
 * paths with blanks, commas, quotes or the shell's wildcards cannot be written.
 *
 * @param edits      lists whose mounts and variables are written, one after the other; borrowed.
 * @param ret_wrong  on WEIR_ERR_INVALID the path that is to blame, borrowed from edits.
 * @return WEIR_OK, WEIR_ERR_INVALID (nothing was written), WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_docker_args_write(FILE *out, const struct weir_container_edits *const *edits,
                                        size_t n_edits, const char **ret_wrong) WEIR_MUST_CHECK;

/**
 * Write the same as a compose file that adds it to one service, for `docker compose -f FILE -f`
 * this file.
 *
 * @param service    its name in the other file: letters, digits, ".", "_", "-".
 * @param ret_wrong  on WEIR_ERR_INVALID the text that is to blame: the service's name, or a path
 *                   with control characters or a "$", which compose would replace.
 * @return WEIR_OK, WEIR_ERR_INVALID (nothing was written), WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_docker_compose_write(FILE *out, const char *service,
                                           const struct weir_container_edits *const *edits,
                                           size_t n_edits, const char **ret_wrong) WEIR_MUST_CHECK;
