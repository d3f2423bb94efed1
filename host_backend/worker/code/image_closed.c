/*
 * Closed kernels of cubins: see image_closed.h.
 *
 * A cubin's kernel K has its code in a section .text.K, and what the driver must know of it in a
 * section .nv.info.K, a list of attributes. EIATTR_EXTERNS among them names the external functions
 * that K calls. Where functions have sections of their own, calls are relocations of .text.K. The
 * compiler writes all of that. It does not record calls through pointers: these are found in the
 * instructions, which are 16 bytes long since sm_70. Code also calls the driver's functions through
 * a register.
 *
 * Seen in what nvcc 13.0 makes for sm_75 to sm_121, also with -G and -rdc=true, and in its
 * libraries. A file that looks different has no closed kernel.
 */
#include "host_backend/worker/code/image_closed.h"
#include "base/status.h"

#include "base/cubin.h"
#include "base/grow.h"
#include "base/hash.h"
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#ifndef EM_CUDA
#define EM_CUDA 190
#endif
#define ABI_VERSION      8 /* the index of this byte in e_ident */
#define TYPE_CUDA_INFO   SHT_LOPROC
#define OTHER_ENTRY      0x10 /* the bit of st_other that marks a kernel */
#define EIATTR_EXTERNS   0x0f
#define EIFMT_SIZED      0x04
#define EIFMT_LAST       EIFMT_SIZED
#define INSTRUCTION      16u
#define SM_FIRST         70u
#define SM_LAST          121u /* the newest architecture whose code was seen */
#define NAME_BYTES_MAX   16384u
#define INSTRUCTION_KIND 0x1ffu /* bits of an instruction's first 12 that are not operands */
#define CALL_ABSOLUTE    0x143u
#define CALL_RELATIVE    0x144u
#define JUMP_ABSOLUTE    0x14au
#define JUMP_INDEXED     0x14cu
#define JUMP_UNIFORM     0x159u /* jumps to an address in a uniform register; nvcc makes none */
#define CALL_RELATIVE_BY 0x944u /* calls with the distance in the instruction */

/* The hash of a kernel's name. */
struct kernel {
    uint64_t name;
    bool open;
};

struct weir_closed_kernels {
    struct kernel *kernels; /* kernels, sorted by name after .._end(); owned */
    uint32_t n, room;
};

struct weir_closed_kernels *weir_closed_kernels_create(void)
{
    return calloc(1, sizeof(struct weir_closed_kernels));
}

void weir_closed_kernels_destroy(struct weir_closed_kernels *closed)
{
    if (closed) {
        free(closed->kernels);
        free(closed);
    }
}

/* ---------------------------------------------------------------- checking a section of code */

/* A checked file, and what is known of its sections. */
struct file {
    const uint8_t *data;
    Elf64_Ehdr header;
    uint64_t budget; /* bytes that may still be read: sections may overlap */
    struct section {
        bool code;        /* the section holds instructions */
        bool has_info;    /* the section's attributes were found */
        bool open;        /* an attribute or a relocation leads out of the section */
        bool was_entered; /* a kernel's symbol lies in the section */
    } * sections;
};

static bool section_at(const struct file *file, uint32_t i, Elf64_Shdr *ret)
{
    if (i >= file->header.e_shnum) {
        return false;
    }
    memcpy(ret, file->data + file->header.e_shoff + i * sizeof *ret, sizeof *ret);
    return true;
}

/* A section's bytes. NULL: it has none, or too many were looked at. */
static const uint8_t *contents(struct file *file, const Elf64_Shdr *section)
{
    WEIR_FAIL_IF(!weir_cubin_has_bits(section->sh_type) || section->sh_size > file->budget, NULL);
    file->budget -= section->sh_size;
    return file->data + section->sh_offset;
}

/* Can this instruction jump to an address that is not in the instruction itself? */
static bool leads_out(uint64_t instruction)
{
    switch (instruction & INSTRUCTION_KIND) {
    case CALL_RELATIVE:
        return (instruction & 0xfffu) != CALL_RELATIVE_BY;
    case CALL_ABSOLUTE:
    case JUMP_ABSOLUTE:
    case JUMP_INDEXED:
    case JUMP_UNIFORM:
        return true;
    default:
        return false;
    }
}

static bool code_leads_out(const uint8_t *code, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += INSTRUCTION) {
        uint64_t instruction;

        memcpy(&instruction, code + at, sizeof instruction);
        if (leads_out(instruction)) {
            return true;
        }
    }
    return false;
}

/* Do a kernel's attributes name external functions, or are they no valid list of attributes? Each
 * attribute begins with a format, its kind, and 16 bits: its value, or the number of bytes that
 * follow. */
static bool info_leads_out(const uint8_t *info, uint64_t bytes)
{
    uint64_t at = 0;

    while (bytes - at >= 4) {
        uint8_t format = info[at], attribute = info[at + 1];
        uint16_t value;

        memcpy(&value, info + at + 2, sizeof value);
        at += 4;
        if (format == 0 || format > EIFMT_LAST || attribute == EIATTR_EXTERNS ||
            (format == EIFMT_SIZED && value > bytes - at)) {
            return true;
        }
        at += format == EIFMT_SIZED ? value : 0;
    }
    return at != bytes;
}

static void look_at_section(struct file *file, uint32_t i)
{
    Elf64_Shdr section;
    const uint8_t *data;

    if (!section_at(file, i, &section)) {
        return;
    }
    if (section.sh_type == SHT_PROGBITS && (section.sh_flags & SHF_EXECINSTR) != 0) {
        data = contents(file, &section);
        file->sections[i].code = true;
        file->sections[i].open |=
            !data || section.sh_size % INSTRUCTION != 0 || code_leads_out(data, section.sh_size);
    } else if (section.sh_info >= file->header.e_shnum) {
        return; /* the record names no section */
    } else if (section.sh_type == TYPE_CUDA_INFO) {
        data = contents(file, &section);
        file->sections[section.sh_info].has_info = true;
        file->sections[section.sh_info].open |= !data || info_leads_out(data, section.sh_size);
    } else if ((section.sh_type == SHT_REL || section.sh_type == SHT_RELA) &&
               section.sh_size != 0) {
        file->sections[section.sh_info].open = true;
    }
}

/* ---------------------------------------------------------------- kernels */

static bool add_kernel(struct weir_closed_kernels *closed, const char *name, size_t bytes,
                       bool open)
{
    WEIR_FAIL_IF(!WEIR_GROW(closed->kernels, closed->n, closed->room), false);
    closed->kernels[closed->n++] = (struct kernel){weir_hash64_of(name, bytes), open};
    return true;
}

/* Add a kernel's own symbol; a section has one. A kernel that is not added counts as not closed. */
static bool add_symbol(struct weir_closed_kernels *closed, struct file *file,
                       const Elf64_Sym *symbol, const char *names, uint64_t names_bytes)
{
    uint64_t left, n;

    if (symbol->st_shndx >= file->header.e_shnum || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
        (symbol->st_other & OTHER_ENTRY) == 0 || symbol->st_name >= names_bytes) {
        return true;
    }
    struct section *section = file->sections + symbol->st_shndx;
    if (!section->code || section->was_entered) {
        return true;
    }
    section->was_entered = true;
    left = names_bytes - symbol->st_name;
    n = strnlen(names + symbol->st_name, WEIR_MIN(left, NAME_BYTES_MAX));
    return n == left || n == NAME_BYTES_MAX ||
           add_kernel(closed, names + symbol->st_name, n, section->open || !section->has_info);
}

static bool add_symbols(struct weir_closed_kernels *closed, struct file *file,
                        const Elf64_Shdr *table)
{
    const uint8_t *symbols = contents(file, table);
    Elf64_Shdr strings;

    if (!symbols || !section_at(file, table->sh_link, &strings) || strings.sh_type != SHT_STRTAB) {
        return false;
    }
    const uint8_t *names = contents(file, &strings);
    for (uint64_t at = 0; names && table->sh_size - at >= sizeof(Elf64_Sym);
         at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;

        memcpy(&symbol, symbols + at, sizeof symbol);
        if (!add_symbol(closed, file, &symbol, (const char *)names, strings.sh_size)) {
            return false;
        }
    }
    return names != NULL;
}

/* ---------------------------------------------------------------- files */

/* Is this linked code in a known encoding? */
static bool is_known(const Elf64_Ehdr *header)
{
    uint32_t sm = header->e_ident[EI_ABIVERSION] >= ABI_VERSION ? header->e_flags >> 8 & 0xff
                                                                : header->e_flags & 0xff;

    return header->e_machine == EM_CUDA && header->e_type == ET_EXEC && sm >= SM_FIRST &&
           sm <= SM_LAST;
}

bool weir_closed_kernels_add(struct weir_closed_kernels *closed, const uint8_t *data,
                             uint64_t bytes)
{
    struct file file = {.data = data, .budget = bytes};
    Elf64_Shdr section;
    bool good = true;

    memcpy(&file.header, data, sizeof file.header);
    WEIR_FAIL_IF(!is_known(&file.header), false);
    file.sections = calloc(file.header.e_shnum, sizeof *file.sections);
    WEIR_FAIL_IF(!file.sections, false);
    for (uint32_t i = 0; i < file.header.e_shnum; i++) {
        look_at_section(&file, i);
    }
    for (uint32_t i = 0; good && section_at(&file, i, &section); i++) {
        good = section.sh_type != SHT_SYMTAB || add_symbols(closed, &file, &section);
    }
    free(file.sections);
    return good;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct kernel *)a)->name, y = ((const struct kernel *)b)->name;

    return x < y ? -1 : x > y;
}

void weir_closed_kernels_end(struct weir_closed_kernels *closed)
{
    uint32_t n = 0;

    if (closed->n == 0) {
        return;
    }
    qsort(closed->kernels, closed->n, sizeof *closed->kernels, compare);
    for (uint32_t i = 1; i < closed->n; i++) {
        if (closed->kernels[i].name == closed->kernels[n].name) {
            closed->kernels[n].open |= closed->kernels[i].open;
        } else {
            closed->kernels[++n] = closed->kernels[i];
        }
    }
    closed->n = n + 1;
}

bool weir_closed_kernels_has(const struct weir_closed_kernels *closed, const char *kernel)
{
    struct kernel key = {weir_hash64_of(kernel, strlen(kernel)), false};
    const struct kernel *found =
        closed && closed->n != 0 ? bsearch(&key, closed->kernels, closed->n, sizeof key, compare)
                                 : NULL;

    return found && !found->open;
}

uint64_t weir_closed_kernels_bytes(const struct weir_closed_kernels *closed)
{
    return closed ? (uint64_t)closed->n * sizeof *closed->kernels : 0;
}
