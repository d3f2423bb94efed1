/*
 * Cases in files: tests/data/ptx_good must parse, print and parse again to the same text;
 * tests/data/ptx_err must be refused where and why their first line says ("// expect L:C words").
 */
#include "ptx/ptx.h"
#include "tests/lib/tl_cmocka.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define MIN_GOOD 8 /* fewer files than these mean that the data was not found */
#define MIN_ERR  35

static char *read_file(const char *path, size_t *ret_len)
{
    FILE *file = fopen(path, "rb");
    char *text;
    long len;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    len = ftell(file);
    rewind(file);
    text = malloc((size_t)len + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)len, file), (size_t)len);
    text[len] = 0;
    fclose(file);
    *ret_len = (size_t)len;
    return text;
}

/* Calls fn for every .ptx file of a folder; returns how many. */
static int each_file(const char *folder, void (*fn)(const char *path))
{
    DIR *dir = opendir(folder);
    int n = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        char path[4096];

        if (len > 4 && strcmp(entry->d_name + len - 4, ".ptx") == 0) {
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            fn(path);
            n++;
        }
    }
    closedir(dir);
    return n;
}

static struct weir_ptx_module *must_parse(const char *path, const char *text, size_t len)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag = {0};

    if (weir_ptx_parse(text, len, 0, &diag, &module) != WEIR_OK) {
        fail_msg("%s:%u:%u: %s", path, diag.line, diag.column, diag.message);
    }
    return module;
}

static void round_trip(const char *path)
{
    struct weir_ptx_module *first, *second;
    char *text, *printed, *again;
    size_t len, printed_len, again_len;

    text = read_file(path, &len);
    first = must_parse(path, text, len);
    assert_int_equal(weir_ptx_print_buffer(first, &printed, &printed_len), WEIR_OK);
    second = must_parse(path, printed, printed_len);
    assert_int_equal(weir_ptx_print_buffer(second, &again, &again_len), WEIR_OK);
    if (printed_len != again_len || memcmp(printed, again, printed_len) != 0) {
        fail_msg("%s: prints differently the second time", path);
    }
    weir_ptx_destroy(second);
    weir_ptx_destroy(first);
    free(again);
    free(printed);
    free(text);
}

static void refused(const char *path)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag = {0};
    unsigned line, column;
    char want[128];
    size_t len;
    char *text = read_file(path, &len);

    if (sscanf(text, "// expect %u:%u %127[^\n]", &line, &column, want) != 3) {
        fail_msg("%s: no expectation", path);
    }
    if (weir_ptx_parse(text, len, 0, &diag, &module) == WEIR_OK) {
        fail_msg("%s: was not refused", path);
    }
    if (diag.line != line || diag.column != column || !strstr(diag.message, want)) {
        fail_msg("%s:%u:%u: %s", path, diag.line, diag.column, diag.message);
    }
    assert_null(module);
    free(text);
}

static void parse_good_files_print_and_parse_again(void **state)
{
    (void)state;
    assert_true(each_file(WEIR_TEST_DATA "/ptx_good", round_trip) >= MIN_GOOD);
}

static void parse_bad_files_are_refused_at_the_place(void **state)
{
    (void)state;
    assert_true(each_file(WEIR_TEST_DATA "/ptx_err", refused) >= MIN_ERR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_good_files_print_and_parse_again),
        cmocka_unit_test(parse_bad_files_are_refused_at_the_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
