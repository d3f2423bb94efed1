/* The guest library behind the undocumented export tables (proto/front). */
#ifndef WEIR_GUEST_LIB_FRONT_H
#define WEIR_GUEST_LIB_FRONT_H

#include "proto/cuda_abi.h"

/** Name this library to proto/front; may be called again. @thread any */
void weir_front_start(void);

/** The index-th function of a module, for TOOLS_MODULE; defined beside the modules. */
CUresult weir_module_function_at(CUmodule module, unsigned int index, CUfunction *ret_function);

#endif
