/* The compilers: ptxas in a process of its own (a script here), and the driver where it does not
 * do. */
#include "host_backend/worker/code/jit.h"

#include "../../lib/tl_cmocka.h"
#include "base/fd_pass.h"
#include "host_backend/compiler/process.h"
#include "host_backend/confine/confine.h"
#include "linker.h"
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct weir_driver driver;
static char dir[64], script[100];

static int set_up(void **state)
{
    (void)state;
    linker_init(&driver);
    snprintf(dir, sizeof dir, "/tmp/weir-compile-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(script, sizeof script, "%s/ptxas", dir);
    return 0;
}

/* Nothing but the script may be left. */
static int tear_down(void **state)
{
    DIR *entries = opendir(dir);
    unsigned n = 0;

    (void)state;
    (void)unlink(script);
    for (struct dirent *e; (e = readdir(entries));) {
        n += e->d_name[0] != '.';
    }
    closedir(entries);
    assert_int_equal(n, 0);
    assert_int_equal(linker.created, linker.destroyed);
    return rmdir(dir);
}

static void write_script(const char *body)
{
    FILE *file = fopen(script, "we");

    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", body);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(script, 0700), 0);
}

static enum weir_status compile(struct weir_jit_options options, char suffix, char *ret_image)
{
    struct weir_compiler compiler;
    struct weir_jit_params p = {.compiler = &compiler,
                                .driver = &driver,
                                .job = {.tmp_dir = dir,
                                        .text = "text",
                                        .text_bytes = 4,
                                        .sm = 90,
                                        .sm_suffix = suffix,
                                        .limits = {.memory_bytes = 1 << 24}},
                                .options = options};
    char why[200];
    uint8_t *image;
    size_t bytes;
    enum weir_status status;

    weir_compiler_open(script, &compiler);
    status = weir_jit(&p, &image, &bytes, why);
    weir_compiler_close(&compiler);
    if (status == WEIR_OK) {
        snprintf(ret_image, 200, "%.*s", (int)bytes, (const char *)image);
        free(image);
    } else {
        snprintf(ret_image, 200, "%s", why);
    }
    return status;
}

/* The script's last two arguments are -o and the place of its output. */
#define SAY_ARGS                                                                                   \
    "for a; do case $a in *.ptx) in=$a;; *.cubin) out=$a;; -o);; *) args=\"$args $a\";; esac; "    \
    "done; "

static void compile_by_ptxas_gives_its_output(void **state)
{
    char image[200];

    (void)state;
    write_script(SAY_ARGS "{ cat $in; echo \"$args\" $(ls /proc/self/fd | wc -l); } > $out");
    assert_int_equal(compile((struct weir_jit_options){0}, 0, image), WEIR_OK);
    /* 0, 1 and 2, and the folder's own: none of ours. */
    assert_string_equal(image, "text -arch=sm_90 4\n");
    assert_int_equal(linker.created, 0);
    assert_int_equal(compile((struct weir_jit_options){0}, 'a', image), WEIR_OK);
    assert_string_equal(image, "text -arch=sm_90a 4\n");
}

static void compile_passes_the_guests_options(void **state)
{
    CUjit_option ids[] = {CU_JIT_MAX_REGISTERS, CU_JIT_LOG_VERBOSE, CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {(void *)64, (void *)1, (void *)2};
    CUjit_option other[] = {CU_JIT_GENERATE_DEBUG_INFO};
    char image[200];

    (void)state;
    write_script(SAY_ARGS "echo \"$args\" > $out");
    assert_int_equal(compile((struct weir_jit_options){ids, values, 3}, 0, image), WEIR_OK);
    assert_string_equal(image, " -arch=sm_90 -maxrregcount 64 -O2 -v\n");
    assert_int_equal(compile((struct weir_jit_options){other, values, 1}, 0, image), WEIR_OK);
    assert_string_equal(image, "linked:text"); /* no word for it */
    assert_int_equal(linker.n_options, 3);     /* its own, and two for the log */
}

static void compile_that_ptxas_refuses_is_the_drivers(void **state)
{
    static const char *const bodies[] = {"echo no such thing >&2; exit 1", "exit 0",
                                         SAY_ARGS "echo half > $out; exit 1"};
    char image[200];

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        write_script(bodies[i]);
        assert_int_equal(compile((struct weir_jit_options){0}, 0, image), WEIR_OK);
        assert_string_equal(image, "linked:text");
    }
    linker.result = CUDA_ERROR_INVALID_PTX;
    assert_int_equal(compile((struct weir_jit_options){0}, 0, image), WEIR_ERR_DRIVER);
    assert_non_null(strstr(image, "218"));
}

/* The driver has the same compiler inside, and no limits. */
static void compile_that_ptxas_does_not_survive_is_nobodys(void **state)
{
    static const struct {
        const char *body, *why;
    } rows[] = {
        {"x=aaaaaaaa; while :; do x=$x$x; done", "it needed more memory than compile_memory"},
        {"echo 'ptxas fatal   : Memory allocation failure' >&2; exit 1",
         "it needed more memory than compile_memory"},
        {"kill -XCPU $$", "it needed more time than compile_s"},
        {"kill -XFSZ $$", "its code is too large"},
        {"kill -SEGV $$", "the compiler crashed"},
        {"kill -9 $$", "the compiler crashed"},
    };
    char why[200];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_script(rows[i].body);
        assert_int_equal(compile((struct weir_jit_options){0}, 0, why), WEIR_ERR_DRIVER);
        assert_string_equal(why, rows[i].why);
    }
    assert_int_equal(linker.created, 0);
}

static bool gives_up(void *user)
{
    const char *file = user; /* which the script has written */

    return access(file, R_OK) == 0;
}

/* Processes whose numbers a script has written. They may be zombies for a moment. */
static void all_end(const char *file)
{
    FILE *pids = fopen(file, "re");
    int pid, n = 0;

    assert_non_null(pids);
    for (; fscanf(pids, "%d", &pid) == 1; n++) {
        while (kill(pid, 0) == 0) {
            usleep(1000);
        }
    }
    (void)fclose(pids);
    assert_int_equal(n, 2);
    assert_int_equal(unlink(file), 0);
}

static void compile_leaves_nothing_that_ptxas_started(void **state)
{
    char file[100], body[400], image[200];

    (void)state;
    snprintf(file, sizeof file, "%s/pid", dir);
    snprintf(body, sizeof body, "sleep 60 & echo $! > %s; setsid sleep 60 & echo $! >> %s; exit 1",
             file, file);
    write_script(body);
    (void)compile((struct weir_jit_options){0}, 0, image);
    all_end(file);
}

/* A guest has taken it over, and it has given away the end by which it is seen to live. */
static _Noreturn void be_a_worker(int answer_fd)
{
    struct weir_compiler_job job = {.arch = "-arch=sm_90", .limits = {.memory_bytes = 1 << 24}};
    struct weir_compiler_process process;

    snprintf(job.folder, sizeof job.folder, "%s", dir);
    weir_compiler_process_start(script, &process);
    (void)!weir_fd_send(process.socket_fd, &job, sizeof job, answer_fd, 0);
    while (true) {
        pause();
    }
}

static void a_job_does_not_outlive_its_worker(void **state)
{
    char file[100], body[400], log[100];
    int answers[2];
    pid_t worker;

    (void)state;
    snprintf(file, sizeof file, "%s/pid", dir);
    snprintf(log, sizeof log, "%s/log", dir);
    snprintf(body, sizeof body, "sleep 60 & echo $$ $! > %s.new; mv %s.new %s; wait", file, file,
             file);
    write_script(body);
    assert_int_equal(pipe(answers), 0);
    worker = fork();
    if (worker == 0) {
        be_a_worker(answers[1]);
    }
    while (access(file, R_OK) != 0) {
        usleep(1000);
    }
    assert_int_equal(kill(worker, SIGKILL), 0);
    assert_int_equal(waitpid(worker, NULL, 0), worker);
    all_end(file);
    close(answers[0]);
    close(answers[1]);
    assert_int_equal(unlink(log), 0);
}

static void compile_that_is_given_up_is_killed(void **state)
{
    struct weir_compiler compiler;
    struct weir_compile_result result;
    char file[100], body[400];
    struct weir_compile_job job = {.tmp_dir = dir,
                                   .text = "text",
                                   .text_bytes = 4,
                                   .sm = 90,
                                   .options = {.level = -1},
                                   .limits = {.memory_bytes = 1 << 24},
                                   .give_up = gives_up,
                                   .user = file};
    int pid = 0;
    FILE *pids;

    (void)state;
    snprintf(file, sizeof file, "%s/pid", dir);
    snprintf(body, sizeof body, "echo $$ > %s.new; mv %s.new %s; exec sleep 60", file, file, file);
    write_script(body);
    weir_compiler_open(script, &compiler);
    assert_int_equal(weir_compiler_run(&compiler, &job, &result), WEIR_COMPILE_GIVEN_UP);
    pids = fopen(file, "re");
    assert_non_null(pids);
    assert_int_equal(fscanf(pids, "%d", &pid), 1);
    (void)fclose(pids);
    while (kill(pid, 0) == 0) {
        usleep(1000);
    }
    assert_int_equal(unlink(file), 0);
    weir_compiler_close(&compiler);
}

static void compile_works_in_a_confined_worker(void **state)
{
    struct weir_compiler compiler;
    char image[200] = "", why[200] = "";
    uint8_t *bytes;
    size_t n;
    int answers[2];
    pid_t pid;

    (void)state;
    write_script(SAY_ARGS "grep ^Seccomp: /proc/self/status > $out");
    assert_int_equal(pipe(answers), 0);
    pid = fork();
    if (pid == 0) {
        struct weir_jit_params p = {
            .compiler = &compiler,
            .driver = &driver,
            .job = {.tmp_dir = dir, .text = "text", .sm = 90, .limits = {.memory_bytes = 1 << 24}}};

        weir_compiler_open(script, &compiler);
        if (weir_confine_refuse_calls(WEIR_CONFINE_KEEPS_NONE) != WEIR_OK ||
            execl(script, script, (char *)NULL) == 0 || weir_jit(&p, &bytes, &n, why) != WEIR_OK) {
            _exit(1);
        }
        _exit(write(answers[1], bytes, n) == (ssize_t)n ? 0 : 1);
    }
    close(answers[1]);
    assert_true(read(answers[0], image, sizeof image - 1) > 0);
    close(answers[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_string_equal(image, "Seccomp:\t2\n"); /* ptxas is confined, too */
}

static void compile_without_its_process_is_the_drivers(void **state)
{
    struct weir_compiler compiler;
    char image[200];

    (void)state;
    write_script("exit 0");
    weir_compiler_open(script, &compiler);
    assert_int_not_equal(compiler.process.socket_fd, -1);
    weir_compiler_close(&compiler);
    assert_int_equal(compiler.process.socket_fd, -1);
    unlink(script);
    assert_int_equal(compile((struct weir_jit_options){0}, 0, image), WEIR_OK);
    assert_string_equal(image, "linked:text");
}

static void open_without_ptxas_takes_the_driver(void **state)
{
    struct weir_compiler compiler;

    (void)state;
    weir_compiler_open("/nowhere/ptxas", &compiler);
    assert_int_equal(compiler.process.socket_fd, -1);
    assert_string_equal(compiler.id, "driver");
    weir_compiler_open("driver", &compiler);
    assert_int_equal(compiler.process.socket_fd, -1);
    write_script("exit 0");
    setenv("PATH", dir, 1);
    weir_compiler_open("auto", &compiler);
    assert_int_not_equal(compiler.process.socket_fd, -1);
    assert_memory_equal(compiler.id, script, strlen(script));
    weir_compiler_close(&compiler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(compile_by_ptxas_gives_its_output, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_passes_the_guests_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_that_ptxas_refuses_is_the_drivers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(compile_that_ptxas_does_not_survive_is_nobodys, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(compile_that_is_given_up_is_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_leaves_nothing_that_ptxas_started, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_job_does_not_outlive_its_worker, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_works_in_a_confined_worker, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_without_its_process_is_the_drivers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(open_without_ptxas_takes_the_driver, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
