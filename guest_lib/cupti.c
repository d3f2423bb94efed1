/*
 * Redirects a loaded libcupti of NVIDIA's to Weir's.
 *
 * PyTorch's wheels and JAX load NVIDIA's libcupti by its path, before anything loads libcuda.so.1.
 * It fails here, since it wants private tables of the driver. So where a process has one when it
 * initialises CUDA, or when it loads code later, three steps give its functions' names to Weir's:
 *
 *   1. Weir's libcupti is loaded, the one of the same SONAME.
 *   2. Each function in the other copy's symbol table gets the address of Weir's, which dlsym()
 *      and the loader find from now on.
 *   3. Objects that were bound before, and name the other copy as needed, get it in each relocated
 *      word that still has the old address.
 *
 * This writes data only, so it works on systems that do not let a process change its code. A
 * function pointer that the program got from dlsym() before still calls NVIDIA's library.
 *
 * Locking. The loader may be at work in another thread. dl_iterate_phdr() keeps objects from coming
 * and going, but not from being relocated. Between steps 2 and 3 a dlopen() waits for the loads
 * that are under way. So an object that is being relocated during step 3 binds to Weir's, and step
 * 3 finds nothing to write in it. Inside dl_iterate_phdr() nothing here calls the loader.
 */
#include "guest_lib/cupti.h"

#include "base/log.h"
#include "guest_lib/entry.h"
#include "proto/beside.h"
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define COPIES_MAX       4 /* a process has one as a rule; a second of the other CUDA */
#define CONTAINER_FOLDER "/usr/local/nvidia/lib64" /* where container/edits.c mounts libcupti */

/* A loaded object. Addresses are absolute. */
struct object {
    uintptr_t base; /* what its own addresses are added to */
    uintptr_t relro, relro_end;
    const Elf64_Dyn *dynamic;
};

/* Addresses of a function of the other copy's, and of Weir's. */
struct pair {
    uintptr_t from, to;
};

struct search {
    unsigned long long adds;
    struct object copies[COPIES_MAX];
    char *names[COPIES_MAX]; /* the loader's names of them */
    size_t n_copies;
};

struct rebinding {
    const char *soname; /* of the other copy */
    const struct pair *pairs;
    size_t n_pairs;
    uintptr_t first, last; /* of the other copy's functions */
    size_t n_words;        /* written */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static unsigned long long seen_adds; /* objects that had ever been loaded at the last look */

void *weir_guest_cupti_load(const char *soname)
{
    void *library = weir_library_beside((uintptr_t)&weir_guest_cupti_load, soname);
    if (!library) {
        char path[PATH_MAX]; /* in containers libcuda.so.1 lies in other folders, too */
        (void)snprintf(path, sizeof path, CONTAINER_FOLDER "/%s", soname);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library && dlsym(library, "cuptiWeirProfile") ? library : NULL;
}

/* ---------------------------------------------------------------- objects */

static bool read_object(const struct dl_phdr_info *info, struct object *o)
{
    *o = (struct object){.base = info->dlpi_addr};
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_DYNAMIC) {
            o->dynamic = (const Elf64_Dyn *)(o->base + header->p_vaddr);
        } else if (header->p_type == PT_GNU_RELRO) { /* as the loader rounds it */
            uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
            o->relro = (o->base + header->p_vaddr) & -page;
            o->relro_end = (o->base + header->p_vaddr + header->p_memsz) & -page;
        }
    }
    return o->dynamic != NULL;
}

static uintptr_t value_of(const struct object *o, Elf64_Sxword tag)
{
    for (const Elf64_Dyn *entry = o->dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == tag) {
            return entry->d_un.d_val;
        }
    }
    return 0;
}

static const void *address_of(const struct object *o, Elf64_Sxword tag)
{
    uintptr_t value = value_of(o, tag);
    /* glibc has made addresses of them, but not of the vDSO's. */
    return (const void *)(value && value < o->base ? o->base + value : value);
}

/* @return NULL: it has none */
static const char *soname_of(const struct object *o)
{
    uintptr_t offset = value_of(o, DT_SONAME);
    return offset ? (const char *)address_of(o, DT_STRTAB) + offset : NULL;
}

static bool needs(const struct object *o, const char *soname)
{
    const char *strings = address_of(o, DT_STRTAB);
    for (const Elf64_Dyn *entry = o->dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_NEEDED && strcmp(strings + entry->d_un.d_val, soname) == 0) {
            return true;
        }
    }
    return false;
}

static size_t count_symbols(const struct object *o)
{
    const uint32_t *plain = address_of(o, DT_HASH), *table = address_of(o, DT_GNU_HASH);
    if (plain || !table) {
        return plain ? plain[1] : 0;
    }
    /* The highest bucket's chain ends with the last symbol, whose hash has the lowest bit set. */
    uint32_t n_buckets = table[0], first = table[1], last = 0;
    const uint32_t *buckets = table + 4 + table[2] * (sizeof(Elf64_Addr) / sizeof *table);
    for (uint32_t i = 0; i < n_buckets; i++) {
        last = WEIR_MAX(buckets[i], last);
    }
    while (last && !(buckets[n_buckets + last - first] & 1)) {
        last++;
    }
    return last ? last + 1u : 0;
}

/* ---------------------------------------------------------------- steps */

static int find_copies(struct dl_phdr_info *info, size_t size, void *user)
{
    struct search *search = user;
    (void)size;
    search->adds = info->dlpi_adds;
    if (info->dlpi_adds == seen_adds || search->n_copies == COPIES_MAX) {
        return 1;
    }
    struct object *o = &search->copies[search->n_copies];
    const char *soname = read_object(info, o) ? soname_of(o) : NULL;
    if (soname &&
        (strcmp(soname, "libcupti.so.13") == 0 || strcmp(soname, "libcupti.so.12") == 0)) {
        search->names[search->n_copies++] = strdup(info->dlpi_name);
    }
    return 0;
}

static bool protect(uintptr_t begin, uintptr_t end, int protection)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    begin &= -page;
    return mprotect((void *)begin, end - begin, protection) == 0; /* rounds the length up */
}

/* Step 2. @return the number of functions that have got another address */
static size_t redirect_symbols(const struct object *copy, void *ours, struct pair *pairs,
                               size_t n_symbols)
{
    const char *soname = soname_of(copy), *strings = address_of(copy, DT_STRTAB);
    uintptr_t begin = (uintptr_t)address_of(copy, DT_SYMTAB);
    Elf64_Sym *symbols = (Elf64_Sym *)begin;
    uintptr_t end = (uintptr_t)(symbols + n_symbols);
    size_t n = 0;
    WEIR_FAIL_IF(!protect(begin, end, PROT_READ | PROT_WRITE), 0);
    for (size_t i = 0; i < n_symbols; i++) {
        Elf64_Sym *symbol = &symbols[i];
        if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) {
            continue;
        }
        /* Its symbols have its SONAME as version. */
        uintptr_t to = (uintptr_t)dlvsym(ours, strings + symbol->st_name, soname);
        uintptr_t from = copy->base + symbol->st_value;
        if (to && to != from) {
            pairs[n++] = (struct pair){from, to};
            symbol->st_value = to - copy->base;
        }
    }
    (void)protect(begin, end, PROT_READ); /* linkers put no code in these pages, nor data */
    return n;
}

static void write_word(const struct object *o, uintptr_t at, uintptr_t value)
{
    bool is_relro = at >= o->relro && at < o->relro_end;
    if (!is_relro || protect(at, at + sizeof value, PROT_READ | PROT_WRITE)) {
        memcpy((void *)at, &value, sizeof value);
    }
    if (is_relro) {
        (void)protect(at, at + sizeof value, PROT_READ);
    }
}

/* @return 0: it is none of the copy's functions */
static uintptr_t new_address(const struct rebinding *r, uintptr_t from)
{
    size_t at = WEIR_FIRST(i, r->n_pairs, r->pairs[i].from == from);
    return at < r->n_pairs ? r->pairs[at].to : 0;
}

static void rebind_words(struct rebinding *r, const struct object *o, const Elf64_Rela *relocations,
                         size_t i, size_t n)
{
    for (; i < n; i++) {
        uintptr_t at = o->base + relocations[i].r_offset, value;
        memcpy(&value, (const void *)at, sizeof value);
        /* All but a few of some ten thousand are outside. */
        uintptr_t to = value < r->first || value > r->last ? 0 : new_address(r, value);
        if (to) {
            write_word(o, at, to);
            r->n_words++;
        }
    }
}

/* Step 3, of one object. */
static int rebind(struct dl_phdr_info *info, size_t size, void *user)
{
    struct rebinding *r = user;
    struct object o;
    (void)size;
    if (read_object(info, &o) && needs(&o, r->soname)) {
        /* The first of them name no symbol. */
        rebind_words(r, &o, address_of(&o, DT_RELA), value_of(&o, DT_RELACOUNT),
                     value_of(&o, DT_RELASZ) / sizeof(Elf64_Rela));
        rebind_words(r, &o, address_of(&o, DT_JMPREL), 0,
                     value_of(&o, DT_PLTRELSZ) / sizeof(Elf64_Rela));
    }
    return 0;
}

/* All steps. */
static void replace(const struct object *copy)
{
    const char *soname = soname_of(copy);
    void *ours = weir_guest_cupti_load(soname);
    size_t n_symbols = count_symbols(copy);
    struct pair *pairs = ours ? calloc(n_symbols, sizeof *pairs) : NULL;
    struct rebinding r = {.soname = soname, .pairs = pairs, .first = UINTPTR_MAX};
    if (pairs) {
        r.n_pairs = redirect_symbols(copy, ours, pairs, n_symbols);
    }
    for (size_t i = 0; i < r.n_pairs; i++) {
        r.first = WEIR_MIN(pairs[i].from, r.first);
        r.last = WEIR_MAX(pairs[i].from, r.last);
    }
    if (r.n_pairs) {
        (void)weir_guest_cupti_load(soname); /* waits for loads that are under way */
        dl_iterate_phdr(rebind, &r);
        weir_log_debug("guest: another libcupti is redirected to Weir's soname=%s functions=%zu "
                       "words=%zu",
                       soname, r.n_pairs, r.n_words);
    }
    free(pairs);
}

void weir_guest_cupti_replace(void)
{
    WEIR_GUEST_KEEP_ERRNO;
    if (pthread_mutex_trylock(&lock) != 0) {
        return; /* another thread is at it, and may wait for the loader, in which this one may be */
    }
    struct search search = {.n_copies = 0};
    dl_iterate_phdr(find_copies, &search);
    for (size_t i = 0; i < search.n_copies; i++) {
        char *name = search.names[i]; /* holding it keeps other threads from unloading it */
        struct link_map *held = name ? dlopen(name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (held && held->l_addr == search.copies[i].base) {
            replace(&search.copies[i]);
        }
        if (held) {
            dlclose(held);
        }
        free(name);
    }
    seen_adds = search.adds;
    pthread_mutex_unlock(&lock);
}
