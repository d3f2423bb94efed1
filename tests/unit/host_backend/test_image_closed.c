/* Which kernels of real code can fail an assert (tests/data/asserts). */
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/code/image_closed.h"
#include "host_backend/worker/code/image_globals.h"
#include "host_backend/worker/code/images.h"

#include "../../lib/tl_cmocka.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define FILE_BYTES 65536u
#define CODE_BYTES (1u << 19)

static size_t read_file(const char *name, uint8_t data[FILE_BYTES])
{
    char path[4096];
    size_t n;
    FILE *f;

    snprintf(path, sizeof path, "%s/asserts/%s.fatbin", WEIR_TEST_DATA, name);
    f = fopen(path, "rb");
    assert_non_null(f);
    n = fread(data, 1, FILE_BYTES, f);
    assert_true(n > 80 && n < FILE_BYTES);
    fclose(f);
    return n;
}

/* The cubin of a fatbin with one. */
static size_t read_cubin(const char *name, uint8_t *code)
{
    static uint8_t data[FILE_BYTES];
    uint32_t header, packed;
    size_t n;

    (void)read_file(name, data);
    memcpy(&header, data + 16 + 4, sizeof header);
    memcpy(&packed, data + 16 + 0x10, sizeof packed);
    n = ZSTD_decompress(code, CODE_BYTES, data + 16 + header, packed);
    assert_false(ZSTD_isError(n));
    return n;
}

static struct weir_image_facts facts_of(const char *name, uint32_t sm)
{
    static uint8_t data[FILE_BYTES];
    size_t n = read_file(name, data);
    uint64_t budget = WEIR_UNPACK_MAX_BYTES;
    struct weir_image_facts facts;
    uint8_t *copy;

    assert_int_equal(weir_fatbin_select(data, n, sm, &budget, &copy, &facts), WEIR_OK);
    assert_null(copy);
    return facts;
}

/* Every route to an assert that the sources know, in each way of building them. */
static void kernel_is_closed_where_no_route_leads_to_an_assert(void **state)
{
    static const char *const asserting[] = {"inlined",  "out_of_line", "templated", "by_argument",
                                            "by_table", "by_choice",   "by_object", "makes",
                                            "prints",   "starts",      "no such",   ""};
    static const struct {
        const char *file;
        uint32_t sm;
        const char *closed[4];
        const char *open[2]; /* they do not assert, but it cannot be seen */
    } rows[] = {
        {"sm80", 80, {"plain", "divides", "recurses", "switches"}, {NULL}},
        {"sm90", 90, {"plain", "divides", "recurses", "switches"}, {NULL}},
        {"sm90_debug", 90, {"plain"}, {"divides", "recurses"}},
        {"sm90_linked", 90, {"plain", "switches"}, {"divides", "recurses"}},
        {"sm90_other", 90, {"sets"}, {"plain", "by_argument"}}, /* here plain does assert */
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct weir_image_facts facts = facts_of(rows[r].file, rows[r].sm);

        print_message("%s\n", rows[r].file);
        assert_true(facts.may_assert);
        for (size_t i = 0; i < sizeof asserting / sizeof asserting[0]; i++) {
            assert_false(weir_closed_kernels_has(facts.closed, asserting[i]));
        }
        for (size_t i = 0; i < 4 && rows[r].closed[i]; i++) {
            assert_true(weir_closed_kernels_has(facts.closed, rows[r].closed[i]));
        }
        for (size_t i = 0; i < 2 && rows[r].open[i]; i++) {
            assert_false(weir_closed_kernels_has(facts.closed, rows[r].open[i]));
        }
        weir_closed_kernels_destroy(facts.closed);
    }
}

static bool list_name(const char *name, uint64_t bytes, void *user)
{
    uint32_t *n = user;

    print_message("    %s: %llu\n", name, (unsigned long long)bytes);
    *n += bytes != 0 && name[0] != 0;
    return true;
}

static bool list_names(const uint8_t *code, uint64_t bytes, void *user)
{
    return weir_elf_visit_globals(code, bytes, list_name, user);
}

static void variables_of_machine_code(void **state)
{
    static const struct {
        const char *file;
        uint32_t sm;
        bool good;
        uint32_t n;
    } rows[] = {
        {"sm80", 80, true, 13},
        {"sm90_debug", 90, false, 0} /* the loader writes addresses into its tables */,
        {"sm90_linked", 90, false, 0},
        {"sm90", 90, true, 13},
        {"sm90", 80, true, 0} /* nothing runs there */,
        {"sm90_other", 90, true, 4},
    };
    static uint8_t data[FILE_BYTES];

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        size_t n = read_file(rows[r].file, data);

        uint32_t found = 0;

        print_message("%s\n", rows[r].file);
        assert_int_equal(weir_image_all_codes(data, n, rows[r].sm, list_names, &found),
                         rows[r].good);
        if (rows[r].good) {
            assert_int_equal(found, rows[r].n);
        }
    }
}

/* Of several codes with a kernel of the same name nobody knows which one runs. */
static void kernel_is_open_if_one_of_two_codes_asserts(void **state)
{
    struct weir_closed_kernels *closed = weir_closed_kernels_create();
    uint8_t *code = malloc(CODE_BYTES);

    (void)state;
    assert_non_null(closed);
    assert_non_null(code);
    assert_true(weir_closed_kernels_add(closed, code, read_cubin("sm90_other", code)));
    assert_true(weir_closed_kernels_add(closed, code, read_cubin("sm90", code)));
    weir_closed_kernels_end(closed);
    assert_false(weir_closed_kernels_has(closed, "plain"));
    assert_true(weir_closed_kernels_has(closed, "switches"));
    assert_false(weir_closed_kernels_has(NULL, "switches"));
    weir_closed_kernels_destroy(closed);
    free(code);
}

/* Text beside the code, which the driver might take, may assert anywhere. */
static void no_kernel_is_closed_beside_text_that_asserts(void **state)
{
    static const char text[80] = ".extern .func __assertfail;";
    static uint8_t data[2 * FILE_BYTES];
    size_t n = read_file("sm90", data);
    uint64_t budget = WEIR_UNPACK_MAX_BYTES, payload = n - 16 + 80 + sizeof text;
    uint32_t header = 80, options = 64, options_text = 72;
    uint8_t *copy, *entry = data + n;
    struct weir_image_facts facts;
    uint64_t stored = sizeof text;

    (void)state;
    memset(entry, 0, 80);
    entry[0] = 1; /* PTX */
    memcpy(entry + 4, &header, sizeof header);
    memcpy(entry + 8, &stored, sizeof stored);
    memcpy(entry + 0x14, &options, sizeof options);
    memcpy(entry + 64, &options_text, sizeof options_text);
    memcpy(entry + 80, text, sizeof text);
    memcpy(data + 8, &payload, sizeof payload);
    assert_int_equal(weir_fatbin_select(data, 16 + payload, 0, &budget, &copy, &facts), WEIR_OK);
    assert_true(facts.may_assert);
    assert_false(weir_closed_kernels_has(facts.closed, "plain"));
    weir_closed_kernels_destroy(facts.closed);
}

enum damage {
    DAMAGE_NONE,
    DAMAGE_MACHINE,  /* of another GPU */
    DAMAGE_TYPE,     /* not linked */
    DAMAGE_INFO,     /* attributes that are none */
    DAMAGE_NO_INFO,  /* no attributes */
    DAMAGE_LENGTH,   /* no whole instructions */
    DAMAGE_ALL_OVER, /* sections that overlap: the work would be their number times the file */
    DAMAGE_NAME,     /* a name without an end */
};

static void damage(uint8_t *code, size_t bytes, enum damage what)
{
    Elf64_Ehdr *header = (Elf64_Ehdr *)code;
    Elf64_Shdr *sections = (Elf64_Shdr *)(code + header->e_shoff);

    switch (what) {
    case DAMAGE_NONE:
        break;
    case DAMAGE_MACHINE:
        header->e_flags = 50u << 8;
        break;
    case DAMAGE_TYPE:
        header->e_type = ET_REL;
        break;
    case DAMAGE_INFO:
        for (unsigned i = 1; i < header->e_shnum; i++) {
            sections[i].sh_size -= sections[i].sh_type == SHT_LOPROC ? 1 : 0;
        }
        break;
    case DAMAGE_NO_INFO:
        for (unsigned i = 1; i < header->e_shnum; i++) {
            sections[i].sh_type =
                sections[i].sh_type == SHT_LOPROC ? SHT_PROGBITS : sections[i].sh_type;
        }
        break;
    case DAMAGE_LENGTH:
        for (unsigned i = 1; i < header->e_shnum; i++) {
            sections[i].sh_size -= (sections[i].sh_flags & SHF_EXECINSTR) != 0 ? 8 : 0;
        }
        break;
    case DAMAGE_ALL_OVER:
        for (unsigned i = 1; i < header->e_shnum; i++) {
            if ((sections[i].sh_flags & SHF_EXECINSTR) != 0) {
                sections[i].sh_offset = 0;
                sections[i].sh_size = bytes / 16 * 16;
            }
        }
        break;
    case DAMAGE_NAME:
        for (unsigned i = 1; i < header->e_shnum; i++) {
            if (sections[i].sh_type == SHT_SYMTAB) {
                Elf64_Shdr *names = &sections[sections[i].sh_link];

                memset(code + names->sh_offset, 'x', names->sh_size);
            }
        }
        break;
    }
}

static void damaged_code_has_no_closed_kernel(void **state)
{
    uint8_t *code = malloc(CODE_BYTES);

    (void)state;
    assert_non_null(code);
    for (enum damage what = DAMAGE_NONE; what <= DAMAGE_NAME; what++) {
        struct weir_closed_kernels *closed = weir_closed_kernels_create();
        size_t n = read_cubin("sm90", code);

        print_message("damage %d\n", (int)what);
        assert_non_null(closed);
        damage(code, n, what);
        if (weir_closed_kernels_add(closed, code, n)) {
            weir_closed_kernels_end(closed);
            assert_true(weir_closed_kernels_has(closed, "plain") == (what == DAMAGE_NONE));
        } else {
            assert_true(what == DAMAGE_MACHINE || what == DAMAGE_TYPE);
        }
        weir_closed_kernels_destroy(closed);
    }
    free(code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernel_is_closed_where_no_route_leads_to_an_assert),
        cmocka_unit_test(variables_of_machine_code),
        cmocka_unit_test(kernel_is_open_if_one_of_two_codes_asserts),
        cmocka_unit_test(no_kernel_is_closed_beside_text_that_asserts),
        cmocka_unit_test(damaged_code_has_no_closed_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
