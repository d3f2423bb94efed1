/*
 * One whose managed memory is not what it says: a userfaultfd that is none, that blocks, that has
 * faults elsewhere; chunks that nobody has mapped; ranges that wrap; pages that it does not unmap.
 */
#include "base/id_table.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/wire/kinds.h"
#include "proto/wire/op_kinds.h"
#include "tests/e2e/e2e_hostile.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONTEXT     weir_handle_make(WEIR_KIND_CONTEXT, false, 1, 1)
#define CHUNK_BYTES (2u << 20)

static void ask_for_nonsense(struct client *c)
{
    static const uint64_t edges[] = {0, 1, 4095, 1ull << 47, UINT64_MAX - 1, UINT64_MAX};

    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        for (size_t k = 0; k < sizeof edges / sizeof edges[0]; k++) {
            struct weir_op_managed_take_in take = {.address = edges[i], .bytes = edges[k]};
            struct weir_op_managed_fetch_in fetch = {.address = edges[i], .bytes = edges[k]};

            struct weir_op_managed_place_in place = {edges[i], edges[k], (uint32_t)(i + k)};

            (void)hostile_call(c, WEIR_OP_managed_place, &place);
            (void)hostile_call(c, WEIR_OP_managed_take, &take);
            (void)hostile_call(c, WEIR_OP_managed_fetch, &fetch);
            for (int owner = 0; owner < 2; owner++) {
                struct weir_op_managed_variable_in variable = {owner ? CONTEXT : edges[i], edges[i],
                                                               edges[k]};

                if (hostile_call(c, WEIR_OP_managed_variable, &variable) == CUDA_SUCCESS) {
                    hostile_fail("a variable of nobody's");
                }
            }
        }
    }
    for (uint64_t chunk = 0; chunk < 4; chunk++) {
        struct weir_op_managed_mapped_in mapped = {.chunk = chunk};

        if (hostile_call(c, WEIR_OP_managed_mapped, &mapped) == CUDA_SUCCESS) {
            hostile_fail("chunk %llu is mapped nowhere", (unsigned long long)chunk);
        }
    }
    (void)hostile_call(c, WEIR_OP_managed_merge, NULL);
    hostile_post(c, WEIR_OP_managed_taken, NULL);
}

/* Its faults are none that the host could serve, and go on for ever. */
static void *touch(void *at)
{
    *(volatile char *)at = 1;
    return NULL;
}

static void fault_elsewhere(int uffd)
{
    int file = hostile_memory_file(CHUNK_BYTES, true);
    char *at = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct uffdio_register mine = {.range = {(uintptr_t)at, CHUNK_BYTES},
                                   .mode = UFFDIO_REGISTER_MODE_MINOR};
    pthread_t thread;

    if (at == MAP_FAILED || pwrite(file, "x", 1, 0) != 1 ||
        ioctl(uffd, UFFDIO_REGISTER, &mine) != 0 || pthread_create(&thread, NULL, touch, at) != 0) {
        hostile_fail("no fault of our own");
    }
    close(file);
}

void hostile_scenario_managed(void)
{
    struct weir_op_ctx_create_in context = {
        .c = CONTEXT, .legacy = weir_handle_make(WEIR_KIND_STREAM, false, 1, 1), .legacy_word = 1};
    struct weir_op_mem_grant_in grant = {
        .c = CONTEXT, .bytes = CHUNK_BYTES, .kind = WEIR_GRANT_MANAGED};
    int file = hostile_memory_file(CHUNK_BYTES, true);
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC); /* reads of it block */
    struct client c;

    hostile_connect(&c);
    hostile_post(&c, WEIR_OP_ctx_create, &context);
    ask_for_nonsense(&c);
    if (hostile_call(&c, WEIR_OP_mem_grant, &grant) == CUDA_SUCCESS) {
        hostile_fail("managed memory without faults");
    }
    if (hostile_call_with_fd(&c, WEIR_OP_managed_begin, NULL, file) == CUDA_SUCCESS) {
        hostile_fail("a file serves faults");
    }
    if (uffd < 0) {
        printf("no userfaultfd here\n");
        hostile_expect_alive(&c, "a descriptor of the wrong kind");
        return;
    }
    if (hostile_call_with_fd(&c, WEIR_OP_managed_begin, NULL, uffd) != CUDA_SUCCESS ||
        hostile_call_with_fd(&c, WEIR_OP_managed_begin, NULL, uffd) == CUDA_SUCCESS) {
        hostile_fail("not once");
    }
    for (int i = 0; i < 3; i++) {
        if (hostile_call(&c, WEIR_OP_mem_grant, &grant) != CUDA_SUCCESS) {
            hostile_fail("no managed memory");
        }
    }
    ask_for_nonsense(&c);
    fault_elsewhere(uffd);
    usleep(50 * 1000);
    ask_for_nonsense(&c);
    hostile_expect_alive(&c, "what is no managed memory");
}
