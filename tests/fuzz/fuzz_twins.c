/*
 * Any text that parses: twins of all its kernels, in a module of their own and in the module
 * itself, are made or refused with a reason; what comes out is valid, prints, and parses again.
 */
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void must(int condition)
{
    if (!condition) {
        abort();
    }
}

static struct weir_ptx_module *parse(const char *text, size_t len_bytes)
{
    struct weir_ptx_module *module = NULL;
    struct weir_diag diag;

    return weir_ptx_parse(text, len_bytes, 0, &diag, &module) == WEIR_OK ? module : NULL;
}

static void must_print(struct weir_ptx_module *module)
{
    struct weir_ptx_module *again;
    struct weir_diag diag;
    char *text;
    size_t len_bytes;

    must(weir_ptx_check(module, &diag) == WEIR_OK);
    must(weir_ptx_print_buffer(module, &text, &len_bytes) == WEIR_OK);
    again = parse(text, len_bytes);
    must(again != NULL);
    weir_ptx_destroy(again);
    free(text);
}

static void must_say(const struct weir_ptx_twin_info *info)
{
    must((info->name != NULL) == (info->status == WEIR_OK));
    must(info->name || info->reason[0] != 0);
}

static void make_apart(const char *text, size_t len_bytes)
{
    const struct weir_ptx_twin_want want = {.forms = WEIR_PTX_FORM_TWINS};
    struct weir_ptx_module *module = parse(text, len_bytes);
    struct weir_ptx_twins twins;

    if (weir_ptx_twins(module, &want, 1, &twins) == WEIR_OK) {
        for (uint32_t i = 0; i < twins.n_infos; i++) {
            must_say(&twins.infos[i]);
        }
        must_print(module);
    }
    weir_ptx_destroy(module);
}

static void make_inside(const char *text, size_t len_bytes)
{
    struct weir_ptx_module *module = parse(text, len_bytes);
    struct weir_ptx_analysis *analysis;

    if (weir_ptx_analyze(module, WEIR_PTX_ASSUME_OWN_POINTERS, &analysis) == WEIR_OK) {
        for (uint32_t i = 0; i < analysis->n_kernels; i++) {
            for (int form = WEIR_PTX_FORM_TICKET; form < WEIR_PTX_FORM_COUNT; form++) {
                struct weir_ptx_twin_info info;

                must(weir_ptx_twin(module, &analysis->kernels[i], (enum weir_ptx_form)form,
                                   &info) == info.status);
                must_say(&info);
            }
        }
        weir_ptx_analysis_destroy(analysis);
        must_print(module);
    }
    weir_ptx_destroy(module);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    const char *text = (const char *)data;
    struct weir_ptx_module *module = parse(text, len_bytes);

    if (module) {
        weir_ptx_destroy(module);
        make_apart(text, len_bytes);
        make_inside(text, len_bytes);
    }
    return 0;
}
