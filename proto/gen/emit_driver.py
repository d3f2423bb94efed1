"""proto/driver_table.h and .c: the table through which a host uses any libcuda."""

from writer import header, source


def emit_header(names, model):
    members = "\n".join(
        f"    CUresult (*{n})({model.entries[n].parameter_list});" for n in names)
    return header(f"""/* The Driver API as a table of function pointers, filled from a library by dlopen. */
#include "base/status.h"
#include "proto/cuda_abi.h"
#include <stdbool.h>
#include <stddef.h>

struct weir_driver {{
    void *library; /* owned; of dlopen */
{members}
}};

/**
 * Load a driver and fill the table. Functions that it lacks answer CUDA_ERROR_NOT_SUPPORTED.
 *
 * @param path           of the library, as dlopen takes it; borrowed.
 * @param ret_driver     the table; written only on success.
 * @param message        why it failed, NUL-terminated; may be NULL when message_bytes is 0.
 * @param message_bytes  room at message.
 * @return WEIR_OK
 * @return WEIR_ERR_NOT_FOUND  it cannot be loaded, or has no cuInit.
 * @thread any
 */
enum weir_status weir_driver_open(const char *path, struct weir_driver *ret_driver, char *message,
                                  size_t message_bytes) WEIR_MUST_CHECK;

/** Unload; the table must not be used again. Accepts NULL and a zeroed table. @thread owner only */
void weir_driver_close(struct weir_driver *driver);

/** True when the driver itself has this member's function, not the stand-in. @thread any */
#define weir_driver_has(driver, member)                                                            \\
    ((void (*)(void))(driver)->member != (void (*)(void))weir_driver_absent)

/** The stand-in for functions that a driver lacks: CUDA_ERROR_NOT_SUPPORTED. @thread any */
CUresult weir_driver_absent(void);""")


def emit_source(names):
    rows = "\n".join(f"    ROW({n})," for n in names)
    return source(f"""#include "proto/driver_table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Object and function pointers are one size on the platforms that dlsym exists on. */
_Static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym");

static const struct {{
    const char *name;
    size_t offset;
}} functions[] = {{
#define ROW(name) {{#name, offsetof(struct weir_driver, name)}}
{rows}
#undef ROW
}};

/*
 * The stand-in is called through pointers to functions with arguments; under the System V ABI the
 * caller owns them all, so a function that takes none may be called so.
 */
CUresult weir_driver_absent(void)
{{
    return CUDA_ERROR_NOT_SUPPORTED;
}}

enum weir_status weir_driver_open(const char *path, struct weir_driver *ret_driver, char *message,
                                  size_t message_bytes)
{{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {{
        const char *why = dlerror();
        (void)snprintf(message, message_bytes, "%s", why ? why : "dlopen failed");
        return WEIR_ERR_NOT_FOUND;
    }}
    if (!dlsym(library, "cuInit")) {{
        (void)snprintf(message, message_bytes, "%s: no cuInit in it: not a CUDA driver", path);
        (void)dlclose(library);
        return WEIR_ERR_NOT_FOUND;
    }}
    struct weir_driver driver = {{.library = library}};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {{
        void *address = dlsym(library, functions[i].name);
        if (!address) {{
            CUresult (*absent)(void) = weir_driver_absent;
            memcpy(&address, &absent, sizeof(address));
        }}
        memcpy((char *)&driver + functions[i].offset, &address, sizeof(address));
    }}
    *ret_driver = driver;
    return WEIR_OK;
}}

void weir_driver_close(struct weir_driver *driver)
{{
    if (driver && driver->library) {{
        (void)dlclose(driver->library);
        *driver = (struct weir_driver){{0}};
    }}
}}""")


def emit(model):
    names = [e.name for e in model.entries.values() if not e.undeclared]
    return {
        "proto/driver_table.h": emit_header(names, model),
        "proto/driver_table.c": emit_source(names),
    }
