/* Hosts' addresses: every scheme has rows of both kinds. */
#include "proto/wire/address.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

#define PATH_OF_100                                                                                \
    "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaa"

static const struct row {
    const char *host;
    enum weir_scheme scheme;
    const char *place, *problem; /* a part of the answer; NULL: well-formed */
} rows[] = {
    {"ipc:///run/weir/a.sock", WEIR_SCHEME_IPC, "/run/weir/a.sock", NULL},
    {"ipc://" PATH_OF_100 "/123456", WEIR_SCHEME_IPC, PATH_OF_100 "/123456", NULL},
    {"ipc://" PATH_OF_100 "/1234567", WEIR_SCHEME_IPC, PATH_OF_100 "/1234567", "107 bytes"},
    {"ipc://", WEIR_SCHEME_IPC, "", "ipc://PATH"},
    {"tcp://gpuhost:1", WEIR_SCHEME_TCP, "gpuhost:1", NULL},
    {"tcp://[::1]:65535", WEIR_SCHEME_TCP, "[::1]:65535", NULL},
    {"tcp://gpuhost", WEIR_SCHEME_TCP, "gpuhost", "tcp://ADDRESS:PORT"},
    {"tcp://gpuhost:", WEIR_SCHEME_TCP, "gpuhost:", "tcp://ADDRESS:PORT"},
    {"tcp://gpuhost:0", WEIR_SCHEME_TCP, "gpuhost:0", "tcp://ADDRESS:PORT"},
    {"tcp://gpuhost:65536", WEIR_SCHEME_TCP, "gpuhost:65536", "tcp://ADDRESS:PORT"},
    {"tcp://gpuhost:70 ", WEIR_SCHEME_TCP, "gpuhost:70 ", "tcp://ADDRESS:PORT"},
    {"tcp://gpuhost:+7", WEIR_SCHEME_TCP, "gpuhost:+7", "tcp://ADDRESS:PORT"},
    {"tcp://a/b:7", WEIR_SCHEME_TCP, "a/b:7", "tcp://ADDRESS:PORT"},
    {"tcp://:7070", WEIR_SCHEME_TCP, ":7070", "tcp://ADDRESS:PORT"},
    {"ivshmem://", WEIR_SCHEME_IVSHMEM, "", NULL},
    {"ivshmem:///sys/x/resource2", WEIR_SCHEME_IVSHMEM, "/sys/x/resource2", NULL},
    {"ivshmem://x", WEIR_SCHEME_IVSHMEM, "x", "ivshmem:///PATH"},
    {"devdax:///dev/dax0.0", WEIR_SCHEME_DEVDAX, "/dev/dax0.0", NULL},
    {"devdax://dax0.0", WEIR_SCHEME_DEVDAX, "dax0.0", "devdax:///PATH"},
    {"vsock://", WEIR_SCHEME_VSOCK, "", NULL},
    {"vsock://2", WEIR_SCHEME_VSOCK, "2", NULL},
    {"vsock://2:7171", WEIR_SCHEME_VSOCK, "2:7171", NULL},
    {"vsock://2:", WEIR_SCHEME_VSOCK, "2:", "vsock://CID"},
    {"vsock://2:7x", WEIR_SCHEME_VSOCK, "2:7x", "vsock://CID"},
    {"vsock://host", WEIR_SCHEME_VSOCK, "host", "vsock://CID"},
    {"virtio-serial:///dev/vport0p1", WEIR_SCHEME_COUNT, "virtio-serial:///dev/vport0p1",
     "use ivshmem://"},
    {"", WEIR_SCHEME_COUNT, "", "begins with ipc://"},
    {"http://gpuhost:7070", WEIR_SCHEME_COUNT, "http://gpuhost:7070", "begins with ipc://"},
    {"IPC:///run/weir/a.sock", WEIR_SCHEME_COUNT, "IPC:///run/weir/a.sock", "begins with ipc://"},
    {"/run/weir/a.sock", WEIR_SCHEME_COUNT, "/run/weir/a.sock", "begins with ipc://"},
};

static void addresses_are_told_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *place;
        assert_int_equal(weir_address_scheme(rows[i].host, &place), rows[i].scheme);
        assert_string_equal(place, rows[i].place);
    }
}

static void a_malformed_address_is_told_the_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *problem = weir_address_problem(rows[i].host);
        if (!rows[i].problem) {
            assert_null(problem);
        } else {
            assert_non_null(problem);
            assert_non_null(strstr(problem, rows[i].problem));
        }
    }
}

static void a_vsock_place_has_defaults(void **state)
{
    (void)state;
    unsigned int cid, port;
    assert_true(weir_address_vsock("", &cid, &port));
    assert_int_equal(cid, 2);
    assert_int_equal(port, 7070);
    assert_true(weir_address_vsock("42", &cid, &port));
    assert_int_equal(cid, 42);
    assert_int_equal(port, 7070);
    assert_true(weir_address_vsock("42:7", &cid, &port));
    assert_int_equal(cid, 42);
    assert_int_equal(port, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_told_apart),
        cmocka_unit_test(a_malformed_address_is_told_the_form),
        cmocka_unit_test(a_vsock_place_has_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
