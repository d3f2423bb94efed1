/*
 * One who takes as much as it is given of one thing, by means that the guest library does not offer
 * or that would take long with it. What was taken is kept until stdin ends.
 */
#include "base/id_table.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/wire/kinds.h"
#include "tests/e2e/e2e_hostile.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES   4096u
#define MANY         100000
#define CONTEXT      weir_handle_make(WEIR_KIND_CONTEXT, false, 1, 1)
#define FIRST_WINDOW 0x200000000000ull /* by default; each has 1 TiB */
#define SOMEWHERE    0x7d0000000000ull /* nothing of the worker's lies there */

static void connect_with_context(struct client *c)
{
    struct weir_op_ctx_create_in in = {
        .c = CONTEXT, .legacy = weir_handle_make(WEIR_KIND_STREAM, false, 1, 1), .legacy_word = 1};

    hostile_connect(c);
    hostile_post(c, WEIR_OP_ctx_create, &in);
}

/* Allocations without end: refused by the quota, and gone with the session. */
void hostile_scenario_greedy(void)
{
    struct client c;
    int granted = 0;
    int32_t result = 0;

    connect_with_context(&c);
    for (int i = 0; i < 10000 && result == 0; i++) {
        struct weir_op_mem_grant_in in = {.c = CONTEXT, .bytes = i % 2 ? 1ull << 62 : 32ull << 20};

        result = hostile_call(&c, WEIR_OP_mem_grant, &in);
        if (i % 2 && result == 0) {
            hostile_fail("granted 4 EiB");
        }
        granted += result == 0;
        result = i % 2 ? 0 : result;
    }
    printf("%d chunks of 32 MiB, then error %d\n", granted, (int)result);
    if (granted == 0 || result != CUDA_ERROR_OUT_OF_MEMORY) {
        hostile_fail("neither memory nor the end of it");
    }
    hostile_expect_alive(&c, "a refused grant");
}

/* The test reads the line, looks around, and ends stdin. */
static void keep(struct client *c, const char *what, int n, int32_t result)
{
    printf("%s %d, then %d\n", what, n, (int)result);
    while (getchar() != EOF) {
    }
    hostile_expect_alive(c, "a refusal");
}

/* Images of which only the first bytes ever come: as many as two sessions may begin. */
void hostile_scenario_images(void)
{
    struct client clients[2];
    int32_t result = 0;
    int n = 0;

    hostile_connect(&clients[0]);
    hostile_connect(&clients[1]);
    for (; n < 16; n++) {
        struct weir_op_image_put_in in = {
            .hash = {(uint8_t)n}, .bytes = 1u << 30, .piece_bytes = 1};

        result = hostile_call(&clients[n / 8], WEIR_OP_image_put, &in);
        if (result != 0) {
            break;
        }
    }
    keep(&clients[0], "images", n, result);
    hostile_disconnect(&clients[1]);
}

/* One page of a file again and again, never beside itself. */
static void register_pages(const char *what, bool sealed)
{
    struct client c;
    int fd = hostile_memory_file(PAGE_BYTES, sealed), n = 0;
    int32_t result = 0;

    connect_with_context(&c);
    for (; n < MANY; n++) {
        struct weir_op_host_register_in in = {.c = CONTEXT,
                                              .address =
                                                  SOMEWHERE + 2ull * PAGE_BYTES * (unsigned)n,
                                              .bytes = PAGE_BYTES};

        result = hostile_call_with_fd(&c, WEIR_OP_host_register, &in, fd);
        if (result != 0) {
            break;
        }
    }
    close(fd);
    keep(&c, what, n, result);
}

void hostile_scenario_registered(void)
{
    register_pages("registered", true);
}

/* A page in the window of each tenant that there can be. */
void hostile_scenario_windows(void)
{
    struct client c;
    int fd = hostile_memory_file(PAGE_BYTES, true);
    int32_t result = 0;
    int n = 0;

    connect_with_context(&c);
    for (; n < 64 && result == 0; n++) {
        struct weir_op_host_register_in in = {
            .c = CONTEXT, .address = FIRST_WINDOW + ((uint64_t)n << 40), .bytes = PAGE_BYTES};

        result = hostile_call_with_fd(&c, WEIR_OP_host_register, &in, fd);
    }
    close(fd);
    keep(&c, "windows", n, result);
}

/* Of a file that could be cut short. */
void hostile_scenario_guarded(void)
{
    register_pages("guarded", false);
}
