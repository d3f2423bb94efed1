/* How a subcommand asks a running host. */
#pragma once

#include "host_backend/config/control.h"

/**
 * weir_control_ask(), with complaints on stderr when it fails.
 *
 * @param command   the subcommand's name.
 * @param ret_exit  on failure, the exit status.
 * @return the report, which the caller destroys; NULL on failure
 */
struct weir_status_report *weir_ask(const char *command, const char *run_dir,
                                    const char *const *words, size_t n_words, int fd,
                                    int *ret_exit);

/** Complain on stderr of what no tenant can be called: a socket of another kind has the name. */
bool weir_ask_tenant_good(const char *command, const char *tenant);

/** Would the host take programs with the guest library of this installation? Also where it does not
 * say what it speaks. */
bool weir_speaks_same(const struct weir_status_report *report);

/** Print the host's notes on stderr. @return false: it refused the request */
bool weir_ask_notes(const char *command, const struct weir_status_report *report);

/** Ask the host to do something, and print its notes on stderr. @return the exit status */
int weir_ask_to(const char *command, const char *run_dir, const char *const *words, size_t n_words);

/**
 * Count the programs that run.
 *
 * @param tenant  of this tenant; NULL: of all.
 * @param names   gets "3 programs (alice 2, bob 1)" or so; NULL: not wanted.
 */
unsigned weir_ask_programs(const struct weir_status_report *report, const char *tenant,
                           char names[256]);

/** Does a command mean this session? @param session  its number as a text; NULL: all of the
 * tenant's programs */
bool weir_session_is_meant(const struct weir_status_session *s, const char *tenant,
                           const char *session);

/**
 * List the programs that a worker serves, by tenant: "alice: train (12), bob: infer (34)", or "no
 * program".
 *
 * @return room; what does not fit is left out.
 */
const char *weir_worker_programs(const struct weir_status_report *report,
                                 const struct weir_status_worker *worker, char *room, size_t bytes);

/** Print that the host cannot be asked. @return the exit status */
int weir_ask_failed(const char *command, const char *run_dir, enum weir_status status);
