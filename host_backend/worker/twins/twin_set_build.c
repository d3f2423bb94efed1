#include "host_backend/worker/twins/twin_set_build.h"

#include "base/log.h"
#include "ptx/ptx.h"
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILE_S    120u /* longer compilations of twins are not worth it */
#define COMPILE_NICE 10u
#define FORMS_BEST                                                                                 \
    (WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT) | WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_TICKET))

/* ---------------------------------------------------------------- the key */

/* Find this program's build id: another program has other passes, and so other twins. */
static int find_build_id(struct dl_phdr_info *info, size_t size, void *user)
{
    FILE *out = user;

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(uintptr_t)(info->dlpi_addr + p->p_vaddr);

        for (size_t left = p->p_type == PT_NOTE ? p->p_memsz : 0; left >= sizeof(ElfW(Nhdr));) {
            const ElfW(Nhdr) *note = (const void *)at;
            size_t name = (note->n_namesz + 3u) & ~3u, text = (note->n_descsz + 3u) & ~3u;
            size_t whole = sizeof *note + name + text;

            if (whole > left) {
                break;
            }
            if (note->n_type == NT_GNU_BUILD_ID) {
                (void)fwrite(at + sizeof *note + name, 1, note->n_descsz, out);
            }
            at += whole;
            left -= whole;
        }
    }
    return 1; /* the first argument is the program */
}

static enum weir_status make_key(const struct weir_forms_build_params *p, struct weir_hash *ret_key)
{
    struct weir_hash text = weir_hash_of(p->text, p->text_bytes);
    char *bytes = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&bytes, &n);

    WEIR_FAIL_IF(!out, WEIR_ERR_NO_MEMORY);
    (void)dl_iterate_phdr(find_build_id, out);
    fprintf(out, "|%s|%s|%s|%u|%d|%u|%zu|", WEIR_VERSION, p->tenant, p->compiler->id, p->sm,
            p->driver_version, (unsigned)p->twins, p->text_bytes);
    (void)fwrite(&text, sizeof text, 1, out);
    fprintf(out, "|%s|%u", p->kernel ? p->kernel : "", p->max_regs);
    for (uint32_t i = 0; i < p->options.n; i++) {
        fprintf(out, "|%d=%llu", (int)p->options.ids[i],
                (unsigned long long)(uintptr_t)p->options.values[i]);
    }
    if (fclose(out) != 0) {
        free(bytes);
        return WEIR_ERR_NO_MEMORY;
    }
    *ret_key = weir_hash_of(bytes, n);
    free(bytes);
    return WEIR_OK;
}

/* ---------------------------------------------------------------- the twins */

/* The forms in which to make twins of a kernel. */
static uint32_t wanted_forms(const struct weir_ptx_kernel *kernel, enum weir_forms_twins twins)
{
    if (twins == WEIR_FORMS_TWINS_ALL) {
        return FORMS_BEST & kernel->forms;
    }
    if (weir_ptx_kernel_admits(kernel, WEIR_PTX_FORM_PERSISTENT)) {
        return WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT);
    }
    return kernel->forms & WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_TICKET);
}

static enum weir_status make_capped(struct weir_ptx_module *module, const char *kernel,
                                    uint32_t max_regs, struct weir_ptx_twins *ret_twins)
{
    struct weir_ptx_twin_want want = {.kernel = kernel,
                                      .forms = WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT),
                                      .max_regs = max_regs};

    *ret_twins = (struct weir_ptx_twins){0};
    return weir_ptx_twins(module, &want, 1, ret_twins);
}

static enum weir_status make_twins(struct weir_ptx_module *module, enum weir_forms_twins which,
                                   struct weir_ptx_twins *ret_twins, uint32_t *ret_n_kernels)
{
    struct weir_ptx_analysis *analysis;
    uint32_t n = 0;
    WEIR_TRY(weir_ptx_analyze(module, 0, &analysis));
    *ret_n_kernels = analysis->n_kernels;
    struct weir_ptx_twin_want *wants = calloc(analysis->n_kernels + 1u, sizeof *wants);
    for (uint32_t i = 0; wants && i < analysis->n_kernels; i++) {
        const struct weir_ptx_kernel *kernel = &analysis->kernels[i];
        uint32_t forms = wanted_forms(kernel, which);

        if (forms != 0) {
            wants[n++] = (struct weir_ptx_twin_want){.kernel = kernel->entry->name, .forms = forms};
        }
    }
    weir_ptx_analysis_destroy(analysis);
    WEIR_FAIL_IF(!wants, WEIR_ERR_NO_MEMORY);
    *ret_twins = (struct weir_ptx_twins){0};
    enum weir_status status = n != 0 ? weir_ptx_twins(module, wants, n, ret_twins) : WEIR_OK;
    free(wants);
    return status;
}

/* Compile the module of twins and write the set. */
static enum weir_status finish(const struct weir_forms_build_params *p,
                               struct weir_ptx_module *module, char suffix,
                               const struct weir_ptx_twins *twins, uint8_t **ret_bytes,
                               size_t *ret_n_bytes, char *why)
{
    struct weir_jit_params jit = {.compiler = p->compiler,
                                  .driver = p->driver,
                                  .job = {.tmp_dir = p->cache->dir,
                                          .sm = p->sm,
                                          .sm_suffix = suffix,
                                          .limits = {.memory_bytes = p->compile_memory_bytes,
                                                     .cpu_s = COMPILE_S,
                                                     .all_s = COMPILE_S,
                                                     .nice = COMPILE_NICE}},
                                  .options = p->options};
    uint8_t *image = NULL;
    size_t image_bytes = 0;
    char *text = NULL;
    enum weir_status status = WEIR_OK;

    if (twins->n_made != 0) {
        status = weir_ptx_print_buffer(module, &text, &jit.job.text_bytes);
        jit.job.text = text;
        WEIR_THEN(status, weir_jit(&jit, &image, &image_bytes, why));
        free(text);
    }
    WEIR_THEN(status, weir_forms_set_encode(twins, image, image_bytes, ret_bytes, ret_n_bytes));
    free(image);
    return status;
}

static enum weir_status build(const struct weir_forms_build_params *p, uint8_t **ret_bytes,
                              size_t *ret_n_bytes, struct weir_forms_build_report *report)
{
    struct weir_diag diag = {0};
    struct weir_ptx_module *module;
    struct weir_ptx_twins twins;
    enum weir_status status =
        weir_ptx_parse(p->text, p->text_bytes, WEIR_PTX_DROP_DEBUG, &diag, &module);

    if (status != WEIR_OK) {
        snprintf(report->why, sizeof report->why, "%u:%u: %.150s", diag.line, diag.column,
                 diag.message);
        return status;
    }
    char suffix = module->sm == p->sm ? module->sm_suffix : 0;

    status = p->kernel ? make_capped(module, p->kernel, p->max_regs, &twins)
                       : make_twins(module, p->twins, &twins, &report->n_kernels);
    WEIR_THEN(status, finish(p, module, suffix, &twins, ret_bytes, ret_n_bytes, report->why));
    weir_ptx_destroy(module);
    return status;
}

enum weir_status weir_forms_build(const struct weir_forms_build_params *params,
                                  struct weir_forms_set **ret_set,
                                  struct weir_forms_build_report *ret_report)
{
    struct weir_hash key;
    uint8_t *bytes;
    size_t n_bytes;
    enum weir_status status, kept;

    *ret_report = (struct weir_forms_build_report){0};
    WEIR_FAIL_IF(params->text_bytes > WEIR_FORMS_TEXT_MAX_BYTES, WEIR_ERR_TOO_BIG);
    WEIR_TRY(make_key(params, &key));
    ret_report->key = key;
    if (weir_file_cache_get(params->cache, &key, &bytes, &n_bytes) == WEIR_OK &&
        weir_forms_set_decode(bytes, n_bytes, ret_set) == WEIR_OK) {
        ret_report->cached = true;
        return WEIR_OK;
    }
    status = build(params, &bytes, &n_bytes, ret_report);
    if (status != WEIR_OK) {
        if (ret_report->why[0] == 0) {
            snprintf(ret_report->why, sizeof ret_report->why, "%s", weir_status_text(status));
        }
        return status;
    }
    kept = weir_file_cache_put(params->cache, &key, bytes, n_bytes);
    if (kept != WEIR_OK && kept != WEIR_ERR_UNSUPPORTED) {
        weir_log_debug("forms: not kept in the cache why=\"%s\"", weir_status_text(kept));
    }
    return weir_forms_set_decode(bytes, n_bytes, ret_set);
}
