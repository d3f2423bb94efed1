/* What domains say of tenants: applied, taken back, and complained about once. */
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/libvirt.h"
#include "host_backend/worker/state/tenant.h"

#include "../../lib/tl_cmocka.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char log_path[] = "/tmp/weir-test-libvirt-XXXXXX";

/* A supervisor without workers, with tenants as if weir.toml had them. */
static struct weir_supervisor *supervisor(void)
{
    static const char *const names[] = {"vm1", "vm2"};
    struct weir_supervisor *sup = calloc(1, sizeof *sup);

    assert_non_null(sup);
    assert_true(weir_sup_machines_open(sup));
    weir_config_default(&sup->config);
    sup->libvirt.link = -1;
    for (int i = 0; i < 2; i++) {
        struct weir_sup_tenant *t = &sup->tenants[i];

        weir_tenant_config_default(&t->config, names[i]);
        t->base = t->config;
        t->used = true;
        t->index = (uint32_t)i;
        t->worker = t->listen_fd = -1;
    }
    return sup;
}

static void release(struct weir_supervisor *sup)
{
    weir_sup_libvirt_close(sup);
    weir_sup_machines_close(sup);
    free(sup);
}

/* "key=value key=value", "name=" being the tenant. */
static void say(struct weir_supervisor *sup, uint32_t type, const char *domain, const char *text)
{
    struct weir_libvirt_message m;
    char copy[512], *rest = NULL;

    memset(&m, 0, sizeof m);
    m.type = type;
    strcpy(m.domain, domain);
    strcpy(copy, text);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');

        *equals = 0;
        if (strcmp(word, "name") == 0) {
            strcpy(m.element.tenant, equals + 1);
        } else {
            strcpy(m.element.settings[m.element.n_settings].key, word);
            strcpy(m.element.settings[m.element.n_settings++].value, equals + 1);
        }
    }
    weir_sup_libvirt_message(sup, &m);
}

/* How many lines of the log hold all this, since the last call. */
static int complaints(const char *text)
{
    static long at;
    FILE *log = fopen(log_path, "r");
    char line[1024];
    int n = 0;

    assert_non_null(log);
    fseek(log, at, SEEK_SET);
    while (fgets(line, sizeof line, log)) {
        n += strstr(line, " warn ") && strstr(line, text);
    }
    at = ftell(log);
    fclose(log);
    return n;
}

static void element_sets_its_tenant(void **state)
{
    struct weir_supervisor *sup = supervisor();
    struct weir_tenant_config *one = &sup->tenants[0].config, *two = &sup->tenants[1].config;

    (void)state;
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", "weight=300 priority=high memory=8GiB sm_limit=50");
    assert_int_equal(one->weight, 300);
    assert_int_equal(one->priority, WEIR_PRIORITY_HIGH);
    assert_true(one->memory.bytes == UINT64_C(8) << 30);
    assert_int_equal(one->sm_limit_pct, 50);
    assert_int_equal(two->weight, 100);
    say(sup, WEIR_LIBVIRT_ELEMENT, "another", "weight=7 name=vm2");
    assert_int_equal(two->weight, 7);
    /* What is no longer said goes back; what never was, stays. */
    two->sessions_max = 5;
    say(sup, WEIR_LIBVIRT_ELEMENT, "another", "priority=low name=vm2");
    assert_int_equal(two->weight, 100);
    assert_int_equal(two->priority, WEIR_PRIORITY_LOW);
    assert_int_equal(two->sessions_max, 5);
    say(sup, WEIR_LIBVIRT_ELEMENT, "another", "priority=low");
    assert_int_equal(two->priority, WEIR_PRIORITY_NORMAL);
    say(sup, WEIR_LIBVIRT_NONE, "vm1", "");
    assert_int_equal(one->weight, 100);
    assert_int_equal(one->memory.bytes, 0);
    release(sup);
}

static void a_domain_that_goes_leaves_its_settings(void **state)
{
    struct weir_supervisor *sup = supervisor();

    (void)state;
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", "weight=300");
    say(sup, WEIR_LIBVIRT_GONE, "vm1", "");
    say(sup, WEIR_LIBVIRT_NONE, "vm1", "");
    assert_int_equal(sup->tenants[0].config.weight, 300);
    assert_int_equal(sup->libvirt.n_domains, 0);
    release(sup);
}

static const struct bad_row {
    const char *text, *complaint;
} bad_rows[] = {
    {"weight=0 priority=low", "attribute 'weight' must lie between 1 and 10000 (it is \"0\")"},
    {"weight=much priority=low", "attribute 'weight' must be an integer"},
    {"weight= priority=low", "attribute 'weight' is empty"},
    {"wieght=3 priority=low", "unknown attribute 'wieght'"},
    {"<weight>= priority=low", "unknown attribute '<weight>'"},
    {"memory=lots priority=low", "'memory' must be an amount"},
    {"isolation=process priority=low", "'isolation' changes with a restart"},
};

static void wrong_values_stay_out_and_are_named_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
        struct weir_supervisor *sup = supervisor();
        const struct weir_tenant_config *c = &sup->tenants[0].config;

        say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", "weight=300 memory=1GiB");
        (void)complaints("");
        for (int k = 0; k < 3; k++) {
            say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", bad_rows[i].text);
        }
        weir_sup_libvirt_again(sup);
        if (complaints(bad_rows[i].complaint) != 1) {
            print_error("row %zu: not one complaint\n", i);
            fail();
        }
        assert_int_equal(c->priority, WEIR_PRIORITY_LOW); /* what is right is taken */
        assert_int_equal(c->weight,
                         strstr(bad_rows[i].text, "weight=") == bad_rows[i].text ? 300 : 100);
        assert_true(c->memory.bytes ==
                    (strncmp(bad_rows[i].text, "memory", 6) == 0 ? UINT64_C(1) << 30 : 0));
        assert_int_equal(c->isolation, WEIR_ISOLATION_PROGRAM);
        release(sup);
    }
}

static void unreadable_elements_change_nothing_and_are_named_once(void **state)
{
    struct weir_supervisor *sup = supervisor();

    (void)state;
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", "weight=300");
    (void)complaints("");
    say(sup, WEIR_LIBVIRT_BAD, "vm1", "");
    say(sup, WEIR_LIBVIRT_BAD, "vm1", "");
    assert_int_equal(complaints("domain=\"vm1\""), 1);
    assert_int_equal(sup->tenants[0].config.weight, 300);
    say(sup, WEIR_LIBVIRT_NONE, "vm1", ""); /* it was this domain's all the time */
    assert_int_equal(sup->tenants[0].config.weight, 100);
    release(sup);
}

static void the_last_word_holds(void **state)
{
    struct weir_supervisor *sup = supervisor();
    struct weir_sup_tenant *t = &sup->tenants[0];
    size_t weight = (size_t)weir_setting_find("weight");

    (void)state;
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", "weight=300");
    t->config.weight = 5; /* weir tenant set */
    t->origins[weight] = WEIR_ORIGIN_COMMAND;
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", "weight=300"); /* an event about something else */
    weir_sup_libvirt_again(sup);                         /* a reload */
    assert_int_equal(t->config.weight, 5);
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm1", "weight=301");
    assert_int_equal(t->config.weight, 301);
    t->config.weight = 6;
    t->origins[weight] = WEIR_ORIGIN_COMMAND;
    say(sup, WEIR_LIBVIRT_NONE, "vm1", ""); /* takes its own away, not the command's */
    assert_int_equal(t->config.weight, 6);
    release(sup);
}

static void a_missing_tenant_gets_it_when_it_comes(void **state)
{
    struct weir_supervisor *sup = supervisor();

    (void)state;
    (void)complaints("");
    sup->tenants[1].gone = true;
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm2", "weight=300");
    say(sup, WEIR_LIBVIRT_ELEMENT, "vm2", "weight=300");
    say(sup, WEIR_LIBVIRT_ELEMENT, "not a tenant's name/..", "weight=300");
    assert_int_equal(complaints("there is no tenant 'vm2'"), 1);
    assert_int_equal(sup->tenants[1].config.weight, 100);
    sup->tenants[1].gone = false;
    weir_sup_libvirt_again(sup);
    assert_int_equal(sup->tenants[1].config.weight, 300);
    release(sup);
}

static void messages_that_cannot_be_are_refused(void **state)
{
    struct weir_supervisor *sup = supervisor();
    struct weir_libvirt_message m;

    (void)state;
    memset(&m, 'x', sizeof m);
    m.type = WEIR_LIBVIRT_ELEMENT;
    weir_sup_libvirt_message(sup, &m); /* no text ends */
    memset(&m, 0, sizeof m);
    m.type = 77;
    strcpy(m.domain, "vm1");
    weir_sup_libvirt_message(sup, &m);
    m.type = WEIR_LIBVIRT_ELEMENT;
    m.element.n_settings = UINT32_MAX;
    weir_sup_libvirt_message(sup, &m);
    assert_int_equal(sup->libvirt.n_domains, 0);
    (void)complaints("");
    strcpy(m.domain, "a\n2026 warn forged \"line\"");
    m.element.n_settings = 0;
    weir_sup_libvirt_message(sup, &m);
    assert_int_equal(complaints("domain=\"a?2026 warn forged ?line?\""), 1);
    for (int i = 0; i < WEIR_DOMAINS_MAX + 5; i++) {
        snprintf(m.domain, sizeof m.domain, "d%d", i);
        weir_sup_libvirt_message(sup, &m);
    }
    assert_int_equal(sup->libvirt.n_domains, WEIR_DOMAINS_MAX);
    release(sup);
}

static int open_log(void **state)
{
    char spec[64];
    int fd = mkstemp(log_path);

    (void)state;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    snprintf(spec, sizeof spec, "info:%s", log_path);
    return weir_log_init(spec, NULL) == WEIR_OK ? 0 : -1;
}

static int remove_log(void **state)
{
    (void)state;
    return unlink(log_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(element_sets_its_tenant),
        cmocka_unit_test(a_domain_that_goes_leaves_its_settings),
        cmocka_unit_test(wrong_values_stay_out_and_are_named_once),
        cmocka_unit_test(unreadable_elements_change_nothing_and_are_named_once),
        cmocka_unit_test(the_last_word_holds),
        cmocka_unit_test(a_missing_tenant_gets_it_when_it_comes),
        cmocka_unit_test(messages_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, open_log, remove_log);
}
