/* Lies about reserved addresses, handles and mappings. */
#include "base/id_table.h"
#include "proto/ops.h"
#include "proto/wire/kinds.h"
#include "tests/e2e/e2e_hostile.h"

#include <string.h>

#define UNIT (2ull << 20)

static uint64_t chunk(uint32_t index)
{
    return weir_handle_make(WEIR_KIND_CHUNK, false, 1, index);
}

static void refused(struct client *c, enum weir_op op, const void *message, const char *what)
{
    if (hostile_call(c, op, message) == 0) {
        hostile_fail("the host accepted %s", what);
    }
}

static void create(struct client *c, uint32_t index)
{
    struct weir_op_vmm_create_in in = {.h = chunk(index), .bytes = UNIT, .handle_types = 1};
    if (hostile_call(c, WEIR_OP_vmm_create, &in) != 0) {
        hostile_fail("no memory of %llu bytes", (unsigned long long)UNIT);
    }
}

/* Addresses far from everything of this session's; nothing of it may be touched. */
static const uint64_t foreign[] = {0,
                                   UNIT,
                                   0x120000000000ull,
                                   0x120000000000ull + 4096,
                                   0x200000000000ull,
                                   0x7fffffe00000ull,
                                   ~0ull - UNIT + 1};

static void lies_about_places(struct client *c)
{
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        struct weir_op_vmm_map_in map = {.address = foreign[i], .bytes = UNIT, .h = chunk(1)};
        struct weir_op_vmm_unmap_in unmap = {.address = foreign[i], .bytes = UNIT};
        struct weir_op_vmm_access_in access = {.address = foreign[i], .bytes = UNIT, .flags = 3};
        struct weir_op_vmm_unreserve_in unreserve = {.base = foreign[i]};
        refused(c, WEIR_OP_vmm_map, &map, "a mapping outside of reservations");
        refused(c, WEIR_OP_vmm_unmap, &unmap, "unmapping of others");
        refused(c, WEIR_OP_vmm_access, &access, "access to others");
        refused(c, WEIR_OP_vmm_unreserve, &unreserve, "the end of another's reservation");
        unmap.bytes = access.bytes = ~0ull;
        refused(c, WEIR_OP_vmm_unmap, &unmap, "unmapping of everything");
        refused(c, WEIR_OP_vmm_access, &access, "access to everything");
    }
}

static void lies_about_sizes(struct client *c)
{
    const uint64_t sizes[] = {0, 1, UNIT + 1, 1ull << 62, ~0ull, ~0ull - UNIT + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct weir_op_vmm_reserve_in reserve = {.bytes = sizes[i]};
        struct weir_op_vmm_create_in in = {.h = chunk(2), .bytes = sizes[i]};
        refused(c, WEIR_OP_vmm_reserve, &reserve, "an impossible reservation");
        reserve.bytes = UNIT;
        reserve.alignment = sizes[i] ? sizes[i] : 3;
        if (reserve.alignment > UNIT) {
            refused(c, WEIR_OP_vmm_reserve, &reserve, "an impossible alignment");
        }
        refused(c, WEIR_OP_vmm_create, &in, "memory of an impossible size");
    }
    struct weir_op_vmm_create_in types = {.h = chunk(2), .bytes = UNIT, .handle_types = 8};
    refused(c, WEIR_OP_vmm_create, &types, "fabric handles");
    types.handle_types = 0;
    types.device = 7;
    refused(c, WEIR_OP_vmm_create, &types, "another device");
    types.device = 0;
    types.h = chunk(1);
    refused(c, WEIR_OP_vmm_create, &types, "a name that is taken");
}

static void guessed_tokens(struct client *c)
{
    for (int i = 0; i < 200; i++) {
        struct weir_op_vmm_import_in in = {.h = chunk(3)};
        struct weir_op_pool_import_in pool;
        for (size_t k = 0; k < sizeof in.token; k++) {
            in.token[k] = i == 0 ? 0 : (uint8_t)hostile_any();
        }
        memcpy(pool.token, in.token, sizeof pool.token);
        refused(c, WEIR_OP_vmm_import, &in, "a guessed token");
        refused(c, WEIR_OP_pool_import, &pool, "a guessed token of a pool");
    }
}

/* Address space is the tenant's to waste, up to its share; then the answer is no. */
static void greed(struct client *c)
{
    struct weir_op_vmm_reserve_in in = {.bytes = 256ull << 30};
    int n = 0;
    while (n < 1000 && hostile_call(c, WEIR_OP_vmm_reserve, &in) == 0) {
        n++;
    }
    if (n == 0 || n == 1000) {
        hostile_fail("%d reservations of 256 GiB", n);
    }
}

static void posted_lies(void)
{
    struct client c;
    struct weir_op_vmm_map_in map = {.address = 0x120000000000ull, .bytes = UNIT, .h = chunk(1)};
    struct weir_op_vmm_access_in access = {.address = UNIT, .bytes = UNIT, .flags = 3};
    hostile_connect(&c);
    hostile_post(&c, WEIR_OP_vmm_map, &map);
    hostile_expect_end(&c, "a posted mapping of nothing");
    hostile_connect(&c);
    hostile_post(&c, WEIR_OP_vmm_access, &access);
    hostile_expect_end(&c, "posted access to nothing");
}

void hostile_scenario_vmm(void)
{
    struct client c;
    hostile_connect(&c);
    create(&c, 1);
    lies_about_places(&c);
    lies_about_sizes(&c);
    guessed_tokens(&c);
    greed(&c);
    hostile_expect_alive(&c, "lies about memory");
    if (!c.transport) {
        posted_lies();
    }
}
