/* Images that must be refused: bad PTX with a log, broken binaries, a version too new. */
#include "check_driver.h"

static const char bad_ptx[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry broken()\n{\n    add.nonsense %r1, %r2;\n    ret;\n}\n";
static const char good_ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                               ".visible .entry fine()\n{\n    ret;\n}\n";
static const char future_ptx[] = ".version 99.0\n.target sm_75\n.address_size 64\n"
                                 ".visible .entry fine()\n{\n    ret;\n}\n";

int main(void)
{
    static char log[4096], broken[8192];
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
    CUresult result;

    driver_begin("drv_jit_errors");
    check_code(cu.ModuleLoadData(&module, bad_ptx), CUDA_ERROR_INVALID_PTX, "bad PTX");
    check_code(cu.ModuleLoadDataEx(&module, bad_ptx, 2, options, values), CUDA_ERROR_INVALID_PTX,
               "bad PTX with a log");
    check_true(log[0] != 0 && memchr(log, 0, sizeof(log)), "the log says something");
    check_true((uintptr_t)values[1] > 0 && (uintptr_t)values[1] <= sizeof(log),
               "the log's size is returned");
    check_code(cu.ModuleLoadData(&module, future_ptx), CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
               "PTX of a version to come");
    memset(broken, 0, sizeof(broken));
    memcpy(broken, "\177ELF\002\001\001", 7);
    result = cu.ModuleLoadData(&module, broken);
    check_true(result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
                   result == CUDA_ERROR_INVALID_SOURCE,
               "an ELF header and nothing else");
    result = cu.ModuleLoadData(&module, "this is not a module");
    check_true(result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX,
               "text that is no module");
    check_code(cu.ModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE, "null");
    memset(log, 0, sizeof(log));
    options[0] = CU_JIT_INFO_LOG_BUFFER;
    options[1] = CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES;
    values[1] = (void *)(uintptr_t)sizeof(log);
    DRV(cu.ModuleLoadDataEx(&module, good_ptx, 2, options, values));
    DRV(cu.ModuleGetFunction(&function, module, "fine"));
    driver_launch(function, 1, 1, NULL, NULL);
    check_code(cu.CtxSynchronize(), CUDA_SUCCESS, "a good module after the bad ones");
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
