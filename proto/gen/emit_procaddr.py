"""proto/symbols.h, proto/procaddr_table.c, proto/errors.c, and the version script."""

from writer import NOTE, c_string, header, source


def all_symbols(model):
    return [symbol for entry in model.entries.values() for symbol in entry.symbols]


def emit_symbols(model):
    rows = "\n".join(f"    WEIR_SYMBOL_{name}," for name in all_symbols(model))
    return header(f"""/* Every symbol that a libcuda exports, numbered. The numbers mean nothing outside one build. */
enum weir_symbol {{
    WEIR_SYMBOL_NONE = -1,
{rows}
    WEIR_SYMBOL_COUNT
}};

/** The names, by number. */
extern const char *const weir_symbol_name[WEIR_SYMBOL_COUNT];

/**
 * The addresses of this library's own exports, by number. Defined by guest_exports.c and by
 * softgpu_exports.c, so exactly one of them is in a library.
 */
extern void *const weir_symbol_address[WEIR_SYMBOL_COUNT];""")


def emit_table(model):
    rows = []
    for entry in model.entries.values():
        if entry.undeclared:
            continue
        rows.append((entry.base, 0, entry.since, entry.name))
        if entry.variant:
            rows.append((entry.base, 1, entry.variant, entry.name + entry.variant_suffix))
    rows.sort()
    names = "\n".join(f'    "{name}",' for name in all_symbols(model))
    table = "\n".join(f'    {{"{b}", {t}, {v}, WEIR_SYMBOL_{s}}},' for b, t, v, s in rows)
    return source(f"""#include "proto/common/procaddr.h"

const char *const weir_symbol_name[WEIR_SYMBOL_COUNT] = {{
{names}
}};

const struct weir_procaddr_row weir_procaddr_rows[] = {{
{table}
}};

const unsigned weir_procaddr_row_count = sizeof(weir_procaddr_rows) / sizeof(weir_procaddr_rows[0]);""")


def emit_errors(model):
    names = "\n".join(f'    case {key}:\n        return "{key}";' for key in model.errors)
    texts = "\n".join(
        f"    case {key}:\n        return {c_string(text)};" for key, (_, text) in model.errors.items())
    head = header("""/* Names and texts of CUresult, as cuGetErrorName and cuGetErrorString give them. */
#include "proto/cuda_abi.h"

/** "CUDA_ERROR_INVALID_VALUE" and so on; NULL for a value that is none. @thread any */
const char *weir_cuda_error_name(CUresult error);

/** "invalid argument" and so on; NULL for a value that is none. @thread any */
const char *weir_cuda_error_string(CUresult error);""")
    body = source(f"""#include "proto/errors.h"

const char *weir_cuda_error_name(CUresult error)
{{
    switch (error) {{
{names}
    }}
    return (const char *)0;
}}

const char *weir_cuda_error_string(CUresult error)
{{
    switch (error) {{
{texts}
    }}
    return (const char *)0;
}}""")
    return head, body


def emit(model):
    exports = "\n".join(f"        {name};" for name in sorted(all_symbols(model)))
    errors_h, errors_c = emit_errors(model)
    return {
        "proto/symbols.h": emit_symbols(model),
        "proto/procaddr_table.c": emit_table(model),
        "proto/errors.h": errors_h,
        "proto/errors.c": errors_c,
        "proto/libcuda.map": f"{NOTE}\n{{\n    global:\n{exports}\n    local:\n        *;\n}};\n",
    }
