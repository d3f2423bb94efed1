"""proto/cuda_abi.h: the Driver API's types, constants and prototypes, in place of cuda.h."""

import re

from writer import header


def declare(item, name):
    """One field line of types.toml as C."""
    text = item.strip()
    indent = item[: len(item) - len(item.lstrip())]
    return f"    {indent * 2}{text}" + ("" if text.endswith("{") else ";")


def emit_type(type_, errors):
    name = type_.name
    if type_.form == "alias":
        return f"typedef {type_.value} {name};"
    if type_.form == "handle":
        return f"typedef struct {type_.value} *{name};"
    if type_.form == "callback":
        return "typedef " + type_.value.replace("(*)", f"(*{name})", 1) + ";"
    if type_.form == "enum":
        values = type_.value
        if values == "errors":
            values = {key: value for key, (value, _) in errors.items()}
        lines = "".join(f"    {key} = {value},\n" for key, value in values.items())
        return f"typedef enum {{\n{lines}}} {name};"
    lines = "".join(declare(item, name) + "\n" for item in type_.value)
    return f"typedef {type_.form} {{\n{lines}}} {name};"


def emit_prototypes(model):
    lines = []
    for entry in model.entries.values():
        for symbol in entry.symbols:
            lines.append(f"CUresult {symbol}({entry.parameter_list});")
    return "\n".join(lines)


def emit(model):
    width = max((len(name) for name in model.constants), default=0)
    constants = "\n".join(f"#define {n:{width}} {v}" for n, v in model.constants.items())
    types = "\n".join(emit_type(t, model.errors) for t in model.types.values())
    types = re.sub(r"\n(typedef (?:enum|struct \{|union))", r"\n\n\1", types)
    body = f"""/*
 * The ABI of the CUDA Driver API: what cuda.h declares, under the exact names of the exported symbols
 * (cuMemAlloc_v2; no macro renames cuMemAlloc). C on LP64 x86-64 only.
 */
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8, "LP64 only");

#define CUDAAPI
#define CUDA_CB

{constants}

{types}

{emit_prototypes(model)}"""
    return {"proto/cuda_abi.h": header(body)}
