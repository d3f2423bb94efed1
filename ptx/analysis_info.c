/* The tables of facts and forms, and functions that derive forms from a kernel's facts. */
#include "ptx/analysis.h"

#include <string.h>

static const struct weir_ptx_fact_info infos[] = {
#define WEIR_PTX_FACT_ROW(name, key, refuses, says, why) {key, says, why, refuses},
#include "ptx/facts.def"
#undef WEIR_PTX_FACT_ROW
};

static const char *const forms[] = {
#define WEIR_PTX_FORM_ROW(name, text) text,
#include "ptx/forms.def"
#undef WEIR_PTX_FORM_ROW
};

const struct weir_ptx_fact_info *weir_ptx_fact_info(enum weir_ptx_fact fact)
{
    return &infos[fact];
}

const char *weir_ptx_form_text(enum weir_ptx_form form)
{
    return forms[form];
}

enum weir_ptx_form weir_ptx_form_from_text(const char *text)
{
    return (enum weir_ptx_form)WEIR_FIRST(i, WEIR_PTX_FORM_COUNT, strcmp(forms[i], text) == 0);
}

uint64_t weir_ptx_kernel_refusals(const struct weir_ptx_kernel *kernel, enum weir_ptx_form form)
{
    uint64_t found = 0;

    for (int i = 0; i < WEIR_PTX_FACT_COUNT; i++) {
        if (weir_ptx_kernel_has(kernel, (enum weir_ptx_fact)i) && (infos[i].refuses >> form & 1)) {
            found |= 1ull << i;
        }
    }
    return found;
}

const char *weir_ptx_kernel_why_not(const struct weir_ptx_kernel *kernel, enum weir_ptx_form form)
{
    uint64_t refusals = weir_ptx_kernel_refusals(kernel, form);

    return refusals ? infos[__builtin_ctzll(refusals)].why : NULL;
}

const struct weir_ptx_kernel *weir_ptx_analysis_find(const struct weir_ptx_analysis *analysis,
                                                     const char *name)
{
    for (uint32_t i = 0; i < analysis->n_kernels; i++) {
        if (strcmp(analysis->kernels[i].entry->name, name) == 0) {
            return &analysis->kernels[i];
        }
    }
    return NULL;
}
