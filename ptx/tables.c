/*
 * The .def files as arrays, and look-up by text.
 *
 * Look-up goes through one open-addressing table per kind that is filled on first use and never
 * changes. Its keys are fixed and do not come from the text, so a fixed hash is good enough.
 */
#include "ptx/tables.h"
#include "base/status.h"

#include <pthread.h>
#include <string.h>

static const struct weir_ptx_op_info ops[WEIR_PTX_OP_COUNT] = {
    [WEIR_PTX_OP_NONE] = {"", 0, 0, 0},
#define WEIR_PTX_OP_ROW(name, text, min, max, flags) [WEIR_PTX_OP_##name] = {text, min, max, flags},
#include "ptx/ops.def"
#undef WEIR_PTX_OP_ROW
};

static const struct {
    const char *text;
    uint16_t bits;
    char class[2];
} types[WEIR_PTX_TYPE_COUNT] = {
    [WEIR_PTX_TYPE_NONE] = {"", 0, ""},
#define WEIR_PTX_TYPE_ROW(name, text, bits, class) [WEIR_PTX_TYPE_##name] = {text, bits, #class},
#include "ptx/types.def"
#undef WEIR_PTX_TYPE_ROW
};

static const char *const spaces[WEIR_PTX_SPACE_COUNT] = {
    [WEIR_PTX_SPACE_NONE] = "",
#define WEIR_PTX_SPACE_ROW(name, text) [WEIR_PTX_SPACE_##name] = text,
#include "ptx/spaces.def"
#undef WEIR_PTX_SPACE_ROW
};

static const struct {
    const char *text;
    enum weir_ptx_slot slot;
} mods[WEIR_PTX_MOD_COUNT] = {
#define WEIR_PTX_MOD_ROW(name, text, slot) [WEIR_PTX_MOD_##name] = {text, WEIR_PTX_SLOT_##slot},
#include "ptx/modifiers.def"
#undef WEIR_PTX_MOD_ROW
};

static const struct {
    const char *text;
    uint8_t bits;
    uint8_t components;
} sregs[WEIR_PTX_SREG_COUNT] = {
    [WEIR_PTX_SREG_NONE] = {"", 0, 0},
#define WEIR_PTX_SREG_ROW(name, text, bits, components)                                            \
    [WEIR_PTX_SREG_##name] = {text, bits, components},
#include "ptx/sregs.def"
#undef WEIR_PTX_SREG_ROW
};

#define TABLE_SLOTS 1024u /* a power of two, more than twice the largest table */
_Static_assert(WEIR_PTX_MOD_COUNT * 2 < TABLE_SLOTS, "suffix table too full");
_Static_assert(WEIR_PTX_OP_COUNT * 2 < TABLE_SLOTS, "opcode table too full");
_Static_assert(WEIR_PTX_SREG_COUNT * 2 < TABLE_SLOTS, "special register table too full");

struct text_table {
    uint16_t value[TABLE_SLOTS]; /* 0: free */
    const char *(*text_of)(unsigned value);
};

static const char *op_text(unsigned op)
{
    return ops[op].name;
}

static const char *mod_text(unsigned mod)
{
    return weir_ptx_mod_text((enum weir_ptx_mod)mod);
}

static const char *sreg_text(unsigned sreg)
{
    return sregs[sreg].text;
}

static struct text_table op_table = {.text_of = op_text};
static struct text_table mod_table = {.text_of = mod_text};
static struct text_table sreg_table = {.text_of = sreg_text};
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

/* FNV-1a. */
static uint32_t hash(const char *text, size_t len)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < len; i++) {
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    }
    return h ^ h >> 15;
}

static void table_add(struct text_table *table, unsigned value)
{
    const char *text = table->text_of(value);
    uint32_t i = hash(text, strlen(text));

    while (table->value[i % TABLE_SLOTS]) {
        i++;
    }
    table->value[i % TABLE_SLOTS] = (uint16_t)value;
}

static void fill_tables(void)
{
    for (unsigned i = 1; i < WEIR_PTX_OP_COUNT; i++) {
        table_add(&op_table, i);
    }
    for (unsigned i = 1; i < WEIR_PTX_MOD_COUNT; i++) {
        if (*mod_text(i)) {
            table_add(&mod_table, i);
        }
    }
    for (unsigned i = 1; i < WEIR_PTX_SREG_COUNT; i++) {
        table_add(&sreg_table, i);
    }
}

static unsigned table_find(const struct text_table *table, const char *text, size_t len)
{
    pthread_once(&tables_once, fill_tables);
    for (uint32_t i = hash(text, len); table->value[i % TABLE_SLOTS]; i++) {
        unsigned value = table->value[i % TABLE_SLOTS];
        const char *found = table->text_of(value);

        if (strncmp(found, text, len) == 0 && found[len] == 0) {
            return value;
        }
    }
    return 0;
}

enum weir_ptx_op weir_ptx_op_from_text(const char *text, size_t len)
{
    return (enum weir_ptx_op)table_find(&op_table, text, len);
}

enum weir_ptx_sreg weir_ptx_sreg_from_text(const char *text, size_t len)
{
    return (enum weir_ptx_sreg)table_find(&sreg_table, text, len);
}

/* A letter and up to four digits; false when *text is something else. */
static bool shape_number(const char **text, const char *end, char letter, uint16_t *ret_number)
{
    const char *at = *text;
    unsigned number = 0;

    WEIR_FAIL_IF(at == end || *at++ != letter, false);
    for (int i = 0; i < 4 && at < end && *at >= '0' && *at <= '9'; i++) {
        number = number * 10 + (unsigned)(*at++ - '0');
    }
    *text = at;
    *ret_number = (uint16_t)number;
    return number != 0;
}

static bool shape_from_text(const char *text, size_t len, struct weir_ptx_shape *ret_shape)
{
    const char *end = text + len;
    struct weir_ptx_shape shape = {0, 0, 0};

    if (!shape_number(&text, end, 'm', &shape.m) || !shape_number(&text, end, 'n', &shape.n) ||
        (text != end && !shape_number(&text, end, 'k', &shape.k)) || text != end) {
        return false;
    }
    *ret_shape = shape;
    return true;
}

enum weir_ptx_mod weir_ptx_mod_from_text(const char *text, size_t len,
                                         struct weir_ptx_shape *ret_shape)
{
    unsigned mod = table_find(&mod_table, text, len);

    if (!mod && shape_from_text(text, len, ret_shape)) {
        return WEIR_PTX_MOD_SHAPE;
    }
    return (enum weir_ptx_mod)mod;
}

const struct weir_ptx_op_info *weir_ptx_op_info(enum weir_ptx_op op)
{
    return &ops[op < WEIR_PTX_OP_COUNT ? op : WEIR_PTX_OP_NONE];
}

const char *weir_ptx_type_text(enum weir_ptx_type type)
{
    return types[type < WEIR_PTX_TYPE_COUNT ? type : WEIR_PTX_TYPE_NONE].text;
}

uint32_t weir_ptx_type_bits(enum weir_ptx_type type)
{
    return types[type < WEIR_PTX_TYPE_COUNT ? type : WEIR_PTX_TYPE_NONE].bits;
}

uint32_t weir_ptx_type_bytes(enum weir_ptx_type type)
{
    return (weir_ptx_type_bits(type) + 7) / 8;
}

char weir_ptx_type_class(enum weir_ptx_type type)
{
    return types[type < WEIR_PTX_TYPE_COUNT ? type : WEIR_PTX_TYPE_NONE].class[0];
}

const char *weir_ptx_space_text(enum weir_ptx_space space)
{
    return spaces[space < WEIR_PTX_SPACE_COUNT ? space : WEIR_PTX_SPACE_NONE];
}

const char *weir_ptx_mod_text(enum weir_ptx_mod mod)
{
    if (mod >= WEIR_PTX_MOD_COUNT || mod == WEIR_PTX_MOD_SHAPE) {
        return "";
    }
    if (mod < WEIR_PTX_MOD_SPACE) {
        return types[mod].text;
    }
    if (mod < WEIR_PTX_MOD_SHAPE) {
        return spaces[mod - WEIR_PTX_MOD_SPACE];
    }
    return mods[mod].text;
}

enum weir_ptx_slot weir_ptx_mod_slot(enum weir_ptx_mod mod)
{
    if (weir_ptx_mod_is_type(mod)) {
        return WEIR_PTX_SLOT_TYPE;
    }
    if (weir_ptx_mod_is_space(mod)) {
        return WEIR_PTX_SLOT_SPACE;
    }
    if (mod == WEIR_PTX_MOD_SHAPE) {
        return WEIR_PTX_SLOT_SHAPE;
    }
    return mod < WEIR_PTX_MOD_COUNT ? mods[mod].slot : WEIR_PTX_SLOT_NONE;
}

const char *weir_ptx_sreg_text(enum weir_ptx_sreg sreg)
{
    return sregs[sreg < WEIR_PTX_SREG_COUNT ? sreg : WEIR_PTX_SREG_NONE].text;
}

uint32_t weir_ptx_sreg_bits(enum weir_ptx_sreg sreg)
{
    return sregs[sreg < WEIR_PTX_SREG_COUNT ? sreg : WEIR_PTX_SREG_NONE].bits;
}

uint32_t weir_ptx_sreg_components(enum weir_ptx_sreg sreg)
{
    return sregs[sreg < WEIR_PTX_SREG_COUNT ? sreg : WEIR_PTX_SREG_NONE].components;
}
