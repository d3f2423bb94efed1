/*
 * The .global variables of PTX and of cubins.
 *
 * PTX is parsed, because a size may be any constant expression. Most texts have no such variable,
 * only instructions with .global in their names: the scan recognizes these without parsing. If a
 * text is newer than the parser, each declaration is parsed by itself, without its initializer.
 */
#include "host_backend/worker/code/image_globals.h"

#include "ptx/ir.h"
#include "ptx/ptx.h"
#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>

static const char directive[] = ".global";
#define DIRECTIVE_BYTES   (sizeof directive - 1)
#define DECLARATION_BYTES 8192u /* longest declaration, mostly its name, without initializer */
#define DECLARATIONS_MAX  65536u

/* Does ".global" occur as a directive, and not within a name as in "ld.global"? */
static bool may_have_globals(const char *text, uint64_t bytes)
{
    const char *at = text, *end = text + bytes;

    while ((at = memmem(at, (size_t)(end - at), directive, DIRECTIVE_BYTES))) {
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

static uint64_t sum_of_module(const struct weir_ptx_module *module)
{
    uint64_t sum = sum_of(module->vars, module->n_vars);

    for (uint32_t i = 0; i < module->n_funcs; i++) {
        sum = weir_globals_sum(sum, sum_of(module->funcs[i]->vars, module->funcs[i]->n_vars));
    }
    return sum;
}

/* ---------------------------------------------------------------- reading single declarations */

struct scan {
    const char *begin, *at, *end;
    char declaration[DECLARATION_BYTES];
    size_t n; /* bytes of the declaration */
};

/* Skip a comment or string that begins at `at`; without one return `at`. */
static const char *skip_quiet(const char *at, const char *end)
{
    const char *stop = at;

    if (end - at >= 2 && at[0] == '/' && at[1] == '/') {
        stop = memchr(at, '\n', (size_t)(end - at));
    } else if (end - at >= 2 && at[0] == '/' && at[1] == '*') {
        stop = memmem(at + 2, (size_t)(end - at - 2), "*/", 2);
        stop = stop ? stop + 2 : NULL;
    } else if (at < end && *at == '"') {
        for (stop = at + 1; stop < end && *stop != '"'; stop++) {
            stop += *stop == '\\' && stop + 1 < end;
        }
        stop = stop < end ? stop + 1 : NULL;
    }
    return stop ? stop : end;
}

static bool is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* Is this the directive .global, and not part of a name? */
static bool is_directive(const struct scan *s)
{
    return (size_t)(s->end - s->at) > DIRECTIVE_BYTES &&
           memcmp(s->at, directive, DIRECTIVE_BYTES) == 0 && !is_of_name(s->at[DIRECTIVE_BYTES]) &&
           (s->at == s->begin || !is_of_name(s->at[-1]));
}

static bool follows(const struct scan *s, const char *word)
{
    size_t n = strlen(word);
    const char *at = s->at;

    while (at > s->begin && isspace((unsigned char)at[-1])) {
        at--;
    }
    return (size_t)(at - s->begin) >= n && memcmp(at - n, word, n) == 0;
}

static bool put(struct scan *s, const char *text, size_t bytes)
{
    WEIR_FAIL_IF(bytes >= sizeof s->declaration - s->n, false);
    memcpy(s->declaration + s->n, text, bytes);
    s->n += bytes;
    s->declaration[s->n] = 0;
    return true;
}

/* Copy a declaration up to its end. An array may get its size only from the initializer, which is
 * not copied. */
static bool copy_declaration(struct scan *s)
{
    bool in_initializer = false, sized = true;
    unsigned depth = 0;
    char last = 0;

    while (s->at < s->end) {
        const char *behind = skip_quiet(s->at, s->end);
        char c = *s->at;

        if (behind != s->at) {
            s->at = behind;
            continue;
        }
        depth += c == '{' || c == '(' || c == '[';
        depth -= depth != 0 && (c == '}' || c == ')' || c == ']');
        in_initializer = depth == 0 && (c == ',' || c == ';') ? false : in_initializer || c == '=';
        if (in_initializer && !sized) {
            return false;
        }
        if (!in_initializer && !put(s, &c, 1)) {
            return false;
        }
        s->at++;
        if (c == ';' && depth == 0) {
            return true;
        }
        sized = sized && !(c == ']' && last == '[');
        last = isspace((unsigned char)c) ? last : c;
    }
    return false;
}

static bool add_declaration(struct scan *s, uint64_t *sum)
{
    static const char head[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
    static const char outside[] = ".extern ";
    struct weir_ptx_module *module;

    s->n = 0;
    if (!put(s, head, sizeof head - 1) ||
        (follows(s, ".extern") && !put(s, outside, sizeof outside - 1)) || !copy_declaration(s) ||
        weir_ptx_parse(s->declaration, s->n, 0, NULL, &module) != WEIR_OK) {
        return false;
    }
    *sum = weir_globals_sum(*sum, sum_of_module(module));
    weir_ptx_destroy(module);
    return true;
}

static bool scan_globals(const char *text, uint64_t bytes, uint64_t *ret_sum)
{
    struct scan s = {.begin = text, .at = text, .end = text + strnlen(text, bytes)};
    uint64_t sum = 0;
    uint32_t n = 0;

    while (s.at < s.end) {
        const char *behind = skip_quiet(s.at, s.end);

        if (behind != s.at) {
            s.at = behind;
        } else if (!is_directive(&s) || follows(&s, ".ptr")) { /* .ptr .global: a parameter's */
            s.at++;
        } else if (n++ >= DECLARATIONS_MAX || !add_declaration(&s, &sum)) {
            return false;
        }
    }
    *ret_sum = sum;
    return true;
}

bool weir_ptx_globals(const char *text, uint64_t bytes, uint64_t *ret_bytes)
{
    struct weir_ptx_module *module;

    if (!may_have_globals(text, bytes)) {
        *ret_bytes = 0;
        return true;
    }
    if (weir_ptx_parse(text, bytes, WEIR_PTX_DROP_DEBUG, NULL, &module) != WEIR_OK) {
        return scan_globals(text, bytes, ret_bytes);
    }
    *ret_bytes = sum_of_module(module);
    weir_ptx_destroy(module);
    return true;
}

/* ---------------------------------------------------------------- cubins */

/* Does the name at this offset of a table of names begin as names of sections with variables do? */
static bool is_global_section(const uint8_t *names, uint64_t names_bytes, uint32_t at)
{
    static const char prefix[] = ".nv.global";

    return at < names_bytes && names_bytes - at >= sizeof prefix &&
           memcmp(names + at, prefix, sizeof prefix - 1) == 0;
}

/* Read the header, and the section with the sections' names. */
static bool read_head(const uint8_t *data, uint64_t bytes, Elf64_Ehdr *h, Elf64_Shdr *names)
{
    memcpy(h, data, sizeof *h);
    memcpy(names, data + h->e_shoff + h->e_shstrndx * sizeof *names, sizeof *names);
    return names->sh_type == SHT_STRTAB && names->sh_offset <= bytes &&
           names->sh_size <= bytes - names->sh_offset;
}

uint64_t weir_elf_globals(const uint8_t *data, uint64_t bytes)
{
    Elf64_Shdr section, names;
    uint64_t sum = 0;
    Elf64_Ehdr h;

    if (!read_head(data, bytes, &h, &names)) {
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

/* Visit those symbols of a table that are such variables. */
static bool visit_table(const uint8_t *data, const Elf64_Ehdr *h, const Elf64_Shdr *names,
                        const Elf64_Shdr *table, weir_elf_visit_fn *visit, void *user)
{
    Elf64_Shdr section, strings;
    Elf64_Sym symbol;

    memcpy(&strings, data + h->e_shoff + table->sh_link * sizeof strings, sizeof strings);
    if (strings.sh_type != SHT_STRTAB) {
        return false;
    }
    for (uint64_t at = 0; table->sh_size - at >= sizeof symbol; at += sizeof symbol) {
        memcpy(&symbol, data + table->sh_offset + at, sizeof symbol);
        if (symbol.st_shndx >= h->e_shnum || ELF64_ST_TYPE(symbol.st_info) == STT_SECTION) {
            continue;
        }
        memcpy(&section, data + h->e_shoff + symbol.st_shndx * sizeof section, sizeof section);
        if (!is_global_section(data + names->sh_offset, names->sh_size, section.sh_name)) {
            continue;
        }
        const char *name = (const char *)data + strings.sh_offset + symbol.st_name;
        if (symbol.st_name >= strings.sh_size ||
            !memchr(name, 0, strings.sh_size - symbol.st_name) ||
            !visit(name, symbol.st_size, user)) {
            return false;
        }
    }
    return true;
}

/* Does the loader write addresses into such variables, such as those of functions? */
static bool relocates_globals(const uint8_t *data, const Elf64_Ehdr *h, const Elf64_Shdr *names,
                              const Elf64_Shdr *section)
{
    Elf64_Shdr of;

    if ((section->sh_type != SHT_REL && section->sh_type != SHT_RELA) ||
        section->sh_info >= h->e_shnum) {
        return false;
    }
    memcpy(&of, data + h->e_shoff + section->sh_info * sizeof of, sizeof of);
    return section->sh_size != 0 &&
           is_global_section(data + names->sh_offset, names->sh_size, of.sh_name);
}

bool weir_elf_visit_globals(const uint8_t *data, uint64_t bytes, weir_elf_visit_fn *visit,
                            void *user)
{
    bool has_table = false;
    Elf64_Shdr names, table;
    Elf64_Ehdr h;

    if (!read_head(data, bytes, &h, &names)) {
        return false;
    }
    for (unsigned i = 0; i < h.e_shnum; i++) {
        memcpy(&table, data + h.e_shoff + i * sizeof table, sizeof table);
        if (relocates_globals(data, &h, &names, &table)) {
            return false;
        }
        if (table.sh_type == SHT_SYMTAB && table.sh_link < h.e_shnum) {
            has_table = true;
            if (!visit_table(data, &h, &names, &table, visit, user)) {
                return false;
            }
        }
    }
    return has_table || weir_elf_globals(data, bytes) == 0;
}
