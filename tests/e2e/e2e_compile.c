/*
 * Loads PTX that a compiler has trouble with, and says what came of it.
 *
 *     e2e_compile load WORD      a small kernel, with WORD in a comment, by cuModuleLoadDataEx
 *     e2e_compile library WORD   the same by cuLibraryLoadData
 *     e2e_compile link WORD      the same by the linker
 *     e2e_compile long N         a kernel of N instructions whose values all live to its end;
 *                                long-link and long-library: by these ways
 *
 * Prints "result R" and "log TEXT", and, where the text was loaded, "ran" after its kernel. Another
 * kernel runs after a refusal: the program is as well as before.
 */
#include "tests/cuda/check_driver.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LIVE 4096u /* values */

static const char form[] = "// %s\n.version 7.0\n.target sm_75\n.address_size 64\n"
                           ".visible .entry fine()\n{\n    ret;\n}\n";

static char *short_text(const char *word)
{
    size_t bytes = sizeof form + strlen(word);
    char *text = malloc(bytes);

    snprintf(text, bytes, form, word);
    return text;
}

static char *long_text(unsigned n)
{
    size_t bytes = 1024 + (size_t)n * 80;
    char *text = malloc(bytes);
    int at = snprintf(text, bytes,
                      ".version 7.0\n.target sm_75\n.address_size 64\n"
                      ".visible .entry fine(.param .u64 p)\n{\n    .reg .f32 %%f<%u>;\n"
                      "    .reg .u64 %%rd<2>;\n    ld.param.u64 %%rd1, [p];\n",
                      LIVE);

    for (unsigned i = 0; i < LIVE; i++) {
        at += snprintf(text + at, bytes - (size_t)at, "    ld.global.f32 %%f%u, [%%rd1+%u];\n", i,
                       4 * i);
    }
    for (unsigned i = 0; i + 2 * LIVE < n; i++) {
        at +=
            snprintf(text + at, bytes - (size_t)at, "    fma.rn.f32 %%f%u, %%f%u, %%f%u, %%f%u;\n",
                     i % LIVE, (i * 7u + 3u) % LIVE, (i * 13u + 5u) % LIVE, i % LIVE);
    }
    for (unsigned i = 0; i < LIVE; i++) {
        at += snprintf(text + at, bytes - (size_t)at, "    st.global.f32 [%%rd1+%u], %%f%u;\n",
                       4 * i, i);
    }
    snprintf(text + at, bytes - (size_t)at, "    ret;\n}\n");
    return text;
}

static CUresult load_linked(char *text, char *log, CUmodule *ret_module)
{
    CUjit_option ids[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)4096}, *image;
    CUlinkState link;
    CUresult result;
    size_t bytes;

    DRV(cu.LinkCreate_v2(2, ids, values, &link));
    result =
        cu.LinkAddData_v2(link, CU_JIT_INPUT_PTX, text, strlen(text) + 1, "text", 0, NULL, NULL);
    if (result == CUDA_SUCCESS) {
        result = cu.LinkComplete(link, &image, &bytes);
    }
    if (result == CUDA_SUCCESS) {
        result = cu.ModuleLoadData(ret_module, image);
    }
    DRV(cu.LinkDestroy(link));
    return result;
}

static CUresult load_library(const char *text, char *log, CUmodule *ret_module)
{
    CUjit_option ids[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)4096};
    CUlibrary library;
    CUresult result = cu.LibraryLoadData(&library, text, ids, values, 2, NULL, NULL, 0);

    return result == CUDA_SUCCESS ? cu.LibraryGetModule(ret_module, library) : result;
}

static CUresult load(const char *how, char *text, char *log, CUmodule *ret_module)
{
    CUjit_option ids[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)4096};

    if (strstr(how, "link")) {
        return load_linked(text, log, ret_module);
    }
    if (strstr(how, "library")) {
        return load_library(text, log, ret_module);
    }
    return cu.ModuleLoadDataEx(ret_module, text, 2, ids, values);
}

int main(int argc, char **argv)
{
    static char log[4097];
    CUmodule module;
    CUresult result;
    char *text, *other;
    bool is_long;

    check_true(argc == 3, "two arguments");
    is_long = strncmp(argv[1], "long", 4) == 0;
    driver_begin("e2e_compile");
    text = is_long ? long_text((unsigned)atoi(argv[2])) : short_text(argv[2]);
    printf("begins\n");
    fflush(stdout);
    result = load(argv[1], text, log, &module);
    printf("result %d\nlog %.*s\n", (int)result, (int)strcspn(log, "\n"), log);
    if (result == CUDA_SUCCESS) {
        check_true(driver_function(module, "fine") != NULL, "the kernel is there");
        if (!is_long) {
            driver_launch(driver_function(module, "fine"), 1, 1, NULL, NULL);
            check_code(cu.CtxSynchronize(), CUDA_SUCCESS, "the kernel runs");
            printf("ran\n");
        }
    }
    other = short_text("another");
    DRV(cu.ModuleLoadData(&module, other));
    driver_launch(driver_function(module, "fine"), 1, 1, NULL, NULL);
    check_code(cu.CtxSynchronize(), CUDA_SUCCESS, "another kernel runs after it");
    free(other);
    free(text);
    return driver_end();
}
