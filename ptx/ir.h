/*
 * The PTX intermediate representation: a module as the parser leaves it, for analysis, passes and
 * the interpreter. Plain structs; everything lives in the module's arena and dies with it.
 *
 * What the parser has already resolved for users:
 * - Scopes are gone. Nested { } blocks are flattened; every name was looked up. Registers are dense
 *   ids 0 .. n_regs-1 of their function, handed out at first use; vector registers were split
 *   into scalars. Labels are ids of func->labels, which hold the index of an instruction.
 *   Variables and functions are pointers.
 * - An instruction keeps every suffix in order (mods[], types included), which the printer writes,
 *   and the usual ones decoded into fields, which all others read. A pass that changes one must
 *   change both: weir_ptx_inst_decode() refills the fields from mods[].
 * - Operands are in source order: destination first. ops.def says how many.
 *
 * Kept but not interpreted: .file and .section at module level, .loc and .pragma in bodies (struct
 * weir_ptx_note), unless WEIR_PTX_DROP_DEBUG was given.
 *
 * Owner thread only while it is changed; immutable and shareable afterwards.
 */
#pragma once

#include "base/arena.h"
#include "base/search.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits: hostile text is refused with WEIR_ERR_TOO_BIG, never with exhaustion. */
#define WEIR_PTX_MAX_TEXT_BYTES (64u << 20)
#define WEIR_PTX_MAX_INSTS      (4u << 20)  /* per module */
#define WEIR_PTX_MAX_REGS       (1u << 20)  /* registers used by a function */
#define WEIR_PTX_MAX_LABELS     (1u << 20)  /* per function */
#define WEIR_PTX_MAX_SYMBOLS    (1u << 20)  /* variables and functions of a module */
#define WEIR_PTX_MAX_INIT       (16u << 20) /* initialiser elements of a module */
#define WEIR_PTX_MAX_NESTING    64   /* nested { } in a body; nested brackets in expressions */
#define WEIR_PTX_MAX_OPERANDS   16   /* operands of an instruction */
#define WEIR_PTX_MAX_LIST       1024 /* elements of a vector or call list */
#define WEIR_PTX_MAX_MODS       32   /* suffixes of one instruction */
#define WEIR_PTX_MAX_TYPES      6    /* types among the suffixes */
#define WEIR_PTX_MAX_DIMS       8    /* dimensions of an array */
#define WEIR_PTX_MAX_VAR_BYTES  (1ull << 40)

#define WEIR_PTX_NONE UINT32_MAX /* no register, no label, no instruction */

enum weir_ptx_type {
    WEIR_PTX_TYPE_NONE,
#define WEIR_PTX_TYPE_ROW(name, text, bits, class) WEIR_PTX_TYPE_##name,
#include "ptx/types.def"
#undef WEIR_PTX_TYPE_ROW
    WEIR_PTX_TYPE_COUNT
};

enum weir_ptx_space {
    WEIR_PTX_SPACE_NONE, /* the generic space, for an access */
#define WEIR_PTX_SPACE_ROW(name, text) WEIR_PTX_SPACE_##name,
#include "ptx/spaces.def"
#undef WEIR_PTX_SPACE_ROW
    WEIR_PTX_SPACE_COUNT
};

/* Fields into which weir_ptx_inst_decode() puts a suffix. */
enum weir_ptx_slot {
    WEIR_PTX_SLOT_NONE,
    WEIR_PTX_SLOT_TYPE,
    WEIR_PTX_SLOT_SPACE,
    WEIR_PTX_SLOT_SHAPE,
    WEIR_PTX_SLOT_FLAG,
    WEIR_PTX_SLOT_VEC,
    WEIR_PTX_SLOT_ROUND,
    WEIR_PTX_SLOT_CMP,
    WEIR_PTX_SLOT_HALF,
    WEIR_PTX_SLOT_ACTION,
    WEIR_PTX_SLOT_SCOPE,
    WEIR_PTX_SLOT_ORDER,
    WEIR_PTX_SLOT_CACHE,
    WEIR_PTX_SLOT_EVICT,
    WEIR_PTX_SLOT_GEOM,
};

/*
 * Suffixes. Types come first and spaces next, so that WEIR_PTX_TYPE_F32 is the suffix .f32, and
 * WEIR_PTX_MOD_SPACE + WEIR_PTX_SPACE_GLOBAL is .global. WEIR_PTX_MOD_SHAPE stands for any mNnNkN;
 * the instruction's shape has the numbers.
 */
enum weir_ptx_mod {
    WEIR_PTX_MOD_NONE,
    WEIR_PTX_MOD_SPACE = WEIR_PTX_TYPE_COUNT,
    WEIR_PTX_MOD_SHAPE = WEIR_PTX_TYPE_COUNT + WEIR_PTX_SPACE_COUNT,
#define WEIR_PTX_MOD_ROW(name, text, slot) WEIR_PTX_MOD_##name,
#include "ptx/modifiers.def"
#undef WEIR_PTX_MOD_ROW
    WEIR_PTX_MOD_COUNT
};

/* Bits of weir_ptx_inst.flags: WEIR_PTX_FLAG_SAT == 1u << n. */
enum weir_ptx_flag_bit {
#define WEIR_PTX_MOD_ROW(name, text, slot)
#define WEIR_PTX_FLAG_ROW(name, text) WEIR_PTX_FLAG_BIT_##name,
#include "ptx/modifiers.def"
#undef WEIR_PTX_MOD_ROW
#undef WEIR_PTX_FLAG_ROW
    WEIR_PTX_FLAG_BIT_COUNT
};
enum weir_ptx_flag {
#define WEIR_PTX_MOD_ROW(name, text, slot)
#define WEIR_PTX_FLAG_ROW(name, text) WEIR_PTX_FLAG_##name = 1u << WEIR_PTX_FLAG_BIT_##name,
#include "ptx/modifiers.def"
#undef WEIR_PTX_MOD_ROW
#undef WEIR_PTX_FLAG_ROW
};

enum weir_ptx_op {
    WEIR_PTX_OP_NONE,
#define WEIR_PTX_OP_ROW(name, text, min, max, flags) WEIR_PTX_OP_##name,
#include "ptx/ops.def"
#undef WEIR_PTX_OP_ROW
    WEIR_PTX_OP_COUNT
};

enum weir_ptx_op_flag {
    WEIR_PTX_OPF_DST = 1u << 0,     /* operand 0 is written */
    WEIR_PTX_OPF_DST_OPT = 1u << 1, /* operand 0 is written in some forms */
    WEIR_PTX_OPF_SAME = 1u << 2,    /* all registers are as wide as types[0] */
    WEIR_PTX_OPF_MEM = 1u << 3,     /* addresses memory */
    WEIR_PTX_OPF_LOAD = 1u << 4,
    WEIR_PTX_OPF_STORE = 1u << 5,
    WEIR_PTX_OPF_ATOMIC = 1u << 6,
    WEIR_PTX_OPF_ASYNC = 1u << 7,   /* may complete later */
    WEIR_PTX_OPF_TEXTURE = 1u << 8, /* texture or surface */
    WEIR_PTX_OPF_CONTROL = 1u << 9, /* may change the flow of control */
    WEIR_PTX_OPF_CALL = 1u << 10,
    WEIR_PTX_OPF_EXIT = 1u << 11,       /* leaves the function or the kernel */
    WEIR_PTX_OPF_BARRIER = 1u << 12,    /* a barrier of a block, cluster or (.warp) warp */
    WEIR_PTX_OPF_MBARRIER = 1u << 13,   /* barrier object in memory */
    WEIR_PTX_OPF_FENCE = 1u << 14,      /* orders memory, moves none */
    WEIR_PTX_OPF_CONVERGENT = 1u << 15, /* several threads take part */
    WEIR_PTX_OPF_MATRIX = 1u << 16,
};

struct weir_ptx_op_info {
    const char *name;
    uint8_t min_operands;
    uint8_t max_operands;
    uint32_t flags; /* WEIR_PTX_OPF_* */
};

enum weir_ptx_sreg {
    WEIR_PTX_SREG_NONE,
#define WEIR_PTX_SREG_ROW(name, text, bits, components) WEIR_PTX_SREG_##name,
#include "ptx/sregs.def"
#undef WEIR_PTX_SREG_ROW
    WEIR_PTX_SREG_COUNT
};

enum weir_ptx_linkage {
    WEIR_PTX_LINKAGE_NONE, /* visible in this module only */
    WEIR_PTX_LINKAGE_VISIBLE,
    WEIR_PTX_LINKAGE_EXTERN,
    WEIR_PTX_LINKAGE_WEAK,
    WEIR_PTX_LINKAGE_COMMON,
};

enum weir_ptx_init_kind {
    WEIR_PTX_INIT_INT,   /* bits, cut to the element's width */
    WEIR_PTX_INIT_FLOAT, /* bits in the element's own type: f16, f32, f64 .. */
    WEIR_PTX_INIT_VAR,   /* address of var + offset */
    WEIR_PTX_INIT_FUNC,  /* address of func */
};

/* One initialised element of a variable; elements that are not listed are zero. */
struct weir_ptx_init {
    uint64_t index; /* position in the flattened array, in elements of var->type */
    uint8_t kind;   /* enum weir_ptx_init_kind */
    bool generic;   /* generic(sym): the symbol's generic address */
    uint64_t mask;  /* 0, or the byte of the address that is stored (0xFF00: bits 8..15) */
    uint64_t bits;
    int64_t offset;
    struct weir_ptx_var *var;
    struct weir_ptx_func *func;
};

/* A variable, parameter or return value. */
struct weir_ptx_var {
    const char *name;
    uint32_t id;        /* position in module->vars, func->vars or func->params / returns */
    uint8_t space;      /* enum weir_ptx_space; REG for parameters in registers: see reg */
    uint8_t type;       /* enum weir_ptx_type of one element */
    uint8_t vec;        /* 1, 2, 4, 8 */
    uint8_t linkage;    /* enum weir_ptx_linkage */
    uint8_t n_dims;     /* 0 for a scalar */
    bool is_param;      /* a parameter of an entry, function or prototype; else a variable */
    bool unsized;       /* dims[0] was left open: extern .shared a[] */
    bool managed;       /* .attribute(.managed) */
    bool unified;       /* .attribute(.unified(a, b)) */
    bool ptr;           /* parameter marked .ptr */
    uint8_t ptr_space;  /* state space of that pointer; NONE: generic */
    uint32_t ptr_align; /* alignment of the memory that it points to; 0: not given */
    uint32_t align;     /* bytes, a power of two; the natural one if not given */
    bool align_given;
    uint64_t dims[WEIR_PTX_MAX_DIMS]; /* outermost first; 0 for an unsized one */
    uint64_t size_bytes;              /* total size; 0 if unsized, or opaque without size */
    uint64_t offset_bytes;            /* parameters: place in the parameter block */
    uint64_t unified_ids[2];
    uint32_t reg;               /* space REG: its register, else WEIR_PTX_NONE */
    struct weir_ptx_func *func; /* the function it belongs to, NULL at module level */
    struct weir_ptx_init *inits;
    uint32_t n_inits;
    bool has_init;
    uint32_t line;
    void *user; /* free for the IR's user (interpreter, pass); NULL after parsing */
};

struct weir_ptx_reg {
    const char *name; /* as in the source; the printer gives registers names of its own */
    uint8_t type;     /* enum weir_ptx_type */
    uint8_t bits;     /* 1 for a predicate, 8 .. 128 */
    uint32_t line;    /* line of its declaration */
};

struct weir_ptx_label {
    const char *name; /* unique in its function */
    uint32_t inst;    /* index of the instruction behind it; n_insts: the end */
};

/* A .branchtargets, .calltargets or .callprototype, each named by a label in the source. */
enum weir_ptx_table_kind {
    WEIR_PTX_TABLE_BRANCH,
    WEIR_PTX_TABLE_CALL,
    WEIR_PTX_TABLE_PROTOTYPE,
};
struct weir_ptx_table {
    const char *name; /* unique in its function */
    uint8_t kind;
    bool noreturn;
    uint32_t n;
    uint32_t *labels;             /* BRANCH: n label ids */
    struct weir_ptx_func **funcs; /* CALL: n functions */
    struct weir_ptx_func *proto;  /* PROTOTYPE: params and returns only */
    uint32_t before_inst;
    uint32_t line;
};

enum weir_ptx_operand_kind {
    WEIR_PTX_OPERAND_SINK,   /* _ (reg2 may be set: _|p) */
    WEIR_PTX_OPERAND_REG,    /* reg; reg2 for p|q; negated for !p; selector for .b0 .h1 */
    WEIR_PTX_OPERAND_INT,    /* bits: 64-bit two's complement */
    WEIR_PTX_OPERAND_FLOAT,  /* bits: see float_bits */
    WEIR_PTX_OPERAND_SREG,   /* sreg, component */
    WEIR_PTX_OPERAND_VAR,    /* address of var + offset */
    WEIR_PTX_OPERAND_FUNC,   /* func */
    WEIR_PTX_OPERAND_MEM,    /* [base + offset {, coordinates}]: see base; elems are the others */
    WEIR_PTX_OPERAND_VECTOR, /* {elems}; elements may be SINK (_) */
    WEIR_PTX_OPERAND_LABEL,  /* label */
    WEIR_PTX_OPERAND_LIST,   /* (elems): call arguments or results */
    WEIR_PTX_OPERAND_TABLE,  /* table: branch targets, call targets, prototype */
};

enum weir_ptx_base {
    WEIR_PTX_BASE_REG, /* reg + offset */
    WEIR_PTX_BASE_VAR, /* address of var + offset */
    WEIR_PTX_BASE_INT, /* bits: an absolute address (offset is 0) */
};

/* No component; .x .y .z .w are 0 .. 3. */
#define WEIR_PTX_COMPONENT_ALL 0xff

struct weir_ptx_operand {
    uint8_t kind;       /* enum weir_ptx_operand_kind */
    uint8_t base;       /* MEM: enum weir_ptx_base */
    uint8_t component;  /* SREG: 0 .. 3 or WEIR_PTX_COMPONENT_ALL */
    uint8_t float_bits; /* FLOAT: 32 (0f) or 64 (0d, decimal: of any instruction type) */
    uint16_t sreg;      /* enum weir_ptx_sreg */
    bool negated;       /* REG: !p */
    bool minus;         /* REG of a video instruction: -a */
    bool is_signed;     /* INT: was written with a minus sign (for the printer only) */
    uint32_t reg;       /* REG, MEM with a register base */
    uint32_t reg2;      /* p|q and {..}|q: second destination; else WEIR_PTX_NONE */
    uint32_t label;
    uint32_t n_elems; /* number of elements of VECTOR and LIST; of MEM: items in the brackets behind
                         the first */
    union {
        uint64_t bits;  /* INT, FLOAT, MEM with an absolute base */
        int64_t offset; /* VAR, MEM */
    };
    union {
        struct weir_ptx_var *var;
        struct weir_ptx_func *func;
        struct weir_ptx_table *table;
    };
    struct weir_ptx_operand *elems;
    const char *selector; /* REG of a video instruction: "b0", "h1"; MEM: "unified"; else NULL */
};

struct weir_ptx_shape {
    uint16_t m, n, k; /* k is 0 for .m8n8 and the like */
};

/*
 * One instruction. call: operands are [0] LIST of results, [1] FUNC or REG, [2] LIST of arguments
 * and, for an indirect call, [3] TABLE; the lists may be empty. brx.idx: REG, TABLE.
 */
struct weir_ptx_inst {
    uint16_t op; /* enum weir_ptx_op */
    uint8_t n_mods;
    uint8_t n_types;
    uint8_t n_operands;
    bool guard_negated;
    uint8_t types[WEIR_PTX_MAX_TYPES]; /* enum weir_ptx_type in source order */
    uint8_t space;                     /* first state space; NONE: generic */
    uint8_t space2;                    /* second space (cp.async: destination, then source) */
    uint8_t vec;                       /* 1, 2, 4, 8 */
    uint32_t guard;                    /* predicate register, or WEIR_PTX_NONE */
    uint32_t flags;                    /* WEIR_PTX_FLAG_*: SAT FTZ APPROX UNI SYNC ALIGNED CC .. */
    /* Each field holds an enum weir_ptx_mod of the slot of the same name, or 0. */
    uint16_t round;  /* RN .. RPI; cvt of two roundings keeps the first */
    uint16_t cmp;    /* EQ .. NAN; LO and HI only for comparisons */
    uint16_t half;   /* LO, HI, WIDE */
    uint16_t action; /* atom, red, vote, shfl, redux ..: ADD, CAS, BFLY ..; setp: AND OR XOR */
    uint16_t scope;
    uint16_t order; /* WEAK RELAXED ACQUIRE RELEASE ACQ_REL SC VOLATILE */
    uint16_t cache;
    uint16_t evict;
    uint16_t geom;
    struct weir_ptx_shape shape;
    uint32_t line;
    const uint16_t *mods; /* enum weir_ptx_mod, all suffixes in order */
    struct weir_ptx_operand *operands;
};

/* Text inside a body that is kept but not interpreted (.loc, .pragma): printed before
 * before_inst. */
struct weir_ptx_note {
    uint32_t before_inst;
    bool is_debug;
    const char *text; /* without a line end */
};

struct weir_ptx_perf {
    uint8_t n_maxntid; /* how many numbers were given; 0: no directive */
    uint8_t n_reqntid;
    uint8_t n_reqnctapercluster;
    bool explicitcluster;
    bool blocksareclusters;
    bool has_minnctapersm;
    bool has_maxnctapersm;
    bool has_maxnreg;
    bool has_maxclusterrank;
    bool noreturn;
    bool has_abi_preserve;
    bool has_abi_preserve_control;
    uint32_t maxntid[3]; /* missing ones are 1 */
    uint32_t reqntid[3];
    uint32_t reqnctapercluster[3];
    uint32_t minnctapersm;
    uint32_t maxnctapersm;
    uint32_t maxnreg;
    uint32_t maxclusterrank;
    uint32_t abi_preserve;
    uint32_t abi_preserve_control;
    const char **pragmas; /* texts without quotes */
    uint32_t n_pragmas;
};

struct weir_ptx_func {
    const char *name;
    uint32_t id; /* position in module->funcs */
    bool is_entry;
    bool has_body;
    bool is_alias;
    uint8_t linkage; /* enum weir_ptx_linkage; of the definition if there is one */
    struct weir_ptx_func *alias_of;
    struct weir_ptx_perf perf;
    struct weir_ptx_var **returns;
    uint32_t n_returns;
    struct weir_ptx_var **params;
    uint32_t n_params;
    uint64_t params_size_bytes; /* size of the parameter block, with the offsets in params */
    struct weir_ptx_reg *regs;
    uint32_t n_regs;
    struct weir_ptx_var **vars; /* declared in the body: .local .shared .param .const .global */
    uint32_t n_vars;
    struct weir_ptx_label *labels;
    uint32_t n_labels;
    struct weir_ptx_table **tables;
    uint32_t n_tables;
    struct weir_ptx_inst *insts;
    uint32_t n_insts;
    struct weir_ptx_note *notes; /* sorted by before_inst */
    uint32_t n_notes;
    uint32_t line;
    void *user; /* free for the IR's user; NULL after parsing */
};

enum weir_ptx_item_kind {
    WEIR_PTX_ITEM_VAR,
    WEIR_PTX_ITEM_FUNC_DECL, /* prototype only */
    WEIR_PTX_ITEM_FUNC,      /* a function with its body */
    WEIR_PTX_ITEM_ALIAS,
    WEIR_PTX_ITEM_TEXT, /* .file, .section, module-level .pragma: printed as it is */
};
struct weir_ptx_item {
    uint8_t kind;
    uint8_t linkage; /* linkage of this declaration */
    bool is_decl;    /* VAR: an extern declaration; the variable may be defined later */
    struct weir_ptx_var *var;
    struct weir_ptx_func *func;
    const char *text;
};

struct weir_ptx_module {
    struct weir_arena arena; /* memory of the module, and of everything in it */
    uint16_t version_major;
    uint16_t version_minor;
    uint16_t sm;    /* 90 for sm_90a */
    char sm_suffix; /* 'a', 'f' or 0 */
    bool target_debug;
    bool texmode_independent;
    bool texmode_unified;
    bool map_f64_to_f32;
    uint8_t address_size;        /* 64 (or 32) */
    struct weir_ptx_item *items; /* in source order */
    uint32_t n_items;
    struct weir_ptx_var **vars; /* variables of module scope, each once */
    uint32_t n_vars;
    struct weir_ptx_func **funcs; /* functions, each once, declared or defined */
    uint32_t n_funcs;
    /* Allocated lengths of these arrays, for passes that add elements; 0: no spare room. */
    uint32_t cap_items;
    uint32_t cap_vars;
    uint32_t cap_funcs;
};

/* The row of an opcode in ops.def. @param op below WEIR_PTX_OP_COUNT. @thread any */
const struct weir_ptx_op_info *weir_ptx_op_info(enum weir_ptx_op op);

/** Text of a type without its dot, "" for NONE or anything unknown. @thread any */
const char *weir_ptx_type_text(enum weir_ptx_type type);

/** Width in bits, 0 for NONE. @thread any */
uint32_t weir_ptx_type_bits(enum weir_ptx_type type);

/** Bytes that one element takes in memory: bits rounded up to whole bytes. @thread any */
uint32_t weir_ptx_type_bytes(enum weir_ptx_type type);

/** The class of a type, as in types.def: 'B', 'U', 'S', 'F', 'P' or 'O'; 0 for NONE. @thread any */
char weir_ptx_type_class(enum weir_ptx_type type);

/** Text of a state space without its dot. @thread any */
const char *weir_ptx_space_text(enum weir_ptx_space space);

/** Text of a suffix without its dot; "" for SHAPE. @thread any */
const char *weir_ptx_mod_text(enum weir_ptx_mod mod);

/** Text of a special register with its %. @thread any */
const char *weir_ptx_sreg_text(enum weir_ptx_sreg sreg);

/** Width of one component of a special register in bits. @thread any */
uint32_t weir_ptx_sreg_bits(enum weir_ptx_sreg sreg);

/** Does an instruction have this suffix? */
static inline bool weir_ptx_inst_has(const struct weir_ptx_inst *inst, enum weir_ptx_mod mod)
{
    return WEIR_ANY(i, inst->n_mods, inst->mods[i] == mod);
}

/** Does this form of the opcode write operand 0? @thread any */
bool weir_ptx_inst_has_dst(const struct weir_ptx_inst *inst);

/**
 * Refill types, space, vec, flags, round .. geom from op, mods and n_mods; shape does not change.
 * @return false when there are more types than WEIR_PTX_MAX_TYPES.
 * @thread owner
 */
bool weir_ptx_inst_decode(struct weir_ptx_inst *inst);

/**
 * Memory from the module's arena: zeroed, aligned to 16 bytes, freed with the module.
 * @return NULL none is left.
 * @thread owner
 */
void *weir_ptx_alloc(struct weir_ptx_module *module, size_t size_bytes);
