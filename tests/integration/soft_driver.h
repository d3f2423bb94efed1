/* softgpu as the driver of a test that calls the host's parts itself. */
#pragma once

#include "proto/driver_table.h"

/* Device 0, whose primary context is made and current. What fails, fails the test. */
CUcontext soft_driver_open(struct weir_driver *driver);
void soft_driver_close(const struct weir_driver *driver);
