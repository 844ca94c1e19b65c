"""Codes of mistakes in kernels as a whole: control flow, values, results, order of cores."""

from __future__ import annotations

from typing import Final

from nki_dist.codes.kind import Code

KERNELS: Final = (
    Code(
        "error",
        "An error of the simulator's family without a code of its own.",
        "See the message.",
    ),
    Code("warning", "A warning without a code of its own.", "See the message."),
    Code(
        "kernel-raised",
        "The kernel itself raised an exception while it was traced.",
        "Look at the line of the kernel; the exception is Python's, not the simulator's.",
    ),
    Code(
        "compile",
        "The kernel can't be turned into a program.",
        "See the message.",
    ),
    Code(
        "compiler-may-reject",
        "It runs here, but AWS's compiler is reported to refuse it.",
        "Write it as the message says, before you compile for a device.",
    ),
    # Releases of NKI ----------------------------------------------------------------------------
    Code(
        "release-added",
        "A kernel that is held to NKI 0.6 uses what came with 0.7.",
        "Hold it to 0.7 (NKI_DIST_RELEASE=0.7), or use what the message names.",
    ),
    Code(
        "release-removed",
        "A kernel uses what NKI 0.7 has removed.",
        "Use nl.fori_loop and nl.while_loop; NKI_DIST_RELEASE=0.6 is for kernels of 0.6.",
    ),
    Code(
        "release-deprecated",
        "A kernel uses what NKI 0.7 has deprecated.",
        "Use what the message names.",
    ),
    Code(
        "nested-config",
        "A kernel inside another asks for another configuration.",
        "Give both the same, or set allow_nested_config_override in the outer one's "
        "SpecializationConfig.",
    ),
    # Python that AWS's compiler doesn't take -----------------------------------------------------
    Code(
        "python-keyword-only",
        "A kernel has keyword-only parameters.",
        "Remove the `*` from the signature and give the parameters default values.",
    ),
    Code("python-identity", "`is` compares values in a kernel.", "Write == or !=."),
    Code("python-dict-key", "A dict of a kernel has a key that isn't a string.", "Use strings."),
    Code(
        "python-comprehension",
        "A kernel has a comprehension.",
        "Write a for loop with append().",
    ),
    Code(
        "python-generator",
        "A kernel has a generator expression.",
        "Write a for loop.",
    ),
    Code(
        "python-inner-function",
        "A function is defined inside a kernel.",
        "Move it to the module, and pass what it used as arguments.",
    ),
    Code("python-raise", "A kernel has a raise statement.", "Use assert."),
    Code(
        "python-targets",
        "A kernel assigns to several targets in a way that AWS's compiler doesn't take.",
        "Assign to names, one after the other.",
    ),
    Code(
        "python-builtin",
        "A kernel calls a built-in function that AWS's compiler doesn't know.",
        "Compute the value outside the kernel and pass it as an argument.",
    ),
    Code(
        "argument-no-tensor",
        "A kernel uses an argument as a tensor that isn't an array.",
        "Pass an array; nki.per_rank gives every rank of a world its own.",
    ),
    Code("argument-list", "A list is an argument of a kernel.", "Pass a tuple."),
    Code(
        "argument-class",
        "An object whose class isn't an NKIObject is an argument of a kernel.",
        "Derive the class from nl.NKIObject and nothing else.",
    ),
    Code(
        "return-private",
        "A kernel returns a tensor that isn't in shared_hbm.",
        "Allocate it with buffer=nl.shared_hbm.",
    ),
    Code(
        "grid-of-instances",
        "A launch grid has several axes or instances.",
        "Launch with kernel[cores], and loop over tiles in the kernel.",
        ("NCC_EARG001",),
    ),
    # Values that Python doesn't have ------------------------------------------------------------
    Code(
        "branch-on-tensor",
        "Python can't branch on a tensor.",
        "Select with nl.where or nisa.select_reduce, or load a register for nl.while_loop.",
    ),
    Code(
        "branch-on-register",
        "Python can't branch on a register.",
        "Use nl.while_loop or `while register:`.",
    ),
    Code(
        "branch-on-index",
        "Python can't branch on an index expression or a mask.",
        "Pass the comparison as mask=, and combine masks with & and |.",
    ),
    Code(
        "tensor-as-value",
        "A tensor has no values in Python.",
        "Compute with nisa or nl functions; load a register for loop bounds.",
    ),
    Code(
        "register-as-value",
        "A register has no value in Python.",
        "Use it as a loop bound, in nl.ds or as scalar_offset; compute with tensors.",
    ),
    Code(
        "values-unknown",
        "Values of a tensor are asked for before the kernel runs.",
        "Run it with nki.debug(kernel)(...) or host='debug', where tensor.numpy() has them.",
    ),
    Code(
        "debug-view",
        "A debugged kernel asks for the values of a view that many run-time indices choose.",
        "Copy it to a tile and look at that.",
    ),
    Code(
        "no-such-attribute",
        "Tensors don't have this attribute.",
        "Use what the message names instead.",
    ),
    Code(
        "outside-kernel",
        "nl and nisa functions work only inside a kernel.",
        "Decorate the function with @nki.jit and call it with arrays.",
    ),
    Code(
        "foreign-tensor",
        "A tensor or register of another trace is used.",
        "Create it in the kernel, or pass it as an argument; don't keep it in a global.",
    ),
    # Loops --------------------------------------------------------------------------------------
    Code(
        "loop-bound",
        "The bounds or step of a loop aren't what the loop takes.",
        "Pass ints (`//`, not `/`) or registers; the step is a positive int.",
    ),
    Code(
        "loop-body",
        "The body of a loop is no function of one parameter, or returns something that it can't.",
        "Bodies of fori_loop return nothing, those of while_loop the next register.",
    ),
    Code(
        "loop-left",
        "A dynamic loop was left by break, return or an exception.",
        "Let the body run to its end; end early with nl.while_loop.",
    ),
    Code(
        "loop-carries-name",
        "A loop body gives a name another tensor, which later rounds don't see.",
        "Allocate one tensor before the loop and write to it inside.",
    ),
    Code(
        "loop-made-inside",
        "A tensor made inside a dynamic loop is used after it.",
        "Allocate it before the loop and write to it inside.",
    ),
    Code(
        "loop-register",
        "The induction register of a dynamic loop is written.",
        "Write to a copy (nisa.register_alloc, nisa.register_move).",
    ),
    Code(
        "loop-in-no-reorder",
        "A dynamic loop inside nl.no_reorder.",
        "Put nl.no_reorder inside the loop.",
    ),
    Code(
        "source-needed",
        "`while register:` needs the kernel's source text.",
        "Keep the kernel in a file, or use nl.while_loop.",
    ),
    Code(
        "schedule",
        "with_schedule names instructions or an order that the kernel doesn't have.",
        "Name instructions with name=, one each, and keep the order of the lines.",
    ),
    # Results ------------------------------------------------------------------------------------
    Code(
        "return-value",
        "A kernel returned something that isn't a tensor in shared_hbm.",
        "Return tensors in nl.shared_hbm, tuples, lists or dicts of them, or nothing.",
    ),
    Code(
        "return-memory",
        "A kernel returned a tensor that isn't in shared_hbm.",
        "Copy it to a tensor in nl.shared_hbm with nisa.dma_copy and return that.",
    ),
    Code(
        "tree-cycle",
        "An argument or result holds itself.",
        "Pass trees of tuples, lists and dicts.",
    ),
    Code("tree-leaves", "A tree got another number of leaves.", "Give as many as it has."),
    # Several cores and ranks --------------------------------------------------------------------
    Code(
        "cores-allocate-alike",
        "Cores of one launch make different shared_hbm allocations.",
        "Allocate shared tensors before any branch on nl.program_id.",
    ),
    Code(
        "cores-return-alike",
        "Cores of one launch return different tensors.",
        "Return the same tensors on every core, outside any branch on nl.program_id.",
    ),
    Code(
        "race",
        "Nothing orders two accesses, and the result depends on their order.",
        "Put nisa.core_barrier between them, or let each core write rows of its own.",
    ),
    Code(
        "deadlock",
        "No core can go on.",
        "Let every core issue the same sendrecv, core_barrier and collectives in one order.",
    ),
    Code("mismatch", "Ranks disagree about a collective.", "Make the calls alike on all ranks."),
    Code(
        "exchange-mismatch",
        "Two cores that meet disagree about what they exchange.",
        "Make kind, shape, dtype and partners of the call alike on both sides.",
    ),
    Code(
        "exchange-unread",
        "A core sent messages that nobody received.",
        "Let all cores issue the same exchanges in the same order.",
    ),
    # Beta 1 -------------------------------------------------------------------------------------
    Code(
        "mask-unsupported",
        "A mask where the simulator doesn't take one.",
        "Slice the operands instead.",
    ),
    Code("mask-shape", "A mask doesn't fit the tile, or isn't a box.", "Bound each index."),
    Code(
        "beta1-return",
        "A kernel returns from inside a loop of the device, before its last iteration.",
        "If it is indented too far, move the return statement behind the loop.",
    ),
    Code(
        "beta1-blocks",
        "Block dimensions are used like dimensions of a tile.",
        "Index blocks by ints or loop variables; each is a tile of its own.",
    ),
    Code(
        "beta1-allocation",
        "An allocation function or its blocks don't place the tiles.",
        "Give one place per block, with one partition dimension at most.",
    ),
    Code(
        "not-measured",
        "A file that should hold a measurement isn't there, or is another kind.",
        "Let the kernel write it: save_neff_name, save_trace_name, or artifacts_dir.",
    ),
    Code(
        "not-simulated",
        "The simulator doesn't have this function of AWS's.",
        "Use what the message names instead.",
    ),
    Code(
        "kernel-contract",
        "A kernel of nki_dist.kernels was called with arguments that it doesn't take.",
        "See the kernel's docstring for shapes and options.",
    ),
)
