/* The CDI specification: its text, its version, and how it comes to its place. */
#include "container/cdi.h"

#include "fixture.h"
#include <errno.h>

static char *text_of(const struct weir_cdi_spec *spec, enum weir_status expect)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_int_equal(weir_cdi_write(out, spec), expect);
    fclose(out);
    return text;
}

static void write_lists_devices_and_what_they_share(void **state)
{
    struct fixture *f = *state;
    const char *const tenants[] = {"A", "b-2"};
    struct weir_cdi_spec spec = {&f->common, "/run/weir", tenants, 2, NULL};
    char *text = text_of(&spec, WEIR_OK);
    char source[160];

    assert_non_null(strstr(text, "\"cdiVersion\": \"0.3.0\""));
    assert_non_null(strstr(text, "\"kind\": \"weir.dev/gpu\""));
    assert_non_null(strstr(text, "\"name\": \"A\""));
    assert_non_null(strstr(text, "{\"hostPath\": \"/run/weir/containers/b-2\", "
                                 "\"containerPath\": \"/run/weir\", \"options\": [\"ro\", "));
    /* Links are followed: an upgrade that moves the link leaves running containers alone. */
    snprintf(source, sizeof source, "\"hostPath\": \"%s/libcuda.so.0.1\"", f->lib);
    assert_non_null(strstr(text, source));
    assert_non_null(strstr(text, "\"env\": [\"NVIDIA_VISIBLE_DEVICES=void\""));
    assert_null(strstr(text, "hooks"));
    assert_null(strstr(text, "LD_"));
    assert_null(strstr(text, "\"type\"")); /* newer than 0.3.0 */
    free(text);
}

static void write_has_the_lowest_version_that_names_need(void **state)
{
    struct fixture *f = *state;
    const char *const digits[] = {"A", "7b"};
    struct weir_cdi_spec spec = {&f->common, "/run/weir", digits, 2, NULL};
    char *text = text_of(&spec, WEIR_OK);

    assert_non_null(strstr(text, "\"cdiVersion\": \"0.5.0\""));
    free(text);
}

static void write_leaves_out_names_that_would_spoil_the_file(void **state)
{
    struct fixture *f = *state;
    const char *const tenants[] = {"_a", "A", "b-", "x\"y", ".."};
    struct weir_cdi_spec spec = {&f->common, "/run/weir", tenants, 5, NULL};
    char *text = text_of(&spec, WEIR_OK);

    assert_non_null(strstr(text, "\"name\": \"A\""));
    assert_null(strstr(text, "_a"));
    assert_null(strstr(text, "b-"));
    assert_null(strstr(text, "x\\"));
    assert_null(strstr(text, ".."));
    free(text);
    spec.n_tenants = 1;
    free(text_of(&spec, WEIR_ERR_NOT_FOUND));
}

static void write_offers_shares_on_demand_by_a_hook(void **state)
{
    struct fixture *f = *state;
    const char *const tenants[] = {"default"};
    struct weir_cdi_spec spec = {&f->common, "/run/weir", tenants, 1,
                                 "/usr/lib/weir/weir-oci-hook"};
    char *text = text_of(&spec, WEIR_OK);
    const char *all = strstr(text, "\"name\": \"all\""), *new = strstr(text, "\"name\": \"new\"");

    assert_non_null(strstr(text, "\"cdiVersion\": \"0.3.0\""));
    assert_non_null(all);
    assert_non_null(new);
    assert_non_null(strstr(all, "\"/run/weir/containers/default\"")); /* the same tenant */
    assert_non_null(strstr(new, "\"hostPath\": \"/run/weir/shares/none\""));
    assert_non_null(strstr(new, "\"hooks\": [{\"hookName\": \"createRuntime\", "
                                "\"path\": \"/usr/lib/weir/weir-oci-hook\", "
                                "\"args\": [\"weir-oci-hook\", \"/run/weir\"]}]"));
    /* The others' hook knows the tenant, to tell a second device apart. */
    assert_non_null(strstr(all, "\"args\": [\"weir-oci-hook\", \"/run/weir\", \"default\"]"));
    free(text);
    spec.n_tenants = 0; /* a host without tenants offers that alone */
    text = text_of(&spec, WEIR_OK);
    assert_null(strstr(text, "\"all\""));
    assert_non_null(strstr(text, "\"new\""));
    free(text);
    spec.hook = "/we\nir";
    free(text_of(&spec, WEIR_ERR_INVALID));
}

static void all_is_no_device_beside_a_tenant_of_that_name(void **state)
{
    struct fixture *f = *state;
    const char *const tenants[] = {"default", "all"};
    struct weir_cdi_spec spec = {&f->common, "/run/weir", tenants, 2, NULL};
    char *text = text_of(&spec, WEIR_OK);
    char *first = strstr(text, "\"all\"");

    assert_non_null(first);
    assert_null(strstr(first + 1, "\"all\""));
    assert_non_null(strstr(first, "/run/weir/containers/all"));
    free(text);
}

static void write_escapes_and_refuses_paths(void **state)
{
    struct fixture *f = *state;
    const char *const tenants[] = {"A"};
    struct weir_cdi_spec spec = {&f->common, "/run/\"we\\ir\"", tenants, 1, NULL};
    char *text = text_of(&spec, WEIR_OK);

    assert_non_null(strstr(text, "\"/run/\\\"we\\\\ir\\\"/containers/A\""));
    free(text);
    spec.run_dir = "/run/we\nir";
    free(text_of(&spec, WEIR_ERR_INVALID));
    spec.run_dir = "weir";
    free(text_of(&spec, WEIR_ERR_INVALID));
    spec.run_dir = "";
    free(text_of(&spec, WEIR_ERR_INVALID));
}

static void store_replaces_the_file_at_once_and_leaves_no_other(void **state)
{
    struct fixture *f = *state;
    const char *const tenants[] = {"A"};
    struct weir_cdi_spec spec = {&f->common, "/run/weir", tenants, 1, NULL};
    char folder[96], path[128], temporary[160], seen[32] = "";
    struct stat info;

    snprintf(folder, sizeof folder, "%s/cdi", f->root);
    snprintf(path, sizeof path, "%s/weir.json", folder);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    assert_int_equal(weir_cdi_store(path, &spec), WEIR_OK); /* makes the folder */
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0644);
    assert_int_not_equal(access(temporary, F_OK), 0);

    /* What cannot be written leaves what was there. */
    spec.run_dir = "relative";
    assert_int_equal(weir_cdi_store(path, &spec), WEIR_ERR_INVALID);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(temporary, F_OK), 0);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    assert_non_null(fgets(seen, sizeof seen, in));
    assert_string_equal(seen, "{\n");
    fclose(in);

    /* No tenant, no file: CDI wants a device at least. */
    spec.run_dir = "/run/weir";
    spec.n_tenants = 0;
    assert_int_equal(weir_cdi_store(path, &spec), WEIR_ERR_NOT_FOUND);
    assert_int_not_equal(access(path, F_OK), 0);
    rmdir(folder);
}

static void store_says_why_it_cannot(void **state)
{
    struct fixture *f = *state;
    const char *const tenants[] = {"A"};
    struct weir_cdi_spec spec = {&f->common, "/run/weir", tenants, 1, NULL};
    char path[160];

    snprintf(path, sizeof path, "%s/guest/libnvidia-ml.so.1/weir.json", f->root);
    assert_int_equal(weir_cdi_store(path, &spec), WEIR_ERR_NOT_FOUND);
    snprintf(path, sizeof path, "%s/none/none/weir.json", f->root);
    assert_int_equal(weir_cdi_store(path, &spec), WEIR_ERR_NOT_FOUND);
}

static void common_wants_a_libcuda_and_adds_what_else_is_there(void **state)
{
    struct fixture *f = *state;
    struct weir_container_edits edits;
    size_t all = f->common.n_mounts;

    assert_int_equal(weir_container_edits_common("/nowhere", NULL, &edits), WEIR_ERR_NOT_FOUND);
    fixture_remove(f->lib, "libnvidia-ml.so.1");
    assert_int_equal(weir_container_edits_common(f->lib, "/nowhere/nvidia-smi", &edits), WEIR_OK);
    assert_int_equal(edits.n_mounts, all - 3);
    assert_int_equal(weir_container_edits_common(f->lib, "/bin/sh", &edits), WEIR_OK);
    assert_int_equal(edits.n_mounts, all - 2);
    assert_string_equal(edits.mounts[edits.n_mounts - 1].target, "/usr/bin/nvidia-smi");
}

static void name_ok_begins_and_ends_with_a_letter_or_digit(void **state)
{
    (void)state;
    assert_true(weir_cdi_name_ok("A"));
    assert_true(weir_cdi_name_ok("a.b_c-9"));
    assert_false(weir_cdi_name_ok(""));
    assert_false(weir_cdi_name_ok("-a"));
    assert_false(weir_cdi_name_ok("a."));
    assert_false(weir_cdi_name_ok("a/b"));
    assert_false(weir_cdi_name_ok("a=b"));
    assert_false(weir_cdi_name_ok("\xc3\xa4"));
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, fixture_make, fixture_drop)
    const struct CMUnitTest tests[] = {
        EACH(write_lists_devices_and_what_they_share),
        EACH(write_has_the_lowest_version_that_names_need),
        EACH(write_leaves_out_names_that_would_spoil_the_file),
        EACH(write_offers_shares_on_demand_by_a_hook),
        EACH(all_is_no_device_beside_a_tenant_of_that_name),
        EACH(write_escapes_and_refuses_paths),
        EACH(store_replaces_the_file_at_once_and_leaves_no_other),
        EACH(store_says_why_it_cannot),
        EACH(common_wants_a_libcuda_and_adds_what_else_is_there),
        cmocka_unit_test(name_ok_begins_and_ends_with_a_letter_or_digit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
