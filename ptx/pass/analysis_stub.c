/* Stand-in until the analysis is there. */
#include "ptx/analysis.h"
#include "ptx/pass/twin.h"
#include <stdlib.h>
#include <string.h>
const char *weir_ptx_form_text(enum weir_ptx_form f)
{
    static const char *const t[] = {"original", "slice", "ticket", "persistent"};
    return f < 4 ? t[f] : NULL;
}
enum weir_ptx_form weir_ptx_form_from_text(const char *s)
{
    for (int i = 0; i < 4; i++)
        if (!strcmp(weir_ptx_form_text((enum weir_ptx_form)i), s))
            return (enum weir_ptx_form)i;
    return WEIR_PTX_FORM_COUNT;
}
const char *weir_ptx_kernel_why_not(const struct weir_ptx_kernel *k, enum weir_ptx_form f)
{
    (void)k;
    (void)f;
    return "stub says no";
}
void weir_ptx_analysis_destroy(struct weir_ptx_analysis *a)
{
    if (a) {
        free(a->kernels);
        free(a);
    }
}
const struct weir_ptx_kernel *weir_ptx_analysis_find(const struct weir_ptx_analysis *a,
                                                     const char *n)
{
    for (uint32_t i = 0; i < a->n_kernels; i++)
        if (!strcmp(a->kernels[i].entry->name, n))
            return &a->kernels[i];
    return NULL;
}
enum weir_status weir_ptx_analyze(const struct weir_ptx_module *m, uint32_t fl,
                                  struct weir_ptx_analysis **r)
{
    (void)fl;
    struct weir_ptx_analysis *a = calloc(1, sizeof *a);
    a->kernels = calloc(m->n_funcs + 1, sizeof *a->kernels);
    for (uint32_t i = 0; i < m->n_funcs; i++) {
        if (!m->funcs[i]->is_entry || !m->funcs[i]->has_body)
            continue;
        struct weir_ptx_kernel *k = &a->kernels[a->n_kernels++];
        k->entry = m->funcs[i];
        k->forms = 0xf;
        k->params_max_bytes = 4352;
        k->free_barrier = 15;
        k->shared_static_bytes = 1;
        const struct weir_ptx_func **fs =
            weir_ptx_alloc((struct weir_ptx_module *)m, (m->n_funcs + 1) * sizeof(void *));
        uint32_t n = 0;
        fs[n++] = k->entry;
        for (uint32_t j = 0; j < m->n_funcs; j++)
            if (!m->funcs[j]->is_entry && m->funcs[j]->has_body)
                fs[n++] = m->funcs[j];
        k->funcs = fs;
        k->n_funcs = n;
        for (uint32_t f = 0; f < n; f++)
            for (uint32_t j = 0; j < fs[f]->n_insts; j++) {
                const struct weir_ptx_inst *in = &fs[f]->insts[j];
                if (in->op == WEIR_PTX_OP_CP)
                    k->facts |= 1ull << WEIR_PTX_FACT_CP_ASYNC;
                if (in->op == WEIR_PTX_OP_MBARRIER)
                    k->forms &= 7;
                if (weir_ptx_inst_is_plain_barrier(in)) {
                    if (in->operands[0].kind != WEIR_PTX_OPERAND_INT ||
                        weir_ptx_inst_has(in, WEIR_PTX_MOD_RED))
                        k->forms &= 7;
                    else {
                        k->barriers[in->operands[0].bits & 15].n_sync++;
                        k->facts |= 1ull << WEIR_PTX_FACT_EARLY_EXIT | 1ull
                                                                           << WEIR_PTX_FACT_BARRIER;
                    }
                }
            }
    }
    *r = a;
    return WEIR_OK;
}
