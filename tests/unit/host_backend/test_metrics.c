/* Metrics: the format's rules hold for what is written; requests are judged whatever they hold. */
#include "../../lib/tl_cmocka.h"
#include "host_backend/supervisor/watch/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *text_of(uint32_t scheduled)
{
    struct weir_status_tenant tenants[] = {{.name = "a",
                                            .priority = "high",
                                            .isolation = "group",
                                            .source = "weir.toml",
                                            .weight = 300,
                                            .sm_limit_pct = 50,
                                            .used_bytes = 4096,
                                            .faults = 2,
                                            .suspected_faults = 1,
                                            .scheduled = scheduled,
                                            .refused_device = 3,
                                            .wait_ns = 1000000002,
                                            .waits_10us = 4,
                                            .waits_1s = 2,
                                            .service_sm_ns = 1500000000,
                                            .copy_h2d_bytes = 7,
                                            .copy_d2h_bytes = 9},
                                           {.name = "idle",
                                            .priority = "normal",
                                            .isolation = "group",
                                            .source = "libvirt",
                                            .weight = 100,
                                            .sm_limit_pct = 100}};
    struct weir_status_worker worker = {
        .device = "a \"quoted\" \\ name\n\xff", .devices = "0,1", .restarts = 2, .pid = 1};
    struct weir_status_device devices[] = {{.ordinal = 0,
                                            .name = "A",
                                            .uuid = "GPU-0",
                                            .sms = 8,
                                            .free_bytes = 5e9,
                                            .utilization_pct = 25,
                                            .temperature_c = 41,
                                            .power_w = 70.5,
                                            .scheduled = scheduled,
                                            .sm_ns = 2000000001},
                                           {.ordinal = 1,
                                            .name = "B",
                                            .uuid = "GPU-1",
                                            .free_bytes = NAN,
                                            .utilization_pct = NAN,
                                            .temperature_c = NAN,
                                            .power_w = NAN}};
    struct weir_status_program programs[] = {{"a", "x\"y", 5}};
    struct weir_status_report report = {.devices = devices,
                                        .n_devices = 2,
                                        .programs = programs,
                                        .n_programs = 1,
                                        .worker_starts = 6,
                                        .version = "1.2",
                                        .tenants = tenants,
                                        .n_tenants = 2,
                                        .workers = &worker,
                                        .n_workers = 1,
                                        .kept_fds = 3};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    weir_metrics_write(out, &report, 1000.5);
    fclose(out);
    return text;
}

static void write_gives_every_tenant_every_series(void **state)
{
    static const char *const lines[] = {
        "\nweir_build_info{version=\"1.2\"} 1\n",
        "\nweir_start_time_seconds 1000.500\n",
        "\nweir_tenant_info{tenant=\"a\",priority=\"high\",isolation=\"group\",source=\"weir."
        "toml\"} 1\n",
        "\nweir_tenant_weight{tenant=\"a\"} 300\n",
        "\nweir_tenant_sm_limit_ratio{tenant=\"a\"} 0.50\n",
        "\nweir_tenant_sm_limit_ratio{tenant=\"idle\"} 1.00\n",
        "\nweir_tenant_memory_bytes{tenant=\"a\"} 4096\n",
        "\nweir_tenant_faults_total{tenant=\"a\",suspects=\"one\"} 2\n",
        "\nweir_tenant_faults_total{tenant=\"a\",suspects=\"several\"} 1\n",
        "\nweir_tenant_faults_total{tenant=\"idle\",suspects=\"one\"} 0\n",
        "\nweir_tenant_memory_bytes{tenant=\"idle\"} 0\n",
        "\nweir_tenant_sm_seconds_total{tenant=\"a\"} 1.500000000\n",
        "\nweir_tenant_sm_seconds_total{tenant=\"idle\"} 0.000000000\n",
        "\nweir_tenant_copy_bytes_total{tenant=\"a\",direction=\"to_device\"} 7\n",
        "\nweir_tenant_copy_bytes_total{tenant=\"a\",direction=\"from_device\"} 9\n",
        "\nweir_worker_up{worker=\"0\",tenant=\"\",devices=\"0,1\","
        "model=\"a \\\"quoted\\\" \\\\ name??\"} 1\n",
        "\nweir_worker_restarts_total{worker=\"0\"} 2\n",
        "\nweir_worker_starts_total 6\n",
        "\nweir_tenant_refused_allocations_total{tenant=\"a\",memory=\"device\"} 3\n",
        "\nweir_tenant_gate_wait_seconds_bucket{tenant=\"a\",le=\"1e-05\"} 4\n",
        "\nweir_tenant_gate_wait_seconds_bucket{tenant=\"a\",le=\"0.1\"} 4\n",
        "\nweir_tenant_gate_wait_seconds_bucket{tenant=\"a\",le=\"1.0\"} 6\n",
        "\nweir_tenant_gate_wait_seconds_bucket{tenant=\"a\",le=\"+Inf\"} 6\n",
        "\nweir_tenant_gate_wait_seconds_sum{tenant=\"a\"} 1.000000002\n",
        "\nweir_tenant_gate_wait_seconds_count{tenant=\"a\"} 6\n",
        "\nweir_program_sm_seconds_total{tenant=\"a\",program=\"x\\\"y\"} 0.000000005\n",
        "\nweir_device_info{device=\"1\",uuid=\"GPU-1\",model=\"B\"} 1\n",
        "\nweir_device_memory_free_bytes{device=\"0\"} 5000000000\n",
        "\nweir_device_utilization_ratio{device=\"0\"} 0.25\n",
        "\nweir_device_temperature_celsius{device=\"0\"} 41\n",
        "\nweir_device_power_watts{device=\"0\"} 70.5\n",
        "\nweir_device_sm_seconds_total{device=\"0\"} 2.000000001\n",
    };
    static const char *const unknown[] = {"memory_free_bytes", "utilization_ratio",
                                          "temperature_celsius", "power_watts"};
    char *text = text_of(1);

    (void)state;
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        char sample[96];

        snprintf(sample, sizeof sample, "weir_device_%s{device=\"1\"}", unknown[i]);
        assert_null(strstr(text, sample));
    }
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (!strstr(text, lines[i])) {
            print_error("missing: %s in\n%s", lines[i], text);
            fail();
        }
    }
    free(text);
}

/* Each name once with HELP and TYPE before its samples, all together; counters end in _total. */
static void write_follows_the_formats_rules(void **state)
{
    char *text = text_of(1), *rest = NULL;
    char name[96] = "", type[16] = "";

    (void)state;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            char again[128];

            snprintf(again, sizeof again, "# HELP %.*s ", (int)strcspn(line + 7, " "), line + 7);
            assert_null(strstr(rest, again));
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(sscanf(line + 7, "%95s %15s", name, type), 2);
            assert_true(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0 ||
                        strcmp(type, "histogram") == 0);
            size_t n = strlen(name);
            bool total = n > 6 && strcmp(name + n - 6, "_total") == 0;

            assert_int_equal(total, strcmp(type, "counter") == 0);
        } else {
            size_t n = strcspn(line, "{ "), length = strlen(name);

            assert_int_equal(strncmp(line, name, length), 0);
            assert_true(n == length || strcmp(type, "histogram") == 0);
        }
    }
    free(text);
}

static void write_without_a_scheduler_claims_nothing_of_it(void **state)
{
    char *text = text_of(0);

    (void)state;
    assert_null(strstr(text, "sm_seconds"));
    assert_null(strstr(text, "copy_bytes"));
    assert_non_null(strstr(text, "weir_tenant_weight"));
    free(text);
}

static const struct request_row {
    const char *text;
    int status;
    bool head;
} request_rows[] = {
    {"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 200, false},
    {"GET /metrics HTTP/1.0\n\n", 200, false},
    {"GET /metrics?x=1 HTTP/1.1\r\n\r\nbody", 200, false},
    {"HEAD /metrics HTTP/1.1\r\n\r\n", 200, true},
    {"GET / HTTP/1.1\r\n\r\n", 404, false},
    {"GET /metricsx HTTP/1.1\r\n\r\n", 404, false},
    {"GET ?/metrics HTTP/1.1\r\n\r\n", 404, false},
    {"POST /metrics HTTP/1.1\r\n\r\n", 405, false},
    {"get /metrics HTTP/1.1\r\n\r\n", 405, false},
    {"GET /metrics HTTP/2.0\r\n\r\n", 505, false},
    {"GET /metrics\r\n\r\n", 400, false},
    {"GET /metrics HTTP/1.1 more\r\n\r\n", 400, false},
    {"GET  /metrics HTTP/1.1\r\n\r\n", 400, false},
    {" GET /metrics HTTP/1.1\r\n\r\n", 400, false},
    {"\r\n\r\n", 400, false},
    {"\x16\x03\x01\n\n", 400, false},
    {"GET /metrics HTTP/1.1\r\nHost: a\r\n", WEIR_HTTP_MORE, false},
    {"", WEIR_HTTP_MORE, false},
};

static void judge_knows_one_thing_to_ask_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof request_rows / sizeof request_rows[0]; i++) {
        const struct request_row *row = &request_rows[i];
        bool head = false;
        int status = weir_http_judge(row->text, strlen(row->text), &head);

        if (status != row->status || head != row->head) {
            print_error("row %zu gave %d\n", i, status);
            fail();
        }
        if (status != WEIR_HTTP_MORE) {
            assert_true(atoi(weir_http_reason(status)) == status);
        }
    }
}

/* Byte by byte nothing is decided before the end, and what is too long is refused. */
static void judge_of_every_prefix_waits_and_of_too_much_refuses(void **state)
{
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
    char *much = malloc(WEIR_HTTP_HEAD_MAX);
    bool head;

    (void)state;
    for (size_t n = 0; n + 1 < sizeof request - 1; n++) {
        char *cut = malloc(n + 1); /* its own, for the sanitizers */

        memcpy(cut, request, n);
        assert_int_equal(weir_http_judge(cut, n, &head), WEIR_HTTP_MORE);
        free(cut);
    }
    memset(much, 'a', WEIR_HTTP_HEAD_MAX);
    assert_int_equal(weir_http_judge(much, WEIR_HTTP_HEAD_MAX - 1, &head), WEIR_HTTP_MORE);
    assert_int_equal(weir_http_judge(much, WEIR_HTTP_HEAD_MAX, &head), 431);
    free(much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_gives_every_tenant_every_series),
        cmocka_unit_test(write_follows_the_formats_rules),
        cmocka_unit_test(write_without_a_scheduler_claims_nothing_of_it),
        cmocka_unit_test(judge_knows_one_thing_to_ask_for),
        cmocka_unit_test(judge_of_every_prefix_waits_and_of_too_much_refuses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
