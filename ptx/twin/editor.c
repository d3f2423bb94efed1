/*
 * The editor of bodies: new instructions are written as PTX text, parsed as the body of a small
 * entry, and moved over. Registers and labels of the small entry get new ids in the edited function
 * unless their names are bound; its parameter and shared variables are replaced by the twin's.
 */
#include "ptx/twin/editor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void fail(struct weir_ptx_edit *edit, enum weir_status status)
{
    if (edit->status == WEIR_OK) {
        edit->status = status;
    }
}

/* Make room for one more element of a heap array; false after failure. */
static bool grow(struct weir_ptx_edit *edit, void **data, uint32_t n, uint32_t *cap, size_t bytes)
{
    WEIR_FAIL_IF(edit->status != WEIR_OK, false);
    if (n < *cap) {
        return true;
    }
    uint32_t want = *cap ? *cap * 2 : 64;
    void *bigger = realloc(*data, want * bytes);

    if (!bigger) {
        fail(edit, WEIR_ERR_NO_MEMORY);
        return false;
    }
    *data = bigger;
    *cap = want;
    return true;
}

static uint32_t add_reg(struct weir_ptx_edit *edit, enum weir_ptx_type type)
{
    if (!grow(edit, (void **)&edit->regs, edit->n_regs, &edit->cap_regs, sizeof(*edit->regs))) {
        return 0;
    }
    edit->regs[edit->n_regs] = (struct weir_ptx_reg){
        .name = "%weir",
        .type = (uint8_t)type,
        .bits = (uint8_t)(type == WEIR_PTX_TYPE_PRED ? 1 : weir_ptx_type_bits(type)),
    };
    return edit->n_regs++;
}

static uint32_t add_label(struct weir_ptx_edit *edit)
{
    if (!grow(edit, (void **)&edit->labels, edit->n_labels, &edit->cap_labels,
              sizeof(*edit->labels))) {
        return 0;
    }
    const char *name = weir_ptx_pass_text(edit->twin->module, "$weir_L%" PRIu32, edit->n_labels);

    if (!name) {
        fail(edit, WEIR_ERR_NO_MEMORY);
        return 0;
    }
    edit->labels[edit->n_labels] = (struct weir_ptx_label){.name = name, .inst = WEIR_PTX_NONE};
    return edit->n_labels++;
}

void weir_ptx_edit_begin(struct weir_ptx_edit *edit, struct weir_ptx_twin *twin,
                         struct weir_ptx_func *func)
{
    static const char *const names[] = {"%wx", "%wy", "%wz", "%wgx", "%wgy", "%wgz", "%wn"};

    *edit = (struct weir_ptx_edit){.twin = twin, .func = func, .n_old_labels = func->n_labels};
    edit->cap_regs = func->n_regs + 32;
    edit->cap_labels = func->n_labels + 16;
    edit->regs = malloc(edit->cap_regs * sizeof(*edit->regs));
    edit->labels = malloc(edit->cap_labels * sizeof(*edit->labels));
    edit->moved = calloc((size_t)func->n_insts + 1, sizeof(*edit->moved));
    if (!edit->regs || !edit->labels || !edit->moved) {
        fail(edit, WEIR_ERR_NO_MEMORY);
        return;
    }
    if (func->n_regs) {
        memcpy(edit->regs, func->regs, func->n_regs * sizeof(*edit->regs));
    }
    if (func->n_labels) {
        memcpy(edit->labels, func->labels, func->n_labels * sizeof(*edit->labels));
    }
    edit->n_regs = func->n_regs;
    edit->n_labels = func->n_labels;
    for (uint32_t i = 0; func == twin->entry && i < WEIR_PTX_VIRTUAL_COUNT; i++) {
        if (twin->virtuals[i] == WEIR_PTX_NONE) {
            twin->virtuals[i] = add_reg(edit, WEIR_PTX_TYPE_B32);
        }
        weir_ptx_edit_bind(edit, names[i], WEIR_PTX_TYPE_B32, twin->virtuals[i]);
    }
}

void weir_ptx_edit_mark(struct weir_ptx_edit *edit, uint32_t i)
{
    if (edit->status == WEIR_OK) {
        edit->moved[i] = edit->n_insts;
    }
}

struct weir_ptx_inst *weir_ptx_edit_add(struct weir_ptx_edit *edit,
                                        const struct weir_ptx_inst *inst)
{
    if (!grow(edit, (void **)&edit->insts, edit->n_insts, &edit->cap_insts, sizeof(*edit->insts))) {
        return NULL;
    }
    edit->insts[edit->n_insts] = *inst;
    return &edit->insts[edit->n_insts++];
}

void weir_ptx_edit_keep(struct weir_ptx_edit *edit, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        weir_ptx_edit_mark(edit, i);
        weir_ptx_edit_add(edit, &edit->func->insts[i]);
    }
    weir_ptx_edit_mark(edit, end);
}

static void add_name(struct weir_ptx_edit *edit, const char *name, enum weir_ptx_type type,
                     uint32_t id)
{
    uint32_t i = 0;

    /* A name that is bound again has the new meaning from here on. */
    while (i < edit->n_names && strcmp(edit->names[i].text, name) != 0) {
        i++;
    }
    if (i == WEIR_PTX_EDIT_NAMES) {
        fail(edit, WEIR_ERR_INTERNAL);
    } else {
        struct weir_ptx_edit_name *row = &edit->names[i];

        edit->n_names += i == edit->n_names;

        snprintf(row->text, sizeof(row->text), "%s", name);
        row->type = (uint8_t)type;
        row->id = id;
    }
}

void weir_ptx_edit_bind(struct weir_ptx_edit *edit, const char *name, enum weir_ptx_type type,
                        uint32_t reg)
{
    add_name(edit, name, type, reg);
}

uint32_t weir_ptx_edit_reg(struct weir_ptx_edit *edit, const char *name, enum weir_ptx_type type)
{
    uint32_t reg = add_reg(edit, type);

    add_name(edit, name, type, reg);
    return reg;
}

uint32_t weir_ptx_edit_label(struct weir_ptx_edit *edit, const char *name)
{
    uint32_t label = add_label(edit);

    add_name(edit, name, WEIR_PTX_TYPE_NONE, label);
    return label;
}

void weir_ptx_edit_place(struct weir_ptx_edit *edit, uint32_t label)
{
    if (edit->status == WEIR_OK) {
        edit->labels[label].inst = edit->n_insts;
    }
}

static const struct weir_ptx_edit_name *find_name(const struct weir_ptx_edit *edit,
                                                  const char *text, bool is_label)
{
    for (uint32_t i = 0; i < edit->n_names; i++) {
        if (strcmp(edit->names[i].text, text) == 0 &&
            (edit->names[i].type == WEIR_PTX_TYPE_NONE) == is_label) {
            return &edit->names[i];
        }
    }
    return NULL;
}

bool weir_ptx_edit_is_bound(const struct weir_ptx_edit *edit, const char *name)
{
    return find_name(edit, name, false) != NULL;
}

/* Write the small entry around a text. Bound labels are defined at its end, before a last ret. */
WEIR_PRINTF(2, 0)
static char *wrap(const struct weir_ptx_edit *edit, const char *fmt, va_list args, size_t *ret_len)
{
    const struct weir_ptx_module *module = edit->twin->module;
    const char suffix[2] = {module->sm_suffix, 0};
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_len);

    WEIR_FAIL_IF(!out, NULL);
    fprintf(out, ".version %u.%u\n.target sm_%u%s\n.address_size 64\n", module->version_major,
            module->version_minor, module->sm, suffix);
    fprintf(out, ".shared .align 16 .b8 " WEIR_PTX_TASK_NAME "[%u];\n", WEIR_PTX_TASK_BYTES);
    fprintf(out, ".shared .align 16 .b8 " WEIR_PTX_INDEX_NAME "[%u];\n", WEIR_PTX_INDEX_BYTES);
    fputs(".extern .shared .align 16 .b8 " WEIR_PTX_DYNAMIC_NAME "[];\n"
          ".const .align 8 .b64 " WEIR_PTX_BINDS_NAME "[1];\n",
          out);
    fprintf(out, ".entry weir(.param .align 8 .b8 " WEIR_PTX_ARGS_NAME "[%zu])\n{\n",
            sizeof(struct weir_ptx_form_args));
    for (uint32_t i = 0; i < edit->n_names; i++) {
        if (edit->names[i].type != WEIR_PTX_TYPE_NONE) {
            fprintf(out, ".reg .%s %s;\n", weir_ptx_type_text(edit->names[i].type),
                    edit->names[i].text);
        }
    }
    vfprintf(out, fmt, args);
    for (uint32_t i = 0; i < edit->n_names; i++) {
        if (edit->names[i].type == WEIR_PTX_TYPE_NONE) {
            fprintf(out, "\n%s:", edit->names[i].text);
        }
    }
    fputs("\nret;\n}\n", out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Ids of the small entry in the edited function. */
struct move {
    struct weir_ptx_edit *edit;
    uint32_t *regs;
    uint32_t *labels;
};

static struct weir_ptx_var *move_var(const struct move *m, const struct weir_ptx_var *var)
{
    struct weir_ptx_twin *twin = m->edit->twin;
    const struct {
        const char *name;
        struct weir_ptx_var *var;
    } rows[] = {
        {WEIR_PTX_ARGS_NAME, twin->args},
        {WEIR_PTX_TASK_NAME, twin->task},
        {WEIR_PTX_INDEX_NAME, twin->index},
        {WEIR_PTX_DYNAMIC_NAME, twin->task ? twin->task : twin->index},
        {WEIR_PTX_BINDS_NAME, twin->binds},
    };
    struct weir_ptx_var *found = NULL;

    for (size_t i = 0; i < WEIR_COUNT(rows); i++) {
        if (strcmp(var->name, rows[i].name) == 0) {
            found = rows[i].var;
        }
    }
    if (!found) {
        fail(m->edit, WEIR_ERR_INTERNAL);
    }
    return found;
}

static struct weir_ptx_operand *move_operands(const struct move *m,
                                              const struct weir_ptx_operand *from, uint32_t n)
{
    struct weir_ptx_operand *to = weir_ptx_alloc(m->edit->twin->module, (n + !n) * sizeof(*to));

    if (!to) {
        fail(m->edit, WEIR_ERR_NO_MEMORY);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        to[i] = from[i];
        if (from[i].kind == WEIR_PTX_OPERAND_REG ||
            (from[i].kind == WEIR_PTX_OPERAND_MEM && from[i].base == WEIR_PTX_BASE_REG)) {
            to[i].reg = m->regs[from[i].reg];
        }
        if (from[i].reg2 != WEIR_PTX_NONE) {
            to[i].reg2 = m->regs[from[i].reg2];
        }
        if (from[i].kind == WEIR_PTX_OPERAND_LABEL) {
            to[i].label = m->labels[from[i].label];
        }
        if (from[i].kind == WEIR_PTX_OPERAND_VAR ||
            (from[i].kind == WEIR_PTX_OPERAND_MEM && from[i].base == WEIR_PTX_BASE_VAR)) {
            to[i].var = move_var(m, from[i].var);
        }
        if (from[i].n_elems) {
            to[i].elems = move_operands(m, from[i].elems, from[i].n_elems);
        }
    }
    return to;
}

static void move_inst(const struct move *m, const struct weir_ptx_inst *from)
{
    struct weir_ptx_module *module = m->edit->twin->module;
    struct weir_ptx_inst inst = *from;
    uint16_t *mods = weir_ptx_alloc(module, (from->n_mods + 1u) * sizeof(*mods));

    if (!mods) {
        fail(m->edit, WEIR_ERR_NO_MEMORY);
        return;
    }
    if (from->n_mods) {
        memcpy(mods, from->mods, from->n_mods * sizeof(*mods));
    }
    inst.mods = mods;
    inst.line = m->edit->func->line;
    inst.operands = move_operands(m, from->operands, from->n_operands);
    if (from->guard != WEIR_PTX_NONE) {
        inst.guard = m->regs[from->guard];
    }
    weir_ptx_edit_add(m->edit, &inst);
}

static void move_body(struct weir_ptx_edit *edit, const struct weir_ptx_func *from)
{
    struct move m = {.edit = edit};

    m.regs = calloc(from->n_regs + 1u, sizeof(*m.regs));
    m.labels = calloc(from->n_labels + 1u, sizeof(*m.labels));
    if (!m.regs || !m.labels) {
        fail(edit, WEIR_ERR_NO_MEMORY);
        goto out;
    }
    for (uint32_t i = 0; i < from->n_regs; i++) {
        const struct weir_ptx_edit_name *name = find_name(edit, from->regs[i].name, false);

        m.regs[i] = name ? name->id : add_reg(edit, (enum weir_ptx_type)from->regs[i].type);
    }
    for (uint32_t i = 0; i < from->n_labels; i++) {
        const struct weir_ptx_edit_name *name = find_name(edit, from->labels[i].name, true);

        m.labels[i] = name ? name->id : add_label(edit);
        if (!name && edit->status == WEIR_OK) {
            edit->labels[m.labels[i]].inst = edit->n_insts + from->labels[i].inst;
        }
    }
    /* Copy all instructions except the last ret. */
    for (uint32_t i = 0; i + 1 < from->n_insts && edit->status == WEIR_OK; i++) {
        move_inst(&m, &from->insts[i]);
    }
out:
    free(m.regs);
    free(m.labels);
}

void weir_ptx_edit_text(struct weir_ptx_edit *edit, const char *fmt, ...)
{
    struct weir_ptx_module *small = NULL;
    size_t len = 0;
    va_list args;

    if (edit->status != WEIR_OK) {
        return;
    }
    va_start(args, fmt);
    char *text = wrap(edit, fmt, args, &len);
    va_end(args);
    if (!text) {
        fail(edit, WEIR_ERR_NO_MEMORY);
        return;
    }
    enum weir_status status = weir_ptx_parse(text, len, 0, NULL, &small);

    if (status == WEIR_OK) {
        move_body(edit, weir_ptx_find_func(small, "weir"));
    } else {
        /* Weir wrote this text: an error is a bug, or the target is too old for an instruction. */
        fail(edit, status == WEIR_ERR_NO_MEMORY ? status : WEIR_ERR_INTERNAL);
    }
    weir_ptx_destroy(small);
    free(text);
}

static void *keep(struct weir_ptx_edit *edit, const void *data, uint32_t n, size_t bytes)
{
    void *copy = weir_ptx_alloc(edit->twin->module, (n + !n) * bytes);

    if (!copy) {
        fail(edit, WEIR_ERR_NO_MEMORY);
    } else if (n) {
        memcpy(copy, data, n * bytes);
    }
    return copy;
}

static void install(struct weir_ptx_edit *edit)
{
    struct weir_ptx_func *func = edit->func;
    struct weir_ptx_inst *insts = keep(edit, edit->insts, edit->n_insts, sizeof(*insts));
    struct weir_ptx_reg *regs = keep(edit, edit->regs, edit->n_regs, sizeof(*regs));

    for (uint32_t i = 0; i < edit->n_old_labels; i++) {
        edit->labels[i].inst = edit->moved[edit->labels[i].inst];
    }
    for (uint32_t i = edit->n_old_labels; i < edit->n_labels; i++) {
        if (edit->labels[i].inst == WEIR_PTX_NONE) {
            /* A later pass will place this new label; until then it is at the end. */
            edit->labels[i].inst = edit->n_insts;
        }
    }
    struct weir_ptx_label *labels = keep(edit, edit->labels, edit->n_labels, sizeof(*labels));

    if (edit->status != WEIR_OK) {
        return;
    }
    for (uint32_t i = 0; i < func->n_tables; i++) {
        func->tables[i]->before_inst = edit->moved[func->tables[i]->before_inst];
    }
    for (uint32_t i = 0; i < func->n_notes; i++) {
        func->notes[i].before_inst = edit->moved[func->notes[i].before_inst];
    }
    func->insts = insts;
    func->n_insts = edit->n_insts;
    func->regs = regs;
    func->n_regs = edit->n_regs;
    func->labels = labels;
    func->n_labels = edit->n_labels;
}

enum weir_status weir_ptx_edit_finish(struct weir_ptx_edit *edit)
{
    if (edit->status == WEIR_OK) {
        install(edit);
    }
    free(edit->insts);
    free(edit->regs);
    free(edit->labels);
    free(edit->moved);
    edit->insts = NULL;
    edit->regs = NULL;
    edit->labels = NULL;
    edit->moved = NULL;
    return edit->status;
}
