/* The <tenant/> element: what is read of it, and what is refused. */
#include "container/libvirt/metadata.h"

#include "../../lib/tl_cmocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
    const char *text, *tenant, *settings;
} rows[] = {
    {"<tenant weight='300'/>", "", "weight=300 "},
    {"<tenant weight=\"300\" priority=\"low\" memory=\"8GiB\"/>", "",
     "weight=300 priority=low memory=8GiB "},
    {"<weir:tenant xmlns:weir='https://weir.dev/libvirt/1.0' name='vm' weight='3'/>", "vm",
     "weight=3 "},
    {"<tenant unit='MiB' memory='512'/>", "", "memory=512MiB "},
    {"<?xml version='1.0'?><!-- mine --><tenant\n sm_limit='50&#37;'></tenant>", "",
     "sm_limit=50% "},
    {"<tenant xmlns:x='urn:x' x:weight='9' weight='1'/>", "", "weight=1 "},
    {"<tenant/>", "", ""},
    {"<tenant><weight>3</weight></tenant>", "", "<weight>= "},
    {"<tenant weight=''/>", "", "weight= "},
    {"<tenant memory='8 &lt; 9'/>", "", "memory=8 < 9 "},
};

static void parse_reads_attributes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_libvirt_element e;
        struct weir_diag diag = {0};
        char all[1024] = "";

        if (weir_metadata_parse(rows[i].text, strlen(rows[i].text), &e, &diag) != WEIR_OK) {
            print_error("row %zu: %s\n", i, diag.message);
            fail();
        }
        for (uint32_t k = 0; k < e.n_settings; k++) {
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s=%s ", e.settings[k].key,
                     e.settings[k].value);
        }
        assert_string_equal(all, rows[i].settings);
        assert_string_equal(e.tenant, rows[i].tenant);
    }
}

/* The same text is the same element, byte for byte: that is how a change is told from an event. */
static void parse_leaves_nothing_undefined(void **state)
{
    struct weir_libvirt_element a, b;
    struct weir_diag diag;

    (void)state;
    memset(&a, 1, sizeof a);
    memset(&b, 2, sizeof b);
    assert_int_equal(weir_metadata_parse(rows[0].text, strlen(rows[0].text), &a, &diag), WEIR_OK);
    assert_int_equal(weir_metadata_parse(rows[0].text, strlen(rows[0].text), &b, &diag), WEIR_OK);
    assert_memory_equal(&a, &b, sizeof a);
}

static const struct bad_row {
    const char *text, *message;
} bad_rows[] = {
    {"", "no text"},
    {"tenant", "not well-formed"},
    {"<tenant", "not well-formed"},
    {"<tenant weight='1' weight='2'/>", "not well-formed"},
    {"<tenant/><tenant/>", "not well-formed"},
    {"<tenants weight='3'/>", "the element is 'tenants'"},
    {"<tenant name=''/>", "'name' is no tenant's name"},
    {"<tenant unit='MiB'/>", "'unit' without 'memory'"},
    {"<tenant unit='12345678901234567' memory='1'/>", "'unit' is no unit"},
    {"<tenant weight='3&#10;4'/>", "'weight' is too long, or not plain"},
    {"<tenant weight='\xc3\xa4'/>", "'weight' is too long, or not plain"},
    {"<tenant weight='\xff'/>", "not well-formed"},
    {"<tenant \xc3\xa4='1'/>", "a name is too long, or not plain"},
    {"<!DOCTYPE tenant><tenant/>", "document type"},
    {"<!DOCTYPE t [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><tenant weight='&b;'/>",
     "document type"},
    {"<!DOCTYPE t SYSTEM 'file:///etc/passwd'><tenant/>", "document type"},
    {"<?xml version='1.0' encoding='UTF-7'?>+ADw-+ACE-DOCTYPE t+AD4-<tenant/>", "not well-formed"},
    {"<tenant weight='&undefined;'/>", "not well-formed"},
    {"<tenant a1='' a2='' a3='' a4='' a5='' a6='' a7='' a8='' a9='' b1='' b2='' b3='' b4='' b5=''"
     " b6='' b7='' b8=''/>",
     "more than 16 attributes"},
};

static void parse_of_anything_else_says_why(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
        struct weir_libvirt_element e;
        struct weir_diag diag = {0};

        if (weir_metadata_parse(bad_rows[i].text, strlen(bad_rows[i].text), &e, &diag) !=
                WEIR_ERR_SYNTAX ||
            !strstr(diag.message, bad_rows[i].message)) {
            print_error("row %zu: '%s'\n", i, diag.message);
            fail();
        }
    }
}

static void parse_of_long_texts_is_refused(void **state)
{
    char *text = malloc(WEIR_METADATA_MAX_BYTES + 2);
    struct weir_libvirt_element e;
    struct weir_diag diag = {0};

    (void)state;
    assert_non_null(text);
    memset(text, ' ', WEIR_METADATA_MAX_BYTES + 1);
    memcpy(text + 1, "<tenant", 7);
    memcpy(text + WEIR_METADATA_MAX_BYTES - 2, "/>", 2);
    assert_int_equal(weir_metadata_parse(text, WEIR_METADATA_MAX_BYTES, &e, &diag), WEIR_OK);
    assert_int_equal(weir_metadata_parse(text, WEIR_METADATA_MAX_BYTES + 1, &e, &diag),
                     WEIR_ERR_SYNTAX);
    snprintf(text, WEIR_METADATA_MAX_BYTES, "<tenant weight='%0200d'/>", 1);
    assert_int_equal(weir_metadata_parse(text, strlen(text), &e, &diag), WEIR_ERR_SYNTAX);
    snprintf(text, WEIR_METADATA_MAX_BYTES, "<tenant memory='%0190d' unit='MiB'/>", 1);
    assert_int_equal(weir_metadata_parse(text, strlen(text), &e, &diag), WEIR_ERR_SYNTAX);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_reads_attributes),
        cmocka_unit_test(parse_leaves_nothing_undefined),
        cmocka_unit_test(parse_of_anything_else_says_why),
        cmocka_unit_test(parse_of_long_texts_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
