"""The words `field`, `forward` and `struct`: bodies of entry points that are checks and one statement.

objects.toml says what stands behind a parameter (the guest's stream, softgpu's), structs.toml how one struct of
parameters is made from another. A body is planned here for a side ("guest" or "soft") and written by emit_words.py.
"""

import re
from dataclasses import dataclass, field

SIDES = {"guest": "guest", "softgpu": "soft"}
WORDS = ("field", "forward")
CONSTANT = re.compile(r"-?\d+|0x[0-9a-f]+|NULL|true|false|(CU|CUDA|WEIR|PTHREAD)_\w+")
PATH = re.compile(r"\w+(\(\))?((\.|->)\w+|\[\w+(\(\))?\])*")
ARGUMENT_WORD = re.compile(r"out|given|zero|positive|optional|struct|(max|below|flags|valid|names)=\w+")
SIDE_KEYS = {"type", "find", "with", "missing", "by_value", "unlocked"}


@dataclass
class Side:
    """How one side finds an object: find(handle[, with], &object), or, with `missing`, find(handle)."""

    type: str = ""
    find: str = ""  # "": nothing is looked up, and fields are whole expressions
    with_: str = ""
    missing: str = ""  # what a NULL of find() means
    by_value: bool = False
    unlocked: bool = False  # softgpu: needs no lock


@dataclass
class Object:
    name: str
    types: list  # C types of parameters that name it; without such a parameter find() gets `alone`
    alone: str
    late: bool  # the guest looks it up after it has checked the values
    sides: dict
    fields: dict  # name -> {side: path}
    atomic: list


@dataclass
class StructCopy:
    """A struct made from another: the fields that both have, and constants."""

    name: str
    to: str
    from_: str
    set: dict


@dataclass
class Plan:
    """What a side's body does. steps: ("find", Object, argument) or ("values", [conditions])."""

    steps: list = field(default_factory=list)
    converted: list = field(default_factory=list)  # (StructCopy, parameter)
    objects: list = field(default_factory=list)


def members(fields):
    """The names of a struct's plain fields, in order; of a line such as 'size_t x' the x."""
    depth, names = 0, []
    for text in fields:
        depth += text.count("{") - text.count("}")
        match = re.fullmatch(r".*?(\w+)(\[\w+\])?", text.strip())
        if depth == 0 and match and "}" not in text:
            names.append(match[1])
    return names


def load_objects(path, load_toml, error):
    objects = {}
    for name, table in (load_toml(path) if path.exists() else {}).items():
        unknown = set(table) - {"types", "alone", "late", "guest", "softgpu", "fields", "atomic"}
        if unknown:
            raise error(path, name, f"unknown key '{sorted(unknown)[0]}'")
        sides = {}
        for key, side in SIDES.items():
            if key in table:
                if set(table[key]) - SIDE_KEYS:
                    raise error(path, name, f"'{key}' has an unknown key")
                values = {("with_" if k == "with" else k): v for k, v in table[key].items()}
                sides[side] = Side(**values)
        fields = {}
        for label, where in table.get("fields", {}).items():
            where = {key: where for key in SIDES} if isinstance(where, str) else where
            for key, text in where.items():
                if key not in SIDES or not (PATH.fullmatch(text) or CONSTANT.fullmatch(text)):
                    raise error(path, name, f"fields.{label}: '{text}' is no member")
            fields[label] = {SIDES[key]: text for key, text in where.items()}
        objects[name] = Object(name, table.get("types", []), table.get("alone", ""), table.get("late", False),
                               sides, fields, table.get("atomic", []))
    return objects


def struct_of(types, name):
    """The struct behind a name, through aliases; None if it is no struct."""
    while name in types and types[name].form == "alias":
        name = types[name].value
    return types[name] if name in types and types[name].form == "struct" else None


def load_structs(path, load_toml, types, error):
    structs = {}
    for name, table in (load_toml(path) if path.exists() else {}).items():
        for key in ("to", "from"):
            if struct_of(types, table.get(key)) is None:
                raise error(path, name, f"'{key}' names no struct")
        structs[name] = StructCopy(name, table["to"], table["from"], table.get("set", {}))
        for key in structs[name].set:
            if key not in members(struct_of(types, table["to"]).value):
                raise error(path, name, f"set.{key}: {table['to']} has no such field")
    return structs


def statements(text):
    return [part.strip() for part in text.split(";")]


def split_call(text):
    """(target, arguments) of 'target(a, b)'; a constant is a target without arguments."""
    match = re.fullmatch(r"(op )?(\w+)(?:\((.*)\))?", text.strip())
    if not match:
        return None
    arguments = [a.strip() for a in match[3].split(",")] if match[3] else []
    return (match[1] or "") + match[2], arguments


class Planner:
    """Plans one side's body of one entry point, and finds mistakes in its row."""

    def __init__(self, model, entry, side, error):
        self.model, self.entry, self.side = model, entry, side
        self.error = lambda message: error(entry.path, entry.name, message)
        self.params = {p.name: p for p in entry.params}
        self.words = {name: text.split() for name, text in entry.args.items()}
        self.used, self.needed = [], []
        for name, words in self.words.items():
            if name not in self.params:
                raise self.error(f"args.{name}: no such parameter")
            for word in words if entry.host == "none" else []:
                if not ARGUMENT_WORD.fullmatch(word) and word not in model.structs:
                    raise self.error(f"args.{name}: unknown word '{word}'")
                if word.startswith("names="):
                    self.object(word[6:])

    # ---------------------------------------------------------------- what a row names

    def object(self, name):
        found = self.model.objects.get(name)
        if found is None or (self.side not in found.sides):
            raise self.error(f"no object '{name}'")
        if name not in self.used:
            self.used.append(name)
        return found

    def require(self, name):
        if name not in self.needed and "optional" not in self.words.get(name, []):
            self.needed.append(name)

    def place(self, text):
        """C of 'object.field', and is it atomic?"""
        name, label, index = re.fullmatch(r"(\w+)\.(\w+)(?:\[(\w+)\])?", text).groups()
        found = self.object(name)
        where = found.fields.get(label, {}).get(self.side)
        if where is None:
            raise self.error(f"'{name}' has no field '{label}'")
        if index and index not in self.params:
            raise self.error(f"'{index}' is no parameter")
        if index and not any(word.startswith(("below=", "max=", "valid=")) for word in self.words.get(index, [])):
            raise self.error(f"'{index}' is an index and has no bound")
        where += f"[{index}]" if index else ""
        side = found.sides[self.side]
        if not side.find or CONSTANT.fullmatch(where):
            return where, False
        return f"found_{name}{'.' if side.by_value else '->'}{where}", label in found.atomic and self.side == "guest"

    def term(self, text):
        """C of one argument."""
        if text.startswith("*") and text[1:] in self.params:
            self.require(text[1:])
            return text
        if text.startswith("@") and text[1:] in self.params:
            return f"(uintptr_t){text[1:]}"
        if re.fullmatch(r"&\w+\.\w+", text):
            return "&" + self.place(text[1:])[0]
        if text.startswith("the "):
            found = self.object(text[4:])
            return ("&" if found.sides[self.side].by_value else "") + f"found_{text[4:]}"
        if re.fullmatch(r"\w+\.\w+(\[\w+\])?", text):
            where, atomic = self.place(text)
            return f"__atomic_load_n(&{where}, __ATOMIC_RELAXED)" if atomic else where
        if text in self.params:
            if "struct" in self.words.get(text, []):
                self.require(text)
                return f"&made_{text}"
            return text
        if text in self.model.entries:
            return f"weir_{self.side}_{text}"
        if text == "default_stream" and self.entry.passes_default_stream or CONSTANT.fullmatch(text):
            return text
        raise self.error(f"'{text}' is no parameter, object or constant")

    # ---------------------------------------------------------------- steps

    def condition(self, name):
        """When a parameter has a wrong value, or None."""
        tests = [f"!{name}"] if name in self.needed else []
        for word in self.words.get(name, []) if self.entry.host == "none" else []:
            kind, _, bound = word.partition("=")
            if kind == "given" and not tests:
                tests.append(f"!{name}")
            elif kind == "zero":
                tests.append(name)
            elif kind == "positive":
                tests.append(f"{name} <= 0")
            elif kind in ("max", "below"):
                tests.append(f"(unsigned int){name} {'>' if kind == 'max' else '>='} {bound}")
            elif kind == "valid":
                tests.append(f"!weir_{self.side}_{bound}({name})")
            elif kind == "flags":
                tests.append(f"({name} & ~(unsigned int){bound})")
        return " || ".join(tests) or None

    def argument(self, found):
        """The parameter that names an object."""
        named = [p for p in self.entry.params if f"names={found.name}" in self.words.get(p.name, [])]
        param = next((p for p in named + self.entry.params if p in named or p.type in found.types), None)
        if param is None and not found.alone and found.types:
            raise self.error(f"no parameter names the object '{found.name}'")
        return param.name if param else found.alone

    def finds(self, name):
        """Is anything looked up for this object?"""
        return self.model.objects[name].sides[self.side].find

    def plan(self, extra):
        """The steps, once all terms were asked for; extra: objects that are looked up only to be checked."""
        for name in extra:
            self.object(name)
        order = [p.name for p in self.entry.params]
        names = {n: self.argument(self.model.objects[n]) for n in self.used if self.finds(n)}
        objects = sorted(names, key=lambda n: order.index(names[n]) if names[n] in order else -1)
        late = [n for n in objects if self.model.objects[n].late or self.side == "soft"]
        values = [("value", p) for p in order if self.condition(p)]
        steps = ([("find", n) for n in objects if n not in late] + values + [("find", n) for n in late])
        if self.side == "guest":
            first = [("find" if n in extra else "value", n) for n in self.entry.checks.split()]
            steps = first + [step for step in steps if step not in first]
        plan = Plan(objects=[self.model.objects[n] for n in objects])
        for kind, name in steps:
            if kind == "find":
                plan.steps.append(("find", self.model.objects[name], names[name]))
            elif not self.condition(name):
                raise self.error(f"checks: '{name}' is no object, and nothing is asked of a parameter of that name")
            elif plan.steps and plan.steps[-1][0] == "values":
                plan.steps[-1][1].append(self.condition(name))
            else:
                plan.steps.append(("values", [self.condition(name)]))
        for name, words in self.words.items():
            if "struct" in words and name in self.needed:
                copy = self.model.structs.get(words[words.index("struct") + 1])
                if copy is None:
                    raise self.error(f"args.{name}: 'struct' wants a name of structs.toml")
                plan.converted.append((copy, name))
        return plan

    def extra(self):
        """Objects that `checks` names: a word there is an object unless a parameter of the name has words."""
        return [n for n in self.entry.checks.split() if n in self.model.objects and not self.condition(n)]


def word_of(entry, side):
    """The word that generates a side's body, or None."""
    kind = entry.guest if side == "guest" else entry.softgpu
    return kind if kind in WORDS else None


def check(entry, error):
    """Keys that belong together."""
    words = {kind for kind in (entry.guest, entry.softgpu) if kind in WORDS}
    for word in WORDS:
        if (word in words) != bool(getattr(entry, word)):
            raise error(entry.path, entry.name, f"'{word}' is a key and a value of guest or softgpu")
    if not words and (entry.checks or entry.give or entry.then):
        raise error(entry.path, entry.name, "'checks', 'give' and 'then' go with field and forward")
