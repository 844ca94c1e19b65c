"""Codes of mistakes about instructions and their arguments."""

from __future__ import annotations

from typing import Final

from nki_dist.codes.kind import Code

INSTRUCTIONS: Final = (
    # Arguments of any instruction ---------------------------------------------------------------
    Code("invalid", "A documented rule is broken.", "See the message for what is allowed."),
    Code(
        "call-signature",
        "A function was called with arguments that it doesn't have.",
        "Compare the call with the parameters in the message.",
    ),
    Code(
        "operand-kind",
        "An operand isn't a tensor or number, as it has to be here.",
        "Pass a tile (see nl.load) or what the message allows.",
    ),
    Code(
        "array-as-operand",
        "A NumPy array is an operand of an instruction.",
        "Pass the array as an argument of the kernel, or make it one with nl.shared_constant.",
    ),
    Code(
        "instruction-result",
        "What an instruction returns is used as a tensor.",
        "Use the tensor that was passed as dst.",
    ),
    Code("operand-missing", "An operand is None that is needed.", "Pass it."),
    Code(
        "operand-shape",
        "An operand has another shape than the one there is for it.",
        "Allocate it with the shape in the message.",
    ),
    Code(
        "operand-vector",
        "An operand must have one element per partition.",
        "Pass a number or a tile of shape (partitions, 1).",
    ),
    Code(
        "argument-kind",
        "An argument has the wrong type.",
        "Pass what the message allows, known when the kernel is traced.",
    ),
    Code(
        "argument-choice",
        "An argument isn't one of the allowed values.",
        "Choose one of the values in the message.",
    ),
    Code(
        "fill-float",
        "memset fills an integer type with a whole number that is a float.",
        "Give an int.",
    ),
    Code("argument-range", "A number is outside its range.", "Keep it within the limits."),
    Code(
        "argument-combination",
        "Arguments that exclude or need each other.",
        "Leave one out, or give both, as the message says.",
    ),
    Code(
        "generation",
        "The platform's NeuronCore doesn't have this.",
        "Run on a later platform (platform=, --platform), or use another instruction.",
        aws=("NCC_EVRF051",),
    ),
    Code(
        "engine-choice",
        "The instruction doesn't run on this engine.",
        "Leave engine= out, or choose one from the message.",
    ),
    Code(
        "engine-lacks",
        "The instruction lacks this form.",
        "Use the instruction that the message names, or the default.",
    ),
    Code(
        "gpsimd-psum",
        "The GpSimd engine can't access PSUM.",
        "Use the Vector or Scalar engine, or copy the tile to SBUF first.",
    ),
    Code(
        "psum-inputs",
        "Both inputs are in PSUM, and an engine reads only one from there.",
        "Copy one of them to SBUF with nisa.tensor_copy.",
    ),
    Code("pattern", "An access pattern isn't a list of [step, count].", "Give up to four pairs."),
    Code(
        "depends-on",
        "depends_on doesn't name an earlier instruction.",
        "Pass what an instruction before this one returned, from the same loop or outside.",
    ),
    # Operators ----------------------------------------------------------------------------------
    Code(
        "operator-unknown",
        "There is no such operator or activation function.",
        "Choose one from the message.",
    ),
    Code(
        "operator-called",
        "An operator was called like a function.",
        "Pass it as op= to nisa.tensor_tensor, nisa.tensor_scalar or nisa.activation.",
    ),
    Code(
        "operator-dtype",
        "The operator doesn't take this data type.",
        "Bitwise operators take integers; convert, or choose an arithmetic operator.",
        aws_of={"nl.right_shift": ("NCC_EVRF022",)},
    ),
    Code(
        "operator-engine",
        "The engine doesn't have this operator.",
        "Leave engine= out, or choose an engine from the message.",
    ),
    Code(
        "operator-pair",
        "Two operators that can't be combined in one instruction.",
        "Use two instructions, or a pair that the message allows.",
    ),
    Code(
        "operator-no-reduction",
        "The operator doesn't reduce.",
        "Use one of those in the message, such as nl.add or nl.maximum.",
    ),
    Code("operator-not-elementwise", "The operator only reduces.", "Use it in nisa.tensor_reduce."),
    Code(
        "reduce-command",
        "reduce_cmd doesn't fit the other arguments.",
        "Give reduce_op, and reduce_res where the command loads it.",
    ),
    # Matmul and transposes ----------------------------------------------------------------------
    Code(
        "matmul-contraction",
        "The two sides of a matmul contract different sizes.",
        "Pass (K, M) and (K, N): transpose one (nisa.nc_transpose, nl.load_transpose2d), or slice.",
        aws_of={"nisa.nc_matmul_mx": ("NCC_EVRF050",)},
    ),
    Code(
        "matmul-stationary-size",
        "The stationary side has too many columns.",
        "Make tiles of at most nl.tile_size.gemm_stationary_fmax (128) columns.",
    ),
    Code(
        "matmul-moving-size",
        "The moving side has too many columns.",
        "Make tiles of at most nl.tile_size.gemm_moving_fmax (512) columns.",
    ),
    Code(
        "matmul-dtypes",
        "Data types that the Tensor engine doesn't multiply with each other, or write.",
        "Convert one side, or the destination, with nisa.tensor_copy.",
        aws_of={"nisa.nc_matmul_mx": ("NCC_EVRF045",)},
    ),
    Code(
        "matmul-mode",
        "A mode of matmul that excludes another, or needs another shape.",
        "Leave one of the two out; double_row takes (partitions, 2, columns).",
    ),
    Code(
        "tile-position",
        "tile_position and tile_size don't describe a part of the array.",
        "Give both, of allowed sizes, at multiples of the size.",
    ),
    Code(
        "matmul-tile-size",
        "tile_size isn't the size of a tile that the array has.",
        "Give the smallest of its tiles that holds the operands.",
    ),
    Code(
        "accumulate-onto-other",
        "accumulate=True adds to something that no matmul wrote.",
        "Start with accumulate=False, or add with nisa.tensor_tensor.",
    ),
    Code(
        "permutation-matrix",
        "is_transpose moves data, and the matrix given isn't a permutation.",
        "Pass an identity or permutation: one 1 in every column.",
    ),
    Code(
        "transpose-size",
        "A tile is larger than the engine transposes at once.",
        "Transpose blocks: up to (32, 32) on the Vector engine, (128, 128) on the Tensor engine.",
    ),
    Code(
        "transpose-memory",
        "A transpose on the Tensor engine goes from SBUF to PSUM.",
        "Put data in SBUF and dst in PSUM.",
    ),
    # DMA ----------------------------------------------------------------------------------------
    Code(
        "dma-transpose-shape",
        "A shape that a DMA transpose doesn't take.",
        "Pad rows to a multiple of 16, or use nisa.nc_transpose on chip.",
    ),
    Code(
        "dma-transpose-mode",
        "A DMA transpose of this kind doesn't have this dge_mode.",
        "Leave dge_mode out.",
    ),
    Code("oob-mode", "oob_mode.skip without a run-time index.", "Leave oob_mode out."),
    Code(
        "dma-compute-form",
        "Sources and destination that dma_compute can't add.",
        "See nisa.dma_compute for the three forms: add, gather and add, scatter and add.",
        aws=("NCC_EVRF016",),
    ),
    # Single instructions ------------------------------------------------------------------------
    Code(
        "shuffle-mask",
        "A shuffle mask isn't 32 numbers of partitions.",
        "Give 32 ints from 0 to 31, or 255 to keep a partition.",
    ),
    Code(
        "index-exact",
        "Column numbers are too large to be exact in float32.",
        "Keep them below 2**24.",
    ),
    Code(
        "mx-quantize-size",
        "The elements to quantize don't come in fours.",
        "Pad the free dimension to a multiple of 4.",
        aws=("NCC_EVRF058",),
    ),
    Code(
        "register-tensor",
        "A register holds one 32-bit integer.",
        "Load from a (1, 1) tile of int32 or uint32.",
    ),
    Code("register-kind", "Not a register.", "Make one with nisa.register_alloc."),
    # Scalars -------------------------------------------------------------------------------------
    Code(
        "scalar-tensor",
        "A scalar is one integer.",
        "Load from and store to a (1, 1) tile of nl.int32 or nl.int64.",
    ),
    Code(
        "scalar-operand",
        "An NkiScalar is computed with, or stored, together with something else.",
        "Use ints and NkiScalars; load tensors with nisa.scalar_load.",
    ),
    Code(
        "scalar-operator",
        "NkiScalars don't have this operator.",
        "Use +, - and *, or compute with tensors and load the result.",
    ),
    Code(
        "scalar-dtypes",
        "Scalars and tiles of different widths meet.",
        "Load all of them from tiles of one dtype.",
    ),
    Code(
        "scalar-width",
        "A 64-bit scalar stands where 32 bits are taken.",
        "Load it from an nl.int32 tile; only offsets of tensors in HBM have 64 bits.",
    ),
    Code(
        "scalar-comparison",
        "The result of a comparison of scalars is used.",
        "Bound a nl.fori_loop, or compute masks with tensors.",
    ),
    Code(
        "scalar-written",
        "An NkiScalar is written to.",
        "Compute a new one, or use a register (nisa.register_alloc).",
    ),
    Code(
        "dtype-wide",
        "An instruction is given 64-bit integers.",
        "Pass 32-bit integers; DMA moves 64-bit ones, and nisa.scalar_load reads one.",
    ),
    # Between cores ------------------------------------------------------------------------------
    Code("core-number", "There is no such core in the LNC.", "Name core 0 or 1, each once."),
    Code(
        "lnc-needed",
        "The instruction is for the two cores of an LNC, and the launch has one.",
        "Launch kernel[2], or make the world with lnc=2.",
    ),
    Code(
        "sendrecv-size",
        "More bytes than gpsimd_dma sends at once.",
        "Send smaller pieces, or leave use_gpsimd_dma out.",
    ),
    # Collectives --------------------------------------------------------------------------------
    Code("rank-form", "A rank isn't an int from 0 on.", "Number ranks 0, 1, 2, ..."),
    Code(
        "rank-range",
        "The world has no such rank.",
        "Run in nki.World(ranks=n) with as many ranks as the kernel names.",
    ),
    Code(
        "replica-group-form",
        "Not a list of lists of ranks.",
        "Pass a ReplicaGroup or [[0, 1], [2, 3]].",
    ),
    Code("replica-group-overlap", "A rank is in two groups.", "Put each rank in one group."),
    Code(
        "replica-group-incomplete",
        "A rank is in no group but takes part.",
        "Give every rank of the world a group.",
    ),
    Code(
        "replica-group-sizes",
        "Groups have sizes that this collective doesn't take.",
        "Make all groups of the one size it needs.",
    ),
    Code(
        "collective-pairs",
        "Not pairs of source and target, or a rank twice on a side.",
        "Pass [(0, 1), (1, 2), (2, 0)]: each rank sends once and receives once at most.",
    ),
    Code(
        "collective-lists",
        "The tensors of a collective aren't lists of matching length.",
        "Pass srcs=[...] and dsts=[...] with as many tensors.",
    ),
    Code(
        "collective-memory",
        "Tensors of a collective in memories that can't be combined.",
        "Put all in HBM (of one kind) or all in SBUF.",
    ),
    Code(
        "collective-shape",
        "The shapes of a collective's tensors don't fit the size of the group.",
        "Give the shape in the message; the group's size multiplies or divides collective_dim.",
    ),
    Code(
        "collective-channels",
        "Channels in a number or order that isn't possible.",
        "Number channel_ids from 0, with one tensor for each.",
    ),
    Code(
        "collective-metadata",
        "The metadata tensor isn't as documented.",
        "Make it a contiguous HBM tensor of the shape in the message.",
    ),
    Code(
        "collective-displacements",
        "Receive displacements aren't supported here.",
        "Pass has_rdispls=False.",
    ),
    Code(
        "collective-lnc",
        "The collective needs another LNC.",
        "Make the world with the lnc that the message names.",
    ),
    Code(
        "collective-group-places",
        "Ranks of a group lie where the documentation doesn't allow them for now.",
        "Group ranks as the message says, or run without check='strict'.",
    ),
    Code(
        "collective-permute-distance",
        "Ranks that exchange data aren't neighbours.",
        "Permute between ranks of one chip or of neighbouring chips.",
    ),
    Code(
        "collective-prepare",
        "A prepared collective isn't followed by exactly one trigger of its kind.",
        "Trigger what prepare returned, in the same loop and before the next prepare.",
    ),
    Code(
        "collective-range",
        "Sizes or offsets from metadata leave a tensor.",
        "Check the sizes and displacements that this rank passed.",
    ),
    # What AWS's compiler may refuse --------------------------------------------------------------
    Code(
        "enum-number",
        "A number stands for a member of an enum.",
        "Name the member, such as nisa.dge_mode.hwdge.",
    ),
    Code(
        "barrier-memory",
        "A core_barrier names a tensor that only one core sees.",
        "Name the tensor in shared_hbm that is handed over.",
    ),
    Code(
        "transpose-dtype",
        "A transpose of 16-bit floats on NeuronCore-v2 leaves a float32 product.",
        "Give dst the dtype of data: it holds the same values.",
    ),
    Code(
        "scalar-operand-dtype",
        "An operand per partition isn't float32.",
        "Make it a float32 tile.",
    ),
    Code(
        "operator-without-instruction",
        "The operator isn't in AWS's table.",
        "Divide by multiplying with nisa.reciprocal; do without mod and fmod.",
    ),
    Code(
        "language-limit",
        "A function of nki.language is asked for what AWS's release notes say it can't do.",
        "See the message.",
    ),
)
