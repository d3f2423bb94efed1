/* Which host has a GPU: the first; its claim ends with it; and who it is can be told. */
#include "../../lib/tl_cmocka.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/workers/claims.h"
#include "host_backend/supervisor/workers/workers.h"
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char uuid[48]; /* of this test's process: others run at the same time */

static int set_up(void **state)
{
    (void)state;
    snprintf(uuid, sizeof uuid, "GPU-test-%d", (int)getpid());
    return 0;
}

/* A process that has claimed the GPU, and answers n times if asked. */
static pid_t holder(unsigned n)
{
    int said[2];
    pid_t pid;
    char byte;

    assert_int_equal(pipe(said), 0);
    pid = fork();
    if (pid == 0) {
        static struct weir_supervisor sup;
        struct weir_claim_holder none;

        snprintf(sup.config.run_dir, sizeof sup.config.run_dir, "/run/other");
        if (weir_claims_take(&sup.claims, uuid, &none) != WEIR_OK || write(said[1], "", 1) != 1) {
            _exit(1);
        }
        (void)fcntl(sup.claims.of[0].fd, F_SETFL, 0);
        while (n-- != 0) {
            weir_sup_claim_answer(&sup, 0);
        }
        pause();
        _exit(0);
    }
    close(said[1]);
    assert_int_equal(read(said[0], &byte, 1), 1);
    close(said[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void take_of_a_free_gpu_succeeds_again_and_again(void **state)
{
    static struct weir_claims claims;
    struct weir_claim_holder who;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_claims_take(&claims, uuid, &who), WEIR_OK);
        assert_int_equal(who.pid, -1);
        assert_int_equal(claims.n, 1);
    }
    weir_claims_release(&claims);
    assert_int_equal(weir_claims_take(&claims, uuid, &who), WEIR_OK);
    weir_claims_release(&claims);
}

static void take_of_anothers_gpu_names_it_and_its_end_frees_it(void **state)
{
    static struct weir_claims claims;
    struct weir_claim_holder who;
    pid_t pid = holder(1);

    (void)state;
    assert_int_equal(weir_claims_take(&claims, uuid, &who), WEIR_ERR_EXISTS);
    assert_int_equal(who.pid, pid);
    assert_int_equal(who.uid, getuid());
    assert_string_equal(who.run_dir, "/run/other");
    assert_int_equal(claims.n, 0);
    end(pid); /* by SIGKILL: nothing is left */
    assert_int_equal(weir_claims_take(&claims, uuid, &who), WEIR_OK);
    weir_claims_release(&claims);
}

static void take_of_a_name_that_nobody_listens_on_succeeds(void **state)
{
    static struct weir_claims claims;
    struct weir_claim_holder who;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "weir-gpu-%s", uuid);

    (void)state;
    assert_int_equal(bind(fd, (struct sockaddr *)&name,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)),
                     0);
    assert_int_equal(weir_claims_take(&claims, uuid, &who), WEIR_OK);
    assert_int_equal(who.pid, -1);
    close(fd);
    weir_claims_release(&claims);
}

/* Else any user of the machine could keep the machine's own host from starting. */
static void take_of_root_is_not_refused_for_a_users_host(void **state)
{
    static struct weir_claims claims;
    struct weir_claim_holder who;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(setresuid(65534, 65534, 0), 0);
    pid = holder(2);
    assert_int_equal(weir_claims_take(&claims, uuid, &who), WEIR_ERR_EXISTS);
    assert_int_equal(setresuid(0, 0, 0), 0);
    assert_int_equal(weir_claims_take(&claims, uuid, &who), WEIR_OK);
    assert_int_equal(who.pid, pid);
    assert_int_equal(who.uid, 65534);
    assert_string_equal(who.run_dir, "/run/other");
    end(pid);
    weir_claims_release(&claims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_of_a_free_gpu_succeeds_again_and_again),
        cmocka_unit_test(take_of_anothers_gpu_names_it_and_its_end_frees_it),
        cmocka_unit_test(take_of_a_name_that_nobody_listens_on_succeeds),
        cmocka_unit_test(take_of_root_is_not_refused_for_a_users_host),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
