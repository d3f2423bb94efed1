/* status, log, clock, hash, arena, UUIDs and passed descriptors: small enough for one program. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/gpu_uuid.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void status_text_of_every_row_is_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < WEIR_STATUS_COUNT; i++) {
        const char *text = weir_status_text((enum weir_status)i);
        assert_non_null(text);
        assert_string_not_equal(text, "unknown status");
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(text, weir_status_text((enum weir_status)k));
        }
    }
    assert_string_equal(weir_status_text(WEIR_STATUS_COUNT), "unknown status");
    assert_string_equal(weir_status_text((enum weir_status) - 1), "unknown status");
}

static void gpu_uuid_text_is_as_nvidia_smi_prints_it(void **state)
{
    const uint8_t uuid[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                              0xf0, 0xe1, 0xd2, 0xc3, 0xb4, 0xa5, 0x96, 0x00};
    char text[WEIR_GPU_UUID_BYTES];

    (void)state;
    weir_gpu_uuid_text(uuid, text);
    assert_string_equal(text, "GPU-01234567-89ab-cdef-f0e1-d2c3b4a59600");
}

static void diag_set_truncates_and_accepts_null(void **state)
{
    (void)state;
    struct weir_diag diag;
    char longer[400];
    memset(longer, 'x', sizeof longer);
    longer[399] = '\0';
    weir_diag_set(NULL, 1, 2, "%s", longer);
    weir_diag_set(&diag, 3, 4, "%s", longer);
    assert_int_equal(diag.line, 3);
    assert_int_equal(diag.column, 4);
    assert_int_equal(strlen(diag.message), sizeof diag.message - 1);
}

static void *wake_later(void *user)
{
    uint32_t *word = user;
    usleep(20000);
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    weir_futex_wake(word, 1);
    return NULL;
}

static void futex_wait_times_out_wakes_and_sees_a_change(void **state)
{
    (void)state;
    uint32_t word = 0;
    pthread_t thread;
    errno = 4242;
    uint64_t start_ns = weir_clock_now_ns();
    while (weir_futex_wait(&word, 0, 20 * WEIR_NS_PER_MS)) {
    }
    assert_true(weir_clock_now_ns() - start_ns >= 20 * WEIR_NS_PER_MS);
    assert_true(weir_futex_wait(&word, 1, WEIR_FOREVER));
    assert_int_equal(pthread_create(&thread, NULL, wake_later, &word), 0);
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) {
        assert_true(weir_futex_wait(&word, 0, WEIR_FOREVER));
    }
    pthread_join(thread, NULL);
    assert_int_equal(errno, 4242);
}

static void hash_matches_published_values(void **state)
{
    (void)state;
    /* XXH3-128 of nothing, seed 0, canonical: from the algorithm's specification. */
    static const uint8_t empty[16] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                      0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
    assert_memory_equal(weir_hash_of(NULL, 0).bytes, empty, 16);
    assert_memory_equal(weir_hash_of("", 0).bytes, empty, 16);
    char data[5000];
    memset(data, 7, sizeof data);
    struct weir_hash before = weir_hash_of(data, sizeof data);
    data[4999] ^= 1;
    struct weir_hash after = weir_hash_of(data, sizeof data);
    assert_memory_not_equal(before.bytes, after.bytes, 16);
    assert_true(weir_hash64_of(NULL, 0) == 0x2d06800538d394c2ull);
}

static void arena_gives_aligned_memory_up_to_its_cap(void **state)
{
    (void)state;
    struct weir_arena arena;
    weir_arena_init(&arena, 100000);
    size_t total = 0;
    for (size_t bytes = 0; bytes < 300; bytes++) {
        uint8_t *memory = weir_arena_alloc(&arena, bytes);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 16, 0);
        memset(memory, 0xee, bytes);
        total += (bytes + 15) & ~(size_t)15;
        assert_int_equal(arena.used_bytes, total);
    }
    assert_null(weir_arena_alloc(&arena, 100000));
    assert_null(weir_arena_alloc(&arena, SIZE_MAX));
    assert_non_null(weir_arena_alloc(&arena, 50000)); /* larger than a chunk */
    weir_arena_reset(&arena);
    assert_int_equal(arena.used_bytes, 0);
    assert_non_null(weir_arena_alloc(&arena, 100000));
    assert_null(weir_arena_alloc(&arena, 1));
    weir_arena_finish(&arena);
    weir_arena_finish(&arena);
    weir_arena_finish(NULL);
    assert_null(weir_arena_alloc(&arena, 0)); /* zeroed: gives nothing */
}

static void arena_packs_text_and_says_why_it_refuses(void **state)
{
    (void)state;
    struct weir_arena arena;
    weir_arena_init(&arena, 64);
    char *text = weir_arena_strndup(&arena, "ab", 2);
    assert_ptr_equal(weir_arena_strndup(&arena, "cd", 2), text + 3);
    uint64_t *number = weir_arena_alloc_aligned(&arena, 8, 8);
    assert_ptr_equal(number, text + 8);
    assert_ptr_equal(weir_arena_alloc(&arena, 1), text + 16);
    assert_int_equal(arena.used_bytes, 32);
    assert_false(arena.over_cap);
    assert_non_null(weir_arena_alloc_aligned(&arena, 1, 1));
    assert_null(weir_arena_alloc(&arena, 17)); /* 15 to pad, 32 to have */
    assert_true(arena.over_cap);
    assert_non_null(weir_arena_alloc_aligned(&arena, 31, 1));
    assert_false(arena.over_cap);
    arena.cap_bytes += 1008;
    assert_non_null(weir_arena_alloc(&arena, 1000));
    assert_null(weir_arena_alloc(&arena, 1));
    weir_arena_finish(&arena);
    weir_arena_init(&arena, SIZE_MAX);
    assert_null(weir_arena_alloc(&arena, SIZE_MAX));
    assert_null(weir_arena_alloc_aligned(&arena, SIZE_MAX - 8, 1));
    weir_arena_finish(&arena);
}

/* Chunks grow to a quarter of a MiB and stay so large, whatever came before. */
static void arena_asks_for_few_chunks(void **state)
{
    (void)state;
    struct weir_arena arena;
    weir_arena_init(&arena, SIZE_MAX);
    assert_non_null(weir_arena_alloc(&arena, 16u << 20));
    uintptr_t last = 0;
    int jumps = 0;
    for (int i = 0; i < 4096; i++) { /* 4 MiB */
        uintptr_t at = (uintptr_t)weir_arena_alloc(&arena, 1024);
        assert_true(at != 0);
        jumps += at != last + 1024;
        last = at;
    }
    assert_in_range(jumps, 16, 17);
    weir_arena_finish(&arena);
}

static void arena_reset_reuses_its_chunks(void **state)
{
    (void)state;
    struct weir_arena arena;
    weir_arena_init(&arena, 1u << 20);
    void *first = weir_arena_alloc(&arena, 1000);
    for (int i = 0; i < 100; i++) {
        weir_arena_alloc(&arena, 1000);
    }
    weir_arena_reset(&arena);
    assert_ptr_equal(weir_arena_alloc(&arena, 1000), first);
    assert_string_equal(weir_arena_strndup(&arena, "hello world", 5), "hello");
    assert_null(weir_arena_strndup(&arena, "", SIZE_MAX));
    weir_arena_finish(&arena);
}

static void log_writes_whole_lines_at_its_level(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-test-log-XXXXXX";
    char spec[64], text[4096];
    int fd = mkstemp(path);
    snprintf(spec, sizeof spec, "info:%s", path);
    assert_int_equal(weir_log_init("loud", NULL), WEIR_ERR_INVALID);
    assert_int_equal(weir_log_init("info:/nonexistent/x", NULL), WEIR_ERR_IO);
    assert_int_equal(weir_log_level(), WEIR_LOG_NONE);
    weir_log_error("test: not seen");
    assert_int_equal(weir_log_init(spec, "tester"), WEIR_OK);
    errno = 4242;
    weir_log_debug("test: too fine");
    weir_log_info("test: name=%s", "evil\nERROR forged");
    char longer[3000];
    memset(longer, 'x', sizeof longer);
    longer[2999] = '\0';
    weir_log_warn("test: %s", longer);
    assert_int_equal(errno, 4242);
    ssize_t len = read(fd, text, sizeof text - 1);
    assert_true(len > 0);
    text[len] = '\0';
    assert_null(strstr(text, "too fine"));
    assert_null(strstr(text, "not seen"));
    assert_non_null(strstr(text, "Z tester info test: name=evil?ERROR forged\n"));
    int lines = 0;
    for (char *at = text; (at = strchr(at, '\n')); at++) {
        lines++;
    }
    assert_int_equal(lines, 2);
    assert_int_equal(text[len - 1], '\n');
    assert_int_equal(weir_log_init(NULL, NULL), WEIR_OK);
    assert_int_equal(weir_log_level(), WEIR_LOG_NONE);
    close(fd);
    unlink(path);
}

static void descriptor_travels_with_its_message(void **state)
{
    (void)state;
    struct weir_fds fds;
    char bytes[8];
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(weir_fd_send(pair[0], "with", 4, pair[0], 0), 4);
    assert_int_equal(weir_fd_send(pair[0], "without", 7, -1, 0), 7);
    assert_int_equal(weir_fd_receive(pair[1], bytes, sizeof bytes, 0, &fds), 4);
    assert_int_equal(fds.n, 1);
    assert_false(fds.bytes_cut || fds.fds_cut);
    assert_int_equal(fcntl(fds.fd[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(fds.fd[0], "same", 4), 4); /* it is our end of the pair */
    int passed = fds.fd[0];
    errno = 4242;
    weir_fds_close(&fds);
    assert_int_equal(errno, 4242);
    assert_int_equal(fcntl(passed, F_GETFD), -1);
    assert_int_equal(weir_fd_receive(pair[1], bytes, 3, MSG_DONTWAIT, &fds), 3);
    assert_int_equal(fds.n, 0);
    assert_true(fds.bytes_cut && !fds.fds_cut);
    assert_int_equal(weir_fd_receive(pair[1], bytes, sizeof bytes, MSG_DONTWAIT, &fds), 4);
    assert_memory_equal(bytes, "same", 4);
    assert_int_equal(weir_fd_receive(pair[1], bytes, sizeof bytes, MSG_DONTWAIT, &fds), -1);
    assert_int_equal(errno, EAGAIN);
    close(pair[1]);
    assert_int_equal(weir_fd_send(pair[0], "gone", 4, -1, 0), -1); /* and no SIGPIPE */
    assert_int_equal(errno, EPIPE);
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_text_of_every_row_is_its_own),
        cmocka_unit_test(gpu_uuid_text_is_as_nvidia_smi_prints_it),
        cmocka_unit_test(diag_set_truncates_and_accepts_null),
        cmocka_unit_test(futex_wait_times_out_wakes_and_sees_a_change),
        cmocka_unit_test(hash_matches_published_values),
        cmocka_unit_test(arena_gives_aligned_memory_up_to_its_cap),
        cmocka_unit_test(arena_packs_text_and_says_why_it_refuses),
        cmocka_unit_test(arena_asks_for_few_chunks),
        cmocka_unit_test(arena_reset_reuses_its_chunks),
        cmocka_unit_test(descriptor_travels_with_its_message),
        cmocka_unit_test(log_writes_whole_lines_at_its_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
