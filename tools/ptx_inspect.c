/*
 * weir ptx inspect: print what the kernels of a PTX file contain, which forms they admit, and why
 * not the others, as text or as a line of JSON for each kernel. Neither PTX names nor the sentences
 * of facts.def need escaping in JSON.
 */
#include "tools/ptx_inspect.h"

#include "base/hash.h"
#include "ptx/analysis.h"
#include "tools/command.h"
#include "tools/ptx_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct inspect {
    const char *kernel;
    bool json;
    bool own_pointers;
};

static bool has(const struct weir_ptx_kernel *kernel, int fact)
{
    return weir_ptx_kernel_has(kernel, (enum weir_ptx_fact)fact);
}

static uint32_t line_of(const struct weir_ptx_place *place)
{
    return place->inst == WEIR_PTX_NONE ? place->func->line : place->func->insts[place->inst].line;
}

static bool is_used(const struct weir_ptx_barrier_use *use)
{
    return use->n_sync || use->n_arrive || use->n_red;
}

/* Text */

static void print_forms(const struct weir_ptx_kernel *kernel)
{
    const char *between = "  forms: ";

    for (int i = 0; i < WEIR_PTX_FORM_COUNT; i++) {
        if (weir_ptx_kernel_admits(kernel, (enum weir_ptx_form)i)) {
            printf("%s%s", between, weir_ptx_form_text((enum weir_ptx_form)i));
            between = ", ";
        }
    }
    putchar('\n');
    for (int i = 0; i < WEIR_PTX_FORM_COUNT; i++) {
        const char *why = weir_ptx_kernel_why_not(kernel, (enum weir_ptx_form)i);

        if (why) {
            printf("  not %s: %s\n", weir_ptx_form_text((enum weir_ptx_form)i), why);
        }
    }
}

static void print_facts(const struct weir_ptx_kernel *kernel)
{
    for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
        const struct weir_ptx_place *place = &kernel->places[i];

        if (!has(kernel, i)) {
            continue;
        }
        printf("  %s (line %u", weir_ptx_fact_info((enum weir_ptx_fact)i)->says, line_of(place));
        if (place->func != kernel->entry) {
            printf(" in %s", place->func->name);
        }
        if (place->count > 1) {
            printf(", and %u more", place->count - 1);
        }
        puts(")");
    }
}

static void print_barriers(const struct weir_ptx_kernel *kernel)
{
    for (int i = 0; i < WEIR_PTX_BARRIERS; i++) {
        const struct weir_ptx_barrier_use *use = &kernel->barriers[i];

        if (!is_used(use)) {
            continue;
        }
        printf("  barrier %d: %u sync, %u arrive, %u reduction", i, use->n_sync, use->n_arrive,
               use->n_red);
        if (use->n_counted) {
            printf(", %u with a count", use->n_counted);
        }
        if (use->threads) {
            printf(" of %u threads", use->threads);
        }
        putchar('\n');
    }
}

static void print_kernel(const struct weir_ptx_kernel *kernel)
{
    printf("%s (line %u)\n", kernel->entry->name, kernel->entry->line);
    print_forms(kernel);
    printf("  %u instructions in %u functions, %u exits\n", kernel->n_insts, kernel->n_funcs,
           kernel->n_exits);
    printf("  %" PRIu64 " of %" PRIu64 " bytes of parameters, %" PRIu64
           " bytes of static shared memory, %" PRIu64 " of local memory\n",
           kernel->params_size_bytes, kernel->params_max_bytes, kernel->shared_static_bytes,
           kernel->local_bytes);
    print_barriers(kernel);
    print_facts(kernel);
    putchar('\n');
}

/* JSON */

static bool is_in_name(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || strchr("_$%.", c);
}

/* Remove this name from a text, also where a longer name begins with it. Returns the new length. */
static size_t cut_name(char *text, size_t len, const char *name)
{
    size_t name_len = strlen(name);
    size_t to = 0;
    char before = ' ';

    for (size_t from = 0; from < len;) {
        if (len - from >= name_len && memcmp(text + from, name, name_len) == 0 &&
            !is_in_name(before)) {
            from += name_len;
        } else {
            before = text[from];
            text[to++] = text[from++];
        }
    }
    return to;
}

/*
 * Compute a number that is equal for kernels with the same code: a hash of the kernel and all it
 * calls, without the kernel's name and the module's version and target.
 */
static enum weir_status hash_kernel(const struct weir_ptx_module *module,
                                    const struct weir_ptx_kernel *kernel, uint64_t *ret_hash)
{
    struct weir_ptx_module part = *module;
    size_t len, head_len;
    char *text;

    part.items = calloc(kernel->n_funcs, sizeof(*part.items));
    part.n_items = 0;
    WEIR_FAIL_IF(!part.items, WEIR_ERR_NO_MEMORY);
    enum weir_status status = weir_ptx_print_buffer(&part, &text, &head_len);

    if (status == WEIR_OK) {
        free(text);
        part.n_items = kernel->n_funcs;
        for (uint32_t i = 0; i < kernel->n_funcs; i++) {
            part.items[i] = (struct weir_ptx_item){.kind = WEIR_PTX_ITEM_FUNC,
                                                   .func = module->funcs[kernel->funcs[i]->id]};
        }
        status = weir_ptx_print_buffer(&part, &text, &len);
    }
    if (status == WEIR_OK) {
        len = cut_name(text + head_len, len - head_len, kernel->entry->name);
        *ret_hash = weir_hash64_of(text + head_len, len);
        free(text);
    }
    free(part.items);
    return status;
}

static void json_refused(const struct weir_ptx_kernel *kernel)
{
    const char *between = "";

    printf("\"refused\":{");
    for (int i = 0; i < WEIR_PTX_FORM_COUNT; i++) {
        uint64_t facts = weir_ptx_kernel_refusals(kernel, (enum weir_ptx_form)i);
        const char *comma = "";

        if (!facts) {
            continue;
        }
        printf("%s\"%s\":{\"why\":\"%s\",\"facts\":[", between,
               weir_ptx_form_text((enum weir_ptx_form)i),
               weir_ptx_kernel_why_not(kernel, (enum weir_ptx_form)i));
        for (int j = 0; j < WEIR_PTX_FACT_COUNT; j++) {
            if (facts >> j & 1) {
                printf("%s\"%s\"", comma, weir_ptx_fact_info((enum weir_ptx_fact)j)->key);
                comma = ",";
            }
        }
        printf("]}");
        between = ",";
    }
    printf("},");
}

static void json_forms(const struct weir_ptx_kernel *kernel)
{
    const char *between = "";

    printf("\"forms\":[");
    for (int i = 0; i < WEIR_PTX_FORM_COUNT; i++) {
        if (weir_ptx_kernel_admits(kernel, (enum weir_ptx_form)i)) {
            printf("%s\"%s\"", between, weir_ptx_form_text((enum weir_ptx_form)i));
            between = ",";
        }
    }
    printf("],");
}

static void json_facts(const struct weir_ptx_kernel *kernel)
{
    const char *between = "";

    printf("\"facts\":{");
    for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
        if (has(kernel, i)) {
            printf("%s\"%s\":{\"count\":%u,\"line\":%u,\"function\":\"%s\"}", between,
                   weir_ptx_fact_info((enum weir_ptx_fact)i)->key, kernel->places[i].count,
                   line_of(&kernel->places[i]), kernel->places[i].func->name);
            between = ",";
        }
    }
    printf("},");
}

static void json_barriers(const struct weir_ptx_kernel *kernel)
{
    const char *between = "";

    printf("\"barriers\":[");
    for (int i = 0; i < WEIR_PTX_BARRIERS; i++) {
        const struct weir_ptx_barrier_use *use = &kernel->barriers[i];

        if (is_used(use)) {
            printf("%s{\"number\":%d,\"sync\":%u,\"arrive\":%u,\"red\":%u,\"counted\":%u,"
                   "\"threads\":%u}",
                   between, i, use->n_sync, use->n_arrive, use->n_red, use->n_counted,
                   use->threads);
            between = ",";
        }
    }
    printf("],\"free_barrier\":%d,", kernel->free_barrier);
}

static enum weir_status json_kernel(const struct weir_ptx_module *module,
                                    const struct weir_ptx_kernel *kernel)
{
    uint64_t hash;
    WEIR_TRY(hash_kernel(module, kernel, &hash));
    printf("{\"kernel\":\"%s\",\"line\":%u,", kernel->entry->name, kernel->entry->line);
    json_forms(kernel);
    json_refused(kernel);
    json_facts(kernel);
    json_barriers(kernel);
    printf("\"functions\":%u,\"instructions\":%u,\"exits\":%u,\"params_bytes\":%" PRIu64
           ",\"params_max_bytes\":%" PRIu64 ",\"shared_static_bytes\":%" PRIu64
           ",\"shared_align\":%u,\"local_bytes\":%" PRIu64 ",\"hash\":\"%016" PRIx64 "\"}\n",
           kernel->n_funcs, kernel->n_insts, kernel->n_exits, kernel->params_size_bytes,
           kernel->params_max_bytes, kernel->shared_static_bytes, kernel->shared_align,
           kernel->local_bytes, hash);
    return WEIR_OK;
}

static enum weir_status inspect(const struct weir_ptx_module *module, const struct inspect *options,
                                uint32_t *ret_n)
{
    uint32_t flags = options->own_pointers ? WEIR_PTX_ASSUME_OWN_POINTERS : 0;
    struct weir_ptx_analysis *analysis;
    enum weir_status status = weir_ptx_analyze(module, flags, &analysis);

    *ret_n = 0;
    if (status != WEIR_OK) {
        return status;
    }
    for (uint32_t i = 0; i < analysis->n_kernels && status == WEIR_OK; i++) {
        const struct weir_ptx_kernel *kernel = &analysis->kernels[i];

        if (options->kernel && strcmp(options->kernel, kernel->entry->name) != 0) {
            continue;
        }
        (*ret_n)++;
        if (options->json) {
            status = json_kernel(module, kernel);
        } else {
            print_kernel(kernel);
        }
    }
    weir_ptx_analysis_destroy(analysis);
    return status;
}

int weir_ptx_inspect_main(int argc, char **argv)
{
    struct inspect options = {0};
    const struct weir_option rows[] = {
        {.name = "kernel", .value = "NAME", .help = "only this kernel", .text = &options.kernel},
        {.name = "json", .help = "one JSON object a kernel and line", .flag = &options.json},
        {.name = "own-pointers",
         .help = "take function pointers to be those of a twin that is the only copy",
         .flag = &options.own_pointers},
        {.name = NULL}};
    int first, exit_status;
    uint32_t n;

    if (!weir_options_parse(argc, argv, "[OPTIONS] FILE",
                            "Show what the kernels of a PTX file contain and in which forms they "
                            "can be launched.",
                            rows, &first, &exit_status)) {
        return exit_status;
    }
    struct weir_ptx_module *module = weir_ptx_file_load(argv[first]);

    if (!module) {
        return WEIR_EXIT_FAILED;
    }
    enum weir_status status = inspect(module, &options, &n);

    weir_ptx_destroy(module);
    if (status != WEIR_OK || fflush(stdout) != 0) {
        fprintf(stderr, "weir ptx inspect: %s\n",
                weir_status_text(status != WEIR_OK ? status : WEIR_ERR_IO));
        return WEIR_EXIT_FAILED;
    }
    if (options.kernel && n == 0) {
        fprintf(stderr, "weir ptx inspect: no kernel %s\n", options.kernel);
        return WEIR_EXIT_FAILED;
    }
    return WEIR_EXIT_OK;
}
