"""What the cases are made of: see generate.py, and case.h for what a case is."""

WIDTHS = {"f32": 32, "f64": 64, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "shift": 32, "sparse": 32,
          "thread": 32, "random": 64, "r32": 32, "r16": 16, "wholef16x2": 32, "wholebf16x2": 32, "wholef32": 32,
          "wholef64": 64, "wholee4m3": 32, "wholee5m2": 32, "unitf32": 32, "unitf16x2": 32,
          "unitbf16x2": 32, "unitf64": 64}
KINDS = {"r32": "random", "r16": "random"}
OUT_WIDTHS = {"b16": 16, "f16": 16, "bf16": 16, "b64": 64, "f64": 64, "pred": 1}
OUT_TYPES = {"b16": "b32", "pred": "b32"}
FILES = {}


def column(text):
    """(kind for the file, register width) of an input: i32, i64, i16 with ranges, or a kind of inputs.c."""
    name, _, span = text.partition(":")
    if name in ("i16", "i32", "i64"):
        return "int" + (":" + span if span else ""), int(name[1:])
    return KINDS.get(name, name) + (":" + span if span else ""), WIDTHS[name]


class Case:
    """One file: inputs are {a} {b} {c} {e} .. (or {i[0]} ..), a result is {d}; see result()."""

    NAMES = "abcefgh"

    def __init__(self, name, ins, out, target=75, version="8.5", threads=512, block=64, about=""):
        assert name not in FILES, name
        FILES[name] = self
        self.name, self.out, self.target, self.version = name, out, target, version
        self.threads, self.block, self.about = threads, block, about
        self.columns = []
        for text in ins.split():
            base, _, n = text.partition("*")
            self.columns += [column(base)] * int(n or 1)
        self.lines, self.bounds, self.module, self.declared = [], [], [], []
        self.n_results = 0
        self.width = OUT_WIDTHS.get(out, 32)
        self.inputs = [f"%i{k}" for k in range(len(self.columns))]
        self.names = {n: i for n, i in zip(self.NAMES, self.inputs)}

    def text(self, snippet, **more):
        return snippet.format(d="%d", i=self.inputs, **{**self.names, **more})

    def emit(self, snippet, **more):
        """Instructions without a result of their own."""
        self.lines += [line.strip() for line in self.text(snippet, **more).split("\n") if line.strip()]

    def slot(self, k=0):
        """The place of the k-th result from here on."""
        size = 8 if self.width == 64 else 4
        return f"[%o+{(self.n_results + k) * self.threads * size}]"

    def store(self, register):
        if self.width == 16:
            self.emit(f"cvt.u32.u16 %x, {register};")
        elif self.width == 1:
            self.emit(f"selp.b32 %x, 1, 0, {register};")
        at = "%x" if self.width in (1, 16) else register
        self.emit(f"st.global.b{64 if self.width == 64 else 32} {self.slot()}, {at};")
        self.n_results += 1

    def result(self, snippet, *registers, **more):
        """Instructions that leave a result in {d}, or in the registers named."""
        self.emit(snippet, **more)
        for register in registers or ("%d",):
            self.store(register)

    def each(self, snippet, values, **more):
        """One result for each value of {op}."""
        for op in values:
            self.result(snippet, op=op, **more)

    def bits(self, snippet, values, **more):
        """Predicates {d}, packed 32 to a result: one for each value of {op}."""
        values = list(values)
        for start in range(0, len(values), 32):
            self.emit("mov.b32 %m, 0;")
            for k, op in enumerate(values[start:start + 32]):
                self.emit(self.text(snippet, op=op, **more).replace("%d", "%pd"))
                self.emit(f"selp.b32 %x, {1 << k}, 0, %pd;\nor.b32 %m, %m, %x;")
            self.store("%m")

    def bound(self, kind, value, why, first=None, last=None):
        first = 0 if first is None else first
        last = self.n_results - 1 if last is None else last
        self.bounds.append(f"//! {kind} {first}-{last} {value} {why}")

    def declare(self, text):
        self.declared.append(text)

    def head(self):
        kinds = []
        for kind, _ in self.columns:
            if kinds and kinds[-1][0] == kind:
                kinds[-1][1] += 1
            else:
                kinds.append([kind, 1])
        lines = [f"// {self.about}"] if self.about else []
        lines.append("//! in " + " ".join(k if n == 1 else f"{k}*{n}" for k, n in kinds) if kinds else "//! in")
        lines.append(f"//! out {OUT_TYPES.get(self.out, self.out)} {self.n_results}")
        if (self.threads, self.block) != (512, 64):
            lines.append(f"//! threads {self.threads} block {self.block}")
        return lines + self.bounds

    def loads(self):
        lines = []
        for k, (_, width) in enumerate(self.columns):
            lines.append(f"ld.global.b{width} %i{k}, [%in+{8 * k}];")
        return lines

    def render(self):
        registers = [f".reg .b{width} %i{k};" for k, (_, width) in enumerate(self.columns)]
        registers += [".reg .b64 %in, %o, %q<8>;", ".reg .b32 %me, %x, %m, %t<8>;", ".reg .b16 %h<8>;",
                      ".reg .pred %p<4>, %pd;"]
        registers.append(f".reg .{'pred' if self.width == 1 else f'b{self.width}'} %d, %d1, %d2, %d3;")
        size = 8 if self.width == 64 else 4
        begin = ["mov.u32 %me, %ctaid.x;", "mov.u32 %x, %ntid.x;", "mov.u32 %m, %tid.x;",
                 "mad.lo.u32 %me, %me, %x, %m;", "ld.param.u64 %in, [in];", "cvta.to.global.u64 %in, %in;",
                 f"mad.wide.u32 %in, %me, {8 * max(len(self.columns), 1)}, %in;",
                 "ld.param.u64 %o, [out];", "cvta.to.global.u64 %o, %o;",
                 f"mad.wide.u32 %o, %me, {size}, %o;"]
        body = registers + self.declared + begin + self.loads() + self.lines + ["ret;"]
        return "\n".join(
            self.head()
            + [f".version {self.version}", f".target sm_{self.target}", ".address_size 64"]
            + self.module
            + [".visible .entry test(.param .u64 in, .param .u64 out, .param .u32 n)" + getattr(self, "directive", ""),
               "{"]
            + [line if line.endswith(":") else "    " + line for line in body]
            + ["}", ""])


def simple(name, ins, out, ops, target=75, **kwargs):
    """A case in which every op takes all inputs in order."""
    c = Case(name, ins, out, target, **kwargs)
    c.each("{op} {d}" + "".join(f", {{i[{k}]}}" for k in range(len(c.columns))) + ";", ops)
    return c


def product(*lists):
    """All concatenations of one of each list (a list is a list or a string of words, '-' for nothing)."""
    out = [""]
    for words in lists:
        words = words.split() if isinstance(words, str) else words
        out = [a + ("" if b == "-" else b) for a in out for b in words]
    return out
