/* Sets as bytes: what goes in comes out, and nothing else is taken for one. */
#include "host_backend/worker/twins/twin_set.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>

static struct weir_ptx_twin_info infos[] = {
    {.kernel = "saxpy",
     .form = WEIR_PTX_FORM_PERSISTENT,
     .name = "saxpy$persistent",
     .args_offset = 24,
     .param_bytes = 88},
    {.kernel = "refused", .form = WEIR_PTX_FORM_TICKET, .reason = "it polls"},
    {.kernel = "add",
     .form = WEIR_PTX_FORM_TICKET,
     .name = "add$ticket",
     .args_offset = 8,
     .param_bytes = 72,
     .dynamic_shared_bytes = 48},
    {.kernel = "saxpy",
     .form = WEIR_PTX_FORM_TICKET,
     .name = "saxpy$ticket",
     .args_offset = 24,
     .param_bytes = 88},
};
static const char *const binds[] = {"counter", "table"}, *const consts[] = {"factor"};
static const struct weir_ptx_twins twins = {.infos = infos,
                                            .n_infos = 4,
                                            .n_made = 3,
                                            .binds = binds,
                                            .n_binds = 2,
                                            .consts = consts,
                                            .n_consts = 1};

static uint8_t *encoded(size_t *ret_n)
{
    uint8_t *bytes;

    assert_int_equal(weir_forms_set_encode(&twins, (const uint8_t *)"CODE", 4, &bytes, ret_n),
                     WEIR_OK);
    return bytes;
}

static void decode_of_encoded_gives_the_same(void **state)
{
    const struct weir_forms_kernel_info *k;
    struct weir_forms_set *set;
    uint8_t *bytes;
    size_t n;

    (void)state;
    bytes = encoded(&n);
    assert_int_equal(weir_forms_set_decode(bytes, n, &set), WEIR_OK);
    assert_int_equal(set->n_kernels, 2);
    assert_int_equal(set->n_binds, 2);
    assert_string_equal(set->binds[0], "counter");
    assert_string_equal(set->binds[1], "table");
    assert_string_equal(set->consts[0], "factor");
    assert_int_equal(set->image_bytes, 4);
    assert_memory_equal(set->image, "CODE\0\0\0\0", 8); /* what reads on meets a NUL */
    assert_null(weir_forms_set_find(set, "refused"));
    assert_null(weir_forms_set_find(set, ""));
    k = weir_forms_set_find(set, "add");
    assert_non_null(k);
    assert_string_equal(k->twins[WEIR_PTX_FORM_TICKET].name, "add$ticket");
    assert_int_equal(k->twins[WEIR_PTX_FORM_TICKET].dynamic_shared_bytes, 48);
    assert_null(k->twins[WEIR_PTX_FORM_PERSISTENT].name);
    k = weir_forms_set_find(set, "saxpy");
    assert_non_null(k);
    assert_int_equal(k->twins[WEIR_PTX_FORM_PERSISTENT].args_offset, 24);
    assert_int_equal(k->twins[WEIR_PTX_FORM_TICKET].param_bytes, 88);
    weir_forms_set_destroy(set);
}

static void decode_of_nothing_made_has_no_image(void **state)
{
    static const struct weir_ptx_twins none;
    struct weir_forms_set *set;
    uint8_t *bytes;
    size_t n;

    (void)state;
    assert_int_equal(weir_forms_set_encode(&none, NULL, 0, &bytes, &n), WEIR_OK);
    assert_int_equal(weir_forms_set_decode(bytes, n, &set), WEIR_OK);
    assert_int_equal(set->n_kernels, 0);
    assert_null(set->image);
    assert_null(weir_forms_set_find(set, "add"));
    weir_forms_set_destroy(set);
}

static void decode_of_cut_bytes_is_refused(void **state)
{
    size_t n;
    uint8_t *bytes = encoded(&n);

    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        struct weir_forms_set *set;
        uint8_t *part = malloc(cut + 1);

        memcpy(part, bytes, cut);
        assert_int_equal(weir_forms_set_decode(part, cut, &set), WEIR_ERR_INVALID);
    }
    free(bytes);
}

/* Each byte changed in several ways: refused, or a set that can be looked through. */
static void decode_of_changed_bytes_stays_inside(void **state)
{
    size_t n;
    uint8_t *bytes = encoded(&n);

    (void)state;
    for (size_t i = 0; i < n * 4; i++) {
        static const uint8_t masks[] = {0x01, 0x80, 0xff, 0x10};
        struct weir_forms_set *set;
        uint8_t *copy = malloc(n);

        memcpy(copy, bytes, n);
        copy[i / 4] ^= masks[i % 4];
        if (weir_forms_set_decode(copy, n, &set) == WEIR_OK) {
            for (uint32_t k = 0; k < set->n_kernels; k++) {
                assert_ptr_equal(weir_forms_set_find(set, set->kernels[k].name), &set->kernels[k]);
            }
            weir_forms_set_destroy(set);
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_of_encoded_gives_the_same),
        cmocka_unit_test(decode_of_nothing_made_has_no_image),
        cmocka_unit_test(decode_of_cut_bytes_is_refused),
        cmocka_unit_test(decode_of_changed_bytes_stays_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
