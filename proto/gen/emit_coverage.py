"""docs/coverage.md: what is carried, function by function."""

SOFT = {True: "yes", False: "-"}
WORDS = {"auto": "automatic", "hand": "by hand", "none": "-"}


def state(entry):
    """(guest, host) words of one entry."""
    if entry.same_as:
        return f"as {entry.same_as}", ""
    return WORDS[entry.guest], WORDS[entry.host] if entry.host != "none" else ""


def resolved(model, entry):
    return model.entries[entry.same_as] if entry.same_as else entry


def emit_group(model, group, entries):
    lines = [f"## {group}", "", "| function | since | guest | host | softgpu | why by hand |",
             "|---|---|---|---|---|---|"]
    for entry in entries:
        guest, host = state(entry)
        since = f"{entry.since // 1000}.{entry.since % 1000 // 10}" if entry.since else ""
        variant = f" ({entry.variant_suffix})" if entry.variant else ""
        soft = SOFT[resolved(model, entry).softgpu]
        why = entry.why if entry.guest == "hand" else ""
        lines.append(f"| {entry.name}{variant} | {since} | {guest} | {host} | {soft} | {why} |")
    return lines + [""]


def emit_text(model):
    entries = list(model.entries.values())
    symbols = sum(len(e.symbols) for e in entries)
    carried = sum(resolved(model, e).guest != "none" for e in entries)
    automatic = sum(resolved(model, e).guest == "auto" for e in entries)
    soft = sum(resolved(model, e).softgpu for e in entries)
    lines = [
        "# What of the Driver API is carried", "",
        "Generated from `proto/api` by `python3 proto/gen/weirgen.py --coverage docs/coverage.md`; a test",
        "checks that it is current. A dash: the symbol is exported and answers CUDA_ERROR_NOT_SUPPORTED.",
        "A suffix in parentheses: the function has that per-thread variant, carried alike.", "",
        "| | |", "|---|---|",
        f"| symbols exported | {symbols} |",
        f"| functions, counting versions and not variants | {len(entries)} |",
        f"| carried by the guest library | {carried} |",
        f"| of these without any hand-written code in the guest | {automatic} |",
        f"| offered by softgpu | {soft} |", ""]
    for group, members in model.groups.items():
        lines += emit_group(model, group, members)
    return "\n".join(lines).rstrip() + "\n"
