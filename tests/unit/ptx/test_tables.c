/* The .def registries: every row is found by its text, and says something sensible. */
#include "ptx/tables.h"
#include "tests/lib/tl_cmocka.h"

#include <string.h>

static void op_rows_are_found_by_name(void **state)
{
    (void)state;
    for (unsigned op = 1; op < WEIR_PTX_OP_COUNT; op++) {
        const struct weir_ptx_op_info *info = weir_ptx_op_info((enum weir_ptx_op)op);

        assert_int_equal(weir_ptx_op_from_text(info->name, strlen(info->name)), op);
        assert_true(info->min_operands <= info->max_operands);
        assert_true(info->max_operands <= WEIR_PTX_MAX_OPERANDS);
        if (info->flags & WEIR_PTX_OPF_DST) {
            assert_true(info->min_operands >= 1);
            assert_false(info->flags & WEIR_PTX_OPF_DST_OPT);
        }
    }
    assert_int_equal(weir_ptx_op_from_text("ad", 2), WEIR_PTX_OP_NONE);
    assert_int_equal(weir_ptx_op_from_text("addd", 4), WEIR_PTX_OP_NONE);
}

static void mod_rows_are_found_by_text(void **state)
{
    struct weir_ptx_shape shape;

    (void)state;
    for (unsigned mod = 1; mod < WEIR_PTX_MOD_COUNT; mod++) {
        const char *text = weir_ptx_mod_text((enum weir_ptx_mod)mod);

        if (*text) {
            assert_int_equal(weir_ptx_mod_from_text(text, strlen(text), &shape), mod);
            assert_true(mod == WEIR_PTX_MOD_SHAPE ||
                        !weir_ptx_mod_is_type((enum weir_ptx_mod)mod) ||
                        weir_ptx_type_bits((enum weir_ptx_type)mod) > 0);
        }
    }
    assert_int_equal(weir_ptx_mod_from_text("m16n8k256", 9, &shape), WEIR_PTX_MOD_SHAPE);
    assert_int_equal(shape.m, 16);
    assert_int_equal(shape.n, 8);
    assert_int_equal(shape.k, 256);
    assert_int_equal(weir_ptx_mod_from_text("m8n8", 4, &shape), WEIR_PTX_MOD_SHAPE);
    assert_int_equal(shape.k, 0);
    assert_int_equal(weir_ptx_mod_from_text("m8n8k", 5, &shape), WEIR_PTX_MOD_NONE);
    assert_int_equal(weir_ptx_mod_from_text("m8n0", 4, &shape), WEIR_PTX_MOD_NONE);
}

static void sreg_rows_are_found_by_text(void **state)
{
    (void)state;
    for (unsigned sreg = 1; sreg < WEIR_PTX_SREG_COUNT; sreg++) {
        const char *text = weir_ptx_sreg_text((enum weir_ptx_sreg)sreg);

        assert_int_equal(weir_ptx_sreg_from_text(text, strlen(text)), sreg);
        assert_true(weir_ptx_sreg_bits((enum weir_ptx_sreg)sreg) > 0);
    }
}

/* Suffixes of one opcode in, one decoded field out. */
static struct weir_ptx_inst decoded(enum weir_ptx_op op, const uint16_t *mods, uint8_t n)
{
    struct weir_ptx_inst inst = {.op = (uint16_t)op, .mods = mods, .n_mods = n};

    assert_true(weir_ptx_inst_decode(&inst));
    return inst;
}

static void decode_lo_depends_on_opcode(void **state)
{
    static const uint16_t mods[] = {WEIR_PTX_MOD_LO, WEIR_PTX_TYPE_U32};
    struct weir_ptx_inst mul = decoded(WEIR_PTX_OP_MUL, mods, 2);
    struct weir_ptx_inst setp = decoded(WEIR_PTX_OP_SETP, mods, 2);

    (void)state;
    assert_int_equal(mul.half, WEIR_PTX_MOD_LO);
    assert_int_equal(mul.cmp, 0);
    assert_int_equal(setp.cmp, WEIR_PTX_MOD_LO);
    assert_int_equal(setp.half, 0);
}

static void decode_too_many_types_is_refused(void **state)
{
    static const uint16_t mods[WEIR_PTX_MAX_TYPES + 1] = {
        WEIR_PTX_TYPE_U32, WEIR_PTX_TYPE_U32, WEIR_PTX_TYPE_U32, WEIR_PTX_TYPE_U32,
        WEIR_PTX_TYPE_U32, WEIR_PTX_TYPE_U32, WEIR_PTX_TYPE_U32};
    struct weir_ptx_inst inst = {.op = WEIR_PTX_OP_MMA, .mods = mods, .n_mods = 7};

    (void)state;
    assert_false(weir_ptx_inst_decode(&inst));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(op_rows_are_found_by_name),
        cmocka_unit_test(mod_rows_are_found_by_text),
        cmocka_unit_test(sreg_rows_are_found_by_text),
        cmocka_unit_test(decode_lo_depends_on_opcode),
        cmocka_unit_test(decode_too_many_types_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
