/* weir ptx transform: print a PTX file with twins of its kernels. */
#include "tools/ptx_transform.h"

#include "ptx/analysis.h"
#include "ptx/pass/passes.h"
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"
#include "tools/command.h"
#include "tools/ptx_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct transform {
    const char *form;
    const char *kernel;
    const char *max_regs;
    bool only;
    bool apart;
    bool list;
};

/* Make twins of all requested kernels that admit the form; false after an error. */
static bool make_twins(struct weir_ptx_module *module, const struct transform *t,
                       enum weir_ptx_form form)
{
    struct weir_ptx_analysis *analysis;
    uint32_t n_made = 0;
    bool ok = true;

    enum weir_status status = weir_ptx_analyze(module, WEIR_PTX_ASSUME_OWN_POINTERS, &analysis);
    if (status != WEIR_OK) {
        fprintf(stderr, "weir ptx transform: %s\n", weir_status_text(status));
        return false;
    }
    for (uint32_t i = 0; i < analysis->n_kernels && ok; i++) {
        const struct weir_ptx_kernel *kernel = &analysis->kernels[i];
        struct weir_ptx_twin_info info;

        if (t->kernel && strcmp(t->kernel, kernel->entry->name) != 0) {
            continue;
        }
        status = weir_ptx_twin(module, kernel, form, &info);
        if (status == WEIR_OK) {
            n_made++;
        } else {
            fprintf(stderr, "%s: no %s form: %s\n", kernel->entry->name, t->form, info.reason);
            ok = status != WEIR_ERR_NO_MEMORY;
        }
    }
    weir_ptx_analysis_destroy(analysis);
    return ok && n_made > 0;
}

/* Print the module that a host would load beside the original; the values that the host must fill
 * in are comments. */
static bool make_apart(struct weir_ptx_module *module, const struct transform *t,
                       enum weir_ptx_form form)
{
    long long max_regs = 0;

    if (t->max_regs && !weir_option_number("max-regs", t->max_regs, 1, 255, &max_regs)) {
        return false;
    }
    const struct weir_ptx_twin_want want = {
        .kernel = t->kernel, .forms = WEIR_PTX_FORM_BIT(form), .max_regs = (uint32_t)max_regs};
    struct weir_ptx_twins twins;
    enum weir_status status = weir_ptx_twins(module, &want, 1, &twins);

    if (status != WEIR_OK) {
        fprintf(stderr, "weir ptx transform: %s\n", weir_status_text(status));
        return false;
    }
    for (uint32_t i = 0; i < twins.n_infos; i++) {
        if (!twins.infos[i].name) {
            fprintf(stderr, "%s: no %s form: %s\n", twins.infos[i].kernel, t->form,
                    twins.infos[i].reason);
        }
    }
    for (uint32_t i = 0; i < twins.n_binds; i++) {
        printf("// " WEIR_PTX_BINDS_NAME "[%u]: %s\n", i, twins.binds[i]);
    }
    for (uint32_t i = 0; i < twins.n_consts; i++) {
        printf("// contents of the original's: %s\n", twins.consts[i]);
    }
    return twins.n_made > 0;
}

static bool print_checked(const struct weir_ptx_module *module)
{
    struct weir_diag diag;

    if (weir_ptx_check(module, &diag) != WEIR_OK) {
        fprintf(stderr, "weir ptx transform: the result is not valid: line %u: %s\n", diag.line,
                diag.message);
        return false;
    }
    return weir_ptx_print(module, stdout) == WEIR_OK && fflush(stdout) == 0;
}

static int list_passes(void)
{
    const char *name;
    const char *summary;
    uint32_t forms;

    for (uint32_t i = 0; weir_ptx_pass_row(i, &name, &summary, &forms); i++) {
        printf("%-14s %s\n", name, summary);
    }
    return WEIR_EXIT_OK;
}

int weir_ptx_transform_main(int argc, char **argv)
{
    struct transform t = {.form = "persistent"};
    const struct weir_option options[] = {
        {.name = "form", .value = "FORM", .help = "ticket or persistent", .text = &t.form},
        {.name = "kernel", .value = "NAME", .help = "only this kernel", .text = &t.kernel},
        {.name = "only", .help = "leave the originals out", .flag = &t.only},
        {.name = "apart",
         .help = "a module to be loaded beside the original, bound to its variables",
         .flag = &t.apart},
        {.name = "max-regs",
         .value = "N",
         .help = "with --apart: registers that a twin may use",
         .text = &t.max_regs},
        {.name = "list-passes", .help = "say which passes there are", .flag = &t.list},
        {.name = NULL}};
    int first, exit_status;

    if (!weir_options_parse(argc, argv, "[OPTIONS] FILE",
                            "Print a PTX file with twins of its kernels, in a form that can be "
                            "cut, stopped and resumed.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    if (t.list) {
        return list_passes();
    }
    enum weir_ptx_form form = weir_ptx_form_from_text(t.form);

    if (argc - first != 1 || form == WEIR_PTX_FORM_COUNT || form == WEIR_PTX_FORM_ORIGINAL) {
        fprintf(stderr, "weir ptx transform: one FILE and a form, please (see --help)\n");
        return WEIR_EXIT_USAGE;
    }
    struct weir_ptx_module *module = weir_ptx_file_load(argv[first]);
    bool ok = module && (t.apart ? make_apart(module, &t, form) : make_twins(module, &t, form)) &&
              (!t.only || t.apart || weir_ptx_keep_twins(module) == WEIR_OK) &&
              print_checked(module);

    weir_ptx_destroy(module);
    return ok ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}
