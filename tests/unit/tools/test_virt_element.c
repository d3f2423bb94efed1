/* What weir attach writes into a domain's metadata: what is asked for, and all that was there. */
#include "tools/virt_element.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 3

static const struct row {
    const char *old, *machine, *tenant;
    char words[WORDS_MAX][80];
    const char *expected;
} rows[] = {
    {NULL, "vm1", "vm1", {""}, "<tenant/>"},
    {NULL, "vm1", "vm1", {"weight=300", "memory=8G"}, "<tenant weight='300' memory='8G'/>"},
    {NULL, "vm1", "a", {"weight=3"}, "<tenant name='a' weight='3'/>"},
    /* Nothing asked for: all stays. */
    {"<tenant weight=\"300\" memory=\"8G\"/>",
     "vm1",
     "vm1",
     {""},
     "<tenant weight=\"300\" memory=\"8G\"/>"},
    {"<tenant weight=\"300\" memory=\"8G\"/>",
     "vm1",
     "vm1",
     {"weight=5"},
     "<tenant weight='5' memory=\"8G\"/>"},
    {"<weir:tenant xmlns:weir='https://weir.dev/libvirt/1.0'\n weight = '1'\tsm_limit='50%' />",
     "vm1",
     "vm1",
     {"priority=high"},
     "<tenant priority='high' weight='1' sm_limit='50%'/>"},
    {"<tenant memory='8' unit='GiB' weights='7'><child weight='9'/></tenant>",
     "vm1",
     "vm1",
     {"weight=2"},
     "<tenant weight='2' memory='8' unit='GiB' weights='7'/>"},
    {"<tenant memory='8' unit='GiB'/>", "vm1", "vm1", {"memory=25%"}, "<tenant memory='25%'/>"},
    {"<tenant key='>\"/' weight='1'/>",
     "vm1",
     "vm1",
     {"weight=2"},
     "<tenant weight='2' key='>\"/'/>"},
    /* Another tenant's settings are not this one's. */
    {"<tenant name='a' weight='7'/>", "vm1", "vm1", {"memory=1G"}, "<tenant memory='1G'/>"},
    {"<tenant weight='7'/>", "vm1", "a", {""}, "<tenant name='a'/>"},
    {"<tenant name='a' weight='7'/>", "vm1", "a", {""}, "<tenant name='a' weight='7'/>"},
    {"<tenant name='ab' weight='7'/>", "vm1", "a", {""}, "<tenant name='a'/>"},
    /* Not what libvirt gives; no more is asked than an end. */
    {"<tenant weight='7", "vm1", "vm1", {""}, "<tenant/>"},
    {"<tenant weight", "vm1", "vm1", {""}, "<tenant/>"},
    {"", "vm1", "vm1", {""}, "<tenant/>"},
};

static void attributes_that_are_not_named_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        size_t n = 0;
        while (n < WORDS_MAX && row->words[n][0]) {
            n++;
        }
        char *text = weir_virt_element(row->old, row->machine, row->tenant, row->words, n);
        assert_string_equal(text, row->expected);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(attributes_that_are_not_named_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
