/* The image store and the checks that stand between a guest's image and the driver. */
#include "host_backend/worker/code/image_check.h"
#include "host_backend/worker/code/image_globals.h"
#include "host_backend/worker/code/image_ready.h"
#include "host_backend/worker/code/images.h"

#include "../../lib/tl_cmocka.h"
#include "proto/wire/bundle.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static struct weir_account account;

static void init_store(struct weir_host_image_store *store, uint64_t most)
{
    account = (struct weir_account){0};
    weir_account_limit_set(&account, WEIR_ACCOUNT_HOST_MEMORY, most);
    weir_host_image_store_init(store, &account);
}

static uint64_t charged(void)
{
    return weir_account_used(&account, WEIR_ACCOUNT_HOST_MEMORY);
}

static uint8_t *image_data(uint8_t fill, size_t bytes)
{
    uint8_t *data = calloc(1, bytes + WEIR_IMAGE_TAIL_BYTES);

    assert_non_null(data);
    memset(data, fill, bytes);
    return data;
}

static enum weir_status add(struct weir_host_image_store *store, uint8_t fill, size_t bytes,
                            struct weir_host_image **ret)
{
    enum weir_status status = weir_image_reserve(store, bytes);
    struct weir_hash hash;
    uint8_t *data;

    if (status != WEIR_OK) {
        return status;
    }
    data = image_data(fill, bytes);
    hash = weir_hash_of(data, bytes);
    return weir_image_add(store, &hash, data, bytes, ret);
}

static void add_of_wrong_hash_is_refused(void **state)
{
    struct weir_hash wrong = {{1}};
    struct weir_host_image_store store;
    struct weir_host_image *image;

    (void)state;
    init_store(&store, 1000);
    assert_int_equal(weir_image_reserve(&store, 10), WEIR_OK);
    assert_int_equal(weir_image_add(&store, &wrong, image_data(1, 10), 10, &image),
                     WEIR_ERR_INVALID);
    assert_true(charged() == 0);
    assert_true(weir_host_image_store_bytes(&store) == 0);
    weir_host_image_store_finish(&store);
}

static void add_over_the_cap_drops_the_longest_unused(void **state)
{
    struct weir_host_image_store store;
    struct weir_host_image *a, *b, *c, *d;
    struct weir_hash hash_a, hash_b;

    (void)state;
    init_store(&store, 1000);
    assert_int_equal(add(&store, 1, 400, &a), WEIR_OK);
    assert_int_equal(add(&store, 2, 400, &b), WEIR_OK);
    hash_a = a->hash;
    hash_b = b->hash;
    assert_int_equal(add(&store, 3, 400, &c), WEIR_ERR_QUOTA); /* both are in use */
    weir_image_put(&store, a);
    weir_image_put(&store, b);
    a = weir_image_get(&store, &hash_a, 400); /* now b is the longest unused */
    weir_image_put(&store, a);
    assert_int_equal(add(&store, 3, 400, &c), WEIR_OK);
    assert_null(weir_image_get(&store, &hash_b, 400));
    a = weir_image_get(&store, &hash_a, 400);
    assert_non_null(a);
    weir_account_limit_set(&account, WEIR_ACCOUNT_HOST_MEMORY, 1200);
    assert_int_equal(add(&store, 1, 400, &d), WEIR_OK); /* the same content is stored once */
    assert_ptr_equal(a, d);
    assert_true(weir_host_image_store_bytes(&store) == 800);
    assert_true(charged() == 800);
    weir_image_put(&store, a);
    weir_image_put(&store, d);
    weir_image_put(&store, c);
    weir_host_image_store_finish(&store);
}

static void put_u32(uint8_t *at, uint32_t v)
{
    memcpy(at, &v, sizeof v);
}

static void put_u64(uint8_t *at, uint64_t v)
{
    memcpy(at, &v, sizeof v);
}

/* A fatbin with one PTX entry that is not compressed. */
static size_t make_fatbin(uint8_t *at, const char *text)
{
    size_t n = (strlen(text) + 8) / 8 * 8;

    memset(at, 0, 16 + 80 + n);
    put_u32(at, 0xba55ed50);
    at[4] = 1;
    at[6] = 16;
    put_u64(at + 8, 80 + n);
    at[16] = 1;
    put_u32(at + 16 + 4, 80);
    put_u64(at + 16 + 8, n);
    put_u32(at + 16 + 0x14, 64); /* options: an empty text at 72 */
    put_u32(at + 16 + 64, 72);
    memcpy(at + 16 + 80, text, strlen(text));
    return 16 + 80 + n;
}

static void check_of_cut_fatbin_is_refused(void **state)
{
    uint8_t data[256];
    size_t n = make_fatbin(data, ".version 8.0");
    enum weir_image_form form;

    (void)state;
    assert_int_equal(weir_image_check(data, n, &form), WEIR_OK);
    assert_int_equal(form, WEIR_IMAGE_FATBIN);
    for (size_t cut = 4; cut < n; cut++) {
        assert_int_equal(weir_image_check(data, cut, &form), WEIR_ERR_INVALID);
    }
    put_u64(data + 16 + 8, UINT64_MAX - 32); /* an entry's length that would wrap */
    assert_int_equal(weir_image_check(data, n, &form), WEIR_ERR_INVALID);
    (void)make_fatbin(data, ".version 8.0");
    put_u32(data + 16 + 0x14, 0); /* PTX without options: a real driver would not survive it */
    assert_int_equal(weir_image_check(data, n, &form), WEIR_ERR_INVALID);
    put_u32(data + 16 + 0x14, 76); /* a pair that sticks out of the header */
    assert_int_equal(weir_image_check(data, n, &form), WEIR_ERR_INVALID);
    put_u32(data + 16 + 0x14, 64);
    put_u32(data + 16 + 64 + 4, 9); /* options longer than their header */
    assert_int_equal(weir_image_check(data, n, &form), WEIR_ERR_INVALID);
}

static void check_of_lying_elf_is_refused(void **state)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Shdr sections[2];
        uint8_t bytes[64];
    } elf;
    enum weir_image_form form;

    (void)state;
    memset(&elf, 0, sizeof elf);
    memcpy(elf.header.e_ident, ELFMAG, SELFMAG);
    elf.header.e_ident[EI_CLASS] = ELFCLASS64;
    elf.header.e_ident[EI_DATA] = ELFDATA2LSB;
    elf.header.e_shoff = sizeof elf.header;
    elf.header.e_shnum = 2;
    elf.header.e_shentsize = sizeof(Elf64_Shdr);
    elf.sections[1].sh_type = SHT_PROGBITS;
    elf.sections[1].sh_offset = sizeof elf - 64;
    elf.sections[1].sh_size = 64;
    assert_int_equal(weir_image_check((uint8_t *)&elf, sizeof elf, &form), WEIR_OK);
    assert_int_equal(weir_image_check((uint8_t *)&elf, sizeof elf - 1, &form), WEIR_ERR_INVALID);
    elf.sections[1].sh_size = UINT64_MAX;
    assert_int_equal(weir_image_check((uint8_t *)&elf, sizeof elf, &form), WEIR_ERR_INVALID);
    elf.sections[1].sh_type = SHT_LOPROC + 0xa; /* shared memory, of which a file has no bytes */
    assert_int_equal(weir_image_check((uint8_t *)&elf, sizeof elf, &form), WEIR_OK);
    elf.sections[1].sh_type = SHT_PROGBITS;
    elf.sections[1].sh_size = 64;
    elf.header.e_shoff = UINT64_MAX - 8;
    assert_int_equal(weir_image_check((uint8_t *)&elf, sizeof elf, &form), WEIR_ERR_INVALID);
}

static void check_of_text_wants_text(void **state)
{
    enum weir_image_form form;

    (void)state;
    assert_int_equal(weir_image_check((const uint8_t *)".version 8.0", 12, &form), WEIR_OK);
    assert_int_equal(form, WEIR_IMAGE_PTX);
    assert_int_equal(weir_image_check((const uint8_t *)".version 8.0", 13, &form), WEIR_OK);
    assert_int_equal(weir_image_check((const uint8_t *)".ver\0ion 8.0", 12, &form),
                     WEIR_ERR_INVALID);
    assert_int_equal(weir_image_check((const uint8_t *)"", 0, &form), WEIR_ERR_INVALID);
    assert_int_equal(weir_image_check((const uint8_t *)"\1\2\3\4", 4, &form), WEIR_ERR_INVALID);
}

/* Store bytes; the reference is the caller's. */
static struct weir_host_image *store_bytes(struct weir_host_image_store *store,
                                           const uint8_t *bytes, size_t n)
{
    uint8_t *data = calloc(1, n + WEIR_IMAGE_TAIL_BYTES);
    struct weir_host_image *image;
    struct weir_hash hash = weir_hash_of(bytes, n);

    assert_non_null(data);
    memcpy(data, bytes, n);
    assert_int_equal(weir_image_reserve(store, n), WEIR_OK);
    assert_int_equal(weir_image_add(store, &hash, data, n, &image), WEIR_OK);
    return image;
}

/* Is it ready to load; if so, may it print? */
static enum weir_status ready(const uint8_t *bytes, size_t n, bool is_bundle, bool *ret_prints)
{
    struct weir_host_image_store store;
    struct weir_host_image *image;
    struct weir_image_facts facts;
    enum weir_status status;
    const void *code;

    init_store(&store, 1 << 20);
    image = store_bytes(&store, bytes, n);
    status = weir_image_ready(&store, image, is_bundle, 0, &code, &facts);
    if (status == WEIR_OK) {
        *ret_prints = facts.uses_printf;
    }
    weir_image_put(&store, image);
    weir_host_image_store_finish(&store);
    return status;
}

static void bundle_is_ready_or_refused(void **state)
{
    _Alignas(16) uint8_t data[512] = {0};
    struct weir_bundle_header header = {.magic = WEIR_BUNDLE_MAGIC, .n_parts = 2};
    struct weir_bundle_part *parts;
    size_t first = weir_bundle_header_bytes(2), n_first, n_second;
    bool prints = false;
    uint32_t n;

    (void)state;
    memcpy(data, &header, sizeof header);
    n_first = make_fatbin(data + first, ".version 8.0");
    n_second = make_fatbin(data + first + weir_bundle_align(n_first), "call vprintf");
    put_u64(data + sizeof header, n_first);
    put_u64(data + sizeof header + 8, n_second);
    first += weir_bundle_align(n_first) + n_second;
    assert_int_equal(weir_bundle_check(data, first, &parts, &n), WEIR_OK);
    assert_int_equal(n, 2);
    assert_true(parts[1].bytes == n_second);
    free(parts);
    assert_int_equal(ready(data, first, true, &prints), WEIR_OK);
    assert_true(prints);
    assert_int_equal(ready(data, first, false, &prints), WEIR_ERR_INVALID);
    for (size_t cut = 1; cut < first; cut++) {
        assert_int_equal(ready(data, cut, true, &prints), WEIR_ERR_INVALID);
    }
}

static void uses_printf_is_seen_or_assumed(void **state)
{
    uint8_t data[256];
    bool prints;
    size_t n;

    (void)state;
    n = make_fatbin(data, "call vprintf");
    assert_int_equal(ready(data, n, false, &prints), WEIR_OK);
    assert_true(prints);
    n = make_fatbin(data, "nothing here");
    assert_int_equal(ready(data, n, false, &prints), WEIR_OK);
    assert_false(prints);
    data[16] = 64; /* a kind that nobody knows: cannot be told */
    assert_int_equal(ready(data, n, false, &prints), WEIR_OK);
    assert_true(prints);
    data[16] = 1;
    put_u32(data + 16 + 0x10, 8); /* packed in a way that nobody knows */
    assert_int_equal(ready(data, n, false, &prints), WEIR_ERR_INVALID);
}

/* A fatbin of several entries of 64 bytes of text or of a small ELF file. */
struct part {
    uint16_t kind;
    uint32_t arch;
    bool bad; /* its content would be refused */
};

static size_t make_parts(uint8_t *at, const struct part *parts, size_t n_parts)
{
    uint8_t *e = at + 16;

    memset(at, 0, 16 + n_parts * 224);
    put_u32(at, 0xba55ed50);
    at[4] = 1;
    at[6] = 16;
    put_u64(at + 8, n_parts * 224);
    for (size_t i = 0; i < n_parts; i++, e += 224) {
        Elf64_Ehdr elf = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
                          .e_shoff = sizeof elf,
                          .e_shnum = 1,
                          .e_shentsize = sizeof(Elf64_Shdr)};

        e[0] = (uint8_t)parts[i].kind;
        put_u32(e + 4, 80);
        put_u64(e + 8, 144);
        put_u32(e + 0x14, 64);
        put_u32(e + 0x1c, parts[i].arch);
        put_u32(e + 64, 72);
        if (parts[i].kind == 2) {
            elf.e_shoff = parts[i].bad ? 4096 : elf.e_shoff;
            memcpy(e + 80, &elf, sizeof elf);
        }
    }
    return 16 + n_parts * 224;
}

static void select_keeps_what_the_device_runs(void **state)
{
    static const struct {
        const char *name;
        struct part parts[4];
        size_t n_parts;
        uint32_t kept; /* bit per part */
        bool refused;
    } rows[] = {
        {"code of its generation", {{2, 80, 0}, {2, 90, 0}, {2, 100, 0}, {1, 90, 0}}, 4, 2, false},
        {"an older minor runs", {{2, 80, 0}, {1, 80, 0}, {2, 90, 0}, {1, 120, 0}}, 4, 4, false},
        {"PTX where there is no code", {{2, 80, 0}, {1, 80, 0}, {1, 100, 0}}, 3, 2, false},
        {"unknown kinds stay", {{2, 80, 0}, {2, 90, 0}, {64, 0, 0}}, 3, 6, false},
        {"nothing that runs: all", {{2, 80, 0}, {2, 100, 0}}, 2, 3, false},
        {"bad code of others is not shown", {{2, 80, 1}, {2, 90, 0}}, 2, 2, false},
        {"bad code is refused", {{2, 80, 0}, {2, 90, 1}}, 2, 0, true},
        {"bad code and nothing that runs", {{2, 80, 1}, {2, 100, 0}}, 2, 0, true},
    };
    uint8_t data[16 + 4 * 224];

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        size_t n = make_parts(data, rows[r].parts, rows[r].n_parts), at = 16;
        uint8_t *copy = NULL;
        const uint8_t *given;
        uint64_t budget = WEIR_UNPACK_MAX_BYTES;
        struct weir_image_facts facts;
        enum weir_status status = weir_fatbin_select(data, n, 90, &budget, &copy, &facts);

        print_message("%s\n", rows[r].name);
        assert_int_equal(status, rows[r].refused ? WEIR_ERR_INVALID : WEIR_OK);
        if (rows[r].refused) {
            continue;
        }
        given = copy ? copy : data;
        for (size_t i = 0; i < rows[r].n_parts; i++) {
            if (rows[r].kept & (1u << i)) {
                assert_memory_equal(given + at, data + 16 + i * 224, 224);
                at += 224;
            }
        }
        assert_int_equal(weir_fatbin_bytes(given), at);
        free(copy);
    }
}

static void ptx_is_what_the_code_was_made_from(void **state)
{
    static const struct {
        const char *name;
        struct part parts[4];
        size_t n_parts;
        bool code_runs, any;
        int found; /* part, -1: none */
        bool no_code;
    } rows[] = {
        {"the highest that runs", {{1, 75, 0}, {1, 90, 0}, {1, 100, 0}}, 3, true, false, 1, false},
        {"beside its code", {{2, 90, 0}, {1, 90, 0}}, 2, true, false, 1, false},
        {"beside code of another text", {{2, 90, 0}, {1, 75, 0}}, 2, true, false, -1, false},
        {"any will do", {{2, 90, 0}, {1, 75, 0}}, 2, true, true, 1, false},
        {"no code runs on softgpu", {{2, 90, 0}, {1, 75, 0}}, 2, false, false, 1, false},
        {"code that cannot run", {{2, 100, 0}, {2, 80, 0}, {1, 80, 0}}, 3, true, false, 2, false},
        {"two of one architecture",
         {{1, 90, 0}, {1, 90, 0}, {1, 75, 0}},
         3,
         true,
         false,
         -1,
         false},
        {"none", {{2, 90, 0}}, 1, true, false, -1, false},
        {"code, but a text is wanted that is compiled",
         {{1, 90, 0}, {2, 90, 0}},
         2,
         true,
         false,
         -1,
         true},
        {"a text that is compiled", {{1, 75, 0}, {2, 100, 0}}, 2, true, false, 0, true},
    };
    uint8_t data[16 + 4 * 224];

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        struct weir_image_ptx_want want = {.sm = 90,
                                           .code_runs = rows[r].code_runs,
                                           .no_code = rows[r].no_code,
                                           .any_arch = rows[r].any,
                                           .max_bytes = 1000};
        size_t n = make_parts(data, rows[r].parts, rows[r].n_parts), bytes;
        char *text;

        print_message("%s\n", rows[r].name);
        for (size_t i = 0; i < rows[r].n_parts; i++) {
            if (rows[r].parts[i].kind == 1) {
                data[16 + i * 224 + 80] = (uint8_t)('a' + i);
            }
        }
        enum weir_status status = weir_image_ptx(data, n, &want, &text, &bytes);

        assert_int_equal(status, rows[r].found >= 0 ? WEIR_OK : WEIR_ERR_NOT_FOUND);
        if (status == WEIR_OK) {
            assert_int_equal(bytes, 1);
            assert_int_equal(text[0], 'a' + rows[r].found);
            free(text);
        }
    }
}

static void ptx_of_text_is_the_text_within_bounds(void **state)
{
    static const char image[] = ".version 8.0";
    struct weir_image_ptx_want want = {.sm = 90, .code_runs = true, .max_bytes = sizeof image - 1};
    uint8_t *data = calloc(1, sizeof image + WEIR_IMAGE_TAIL_BYTES), fat[200];
    size_t bytes, n;
    char *text;

    (void)state;
    memcpy(data, image, sizeof image);
    assert_int_equal(weir_image_ptx(data, sizeof image, &want, &text, &bytes), WEIR_OK);
    assert_int_equal(bytes, sizeof image - 1);
    assert_string_equal(text, image);
    free(text);
    n = make_fatbin(fat, image);
    want.max_bytes = 4096;
    assert_int_equal(weir_image_ptx(fat, n, &want, &text, &bytes), WEIR_OK);
    assert_string_equal(text, image);
    free(text);
    want.max_bytes = 5;
    assert_int_equal(weir_image_ptx(data, sizeof image, &want, &text, &bytes), WEIR_ERR_TOO_BIG);
    assert_int_equal(weir_image_ptx(fat, n, &want, &text, &bytes), WEIR_ERR_TOO_BIG);
    put_u64(fat + 8, UINT64_MAX);
    assert_int_equal(weir_image_ptx(fat, n, &want, &text, &bytes), WEIR_ERR_INVALID);
    free(data);
}

/* Packed entries whose lengths lie, behind ones that use the budget up or too long to look at. */
static void select_shows_the_driver_nothing_unseen(void **state)
{
    static const struct {
        const char *name;
        uint64_t claimed, budget;
        bool refused;
    } rows[] = {
        {"honest", 64, 64, false},
        {"a budget that is used up", 64, 63, true},
        {"longer than it is", 65, 1 << 20, true},
        {"too long to be looked at", UINT64_C(600) << 20, UINT64_C(1) << 30, true},
    };
    static const uint8_t zeros[64];
    uint8_t data[256];
    size_t n = make_fatbin(data, ".version 8.0, and room for what is packed: more than enough");

    (void)state;
    memset(data + 96, 0, n - 96);
    put_u32(data + 16 + 0x10, (uint32_t)ZSTD_compress(data + 96, n - 96, zeros, sizeof zeros, 1));
    put_u64(data + 16 + 0x28, 0x8000);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        uint64_t budget = rows[r].budget;
        uint8_t *copy;
        struct weir_image_facts facts;

        print_message("%s\n", rows[r].name);
        put_u64(data + 16 + 0x38, rows[r].claimed);
        assert_int_equal(weir_fatbin_select(data, n, 90, &budget, &copy, &facts),
                         rows[r].refused ? WEIR_ERR_INVALID : WEIR_OK);
        assert_true(rows[r].refused || budget == rows[r].budget - rows[r].claimed);
    }
}

static void ready_is_done_once_and_counted(void **state)
{
    static const struct part parts[] = {{2, 80, false}, {2, 90, false}};
    uint8_t data[16 + 2 * 224];
    size_t n = make_parts(data, parts, 2);
    struct weir_host_image_store store;
    struct weir_host_image *image;
    const void *code, *again, *all;
    struct weir_image_facts facts;

    (void)state;
    init_store(&store, 1 << 20);
    image = store_bytes(&store, data, n);
    assert_int_equal(weir_image_ready(&store, image, false, 90, &code, &facts), WEIR_OK);
    assert_ptr_not_equal(code, image->data);
    assert_true(weir_host_image_store_bytes(&store) == n + 16 + 224);
    assert_int_equal(weir_image_ready(&store, image, false, 90, &again, &facts), WEIR_OK);
    assert_ptr_equal(code, again);
    assert_true(weir_host_image_store_bytes(&store) == n + 16 + 224);
    assert_int_equal(weir_image_ready(&store, image, false, 0, &all, &facts), WEIR_OK);
    assert_ptr_equal(all, image->data);
    assert_true(charged() == n + 16 + 224);
    weir_image_put(&store, image);
    weir_host_image_store_finish(&store);
    assert_true(charged() == 0);
}

static void copies_are_refused_where_there_is_no_more_memory(void **state)
{
    static const struct part parts[] = {{2, 80, false}, {2, 90, false}};
    uint8_t data[16 + 2 * 224];
    size_t n = make_parts(data, parts, 2);
    struct weir_host_image_store store;
    struct weir_host_image *image;
    struct weir_image_facts facts;
    const void *code;

    (void)state;
    init_store(&store, n + 100);
    image = store_bytes(&store, data, n);
    assert_int_equal(weir_image_ready(&store, image, false, 90, &code, &facts), WEIR_ERR_QUOTA);
    assert_true(charged() == n);
    weir_account_limit_set(&account, WEIR_ACCOUNT_HOST_MEMORY, n + 16 + 224);
    assert_int_equal(weir_image_ready(&store, image, false, 90, &code, &facts), WEIR_OK);
    weir_image_put(&store, image);
    weir_host_image_store_finish(&store);
}

#define UNKNOWN UINT64_MAX

static void variables_are_added_up_in_ptx(void **state)
{
    static const struct {
        const char *body;
        uint64_t bytes;
    } rows[] = {
        {".global .u32 a;", 4},
        {".visible .global .align 8 .b8 a[1000];\n.global .v4 .f32 b[2][3];", 1000 + 96},
        {"/* */.global .b8 a[(1 << 20) * 3];", 3 << 20},
        {".extern .global .b8 a[];", 0},
        {".const .b8 a[64];\n.shared .b8 b[64];", 0},
        {".visible .entry k(.param .u64 .ptr .global .align 4 p) { ret; }", 0},
        {".visible .entry k() { .reg .u64 %r; .global .u64 x; ld.global.u64 %r, [x]; ret; }", 8},
        {".global .b8 a[0xffffffff];\n.global .b8 b[0xffffffff];", 2 * UINT64_C(0xffffffff)},
        /* What the parser does not know. */
        {"no PTX .global", UNKNOWN},
        {".global .b8 a[100] = {1, 2};\n.visible .entry k() { not.yet.known %r; ret; }", 100},
        {".visible .entry k(.param .u64 .ptr .global .align 4 p) { not.yet.known; }", 0},
        {".visible .global .u32 a = 1, b[3] = {1, 2, 3}, c;\n.func f() { not.yet.known; }", 20},
        {".extern .global .b8 a[];\n.func f() { .global .u64 x; st.global.u64 [x], 1; no.such; }",
         8},
        {"// .global .b8 a[5];\n/* .global .b8 b[6]; */ .pragma \".global .b8 c[7];\";\n"
         ".global /* */ .b8 d[(1 << 4) - 1]; // .global\n.func f() { not.yet.known; }",
         15},
        {".global .attribute(.managed) .b8 a[4];\n.func f() { ld.global.u32 %r, [a]; no.such; }",
         4},
        {".global .b8 a[] = {1, 2};\n.func f() { not.yet.known; }", UNKNOWN},
        {".global .notyet a;\n.global .b8 b[4];", UNKNOWN},
        {".global .b8 a[4", UNKNOWN},
        {".global .b8 a[4]; no.such \"", 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        int n = snprintf(text, sizeof text, ".version 8.0\n.target sm_80\n.address_size 64\n%s\n",
                         rows[i].body);

        uint64_t bytes = UNKNOWN;
        bool known = weir_ptx_globals(text, (uint64_t)n, &bytes);

        if (bytes != rows[i].bytes || known != (bytes != UNKNOWN)) {
            fail_msg("%s: %llu bytes", rows[i].body, (unsigned long long)bytes);
        }
    }
}

static void variables_are_added_up_in_a_cubin(void **state)
{
    static const char names[] = "\0.nv.global\0.nv.global.init\0.nv.shared.k\0.text.k";
    Elf64_Ehdr h = {.e_shoff = sizeof h, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 5};
    Elf64_Shdr s[5] = {[1] = {.sh_name = 1, .sh_type = SHT_NOBITS, .sh_size = 1000},
                       [2] = {.sh_name = 12, .sh_type = SHT_PROGBITS, .sh_size = 30},
                       [3] = {.sh_name = 28, .sh_type = SHT_NOBITS, .sh_size = 500},
                       [4] = {.sh_type = SHT_STRTAB, .sh_size = sizeof names}};
    uint8_t data[sizeof h + sizeof s + sizeof names];

    (void)state;
    h.e_shstrndx = 4;
    s[4].sh_offset = sizeof h + sizeof s;
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, s, sizeof s);
    memcpy(data + sizeof h + sizeof s, names, sizeof names);
    assert_true(weir_elf_globals(data, sizeof data) == 1030);
    s[4].sh_offset = UINT64_MAX; /* names that lie elsewhere */
    memcpy(data + sizeof h, s, sizeof s);
    assert_true(weir_elf_globals(data, sizeof data) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_of_wrong_hash_is_refused),
        cmocka_unit_test(add_over_the_cap_drops_the_longest_unused),
        cmocka_unit_test(check_of_cut_fatbin_is_refused),
        cmocka_unit_test(check_of_lying_elf_is_refused),
        cmocka_unit_test(check_of_text_wants_text),
        cmocka_unit_test(bundle_is_ready_or_refused),
        cmocka_unit_test(uses_printf_is_seen_or_assumed),
        cmocka_unit_test(copies_are_refused_where_there_is_no_more_memory),
        cmocka_unit_test(variables_are_added_up_in_ptx),
        cmocka_unit_test(variables_are_added_up_in_a_cubin),
        cmocka_unit_test(select_keeps_what_the_device_runs),
        cmocka_unit_test(select_shows_the_driver_nothing_unseen),
        cmocka_unit_test(ready_is_done_once_and_counted),
        cmocka_unit_test(ptx_is_what_the_code_was_made_from),
        cmocka_unit_test(ptx_of_text_is_the_text_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
