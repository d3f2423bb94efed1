/*
 * A kernel that prints, captured: waiting for another stream meanwhile, which writes what has been
 * printed, is no end of the capture. It prints when the graph is launched.
 */
#include "check_driver.h"

static const char image[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);\n"
    /* "printed\n" */
    ".global .align 1 .b8 text[9] = {112, 114, 105, 110, 116, 101, 100, 10, 0};\n"
    ".visible .entry print()\n{\n .reg .b64 %rd<3>;\n .reg .b32 %r<2>;\n"
    " mov.u64 %rd1, text;\n cvta.global.u64 %rd1, %rd1;\n mov.u64 %rd2, 0;\n"
    " {\n .param .b64 p0;\n st.param.b64 [p0], %rd1;\n .param .b64 p1;\n"
    " st.param.b64 [p1], %rd2;\n .param .b32 back;\n"
    " call.uni (back), vprintf, (p0, p1);\n ld.param.b32 %r1, [back];\n }\n ret;\n}\n";

int main(void)
{
    CUstream stream, other;
    CUfunction print;
    CUmodule module;
    CUgraphExec exec;
    CUgraph graph = NULL;

    driver_begin("drv_capture_prints");
    DRV(cu.ModuleLoadData(&module, image));
    DRV(cu.ModuleGetFunction(&print, module, "print"));
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    driver_launch(print, 1, 1, stream, NULL);
    check_code(cu.StreamSynchronize(stream), CUDA_SUCCESS, "printed once");

    DRV(cu.StreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    driver_launch(print, 1, 1, stream, NULL);
    driver_launch(print, 1, 1, other, NULL);
    check_code(cu.StreamSynchronize(other), CUDA_SUCCESS, "printed beside a capture");
    check_code(cu.StreamEndCapture(stream, &graph), CUDA_SUCCESS, "the capture ends");
    DRV(cu.GraphInstantiateWithFlags(&exec, graph, 0));
    DRV(cu.GraphLaunch(exec, stream));
    check_code(cu.StreamSynchronize(stream), CUDA_SUCCESS, "printed by a graph");

    DRV(cu.GraphExecDestroy(exec));
    DRV(cu.GraphDestroy(graph));
    DRV(cu.StreamDestroy_v2(stream));
    DRV(cu.StreamDestroy_v2(other));
    DRV(cu.ModuleUnload(module));
    return driver_end();
}
