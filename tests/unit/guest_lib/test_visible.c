/* CUDA_VISIBLE_DEVICES over the devices of a welcome, and what they say of each other. */
#include "guest_lib/visible.h"
#include "tests/lib/tl_cmocka.h"
#include <stdio.h>
#include <string.h>

enum { N = 3 };

/* Device 0 and 1 reach each other; UUIDs begin with 10, 11 and 20. */
static struct weir_device_fact facts[N][2] = {
    {{"peer.1", 1}, {"p2p.1.3", 1}}, {{"peer.0", 1}, {"peer.2", 0}}, {{"peer.0", 0}}};
static struct weir_welcome welcome;
static struct weir_guest_device devices[WEIR_GUEST_MAX_DEVICES];

static int set_up(void **state)
{
    static const uint8_t first[N] = {0x10, 0x11, 0x20};

    (void)state;
    memset(&welcome, 0, sizeof welcome);
    welcome.n_devices = N;
    welcome.memory_quota_bytes = 1 << 20;
    for (int i = 0; i < N; i++) {
        snprintf(welcome.devices[i].name, sizeof welcome.devices[i].name, "device %d", i);
        welcome.devices[i].uuid[0] = first[i];
        welcome.devices[i].total_memory_bytes = (uint64_t)(i + 1) << 19;
        welcome.devices[i].facts = facts[i];
        welcome.devices[i].n_facts = i < 2 ? 2 : 1;
    }
    return 0;
}

/* The ordinals that a list leaves, as digits. */
static const char *left(const char *list)
{
    static char text[WEIR_GUEST_MAX_DEVICES + 1];
    int n = weir_visible_devices(&welcome, list, devices, true, true);

    for (int i = 0; i < n; i++) {
        text[i] = (char)('0' + devices[i].host_ordinal);
    }
    text[n] = '\0';
    return text;
}

static void list_chooses_and_orders(void **state)
{
    (void)state;
    assert_string_equal(left(NULL), "012");
    assert_string_equal(left("2,0"), "20");
    assert_string_equal(devices[0].name, "device 2");
    assert_string_equal(left(" 1 , 2 "), "12");
    assert_string_equal(left("gpu-2,GPU-10"), "20");
}

static void list_ends_at_what_names_nothing(void **state)
{
    (void)state;
    assert_string_equal(left(""), "");
    assert_string_equal(left("1,3,0"), "1");
    assert_string_equal(left("1,-1,0"), "1");
    assert_string_equal(left("one,0"), "");
    assert_string_equal(left(",0"), "");
    assert_string_equal(left("4294967296"), "");
    assert_string_equal(left("GPU-1"), ""); /* of two */
    assert_string_equal(left("GPU-"), "");
}

static void device_named_twice_leaves_none(void **state)
{
    (void)state;
    assert_string_equal(left("1,1"), "");
    assert_string_equal(left("1,01"), "");
    assert_string_equal(left("GPU-10,GPU-10"), "");
}

static void ordinal_is_what_an_item_begins_with(void **state)
{
    static const char *const items[] = {"1gpu2", "1abc", "1.5", "1 2", "1;2", "+1", "01", "1x0"};

    (void)state;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        assert_string_equal(left(items[i]), "1");
    }
    assert_string_equal(left("0gpu2,1"), "01");
    assert_string_equal(left("-0"), "0");
    assert_string_equal(left("0x1"), "0");
}

static void list_ends_where_the_kind_of_name_changes(void **state)
{
    (void)state;
    assert_string_equal(left("1,GPU-20"), "1");
    assert_string_equal(left("0,GPU-10"), "0");
    assert_string_equal(left("GPU-20,0"), "2");
    assert_string_equal(left("GPU-20, GPU-10 ,1"), "20");
    assert_string_equal(left("MIG-0"), "");
}

static void quota_bounds_each_device(void **state)
{
    (void)state;
    assert_int_equal(weir_visible_devices(&welcome, NULL, devices, true, true), N);
    assert_true(devices[0].total_bytes == 1 << 19);
    assert_true(devices[2].total_bytes == 1 << 20);
}

static void peers_are_kept_by_the_hosts_numbers(void **state)
{
    (void)state;
    assert_string_equal(left("2,1,0"), "210");
    assert_int_equal(devices[0].peers, 0);
    assert_int_equal(devices[1].peers, 1u << 0);
    assert_int_equal(devices[2].peers, 1u << 1);
    assert_int_equal(devices[2].p2p[1][3], 1);
    assert_int_equal(devices[1].p2p[0][3], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_chooses_and_orders),
        cmocka_unit_test(list_ends_at_what_names_nothing),
        cmocka_unit_test(device_named_twice_leaves_none),
        cmocka_unit_test(ordinal_is_what_an_item_begins_with),
        cmocka_unit_test(list_ends_where_the_kind_of_name_changes),
        cmocka_unit_test(quota_bounds_each_device),
        cmocka_unit_test(peers_are_kept_by_the_hosts_numbers),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
