/*
 * The parts of weir doctor: reporting a check, looking at files as another user, and checking a
 * host. All functions: @thread main
 */
#pragma once

#include "host_backend/config/control.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* doctor_tell.c: one line for each check, on standard output. */

/** From now on a JSON object for each check. */
void weir_doctor_use_json(void);
/** All is well with something. */
void weir_doctor_ok(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** A way to a host, which is no fault if it is closed. */
void weir_doctor_way(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** @param kind  "warning" or "problem". @param remedy  what mends it: a command, if there is one */
void weir_doctor_mend(const char *kind, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** weir_doctor_mend() with a remedy that has one path or name in it. */
void weir_doctor_mend_at(const char *kind, const char *remedy, const char *where,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));
/** Print the last line. @return the exit status */
int weir_doctor_end(void);

/* doctor_eyes.c: what another user can reach, tried as that user by root only. */

struct weir_eyes {
    char whose[80]; /* for people: "user ann" */
    char name[64];  /* name of the user whose groups count; "": only gid */
    uid_t uid;
    gid_t gid;
};

/** The eyes of a user; false: there is no such user. @param user  a name or a number. */
bool weir_eyes_of(const char *user, struct weir_eyes *ret_eyes);
/** Those of a user who owns nothing here; in a group, unless that is root's. */
void weir_eyes_of_anybody(gid_t group, struct weir_eyes *ret_eyes);
/**
 * May this user do that with a file?
 * @param mode        as of access().
 * @param ret_closed  the folder of the path that is closed to the user; "": it is the file itself.
 * @return 0, or an errno
 */
int weir_eyes_access(const struct weir_eyes *eyes, const char *path, int mode,
                     char ret_closed[PATH_MAX]);
/** Can this user's programs load a library? @param why  filled if not. */
bool weir_eyes_load(const struct weir_eyes *eyes, const char *library, char *why, size_t bytes);
/** Say that they cannot. @param kind  as of weir_doctor_mend(). @param why  of weir_eyes_load() */
void weir_eyes_load_fails(const char *kind, const struct weir_eyes *eyes, const char *library,
                          const char *why);

/**
 * Run a program, and collect what it says on standard output and error.
 * @param eyes     as whom; NULL: as this process.
 * @param argv     ended by NULL; argv[0] is looked for in PATH.
 * @param limit_s  after which it is killed.
 * @return its exit status; 127: it cannot be executed; 126: this process cannot become that user;
 * -1: it was killed, or there is no process
 */
int weir_doctor_run(const struct weir_eyes *eyes, const char *const *argv, unsigned limit_s,
                    char *ret_text, size_t bytes);

/** Does somebody listen at a unix socket? Also where that cannot be told. @param type  SOCK_.. */
bool weir_doctor_is_served(const char *path, int type);

#ifndef WEIR_GUEST_TOOL
struct weir_host_config;

/* doctor_host.c */

/** Look at what users, containers and machines need of a host that runs, if it is this user's, or
 * this is root. */
void weir_doctor_host(const struct weir_status_report *report);
/** Say why no host is up. @param run_dir  as on the command line; NULL: the default. */
void weir_doctor_no_host(const char *run_dir);

/* doctor_places.c: folders, sockets, the library */
void weir_doctor_places(const struct weir_status_report *report,
                        const struct weir_host_config *config);
/* doctor_containers.c: the CDI file, and the hook of its devices */
void weir_doctor_containers(const struct weir_status_report *report,
                            const struct weir_host_config *config);
/* doctor_services.c: ports, keys, libvirt, MPS, Slurm */
void weir_doctor_services(const struct weir_status_report *report,
                          const struct weir_host_config *config);
/** Does a process of this name run? Also one whose name is longer than the kernel's 15 letters.
 * @param parent  whose child it is; 0: anybody's. */
bool weir_doctor_has_process(const char *name, pid_t parent);
#endif
