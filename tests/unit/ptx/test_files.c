/*
 * Cases in files: tests/data/ptx_good must parse, print and parse again to the same text, and hold
 * every opcode and suffix of the tables; tests/data/ptx_err must be refused where and why their
 * first line says ("// expect L:C words").
 */
#include "ptx/ir.h"
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

static bool op_seen[WEIR_PTX_OP_COUNT];
static bool mod_seen[WEIR_PTX_MOD_COUNT];

static void look_at(const char *path)
{
    size_t len;
    char *text = read_file(path, &len);
    struct weir_ptx_module *module = must_parse(path, text, len);

    for (uint32_t i = 0; i < module->n_funcs; i++) {
        for (uint32_t j = 0; j < module->funcs[i]->n_insts; j++) {
            const struct weir_ptx_inst *inst = &module->funcs[i]->insts[j];

            op_seen[inst->op] = true;
            for (uint32_t k = 0; k < inst->n_mods; k++) {
                mod_seen[inst->mods[k]] = true;
            }
        }
    }
    weir_ptx_destroy(module);
    free(text);
}

static void tables_have_a_case_for_each_row(void **state)
{
    int n_missing = 0;

    (void)state;
    each_file(WEIR_TEST_DATA "/ptx_good", look_at);
    for (int i = WEIR_PTX_OP_NONE + 1; i < WEIR_PTX_OP_COUNT; i++) {
        if (!op_seen[i]) {
            print_message("no case for %s\n", weir_ptx_op_info((enum weir_ptx_op)i)->name);
            n_missing++;
        }
    }
    for (int i = WEIR_PTX_MOD_NONE + 1; i < WEIR_PTX_MOD_COUNT; i++) {
        /* Spaces of declarations only. */
        bool is_suffix = i != WEIR_PTX_MOD_SPACE && i != WEIR_PTX_MOD_SPACE + WEIR_PTX_SPACE_REG &&
                         i != WEIR_PTX_MOD_SPACE + WEIR_PTX_SPACE_TEX;

        if (is_suffix && !mod_seen[i]) {
            print_message("no case for .%s\n", weir_ptx_mod_text((enum weir_ptx_mod)i));
            n_missing++;
        }
    }
    assert_int_equal(n_missing, 0);
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
        cmocka_unit_test(tables_have_a_case_for_each_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
