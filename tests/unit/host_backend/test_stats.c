/* Statistics that a guest wrote: sums, and pages and rows that lie. */
#include "host_backend/worker/session/stats_page.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>

static struct weir_stats_page *page;

static int set_up(void **state)
{
    (void)state;
    page = calloc(1, sizeof *page);
    assert_non_null(page);
    page->magic = WEIR_STATS_MAGIC;
    page->n_functions = 3;
    strcpy(page->names[0], "cuInit");
    strcpy(page->names[1], "cuLaunchKernel");
    strcpy(page->names[2], "cuMemFree_v2");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(page);
    return 0;
}

static void blocks_are_summed(void **state)
{
    struct weir_stats_set *set;

    (void)state;
    page->blocks[0][1] = (struct weir_stats_counts){1, 2, 3, 40, 30, 5};
    page->blocks[WEIR_STATS_BLOCKS - 1][1] = (struct weir_stats_counts){10, 20, 30, 400, 35, 50};
    set = weir_stats_read_page(page);
    assert_non_null(set);
    assert_int_equal(set->n, 1); /* what was not called is not there */
    assert_string_equal(set->rows[0].name, "cuLaunchKernel");
    assert_int_equal(set->rows[0].counts.guest, 11);
    assert_int_equal(set->rows[0].counts.posted, 22);
    assert_int_equal(set->rows[0].counts.waited, 33);
    assert_int_equal(set->rows[0].counts.wait_ns, 440);
    assert_int_equal(set->rows[0].counts.max_ns, 35);
    assert_int_equal(set->rows[0].counts.busy_ns, 55);
    free(set);
}

static void impossible_pages_are_refused(void **state)
{
    (void)state;
    assert_null(weir_stats_read_page(NULL));
    page->n_functions = WEIR_STATS_MAX_FUNCTIONS + 1;
    assert_null(weir_stats_read_page(page));
    page->n_functions = UINT32_MAX;
    assert_null(weir_stats_read_page(page));
    page->n_functions = 3;
    page->magic = 0;
    assert_null(weir_stats_read_page(page));
}

/* A page of nothing but ones, whose names do not end: read to its bounds and no further (ASan). */
static void page_full_of_noise_is_survived(void **state)
{
    struct weir_stats_set *set;

    (void)state;
    memset(page, 0xff, sizeof *page);
    page->magic = WEIR_STATS_MAGIC;
    page->n_functions = WEIR_STATS_MAX_FUNCTIONS;
    set = weir_stats_read_page(page);
    assert_non_null(set);
    assert_int_equal(set->n, 0); /* no name of a symbol among them */
    free(set);
    memset(page->names, 'x', sizeof page->names);
    set = weir_stats_read_page(page);
    assert_non_null(set);
    assert_int_equal(set->n, WEIR_STATS_MAX_FUNCTIONS);
    assert_int_equal(strlen(set->rows[7].name), WEIR_STATS_NAME_BYTES - 1);
    free(set);
}

static void names_are_cut_to_symbols(void **state)
{
    struct weir_stats_set *set;

    (void)state;
    strcpy(page->names[0], "cuInit\",\"guest\":9");
    strcpy(page->names[1], "\033[2J");
    page->blocks[0][0].guest = page->blocks[0][1].guest = 1;
    set = weir_stats_read_page(page);
    assert_non_null(set);
    assert_int_equal(set->n, 1);
    assert_string_equal(set->rows[0].name, "cuInit");
    free(set);
}

static void rows_are_bounded(void **state)
{
    struct weir_stats_row rows[2] = {{.name = "cuInit", .counts = {.waited = 1, .wait_ns = 9}}};
    struct weir_stats_set *set;
    void *many = calloc(WEIR_STATS_MAX_FUNCTIONS + 1, sizeof rows[0]);

    (void)state;
    memset(rows[1].name, 'y', sizeof rows[1].name);
    rows[1].counts.posted = UINT64_MAX;
    set = weir_stats_read_rows(rows, sizeof rows);
    assert_non_null(set);
    assert_int_equal(set->n, 2);
    assert_int_equal(set->rows[0].counts.wait_ns, 9);
    assert_int_equal(strlen(set->rows[1].name), WEIR_STATS_NAME_BYTES - 1);
    free(set);
    set = weir_stats_read_rows(rows, sizeof rows[0] + 5); /* half a row is none */
    assert_non_null(set);
    assert_int_equal(set->n, 1);
    free(set);
    assert_non_null(many);
    assert_null(weir_stats_read_rows(many, (WEIR_STATS_MAX_FUNCTIONS + 1) * sizeof rows[0]));
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_are_summed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(impossible_pages_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(page_full_of_noise_is_survived, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_are_cut_to_symbols, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_are_bounded, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
