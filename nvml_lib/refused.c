/*
 * Functions that a guest's device does not offer or a tenant may not call. They ignore their
 * arguments, so one prototype serves all.
 */
#include "nvml_lib/lib.h"

static nvmlReturn_t refuse(nvmlReturn_t with)
{
    WEIR_TRY(weir_nvml_enter());
    return with;
}

#define REFUSED(name, with)                                                                        \
    WEIR_NVML_EXPORT nvmlReturn_t name(void);                                                      \
    nvmlReturn_t name(void)                                                                        \
    {                                                                                              \
        return refuse(with);                                                                       \
    }

#define WEIR_NVML_DENY(name) REFUSED(name, NVML_ERROR_NO_PERMISSION)
#define WEIR_NVML_NONE(name) REFUSED(name, NVML_ERROR_NOT_SUPPORTED)
#include "proto/nvml/functions.def"
