"""proto/guest_words_<group>.c, softgpu_words_<group>.c (bodies by a word), proto/structs.h (by `struct`)."""

import re

import words
from emit_exports import impl_params
from model import DescriptionError
from writer import header, source

COLUMNS = 100


def wrap(opening, items, closing, indent=""):
    """opening(items)closing in lines of at most COLUMNS, continued below the parenthesis."""
    lines, line = [], opening
    pad = " " * len(opening)
    if any(len(pad) + len(item) > COLUMNS - 2 for item in items):
        pad = indent + "    "
        lines, line = [opening], pad
    for number, item in enumerate(items):
        text = item + (", " if number + 1 < len(items) else closing)
        if len((line + text).rstrip()) > COLUMNS and line.strip() and line != opening:
            lines.append(line.rstrip())
            line = pad
        line += text
    return [*lines, line if items else line + closing]


def signature(entry, side):
    items = impl_params(entry).split(", ")
    return wrap(f"CUresult weir_{side}_{entry.name}(", items, ")")


def fail_if(condition, code):
    return [f"    if ({condition}) {{", f"        return {code};", "    }"]


def emit_values(conditions):
    if len(conditions) == 1:
        conditions = [re.sub(r"^\((.*)\)$", r"\1", conditions[0])]
    tests = wrap("    if (", [f"{c} ||" for c in conditions[:-1]] + [conditions[-1]], ") {")
    return [t.replace("||, ", "|| ").replace("||,", "||") for t in tests] + [
        "        return CUDA_ERROR_INVALID_VALUE;", "    }"]


def emit_find(found, argument, side):
    how = found.sides[side]
    name = f"found_{found.name}"
    star = "" if how.type.endswith("*") else " "
    declared = f"{how.type}{star}{name}" if how.by_value else f"{how.type} *{name}"
    given = [a for a in (argument, how.with_) if a]
    if how.missing and how.by_value:
        call = f"{how.find}({', '.join([*given, '&' + name])})"
        return [f"    {declared};", *fail_if(f"!{call}", how.missing)]
    if how.missing:
        return [f"    {declared} = {how.find}({', '.join(given)});", *fail_if(f"!{name}", how.missing)]
    call = f"{how.find}({', '.join([*given, '&' + name])})"
    return [f"    {declared};", f"    result = {call};", *fail_if("result != CUDA_SUCCESS", "result")]


def pointee(model, param):
    """(C type behind an out parameter, is it a handle, is it a plain number)."""
    ctype = re.sub(r"\*$", "", param.type).strip()
    name = ctype
    while name in model.types and model.types[name].form == "alias":
        name = model.types[name].value.strip()
    form = model.types[name].form if name in model.types else "number"
    return ctype, form == "handle", form in ("number", "enum") and not ctype.endswith("*")


def emit_give(planner, name, value):
    """*name = value, of an out parameter."""
    if name not in planner.params or not planner.params[name].type.endswith("*"):
        raise planner.error(f"'{name}' is no out parameter")
    planner.require(name)
    ctype, handle, number = pointee(planner.model, planner.params[name])
    cast = f"({ctype})(uintptr_t)" if handle else f"({ctype})" if number else ""
    cast = "" if words.CONSTANT.fullmatch(value) else cast
    if "optional" in planner.words.get(name, []):
        return [f"    if ({name}) {{", f"        *{name} = {cast}{value};", "    }"]
    return [f"    *{name} = {cast}{value};"]


def emit_field(planner):
    lines = []
    for text in words.statements(planner.entry.field):
        left, equals, right = text.partition(" = ")
        if not equals:
            raise planner.error(f"field: '{text}' is not 'place = value'")
        value = planner.term(right)
        if "." not in left:
            lines += emit_give(planner, left, value)
            continue
        where, atomic = planner.place(left)
        lines.append(f"    __atomic_store_n(&{where}, {value}, __ATOMIC_RELAXED);" if atomic
                     else f"    {where} = {value};")
    return [*lines, "    return CUDA_SUCCESS;"]


def emit_operation(planner, name, arguments):
    op = planner.model.ops.get(name)
    if op is None or planner.side != "guest":
        raise planner.error(f"forward: no operation '{name}' here")
    rows = []
    for text in arguments:
        label, _, value = text.partition(" = ")
        if label not in [f.name for f in op.ins]:
            raise planner.error(f"forward: {name} has no field '{label}'")
        rows.append(f"        .{label} = {planner.term(value)},")
    lines = [f"    const struct weir_op_{name}_in in = {{", *rows, "    };"]
    if op.outs:
        lines.append(f"    struct weir_op_{name}_out out = {{0}};")
    call = f"weir_call_{name}(weir_guest_channel(), &in, {'&out' if op.outs else 'NULL'})"
    results = []
    for text in words.statements(planner.entry.give) if planner.entry.give else []:
        left, _, right = text.partition(" = ")
        if right not in [f.name for f in op.outs]:
            raise planner.error(f"give: {name} gives no '{right}'")
        results += emit_give(planner, left, f"out.{right}")
    results += emit_then(planner)
    if not results:
        return [*lines, f"    return {call};"]
    return [*lines, f"    result = {call};", *fail_if("result != CUDA_SUCCESS", "result"), *results,
            "    return CUDA_SUCCESS;"]


def emit_call(planner, opening, target, arguments):
    if not target.startswith("weir_"):
        target = f"weir_{planner.side}_{target}"
    return wrap(f"    {opening}{target}(", [planner.term(a) for a in arguments], ");", "    ")


def emit_then(planner):
    """What is done once the call has succeeded."""
    if not planner.entry.then:
        return []
    call = words.split_call(planner.entry.then)
    if call is None or call[0].startswith("op "):
        raise planner.error("then is not 'function(arguments)'")
    return emit_call(planner, "", *call)


def emit_forward(planner):
    call = words.split_call(planner.entry.forward)
    if call is None:
        raise planner.error("forward is not 'target(arguments)'")
    target, arguments = call
    if words.CONSTANT.fullmatch(target):
        return [*emit_then(planner), f"    return {target};"]
    if target.startswith("op "):
        return emit_operation(planner, target[3:], arguments)
    if target.startswith("cu") and target not in planner.model.entries:
        raise planner.error(f"forward: no entry point '{target}'")
    if planner.entry.then:
        raise planner.error("then goes with an operation, or with CUDA_SUCCESS")
    return emit_call(planner, "return ", target, arguments)


def emit_body(model, entry, side):
    planner = words.Planner(model, entry, side, DescriptionError)
    action = emit_field(planner) if words.word_of(entry, side) == "field" else emit_forward(planner)
    plan = planner.plan(planner.extra())
    checks = []
    for step in plan.steps:
        checks += emit_values(step[1]) if step[0] == "values" else emit_find(step[1], step[2], side)
    for copy, name in plan.converted:
        checks.append(f"    const {copy.to} made_{name} = weir_struct_{copy.name}({name});")
    body = checks + action
    lines = [*signature(entry, side), "{"]
    if side == "soft" and any(not o.sides[side].unlocked for o in plan.objects):
        lines.append("    WEIR_SOFT_LOCKED();")
    text = "\n".join(body)
    lines += [f"    (void){p.name};" for p in entry.params if not re.search(rf"\b{p.name}\b", text)]
    if entry.passes_default_stream and "default_stream" not in text:
        lines.append("    (void)default_stream;")
    text = re.sub(r"^    result = ", "    CUresult result = ", text, count=1, flags=re.M)
    return "\n".join([*lines, text, "}"])


def emit_structs(model):
    parts = []
    for copy in model.structs.values():
        to = words.members(words.struct_of(model.types, copy.to).value)
        both = [n for n in words.members(words.struct_of(model.types, copy.from_).value)
                if n in to and n not in copy.set]
        rows = [f"        .{n} = from->{n}," for n in both] + [
            f"        .{n} = {value}," for n, value in copy.set.items()]
        parts.append("\n".join([
            f"static inline {copy.to} weir_struct_{copy.name}(const {copy.from_} *from)", "{",
            f"    return ({copy.to}){{", *rows, "    };", "}"]))
    return header("\n\n".join(
        ["/* Structs of parameters made from others (structs.toml): the fields that both have, and constants. */\n"
         '#include "proto/cuda_abi.h"'] + parts))


def emit_side(model, side, name, includes):
    """A file for each group, so that a program that links a static library takes only the groups that it uses."""
    files = {}
    for group, entries in model.groups.items():
        bodies = [emit_body(model, entry, side) for entry in entries if words.word_of(entry, side)]
        if bodies:
            files[f"proto/{name}_words_{group}.c"] = source("\n\n".join([includes, *bodies]))
    return files


GUEST_INCLUDES = """#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "proto/structs.h\""""
SOFT_INCLUDES = """#include "proto/softgpu_hand.h"
#include "proto/structs.h"
#include "softgpu/driver/forward.h\""""


def emit(model):
    return {**emit_side(model, "guest", "guest", GUEST_INCLUDES), **emit_side(model, "soft", "softgpu", SOFT_INCLUDES),
            "proto/structs.h": emit_structs(model)}
