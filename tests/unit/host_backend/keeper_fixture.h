/* A keeper for a unit test, as a child of the test. */
#pragma once

#include "host_backend/keeper/keep.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/supervisor.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A connection to the keeper of a folder. */
static inline int keeper_connect(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s/" WEIR_KEEP_SOCKET, folder);
    while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        poll(NULL, 0, 1);
    }
    return fd;
}

/* A keeper of this run directory, whose supervisor is `of` from now on. */
static inline pid_t start_keeper(struct weir_supervisor *of, char *folder)
{
    char keep[] = "keep", *words[] = {keep, folder, NULL};
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(weir_keeper_main(2, words));
    }
    close(keeper_connect(folder)); /* it listens */
    snprintf(of->config.run_dir, sizeof of->config.run_dir, "%s", folder);
    assert_true(weir_book_open(of));
    return pid;
}
