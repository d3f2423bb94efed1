"""The exported symbols of the guest library and of softgpu, and headers of their hand-written halves."""

from emit_calls_log import as_word
from writer import header, source


def impl_params(entry):
    """Parameters of the implementation: the entry's own, and the default stream where it matters."""
    params = [p.declaration for p in entry.params]
    if entry.passes_default_stream:
        params.append("CUstream default_stream")
    return ", ".join(params) or "void"


def call_args(entry, default):
    args = [f"{p.name} ? {p.name} : {default}" if p.type == "CUstream" else p.name
            for p in entry.params]
    if entry.passes_default_stream:
        args.append(default)
    return ", ".join(args)


def emit_refusal(unsafe, prefix):
    """What a capture forbids (proto/common/capture_mode.h); of 0 as its argument the call does nothing."""
    given = "" if unsafe == "always" else f" && {unsafe}"
    return [f"    if (weir_rc == CUDA_SUCCESS{given}) {{",
            f"        weir_rc = weir_{prefix}_enter_unsafe();", "    }"] if unsafe else []


def emit_export(entry, symbol, prefix, implemented, unsafe, around):
    default = "CU_STREAM_PER_THREAD" if symbol != entry.name else "CU_STREAM_LEGACY"
    lines = [f"WEIR_EXPORT CUresult {symbol}({entry.parameter_list})", "{"]
    before, after = around(entry, symbol)
    if implemented:
        target = entry.same_as or entry.name
        call = f"weir_{prefix}_{target}({call_args(entry, default)})"
        lines += before
        if entry.before_init:
            lines.append(f"    CUresult weir_rc = {call};")
        else:
            lines += [f"    CUresult weir_rc = WEIR_{prefix.upper()}_ENTER({entry.name});",
                      *emit_refusal(unsafe, prefix),
                      "    if (__builtin_expect(weir_rc == CUDA_SUCCESS, 1)) {",
                      f"        weir_rc = {call};", "    }"]
    else:
        lines += [f"    (void){p.name};" for p in entry.params]
        lines += ["    static unsigned char told;", *before,
                  "    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) {",
                  f'        weir_{prefix}_unsupported("{symbol}");', "    }",
                  "    CUresult weir_rc = CUDA_ERROR_NOT_SUPPORTED;"]
    return "\n".join(lines + after + ["    return weir_rc;", "}"])


def around_nothing(_entry, _symbol):
    return [], []


def around_counted(model):
    """Every call of the guest is counted, and told if somebody wants that (guest_lib/calls.h)."""
    def around(entry, symbol):
        words = ", ".join(as_word(model, p) for p in entry.params) or "0"
        return ([f"    struct weir_calls_thread *weir_me = weir_calls_begin(WEIR_SYMBOL_{symbol});",
                 "    if (__builtin_expect(weir_me->marks & WEIR_CALLS_DETAIL, 0)) {",
                 f"        const uint64_t weir_words[] = {{{words}}};",
                 f"        weir_calls_log_begin(weir_me, WEIR_SYMBOL_{symbol}, weir_words);", "    }"],
                [f"    if (__builtin_expect(weir_calls_end(weir_me, WEIR_SYMBOL_{symbol}, weir_rc), 0)) {{",
                 f"        const uint64_t weir_words[] = {{{words}}};",
                 f"        weir_calls_log_add(WEIR_SYMBOL_{symbol}, weir_rc, weir_words);", "    }"])
    return around


def emit_exports(model, prefix, headers, of, implemented, around):
    bodies = "\n\n".join(emit_export(e, symbol, prefix, implemented(of(e)), of(e).unsafe_in_capture, around)
                         for e in model.entries.values() for symbol in e.symbols)
    addresses = "\n".join(
        f"    (void *){s}," for e in model.entries.values() for s in e.symbols)
    includes = "\n".join(f'#include "{name}"' for name in headers)
    return source(f"""{includes}
#include "proto/cuda_abi.h"
#include "proto/{'guest' if prefix == 'guest' else 'softgpu'}_hand.h"
#include "proto/symbols.h"

#define WEIR_EXPORT __attribute__((visibility("default")))

{bodies}

void *const weir_symbol_address[WEIR_SYMBOL_COUNT] = {{
{addresses}
}};""")


def emit_hand(entries, prefix, what):
    lines = "\n".join(f"CUresult weir_{prefix}_{e.name}({impl_params(e)});" for e in entries)
    return header(f"""/*
 * {what}
 *
 * A stream argument is never NULL here: the export has put CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
 * default_stream says which of the two a call without a stream of its own uses.
 */
#include "proto/cuda_abi.h"

/** Note, once per function, that a program called what is not there. @thread any */
void weir_{prefix}_unsupported(const char *symbol);

{lines}""")


def emit(model):
    def of(entry):
        return model.entries[entry.same_as] if entry.same_as else entry

    entries = model.entries.values()
    guest = [e for e in entries if not e.same_as and e.guest != "none"]
    soft = [e for e in entries if not e.same_as and e.softgpu]
    return {
        "proto/guest_exports.c": emit_exports(
            model, "guest", ["guest_lib/entry.h", "guest_lib/calls.h", "guest_lib/calls_log.h"],
            of, lambda e: e.guest != "none", around_counted(model)),
        "proto/guest_hand.h": emit_hand(
            guest, "guest",
            "The guest's half of each carried entry point: by hand in guest_lib/ops, or guest_auto.c."),
        "proto/softgpu_exports.c": emit_exports(
            model, "soft", ["softgpu/driver/entry.h"], of, lambda e: e.softgpu, around_nothing),
        "proto/softgpu_hand.h": emit_hand(
            soft, "soft",
            "softgpu's body of each entry point that it has, by hand in softgpu/driver."),
    }
