/*
 * What a GPU gave for a case, in NAME.rec: a few lines of text (magic, key, device, driver, bytes),
 * an empty line, then the outputs, compressed with zstd.
 */
#pragma once

#include "tests/instructions/driver.h"

enum record_state { RECORD_OK, RECORD_MISSING, RECORD_STALE, RECORD_BROKEN };

/** The recorded outputs of a case. STALE: of another program or other inputs. */
enum record_state record_read(const struct test_case *c, const char *folder, uint64_t key,
                              void *outputs, char *device, size_t device_bytes);

bool record_write(const struct test_case *c, const char *folder, uint64_t key, const void *outputs,
                  const struct driver_device *device);
