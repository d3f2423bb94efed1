/*
 * The programs of one user: what each holds, and which of them have ended without giving it back.
 *
 * Several processes may share a table, each with programs of its own: it is in shared memory and
 * records the process of each program. So each process sees the end of all programs, by two signs.
 * The process that serves a program marks its end once it has noticed (weir_programs_end()). And a
 * reader asks the kernel whether the program's process still exists, so a program whose parent has
 * waited for it never counts as alive.
 *
 * Internally locked (lock-free).
 */
#pragma once

#include "base/clock.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR_PROGRAMS           1024 /* number of rows in a table */
#define WEIR_PROGRAM_NAME_WORDS 16
#define WEIR_PROGRAM_NAME_BYTES (WEIR_PROGRAM_NAME_WORDS * 8)
#define WEIR_ANY_PLACE          UINT32_MAX

/* After this time an ended program counts as holding nothing; before, others wait for what it
 * holds. */
#define WEIR_ENDING_NS (5 * WEIR_NS_PER_S)

struct weir_program_row {
    atomic_uint_fast64_t token; /* never used twice; 0: the row is free */
    atomic_uint_fast64_t ended; /* equals the token once the program has ended */
    atomic_uint_fast64_t ended_ns;
    atomic_uint_fast32_t place; /* place of the process that serves the program */
    /* Pid of the program, in the serving process's namespace; 0: not known. */
    atomic_uint_fast32_t pid_here;
    atomic_uint_fast32_t pid;   /* pid by which the program knows itself; 0: not shown */
    atomic_uint_fast64_t bytes; /* device memory that the program holds */
    atomic_uint_fast64_t name[WEIR_PROGRAM_NAME_WORDS];
};

/* Zeroed: there are no programs. */
struct weir_programs {
    uint32_t ends; /* atomic; counts how often programs gave something back; also a futex for
                      those who wait for that */
    atomic_uint_fast64_t tokens;
    atomic_uint used; /* index of the first row that was never used */
    struct weir_program_row rows[WEIR_PROGRAMS];
};

/* A program's properties at some recent moment. */
struct weir_program {
    uint32_t place;
    uint32_t pid; /* 0: the program is not shown */
    bool ended;
    uint64_t bytes;
    char name[WEIR_PROGRAM_NAME_BYTES];
};

/* Sums over several programs. */
struct weir_programs_sum {
    uint32_t n_ended;
    uint64_t alive_bytes; /* device memory that the other programs hold */
};

/**
 * Add a program.
 * @param place     of the process that serves it.
 * @param pid_here  the pid of its process in this namespace; 0: not known, or not on this machine.
 * @param name      cut to 127 bytes; borrowed for the call.
 * @return its number, from 1; 0: there is no room.
 * @thread any
 */
uint32_t weir_programs_add(struct weir_programs *programs, uint32_t place, uint32_t pid_here,
                           const char *name);

/** Show a program in lists of processes. @param number 0: do nothing. @param pid its own pid; 0:
 * hide it. @thread any */
void weir_programs_show(struct weir_programs *programs, uint32_t number, uint32_t pid);

/** Set how much device memory a program holds. @param number 0: do nothing. @thread any */
void weir_programs_hold(struct weir_programs *programs, uint32_t number, uint64_t bytes);

/** Mark that a program has ended. @param number 0: do nothing. @thread any */
void weir_programs_end(struct weir_programs *programs, uint32_t number);

/**
 * Remove a program that has given back everything that was charged to it, and wake the threads that
 * wait for such an end. @param number  of the program; 0: none, then nothing is done. @thread any
 */
void weir_programs_remove(struct weir_programs *programs, uint32_t number);

/** Remove all programs that a dead process served. @thread any */
void weir_programs_settle(struct weir_programs *programs, uint32_t place);

/**
 * Get the program with a number.
 * @param number       from 1 to weir_programs_last().
 * @param ret_program  its name may be mixed from two programs if one has just followed another.
 * @return false: no program has the number; nothing is written.
 * @thread any
 */
bool weir_programs_get(const struct weir_programs *programs, uint32_t number,
                       struct weir_program *ret_program);

/** The highest number that a program has had. @thread any */
uint32_t weir_programs_last(const struct weir_programs *programs);

/**
 * Check which programs have ended.
 * @param place       only programs of this process; WEIR_ANY_PLACE: of all.
 * @param max_age_ns  a program that ended longer ago counts as alive.
 * @thread any
 */
struct weir_programs_sum weir_programs_look(struct weir_programs *programs, uint32_t place,
                                            uint64_t max_age_ns);

/** The value for weir_programs_await(). Read it before you check for what you need. @thread any */
uint32_t weir_programs_ends(const struct weir_programs *programs);

/**
 * Wait until a program gives something back, for instance because it ends
 * (weir_programs_remove()), or until the time has passed.
 * @param ends  value of weir_programs_ends(): if it has changed since, the function returns at
 *              once.
 * @thread any
 */
void weir_programs_await(struct weir_programs *programs, uint32_t ends, uint64_t timeout_ns);

/** Does no process have this number in this pid namespace? @param pid 0: not known, gives false.
 * @thread any; errno is preserved */
bool weir_process_is_gone(uint32_t pid);
