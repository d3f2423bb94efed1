/* Which variables of an image another worker must have, and whether at the same addresses. */
#include "host_backend/worker/code/variables.h"

#include "../../lib/tl_cmocka.h"
#include "proto/wire/bundle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD  ".version 7.0\n.target sm_75\n.address_size 64\n"
#define TEXTS 3

/* What an image is made of. */
enum form { TEXT, FATBIN, BUNDLE, SOFT_LINKED };

static void put_u32(uint8_t *at, uint32_t v)
{
    memcpy(at, &v, sizeof v);
}

static void put_u64(uint8_t *at, uint64_t v)
{
    memcpy(at, &v, sizeof v);
}

/* A fatbin whose entries are texts of one architecture, not compressed. */
static size_t make_fatbin(uint8_t *at, const char *const *texts, uint32_t n)
{
    size_t bytes = 16;

    for (uint32_t i = 0; i < n; i++) {
        size_t room = (strlen(texts[i]) + 8) / 8 * 8;
        uint8_t *e = at + bytes;

        e[0] = 1;
        put_u32(e + 4, 80);
        put_u64(e + 8, room);
        put_u32(e + 0x14, 64); /* options: an empty text at 72 */
        put_u32(e + 0x1c, 75);
        put_u32(e + 64, 72);
        memcpy(e + 80, texts[i], strlen(texts[i]));
        bytes += 80 + room;
    }
    put_u32(at, 0xba55ed50);
    at[4] = 1;
    at[6] = 16;
    put_u64(at + 8, bytes - 16);
    return bytes;
}

static size_t make_bundle(uint8_t *at, const char *const *texts, uint32_t n)
{
    const struct weir_bundle_header header = {.magic = WEIR_BUNDLE_MAGIC, .n_parts = n};
    size_t bytes = weir_bundle_header_bytes(n);

    memcpy(at, &header, sizeof header);
    for (uint32_t i = 0; i < n; i++) {
        size_t part = make_fatbin(at + bytes, &texts[i], 1);

        put_u64(at + sizeof header + 8 * (size_t)i, part);
        bytes += weir_bundle_align(part);
    }
    return bytes;
}

static size_t make_soft_linked(uint8_t *at, const char *const *texts, uint32_t n)
{
    size_t bytes = 16;

    for (uint32_t i = 0; i < n; i++) {
        put_u64(at + bytes, strlen(texts[i]));
        memcpy(at + bytes + 8, texts[i], strlen(texts[i]));
        bytes += 8 + strlen(texts[i]);
    }
    put_u32(at, 0x4b4e4c57);
    put_u32(at + 4, n);
    put_u64(at + 8, bytes);
    return bytes;
}

static size_t make(uint8_t *at, enum form form, const char *const *texts, uint32_t n)
{
    switch (form) {
    case FATBIN:
        return make_fatbin(at, texts, n);
    case BUNDLE:
        return make_bundle(at, texts, n);
    case SOFT_LINKED:
        return make_soft_linked(at, texts, n);
    case TEXT:
        break;
    }
    return (size_t)sprintf((char *)at, "%s", texts[0]);
}

#define READS                                                                                      \
    HEAD ".visible .global .u32 a = 1;\n.visible .global .u32 unused;\n"                           \
         ".visible .entry f()\n{\n.reg .b32 %r<2>;\nld.global.u32 %r0, [a];\nret;\n}\n"
#define HAS_B   HEAD ".visible .global .u64 b;\n"
#define NAMES_B HEAD ".extern .global .u64 b;\n.global .u32 c;\n"
#define HAS_A   HEAD ".global .u32 a;\n"
#define MANAGED HEAD ".visible .global .attribute(.managed) .u32 m;\n"

static const struct row {
    const char *what;
    enum form form;
    const char *texts[TEXTS];
    uint64_t charged_bytes;
    const char *names; /* of the variables, one behind the other */
    uint64_t bytes;
    bool fixed;
    const char *why;
} rows[] = {
    {"one text", TEXT, {READS}, 8, "a", 4, false, NULL},
    {"one text of a fatbin", FATBIN, {READS}, 8, "a", 4, false, NULL},
    {"texts of a fatbin that are linked", FATBIN, {READS, HAS_B}, 16, "a unused b", 16, true, NULL},
    {"a bundle", BUNDLE, {READS, NAMES_B, HAS_B}, 20, "a unused c b", 20, true, NULL},
    {"a bundle without variables", BUNDLE, {HEAD, HEAD}, 0, "", 0, true, NULL},
    {"a file of softgpu's linker", SOFT_LINKED, {NAMES_B, HAS_B}, 0, "c b", 12, true, NULL},
    {"one name twice",
     BUNDLE,
     {READS, HAS_A},
     12,
     "a unused",
     8,
     true,
     "variables of one name in linked code"},
    {"managed ones", SOFT_LINKED, {HAS_B, MANAGED}, 0, "b", 8, true, "managed variables"},
    {"no text",
     BUNDLE,
     {HEAD ".global", HAS_B},
     16,
     "",
     0,
     true,
     "variables of PTX that cannot be read"},
    {"variables that nobody finds",
     BUNDLE,
     {HEAD, HEAD},
     4,
     "",
     0,
     true,
     "variables without a name"},
};

static void variables_of_linked_code_are_found(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        _Alignas(16) static uint8_t data[4096];
        struct weir_host_image image = {.data = data};
        struct weir_host_module module = {.image = &image, .is_bundle = rows[r].form == BUNDLE};
        struct weir_variables *v;
        char names[256] = "";
        uint32_t n = 0;

        while (n < TEXTS && rows[r].texts[n]) {
            n++;
        }
        memset(data, 0, sizeof data);
        image.bytes = make(data, rows[r].form, rows[r].texts, n);
        module.o.charged_bytes = rows[r].charged_bytes;
        assert_int_equal(weir_variables_find(&module, 75, false, &v), WEIR_OK);
        for (uint32_t i = 0; i < v->n; i++) {
            strcat(strcat(names, i != 0 ? " " : ""), v->of[i].name);
        }
        if (strcmp(names, rows[r].names) != 0 || v->bytes != rows[r].bytes ||
            v->fixed != rows[r].fixed || !v->why != !rows[r].why ||
            (v->why && strcmp(v->why, rows[r].why) != 0)) {
            fail_msg("%s: \"%s\", %llu bytes, fixed %d, %s", rows[r].what, names,
                     (unsigned long long)v->bytes, v->fixed, v->why ? v->why : "can be moved");
        }
        weir_variables_destroy(v);
    }
}

/* However it is cut, nothing behind its end is read. */
static void linked_file_that_is_cut_is_no_reason_to_crash(void **state)
{
    const char *const texts[] = {NAMES_B, HAS_B};
    uint8_t whole[1024] = {0};
    size_t bytes = make_soft_linked(whole, texts, 2);

    (void)state;
    for (size_t cut = 17; cut < bytes; cut++) {
        struct weir_host_image image = {.data = malloc(cut), .bytes = cut};
        struct weir_host_module module = {.image = &image};
        struct weir_variables *v;

        assert_non_null(image.data);
        memcpy(image.data, whole, cut);
        put_u64(image.data + 8, cut);
        assert_int_equal(weir_variables_find(&module, 75, false, &v), WEIR_OK);
        weir_variables_destroy(v);
        free(image.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_linked_code_are_found),
        cmocka_unit_test(linked_file_that_is_cut_is_no_reason_to_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
