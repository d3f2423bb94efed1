/* The supervisor's services for clients, and its configuration. All functions: @thread main */
#pragma once

#include "host_backend/supervisor/state/supervisor.h"

/* admin.c */

/** Listen again if somebody has removed the socket's file. */
void weir_sup_admin_renew(struct weir_supervisor *sup);
/** Listen for clients; complains on stderr. @return as weir_sup_listen() */
enum weir_status weir_sup_admin_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
/** Add a note to a report. Without memory the note is dropped. */
void weir_sup_note(struct weir_status_report *report, const char *kind, const char *text);
/** May the client make changes? Only root and the host's own user may; else a note says who may.
 * @param what  the note's end, such as "do that" */
bool weir_sup_may_change(struct weir_admin_client *client, const char *what);
/** Find the tenant that a client names. NULL: there is none, and a note says so. */
struct weir_sup_tenant *weir_sup_tenant_named(struct weir_supervisor *sup,
                                              struct weir_admin_client *client, const char *name);
/** Fill a zeroed report with the last gathered state; the caller frees its tenants, extras and
 * workers. */
void weir_sup_admin_report(struct weir_supervisor *sup, struct weir_status_report *report);
/** Add a row for each tenant, or for the one with this name, with its worker's last values. */
void weir_sup_admin_tenants(struct weir_supervisor *sup, const char *name,
                            struct weir_status_report *report);
/** Ask the workers for their status, unless that is going on. @return the gathering's number */
uint64_t weir_sup_admin_gather(struct weir_supervisor *sup);
/** Like weir_sup_admin_gather(), but for the host itself: later clients do not get the result. */
void weir_sup_admin_look(struct weir_supervisor *sup);

/* gpus.c */

/** A worker is ready, and has no guest yet: should it be asked what GPUs it has? */
bool weir_sup_gpus_wanted(const struct weir_supervisor *sup, int worker);
/** A worker reports a GPU. */
void weir_sup_gpus_row(struct weir_supervisor *sup, int worker,
                       const struct weir_status_device *row);
/** A worker has reported all. */
void weir_sup_gpus_end(struct weir_supervisor *sup, int worker);
/** Add the GPUs that no worker reports to what was gathered. */
void weir_sup_gpus_report(struct weir_supervisor *sup);
/** Watch for new clients, for requests, and for room to send more of a reply. */
void weir_sup_admin_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Handle the gate process's answer to a client's request. */
void weir_sup_admin_answer(struct weir_supervisor *sup, const struct weir_link_text *answer);
/** Handle a status message of a worker, or of the gate process (-1). The file that came with it is
 * borrowed; -1: none. */
void weir_sup_admin_row(struct weir_supervisor *sup, int worker, struct weir_link_message *message,
                        int fd);
/** Answer complete and overdue requests. */
void weir_sup_admin_tick(struct weir_supervisor *sup, uint64_t now_ns);
void weir_sup_admin_close(struct weir_supervisor *sup);

/* uses.c */

/** Handle the gate process's report of SM time used and of wait times. */
void weir_sup_admin_use(struct weir_supervisor *sup, const struct weir_link_use *use);
/** Add the used SM time to the rows of sessions, and make rows of their wait times. */
void weir_sup_uses_join(struct weir_supervisor *sup);

/* why.c */

/** Handle a connection to a tenant's socket that asks why the tenant's work waits.
 * @param fd taken */
void weir_sup_asks_why(struct weir_supervisor *sup, uint32_t tenant, int fd);
/** Watch the connections that ask why work waits for room to answer. */
void weir_sup_why_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Answer the connections whose gathering is complete; close those that are late. */
void weir_sup_why_tick(struct weir_supervisor *sup, uint64_t now_ns);
void weir_sup_why_close(struct weir_supervisor *sup);

/* drain_admin.c */

/** If `weir restart` was called and no program runs, end the host; systemd starts it again. */
void weir_sup_restart_tick(struct weir_supervisor *sup, uint64_t now_ns);

/* extras.c */

/** Retry the extras that have failed. */
void weir_sup_extras_tick(struct weir_supervisor *sup, uint64_t now_ns);
void weir_sup_extras_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Add a row for each extra that the configuration asks for. */
void weir_sup_extras_report(struct weir_supervisor *sup, struct weir_status_report *report);

/* metrics_http.c */

#define WEIR_METRICS_CLIENTS_MAX 8 /* connections at a time */

/** Is that "", an address, or a path that fits? */
bool weir_sup_metrics_ok(const char *listen);
/** Listen at the configured address, if there is one; otherwise report that this extra failed. */
void weir_sup_metrics_open(struct weir_supervisor *sup);
/** After a reload: listen at this address from now on. */
void weir_sup_metrics_follow(struct weir_supervisor *sup, const char *listen);
/** Watch for clients, and for their requests and room for replies. */
void weir_sup_metrics_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Answer clients whose gathering is complete; close those that are late. */
void weir_sup_metrics_tick(struct weir_supervisor *sup, uint64_t now_ns);
void weir_sup_metrics_close(struct weir_supervisor *sup);

/* check.c */

/** Do the sockets' paths fit? If not, prints which does not. */
bool weir_sup_check_names(const struct weir_supervisor *sup);
/** Does all that the configuration asks for exist on this machine? Prints what is missing. To be
 * called when the workers' user is known. */
bool weir_sup_check(const struct weir_supervisor *sup);

/* load.c */

/**
 * Read the configuration file, override it with the command line, and check it. Reports errors on
 * stderr.
 * @return WEIR_OK, or the error
 */
enum weir_status weir_sup_load(const struct weir_serve_params *params,
                               struct weir_host_config *config) WEIR_MUST_CHECK;
/** Open the log as the configuration says, or on standard error where its file cannot be opened.
 * With --check the log's file is not created.
 * @return false, the setting is wrong; the error is on stderr */
bool weir_sup_open_log(struct weir_supervisor *sup);

/* signals.c */

/** Receive signals through a descriptor: SIGCHLD, SIGHUP, SIGINT, SIGTERM.
 * @return WEIR_OK, WEIR_ERR_IO */
enum weir_status weir_sup_signals_open(struct weir_supervisor *sup) WEIR_MUST_CHECK;
void weir_sup_signals_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
/** Watch for the ends of processes that the keeper has started, and for its own. */
void weir_sup_ends_watch(struct weir_supervisor *sup, struct weir_host_loop *loop);
void weir_sup_ends_tick(struct weir_supervisor *sup, uint64_t now_ns);

/* hear.c */

/** The functions to call when a worker's state changes: for weir_supervisor.listener. */
extern const struct weir_worker_events weir_worker_events;

/** Handle a message of a worker, if the worker may send it, and close its descriptor. */
void weir_sup_hear(struct weir_supervisor *sup, int worker, struct weir_link_heard *heard);
