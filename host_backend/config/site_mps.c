#include "host_backend/config/site_mps.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool weir_site_mps_is_there(void)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/control", folder ? folder : "/tmp/nvidia-mps");
    return access(path, F_OK) == 0;
}
