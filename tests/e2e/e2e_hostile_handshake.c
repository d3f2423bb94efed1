/* Lies before there is a session: no hello, wrong ones, too many. */
#include "base/clock.h"
#include "proto/cuda_abi.h"
#include "proto/ops.h"
#include "proto/wire/connect.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/op_hash.h"
#include "proto/wire/unix_socket.h"
#include "tests/e2e/e2e_hostile.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SILENT_ONES 32

static int raw_socket(void)
{
    struct sockaddr_un address;
    if (strncmp(hostile_url, "ipc://", 6) != 0 ||
        weir_unix_address(hostile_url + 6, &address) != WEIR_OK) {
        hostile_fail("this scenario needs ipc://");
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        hostile_fail("cannot connect");
    }
    return fd;
}

/* Wait until the host has closed; what it says before may be read. */
static void expect_close(int fd, int limit_ms, const char *what)
{
    uint64_t end_ns = weir_clock_now_ns() + hostile_limit_ns((uint64_t)limit_ms * WEIR_NS_PER_MS);
    static char answer[WEIR_CONTROL_MAX_BYTES];
    for (;;) {
        struct pollfd wait = {fd, POLLIN, 0};
        uint64_t now_ns = weir_clock_now_ns();
        if (now_ns > end_ns || poll(&wait, 1, (int)((end_ns - now_ns) / WEIR_NS_PER_MS)) == 0) {
            hostile_fail("the host keeps the connection: %s", what);
        }
        if (recv(fd, answer, sizeof(answer), 0) <= 0) {
            break;
        }
    }
    close(fd);
}

void hostile_scenario_garbage_hello(void)
{
    for (int i = 0; i < 20; i++) {
        uint8_t bytes[3000];
        size_t len = 1 + hostile_any() % sizeof(bytes);
        for (size_t k = 0; k < len; k++) {
            bytes[k] = (uint8_t)hostile_any();
        }
        int fd = raw_socket();
        if (send(fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len) {
            hostile_fail("cannot send");
        }
        expect_close(fd, 8000, "random bytes instead of a hello");
    }
}

void hostile_scenario_silent(void)
{
    int fds[SILENT_ONES];
    for (int i = 0; i < SILENT_ONES; i++) {
        fds[i] = raw_socket();
    }
    printf("silent\n");
    fflush(stdout);
    struct client c;
    hostile_connect(&c); /* others are served meanwhile */
    hostile_expect_alive(&c, "many who say nothing");
    for (int i = 0; i < SILENT_ONES; i++) {
        expect_close(fds[i], 20000, "nothing said");
    }
}

void hostile_scenario_no_operations(void)
{
    struct client c;
    char said[256];
    enum weir_status status = hostile_try_connect(&c, NULL, said);
    printf("refused: %s: %s\n", weir_status_text(status), said);
    if (status != WEIR_ERR_VERSION || !strstr(said, "is too old")) {
        hostile_fail("a guest that names no operations must be refused by version");
    }
}

/* A guest of another release has all operations but those in which it differs. */
void hostile_scenario_other_release(void)
{
    struct weir_op_hashes ops = *hostile_own_ops();
    struct client c;
    char said[256];
    ops.hash[WEIR_OP_mem_info] ^= 2;
    ops.hash[ops.n++] = 5; /* one that this host does not know */
    if (hostile_try_connect(&c, &ops, said) != WEIR_OK) {
        hostile_fail("a guest of another release must be let in: %s", said);
    }
    for (int i = 0; i < 3; i++) {
        if (hostile_call_number(&c, WEIR_OP_mem_info) != CUDA_ERROR_NOT_SUPPORTED ||
            hostile_call_number(&c, WEIR_OP_COUNT) != CUDA_ERROR_NOT_SUPPORTED) {
            hostile_fail("operations in which a guest differs must be refused, one by one");
        }
        if (!hostile_echo_works(&c)) {
            hostile_fail("what both know must work");
        }
    }
    hostile_disconnect(&c);
    hostile_connect(&c);
    if (hostile_call_number(&c, WEIR_OP_mem_info) == CUDA_ERROR_NOT_SUPPORTED) {
        hostile_fail("what is refused to one guest must not be refused to others");
    }
    hostile_expect_alive(&c, "a guest of another release");
}

void hostile_scenario_wrong_protocol(void)
{
    struct weir_hello hello = {.protocol = WEIR_PROTOCOL + 7,
                               .ops = hostile_own_ops(),
                               .n_transports = 1,
                               .transports = {"shm"},
                               .version = "9.9"};
    struct weir_control_bytes bytes = {0};
    struct weir_welcome *welcome = NULL;
    static uint8_t answer[WEIR_CONTROL_MAX_BYTES];
    if (weir_hello_encode(&hello, &bytes) != WEIR_OK) {
        hostile_fail("cannot encode");
    }
    int fd = raw_socket();
    ssize_t sent = send(fd, bytes.bytes, bytes.len, MSG_NOSIGNAL);
    struct pollfd wait = {fd, POLLIN, 0};
    poll(&wait, 1, (int)(hostile_limit_ns(2 * WEIR_NS_PER_S) / WEIR_NS_PER_MS));
    ssize_t n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
    if (sent < 0 || n <= 0 || weir_welcome_decode(answer, (size_t)n, &welcome) != WEIR_OK) {
        hostile_fail("no answer to a hello of another protocol");
    }
    printf("refused: %s: %s\n", weir_status_text(welcome->status), welcome->message);
    if (welcome->status != WEIR_ERR_VERSION ||
        !strstr(welcome->message, "install the same version") ||
        !strstr(welcome->message, "weir restart")) {
        hostile_fail("another protocol must be refused by version");
    }
    weir_welcome_destroy(welcome);
    free(bytes.bytes);
    close(fd);
}

void hostile_scenario_no_transport(void)
{
    struct weir_hello hello = {.protocol = WEIR_PROTOCOL,
                               .ops = hostile_own_ops(),
                               .n_transports = 1,
                               .transports = {"pigeon"},
                               .version = "0"};
    struct weir_control_bytes bytes = {0};
    if (weir_hello_encode(&hello, &bytes) != WEIR_OK) {
        hostile_fail("cannot encode");
    }
    int fd = raw_socket();
    if (send(fd, bytes.bytes, bytes.len, MSG_NOSIGNAL) < 0) {
        hostile_fail("cannot send");
    }
    expect_close(fd, 8000, "no transport in common");
    free(bytes.bytes);
}

/* Connect and leave, as fast as it goes. */
void hostile_scenario_comings_and_goings(void)
{
    uint64_t end_ns = weir_clock_now_ns() + WEIR_NS_PER_S;
    int n = 0;
    while (weir_clock_now_ns() < end_ns) {
        if (n++ % 3) {
            close(raw_socket());
        } else {
            struct client c;
            hostile_connect(&c);
            hostile_disconnect(&c);
        }
    }
    printf("%d connections\n", n);
}

/* Many sessions at once, until refused: the limit is told. */
static void take_connections(const char *what)
{
    static struct client clients[4096];
    int n = 0;
    char said[256] = "";
    enum weir_status status = WEIR_OK;
    while (n < 4096 &&
           (status = hostile_try_connect(&clients[n], hostile_own_ops(), said)) == WEIR_OK) {
        n++;
    }
    printf("%s %d, then: %s: %s\n", what, n, weir_status_text(status), said);
    if (n == 4096 || status != WEIR_ERR_QUOTA || !said[0]) {
        hostile_fail("a limit of %s must be told", what);
    }
    if (!hostile_echo_works(&clients[0]) || !hostile_echo_works(&clients[n - 1])) {
        hostile_fail("those that were taken must go on");
    }
    for (int i = 0; i < n; i++) {
        hostile_disconnect(&clients[i]);
    }
}

void hostile_scenario_sessions(void)
{
    take_connections("sessions");
}

void hostile_scenario_monitors(void)
{
    hostile_as_monitor();
    take_connections("monitors");
}
