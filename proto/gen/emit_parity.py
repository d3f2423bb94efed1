"""parity/ours.c and parity/toolkit.c: the same measurements of our ABI header and of NVIDIA's."""

import re

from writer import source


def walk_fields(lines, prefix=""):
    """Every named field path of a struct or union of types.toml."""
    paths = []
    while lines:
        line = lines.pop(0).strip()
        if line.startswith("}"):
            return paths, line[1:].strip()
        if line.endswith("{"):
            inner, name = walk_fields(lines)
            name = re.sub(r"\[.*", "", name)
            paths += [name] * bool(name) + [f"{name}.{p}" if name else p for p in inner]
        else:
            paths.append(re.sub(r"(\[\d+\])+$", "", line).split()[-1].lstrip("*"))
    return paths, ""


def rows(model):
    out = []
    for type_ in model.types.values():
        out.append((f"sizeof {type_.name}", f"sizeof({type_.name})"))
        if type_.form in ("struct", "union"):
            out.append((f"alignof {type_.name}", f"_Alignof({type_.name})"))
            for path in walk_fields(list(type_.value))[0]:
                out.append((f"offset {type_.name}.{path}", f"offsetof({type_.name}, {path})"))
                member = f"sizeof(((({type_.name} *)0))->{path})"
                out.append((f"bytes {type_.name}.{path}", member))
        elif type_.form == "enum":
            names = model.errors if type_.value == "errors" else type_.value
            out += [(f"value {name}", name) for name in names]
    out += [(f"constant {name}", f"(intptr_t){name}") for name in model.constants]
    return out


def emit_rows(model, table, before, guard=None):
    body = "\n".join(f'    {{"{name}", (long long)({value})}},' for name, value in rows(model))
    text = f"""const struct parity_row {table}[] = {{
{body}
}};
const unsigned {table}_count = sizeof({table}) / sizeof({table}[0]);"""
    return before + "\n\n" + text


def emit_asserts(model):
    """Prototypes and scalar types, compared by the compiler where NVIDIA's header is included."""
    lines = []
    for type_ in model.types.values():
        if type_.form == "alias":
            lines.append(f'_Static_assert(__builtin_types_compatible_p({type_.name}, {type_.value}),\n'
                         f'               "{type_.name}");')
        elif type_.form == "callback":
            lines.append(f'_Static_assert(__builtin_types_compatible_p({type_.name}, {type_.value}),\n'
                         f'               "{type_.name}");')
        elif type_.form == "handle":
            lines.append(f"_Static_assert(__builtin_types_compatible_p({type_.name}, struct "
                         f'{type_.value} *), "{type_.name}");')
    for entry in model.entries.values():
        if entry.undeclared:
            continue
        for symbol in entry.symbols:
            lines.append(f"_Static_assert(__builtin_types_compatible_p(__typeof__({symbol}), "
                         f'CUresult({entry.parameter_list})), "{symbol}");')
    return "\n".join(lines)


def emit(model):
    include = '#include "tests/parity/parity.h"\n\n#include <stddef.h>\n#include <stdint.h>\n\n'
    ours = source(emit_rows(model, "parity_ours", include + '#include "proto/cuda_abi.h"'))
    version = model.constants.get("CUDA_VERSION", "0")
    toolkit = source(f"""{include}/* All versions of every function, under their own names. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#if CUDA_VERSION == {version}
#include <vdpau/vdpau.h>

#include <cudaEGL.h>
#include <cudaGL.h>
#include <cudaProfiler.h>
#include <cudaVDPAU.h>

{emit_asserts(model)}

{emit_rows(model, "parity_toolkit", "")}
#else
const struct parity_row parity_toolkit[] = {{{{"", 0}}}};
const unsigned parity_toolkit_count = 0; /* another version: nothing to compare with */
#endif""")
    return {"parity/ours.c": ours, "parity/toolkit.c": toolkit}
