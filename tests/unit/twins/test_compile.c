/* The compilers: ptxas in a process of its own (a script here), and the driver where it does not
 * do. */
#include "host_backend/worker/twins/compile.h"

#include "../../lib/tl_cmocka.h"
#include "host_backend/confine/confine.h"
#include "linker.h"
#include <dirent.h>
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
    for (struct dirent *e; (e = readdir(entries)) != NULL;) {
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

static enum weir_status compile(struct weir_forms_options options, char suffix, char *ret_image)
{
    struct weir_forms_compiler compiler;
    struct weir_forms_compile_params p = {.compiler = &compiler,
                                          .driver = &driver,
                                          .tmp_dir = dir,
                                          .text = "text",
                                          .text_bytes = 4,
                                          .sm = 90,
                                          .sm_suffix = suffix,
                                          .options = options};
    char why[200];
    uint8_t *image;
    size_t bytes;
    enum weir_status status;

    weir_forms_compiler_open(script, &compiler);
    status = weir_forms_compile(&p, &image, &bytes, why);
    weir_forms_compiler_close(&compiler);
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
    assert_int_equal(compile((struct weir_forms_options){0}, 0, image), WEIR_OK);
    /* 0, 1 and 2, and the folder's own: none of ours. */
    assert_string_equal(image, "text -arch=sm_90 4\n");
    assert_int_equal(linker.created, 0);
    assert_int_equal(compile((struct weir_forms_options){0}, 'a', image), WEIR_OK);
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
    assert_int_equal(compile((struct weir_forms_options){ids, values, 3}, 0, image), WEIR_OK);
    assert_string_equal(image, " -arch=sm_90 -maxrregcount 64 -O2\n");
    assert_int_equal(compile((struct weir_forms_options){other, values, 1}, 0, image), WEIR_OK);
    assert_string_equal(image, "linked:text"); /* no word for it */
    assert_int_equal(linker.n_options, 3);     /* its own, and two for the log */
}

static void compile_that_ptxas_refuses_is_the_drivers(void **state)
{
    static const char *const bodies[] = {"echo no such thing >&2; exit 1", "exit 0", "kill -9 $$",
                                         SAY_ARGS "echo half > $out; exit 1"};
    char image[200];

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        write_script(bodies[i]);
        assert_int_equal(compile((struct weir_forms_options){0}, 0, image), WEIR_OK);
        assert_string_equal(image, "linked:text");
    }
    linker.result = CUDA_ERROR_INVALID_PTX;
    assert_int_equal(compile((struct weir_forms_options){0}, 0, image), WEIR_ERR_DRIVER);
    assert_non_null(strstr(image, "218"));
}

static void compile_works_in_a_confined_worker(void **state)
{
    struct weir_forms_compiler compiler;
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
        struct weir_forms_compile_params p = {
            .compiler = &compiler, .driver = &driver, .tmp_dir = dir, .text = "text", .sm = 90};

        weir_forms_compiler_open(script, &compiler);
        if (weir_confine_refuse_calls(WEIR_CONFINE_KEEPS_NONE) != WEIR_OK ||
            execl(script, script, (char *)NULL) == 0 ||
            weir_forms_compile(&p, &bytes, &n, why) != WEIR_OK) {
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
    struct weir_forms_compiler compiler;
    char image[200];

    (void)state;
    write_script("exit 0");
    weir_forms_compiler_open(script, &compiler);
    assert_int_not_equal(compiler.ptxas.socket_fd, -1);
    weir_forms_compiler_close(&compiler);
    assert_int_equal(compiler.ptxas.socket_fd, -1);
    unlink(script);
    assert_int_equal(compile((struct weir_forms_options){0}, 0, image), WEIR_OK);
    assert_string_equal(image, "linked:text");
}

static void open_without_ptxas_takes_the_driver(void **state)
{
    struct weir_forms_compiler compiler;

    (void)state;
    weir_forms_compiler_open("/nowhere/ptxas", &compiler);
    assert_int_equal(compiler.ptxas.socket_fd, -1);
    assert_string_equal(compiler.id, "driver");
    weir_forms_compiler_open("driver", &compiler);
    assert_int_equal(compiler.ptxas.socket_fd, -1);
    write_script("exit 0");
    setenv("PATH", dir, 1);
    weir_forms_compiler_open("auto", &compiler);
    assert_int_not_equal(compiler.ptxas.socket_fd, -1);
    assert_memory_equal(compiler.id, script, strlen(script));
    weir_forms_compiler_close(&compiler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(compile_by_ptxas_gives_its_output, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_passes_the_guests_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_that_ptxas_refuses_is_the_drivers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(compile_works_in_a_confined_worker, set_up, tear_down),
        cmocka_unit_test_setup_teardown(compile_without_its_process_is_the_drivers, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(open_without_ptxas_takes_the_driver, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
