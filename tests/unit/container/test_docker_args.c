/* Arguments for docker: one line that a shell splits as it is meant. */
#include "container/docker_args.h"

#include "fixture.h"

static void write_is_one_line_of_plain_words(void **state)
{
    struct fixture *f = *state;
    struct weir_container_edits tenant;
    const struct weir_container_edits *lists[] = {&f->common, &tenant};
    const char *wrong = NULL;
    char *text = NULL;
    size_t bytes, words = 0;
    FILE *out = open_memstream(&text, &bytes);

    assert_int_equal(weir_container_edits_tenant("/run/weir", "A", &tenant), WEIR_OK);
    assert_int_equal(weir_docker_args_write(out, lists, 2, &wrong), WEIR_OK);
    fclose(out);
    assert_non_null(strstr(text, "--mount type=bind,source=/run/weir/containers/A,"
                                 "target=/run/weir,readonly"));
    assert_non_null(strstr(text, " --env NVIDIA_VISIBLE_DEVICES=void "));
    assert_ptr_equal(strchr(text, '\n'), text + bytes - 1);
    for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n")) {
        bool option = words % 2 == 0;

        assert_int_equal(strncmp(word, "--", 2) == 0, option);
        words++;
    }
    assert_int_equal(words, 2 * (f->common.n_mounts + f->common.n_env + 1));
    free(text);
}

static void write_refuses_paths_that_a_shell_or_docker_would_split(void **state)
{
    static const char *const dirs[] = {"/run/we ir", "/run/a,b",  "/run/\"a", "/run/a*",
                                       "/run/\ta",   "/run/a\nb", "/run/[a]", "/run/a\\b"};
    struct weir_container_edits tenant;
    const struct weir_container_edits *lists[] = {&tenant};

    (void)state;
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        const char *wrong = NULL;
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);

        assert_int_equal(weir_container_edits_tenant(dirs[i], "A", &tenant), WEIR_OK);
        assert_int_equal(weir_docker_args_write(out, lists, 1, &wrong), WEIR_ERR_INVALID);
        fclose(out);
        assert_int_equal(bytes, 0);
        assert_int_equal(strncmp(wrong, dirs[i], strlen(dirs[i])), 0);
        free(text);
    }
}

static void compose_write_quotes_what_yaml_and_compose_read(void **state)
{
    static const char head[] = "services:\n  train-1:\n    volumes:\n      - type: bind\n";
    struct fixture *f = *state;
    struct weir_container_edits tenant;
    const struct weir_container_edits *lists[] = {&f->common, &tenant};
    const char *wrong = NULL;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_int_equal(weir_container_edits_tenant("/run/\"we: #ir", "A", &tenant), WEIR_OK);
    assert_int_equal(weir_docker_compose_write(out, "train-1", lists, 2, &wrong), WEIR_OK);
    fclose(out);
    assert_ptr_equal(strstr(text, head), text);
    assert_non_null(strstr(text, "        source: \"/run/\\\"we: #ir/containers/A\"\n"
                                 "        target: \"/run/weir\"\n        read_only: true\n"));
    assert_non_null(strstr(text, "    environment:\n      - \"NVIDIA_VISIBLE_DEVICES=void\"\n"));
    free(text);
}

static void compose_write_refuses_what_compose_would_replace(void **state)
{
    static const struct {
        const char *service, *run_dir, *wrong;
    } cases[] = {{"", "/run", ""},
                 {"a b", "/run", "a b"},
                 {"a:\n", "/run", "a:\n"},
                 {"a", "/run/$HOME", "/run/$HOME/containers/A"},
                 {"a", "/run/\n", "/run/\n/containers/A"}};
    struct weir_container_edits tenant;
    const struct weir_container_edits *lists[] = {&tenant};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *wrong = NULL;
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);

        assert_int_equal(weir_container_edits_tenant(cases[i].run_dir, "A", &tenant), WEIR_OK);
        assert_int_equal(weir_docker_compose_write(out, cases[i].service, lists, 1, &wrong),
                         WEIR_ERR_INVALID);
        fclose(out);
        assert_int_equal(bytes, 0);
        assert_string_equal(wrong, cases[i].wrong);
        free(text);
    }
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, fixture_make, fixture_drop)
    const struct CMUnitTest tests[] = {
        EACH(write_is_one_line_of_plain_words),
        EACH(write_refuses_paths_that_a_shell_or_docker_would_split),
        EACH(compose_write_quotes_what_yaml_and_compose_read),
        EACH(compose_write_refuses_what_compose_would_replace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
