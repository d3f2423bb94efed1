/*
 * The .global variables of PTX and of cubins.
 *
 * PTX is parsed, because a size may be any constant expression. Most texts have no such variable,
 * only instructions with .global in their names: these are told apart without parsing.
 */
#include "host_backend/worker/session/image_globals.h"

#include "ptx/ir.h"
#include "ptx/ptx.h"
#include <ctype.h>
#include <elf.h>
#include <stdbool.h>
#include <string.h>

static const char directive[] = ".global";
#define DIRECTIVE_BYTES (sizeof directive - 1)

/* Does ".global" stand anywhere by itself, and not behind a part of a name as in "ld.global"? */
static bool may_have_globals(const char *text, uint64_t bytes)
{
    const char *at = text, *end = text + bytes;

    while ((at = memmem(at, (size_t)(end - at), directive, DIRECTIVE_BYTES)) != NULL) {
        if (at == text || (!isalnum((unsigned char)at[-1]) && at[-1] != '_')) {
            return true;
        }
        at += DIRECTIVE_BYTES;
    }
    return false;
}

static uint64_t sum_of(struct weir_ptx_var *const *vars, uint32_t n)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (vars[i]->space == WEIR_PTX_SPACE_GLOBAL) {
            sum = weir_globals_sum(sum, vars[i]->size_bytes);
        }
    }
    return sum;
}

uint64_t weir_ptx_globals(const char *text, uint64_t bytes)
{
    struct weir_ptx_module *module;
    uint64_t sum;

    if (!may_have_globals(text, bytes) ||
        weir_ptx_parse(text, bytes, WEIR_PTX_DROP_DEBUG, NULL, &module) != WEIR_OK) {
        return 0;
    }
    sum = sum_of(module->vars, module->n_vars);
    for (uint32_t i = 0; i < module->n_funcs; i++) {
        sum = weir_globals_sum(sum, sum_of(module->funcs[i]->vars, module->funcs[i]->n_vars));
    }
    weir_ptx_destroy(module);
    return sum;
}

/* Does the name at this place of a table of names begin as those of sections with variables do? */
static bool is_global_section(const uint8_t *names, uint64_t names_bytes, uint32_t at)
{
    static const char prefix[] = ".nv.global";

    return at < names_bytes && names_bytes - at >= sizeof prefix &&
           memcmp(names + at, prefix, sizeof prefix - 1) == 0;
}

uint64_t weir_elf_globals(const uint8_t *data, uint64_t bytes)
{
    Elf64_Shdr section, names;
    uint64_t sum = 0;
    Elf64_Ehdr h;

    memcpy(&h, data, sizeof h);
    memcpy(&names, data + h.e_shoff + h.e_shstrndx * sizeof names, sizeof names);
    if (names.sh_type != SHT_STRTAB || names.sh_offset > bytes ||
        names.sh_size > bytes - names.sh_offset) {
        return 0;
    }
    for (unsigned i = 0; i < h.e_shnum; i++) {
        memcpy(&section, data + h.e_shoff + i * sizeof section, sizeof section);
        if (is_global_section(data + names.sh_offset, names.sh_size, section.sh_name)) {
            sum = weir_globals_sum(sum, section.sh_size);
        }
    }
    return sum;
}
