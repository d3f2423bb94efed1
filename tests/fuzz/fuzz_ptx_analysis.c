/*
 * Any text that parses can be analysed, with and without pointers of its own; what comes out keeps
 * the rules of analysis.h, and is the same again for the text's print.
 */
#include "ptx/analysis.h"
#include "ptx/ptx.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void must(int condition)
{
    if (!condition) {
        abort();
    }
}

static void check_place(const struct weir_ptx_kernel *kernel, int fact)
{
    const struct weir_ptx_place *place = &kernel->places[fact];

    if (!weir_ptx_kernel_has(kernel, (enum weir_ptx_fact)fact)) {
        must(!place->func && place->count == 0);
        return;
    }
    must(place->func && place->count > 0);
    must(place->inst == WEIR_PTX_NONE || place->inst < place->func->n_insts);
}

static void check_kernel(const struct weir_ptx_kernel *kernel)
{
    uint64_t refusals = 0;

    must(kernel->entry && kernel->entry->is_entry && kernel->entry->has_body);
    must(kernel->n_funcs >= 1 && kernel->funcs[0] == kernel->entry);
    must(weir_ptx_kernel_admits(kernel, WEIR_PTX_FORM_ORIGINAL));
    for (int i = 0; i < WEIR_PTX_FORM_COUNT; i++) {
        uint64_t these = weir_ptx_kernel_refusals(kernel, (enum weir_ptx_form)i);

        must(!these == weir_ptx_kernel_admits(kernel, (enum weir_ptx_form)i));
        must(!these == !weir_ptx_kernel_why_not(kernel, (enum weir_ptx_form)i));
        refusals |= these;
    }
    must((refusals & ~kernel->facts) == 0);
    for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
        check_place(kernel, i);
    }
    must(kernel->free_barrier < WEIR_PTX_BARRIERS);
    must(kernel->free_barrier < 0 || !(kernel->barriers_used >> kernel->free_barrier & 1));
}

static struct weir_ptx_analysis *analyse(const struct weir_ptx_module *module, uint32_t flags)
{
    struct weir_ptx_analysis *analysis = NULL;
    enum weir_status status = weir_ptx_analyze(module, flags, &analysis);

    must(status == WEIR_OK || status == WEIR_ERR_TOO_BIG);
    for (uint32_t i = 0; analysis && i < analysis->n_kernels; i++) {
        check_kernel(&analysis->kernels[i]);
    }
    return analysis;
}

/* The facts of both are the same. */
static void compare(const struct weir_ptx_analysis *a, const struct weir_ptx_analysis *b)
{
    must(!a == !b);
    must(!a || a->n_kernels == b->n_kernels);
    for (uint32_t i = 0; a && i < a->n_kernels; i++) {
        must(a->kernels[i].facts == b->kernels[i].facts);
        must(a->kernels[i].barriers_used == b->kernels[i].barriers_used);
        must(a->kernels[i].shared_static_bytes == b->kernels[i].shared_static_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    struct weir_ptx_module *first = NULL, *second = NULL;
    struct weir_ptx_analysis *other, *own, *again;
    size_t text_len;
    char *text;

    if (weir_ptx_parse((const char *)data, len_bytes, 0, NULL, &first) != WEIR_OK) {
        return 0;
    }
    other = analyse(first, 0);
    own = analyse(first, WEIR_PTX_ASSUME_OWN_POINTERS);
    for (uint32_t i = 0; other && own && i < own->n_kernels; i++) {
        must((own->kernels[i].facts & ~other->kernels[i].facts) == 0);
    }
    must(weir_ptx_print_buffer(first, &text, &text_len) == WEIR_OK);
    must(weir_ptx_parse(text, text_len, 0, NULL, &second) == WEIR_OK);
    again = analyse(second, 0);
    compare(other, again);
    weir_ptx_analysis_destroy(again);
    weir_ptx_analysis_destroy(own);
    weir_ptx_analysis_destroy(other);
    weir_ptx_destroy(second);
    weir_ptx_destroy(first);
    free(text);
    return 0;
}
