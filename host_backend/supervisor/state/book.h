/*
 * The supervisor's side of the keeper (docs/design/keeper.md): processes that the keeper starts,
 * and rows that the next supervisor gets.
 *
 * All functions: @thread main. Without a keeper (sup->book is NULL: unit tests) rows go nowhere,
 * and processes are this one's children.
 */
#pragma once

#include "base/fd_pass.h"
#include "base/status.h"
#include "host_backend/keeper/keep.h"
#include "host_backend/loop/loop.h"
#include <poll.h>

struct weir_supervisor;

/* Whose a row is. Numbers stay as they are: another version's supervisor reads them. 12 was a
 * policy. */
enum weir_book_owner {
    WEIR_BOOK_WORKER = 1,    /* key: the slot; a process */
    WEIR_BOOK_READY = 2,     /* key: the slot of a worker that has said READY; its tenant */
    WEIR_BOOK_PORT = 3,      /* key: the slot of a worker; its port at the gate */
    WEIR_BOOK_GATE = 4,      /* a process */
    WEIR_BOOK_GPU = 5,       /* key: its number; described for the gate process */
    WEIR_BOOK_MPS = 6,       /* key: the domain's slot; a process */
    WEIR_BOOK_TENANT = 7,    /* key: the slot */
    WEIR_BOOK_ENTRY = 8,     /* of the directory */
    WEIR_BOOK_CHUNK = 9,     /* a kept piece of device memory */
    WEIR_BOOK_MACHINE = 10,  /* key: the machine's id */
    WEIR_BOOK_LISTENER = 11, /* a listening socket; the bytes are its name */
    WEIR_BOOK_MOVED = 13,    /* a session that has left its worker; its box */
};

/* A row of the last supervisor. */
struct weir_book_row {
    struct weir_book_row *next;
    uint32_t owner;
    uint64_t key;
    pid_t pid; /* of its process; 0: none */
    bool adopted;
    struct weir_fds fds; /* the adopter takes those that it wants, and sets them to -1 */
    uint32_t bytes;
    uint8_t data[];
};

/* A process to start. */
struct weir_book_process {
    const struct weir_keep_spawn *spawn; /* without the counts */
    const char *const *argv;             /* ends in NULL */
    const char *const (*env)[2];         /* name and value, or NULL to remove it; ends in a NULL
                                            name; the rest is this process's */
    const int *fds;                      /* as of struct weir_keep_spawn */
    uint32_t n_fds;
    const void *row; /* the row's bytes */
    uint32_t row_bytes;
    const int *row_fds; /* the row's, borrowed */
    uint32_t n_row_fds;
};

/**
 * Connect to the keeper of the run directory, or start one, and get the rows of the last
 * supervisor.
 * @return false: the log says why
 */
bool weir_book_open(struct weir_supervisor *sup);
/** Leave the keeper. @param end  the keeper kills what is left, and ends, too. */
void weir_book_close(struct weir_supervisor *sup, bool end);
/** Is there anything that the last supervisor has left running? */
bool weir_book_has_processes(const struct weir_supervisor *sup);

/** Make a row, or replace it. @param fds  n of them, borrowed; those that are -1 do not count. */
void weir_book_put(struct weir_supervisor *sup, enum weir_book_owner owner, uint64_t key,
                   const void *data, size_t bytes, const int *fds, uint32_t n);
/** Remove a row, if it is there. */
void weir_book_drop(struct weir_supervisor *sup, enum weir_book_owner owner, uint64_t key);

/** Start a process with a row. @return its pid; -1: see errno */
pid_t weir_book_spawn(struct weir_supervisor *sup, enum weir_book_owner owner, uint64_t key,
                      const struct weir_book_process *process);
/**
 * Has the keeper told that a process has ended, or was stopped or continued? Once for each event. A
 * process that has ended loses its row.
 * @param ret_status  as waitpid() gives it.
 */
bool weir_book_changed(struct weir_supervisor *sup, pid_t pid, int *ret_status);
/** Like weir_book_changed(), but only for its end. */
bool weir_book_ended(struct weir_supervisor *sup, pid_t pid, int *ret_status);
/** Wait for such an event of any process, but for at most wait_ms. */
void weir_book_wait(struct weir_supervisor *sup, int wait_ms);

/** The next row of this owner that nobody has adopted, and mark it as adopted; NULL: there is
 * none. Borrowed until weir_book_settle(). */
struct weir_book_row *weir_book_adopt(struct weir_supervisor *sup, enum weir_book_owner owner);
/** The next row of this owner, also an adopted one; after = NULL: the first. */
struct weir_book_row *weir_book_next(struct weir_supervisor *sup, enum weir_book_owner owner,
                                     struct weir_book_row *after);
/** Take a row's descriptor; -1: it has none at this place. */
int weir_book_take_fd(struct weir_book_row *row, uint32_t i);
/** The row's bytes, as a struct that may have been shorter or longer in another version. */
void weir_book_read(const struct weir_book_row *row, void *ret_value, size_t bytes);
/** A listening socket of the last supervisor by its name; -1: there is none. */
int weir_book_listener(struct weir_supervisor *sup, const char *name);
/** The next socket whose name begins like that. @param ret_name  its name. */
int weir_book_listener_like(struct weir_supervisor *sup, const char *begin, char *ret_name,
                            size_t bytes);
/** Write down a listening socket for the next supervisor. @param fd  -1: it is closed now. */
void weir_book_listens(struct weir_supervisor *sup, const char *name, int fd);
/** All have adopted what is theirs: drop the other rows, and kill their processes. */
void weir_book_settle(struct weir_supervisor *sup);

/** Forget events of processes that nobody knows. */
void weir_book_forget_events(struct weir_supervisor *sup);
/** What to poll for events of processes. */
void weir_book_poll(const struct weir_supervisor *sup, struct pollfd *ret_wait);
/** Watch for the ends of processes, and for the keeper's. @param handle  gets `sup`. */
void weir_book_watch(struct weir_supervisor *sup, struct weir_host_loop *loop,
                     weir_host_loop_fn handle);
/** Read what the keeper has sent. @return false: the keeper has ended */
bool weir_book_receive(struct weir_supervisor *sup);
