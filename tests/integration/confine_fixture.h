/* A child of a test that is confined, or not, and tries something. */
#pragma once

#include "host_backend/confine/confine.h"

#include "../lib/tl_cmocka.h"
#include <sys/wait.h>
#include <unistd.h>

static inline void run(void (*child)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        child();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static inline void confine(unsigned keeps)
{
    if (weir_confine_refuse_calls(keeps) != WEIR_OK) {
        _exit(3);
    }
}
