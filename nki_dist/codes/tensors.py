"""Codes of mistakes about tensors: shapes, dtypes, indices, views, memory."""

from __future__ import annotations

from typing import Final

from nki_dist.codes.kind import Code

TENSORS: Final = (
    # Grids of tiles -------------------------------------------------------------------------------
    Code(
        "grid-shape",
        "Shapes of tiles, blocks and tensors don't fit each other.",
        "Give tuples of positive ints: of tiles at least two, of blocks as many as of tiles.",
    ),
    Code("grid-index", "A grid has no such cells.", "Use ints and slices with a positive step."),
    Code(
        "grid-data",
        "The selected cells of a grid aren't one operand.",
        "Select fewer, down to one tile; `is_data_representable` says whether they are.",
    ),
    Code(
        "grid-open",
        "AWS's pages don't say what this would be.",
        "Tile the tensor itself; use the tile_shape that a grid has.",
    ),
    Code("grid-made", "A grid is constructed directly.", "Use nl.tiles or nl.blocks."),
    # Memory -------------------------------------------------------------------------------------
    Code(
        "memory-kind",
        "A tensor is in a memory that this operand can't be in.",
        "Copy it first: nisa.dma_copy from and to HBM, nisa.tensor_copy between SBUF and PSUM.",
    ),
    Code(
        "memory-unknown",
        "There is no such buffer.",
        "Pass nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm as buffer=.",
    ),
    Code(
        "out-of-memory",
        "A memory is full.",
        "Use smaller tiles, or let tensors end sooner.",
    ),
    Code(
        "partition-bytes",
        "One tensor needs more bytes per partition than its memory has.",
        "Split its free dimensions into tiles that fit.",
    ),
    Code(
        "space-full",
        "The tensors alive at once don't fit into SBUF or PSUM.",
        "Use smaller tiles, allocate inside the loop that needs them, or reuse buffers.",
    ),
    Code(
        "hbm-full",
        "The tensors of a launch don't fit into the HBM stack of a rank.",
        "Make the tensors smaller, or split them over more ranks.",
        aws=("NCC_EOOM001", "NCC_EOOM002", "NCC_EVRF009", "NCC_EXSP001"),
    ),
    Code(
        "address-form",
        "An address isn't a pair of ints.",
        "Pass address=(partition, byte).",
    ),
    Code(
        "address-range",
        "An address puts a tensor, or a part of it, where there is no memory for it.",
        "Lower the address, or leave it out and let the compiler choose.",
    ),
    Code(
        "overwritten",
        "A tensor is read after its bytes were overwritten through another tensor.",
        "Give the two tensors different addresses, or write the first again before it is read.",
    ),
    Code(
        "unwritten",
        "Memory that nobody wrote is used.",
        "Write it first, for instance with nisa.memset.",
    ),
    Code(
        "unwritten-read",
        "An instruction reads elements that nothing has written.",
        "Write them first (nisa.memset, nl.zeros), or read only what was written.",
    ),
    Code(
        "unwritten-output",
        "Elements of a result are, or depend on, memory that nobody wrote.",
        "Store every row and column of what the kernel returns, the last incomplete tile too.",
    ),
    Code(
        "unwritten-decides",
        "An index, a register or a loop depends on memory that nobody wrote.",
        "Write the tile (nisa.memset, nisa.dma_copy) before its contents decide something.",
    ),
    Code(
        "unwritten-rows",
        "Elements of a tensor that the kernel returns were never stored.",
        "Round the number of tiles up and store the incomplete last tile, too.",
    ),
    Code(
        "spilled",
        "A kernel of Beta 1 has more bytes alive than SBUF has, which its compiler spills.",
        "Keep less alive at once: spilled bytes go to HBM and back.",
    ),
    Code(
        "unreturned-output",
        "A kernel stores results and returns nothing.",
        "Return the tensor that was stored to.",
    ),
    # Shapes -------------------------------------------------------------------------------------
    Code(
        "shape-form",
        "A shape isn't a tuple of positive ints.",
        "Give sizes as ints that are known when the kernel is traced.",
        aws=("NCC_EMOD025",),
    ),
    Code("shape-empty", "A shape has a size below 1.", "Make sizes at least 1: end > start."),
    Code(
        "shape-rank",
        "A tensor has another number of dimensions than is allowed here.",
        "Reshape it, or add and remove dimensions (expand_dim, squeeze_dim, flatten_dims).",
    ),
    Code(
        "shape-mismatch",
        "The shape of an operand doesn't follow from the others.",
        "Allocate the destination with the shape that the message names.",
    ),
    Code(
        "shape-broadcast",
        "Shapes don't broadcast.",
        "Make the sizes of each dimension equal, or one of them 1.",
    ),
    Code(
        "size-mismatch",
        "Two operands have different numbers of elements.",
        "Slice both to the same number of elements; a short last tile needs it on both sides.",
    ),
    Code(
        "reshape",
        "A tensor can't have this shape.",
        "Choose sizes whose product is the number of elements, with one -1 at most.",
    ),
    Code(
        "rearrange",
        "A rearrange pattern doesn't fit the tensor or itself.",
        "Name each dimension once on both sides; give all sizes of a group but one.",
    ),
    Code(
        "partition-limit",
        "A tile has more partitions than the memory.",
        "Make tiles of at most nl.tile_size.pmax (128) rows and loop over them.",
    ),
    Code(
        "partition-multiple",
        "The number of partitions isn't one that the instruction takes.",
        "Pad the tile to the next multiple that the message names.",
    ),
    Code(
        "partition-mismatch",
        "Operands have different numbers of partitions.",
        "Slice dimension 0 of all to the same size; nl.broadcast_to gives all partitions one row.",
    ),
    Code(
        "partition-start",
        "An operand starts at a partition where an engine can't begin.",
        "Start at a multiple of 32, or move the rows with nisa.dma_copy.",
    ),
    Code(
        "partition-dimension",
        "A view would change, or choose at run time, the partition dimension of an on-chip tensor.",
        "Do it in a free dimension, or move rows with nisa.dma_copy or nisa.nc_transpose.",
    ),
    Code(
        "free-size",
        "An operand has another number of elements per partition than the instruction writes.",
        "Allocate it with the number that the message names.",
    ),
    Code(
        "free-limit",
        "An operand has too many or too few elements per partition.",
        "Split the free dimension, or pad it to the least size.",
    ),
    Code(
        "free-multiple",
        "The number of elements per partition isn't the multiple that is needed.",
        "Pad the free dimension.",
    ),
    Code(
        "free-mismatch",
        "Operands have different numbers of elements per partition.",
        "Slice or allocate all alike; a (P, 1) column is an operand0 of nisa.tensor_scalar.",
    ),
    Code(
        "psum-bank",
        "A tile in PSUM is larger than a bank, or crosses from one to the next.",
        "Write at most 2 KiB per partition at a time (512 float32), within one bank.",
    ),
    # Data types ---------------------------------------------------------------------------------
    Code(
        "dtype-unknown",
        "NKI has no such data type.",
        "Convert at the caller: x.astype(np.float32), or another type of nki.language.",
        aws=("NCC_ESPP004", "NCC_EVRF004", "NCC_EVRF005", "NCC_ESPP047"),
    ),
    Code(
        "dtype-operand",
        "An operand has a data type that it can't have in this instruction.",
        "Convert it with nisa.tensor_copy into a tile of an allowed type.",
        aws_of={
            "nisa.nc_matmul": ("NCC_EVRF035",),
            "nisa.nc_matmul_mx": ("NCC_EVRF044",),
            "nisa.quantize_mx": ("NCC_EVRF041",),
            "nisa.topk": ("NCC_EVRF013",),
        },
    ),
    Code(
        "dtype-mismatch",
        "Operands must have the same data type, because this instruction converts nothing.",
        "Allocate them with one dtype, or convert one with nisa.tensor_copy.",
    ),
    Code(
        "dtype-width",
        "The data type has a width that isn't allowed here.",
        "View or convert the tensor as a type of the allowed width.",
    ),
    Code(
        "dtype-packed",
        "A packed (MX) data type where only plain ones work.",
        "Move packed data with DMA of the same type, or unpack it first.",
    ),
    Code(
        "mx-packing",
        "Values, scales or data type don't make packed MX values.",
        "Pack four values along the last axis; scales have one byte each.",
    ),
    Code(
        "mx-scale-layout",
        "The scales of MX data aren't where the Tensor engine looks for them.",
        "Put the scales of each 32 partitions into the first 4 of them, at 0, 4, 8 or 12.",
    ),
    Code(
        "reinterpret",
        "A tensor can't be seen as another data type like this.",
        "Make the last dimension contiguous, and its bytes a whole number of new elements.",
    ),
    # Indices and views --------------------------------------------------------------------------
    Code("out-of-bounds", "An index or address is outside.", "Keep it inside the tensor."),
    Code(
        "index-range",
        "An index or slice leaves its dimension.",
        "Clip it to the size: min(start + step, size); mask or shorten the last tile.",
        aws=("NCC_ESMP002",),
    ),
    Code(
        "index-kind",
        "Something that can't be an index.",
        "Index with ints, slices, nl.ds or registers; rows by number go through .ap.",
    ),
    Code(
        "index-count",
        "More indices than dimensions.",
        "Give at most one index per dimension.",
    ),
    Code("slice-step", "A slice goes backwards or stands still.", "Use steps from 1 on."),
    Code(
        "slice-range",
        "A slice is empty or leaves its dimension.",
        "Keep 0 <= start < end <= size.",
    ),
    Code(
        "access-range",
        "An access pattern leaves its tensor.",
        "Keep offset plus (count - 1) * step of every dimension below the number of elements.",
    ),
    Code(
        "pattern-size",
        "An access pattern repeats elements more often than any tensor is long.",
        "Repeat fewer elements at once.",
    ),
    Code(
        "data-index-range",
        "An index that came from data is outside its tensor.",
        "Repair the indices; oob_mode=nisa.oob_mode.skip drops rows outside and moves the others.",
        aws=("NCC_EVRF031", "NCC_EVRF056"),
    ),
    Code(
        "axis",
        "There is no such axis, or this operation can't go along it.",
        "Name free dimensions, from 1 on; nisa.tensor_partition_reduce goes along partitions.",
    ),
    Code(
        "view-dims",
        "The dimensions given to a view don't fit the tensor.",
        "Name each dimension once; those that are squeezed or broadcast have size 1.",
    ),
    Code(
        "view-layout",
        "The elements aren't laid out so that this view exists without a copy.",
        "Copy the tensor into one of its own first.",
    ),
    Code(
        "vector-offset",
        "A vector offset where it can't be, or of another shape.",
        "Only DMA takes .ap(vector_offset=...): on HBM tensors, a (P, 1) tile of row numbers.",
    ),
    Code(
        "scalar-offset",
        "A scalar offset isn't a register or a tile with one element.",
        "Load the number with nisa.register_load, or pass a (1, 1) tile in SBUF.",
    ),
    Code(
        "dynamic-twice",
        "A tensor is indexed at run time twice.",
        "Keep one run-time index per access; compute the other into it.",
    ),
    Code(
        "indirect-view",
        "An .indirect() view where the instruction or platform doesn't take it.",
        "Copy it with nisa.tensor_copy first and use the copy.",
    ),
    Code(
        "indirect-index",
        "The index tile of an indirect access has the wrong shape, type or memory.",
        "Make it an SBUF tile of integers with the shape in the message.",
    ),
    # What AWS's compiler may refuse --------------------------------------------------------------
    Code(
        "partition-step",
        "An access pattern skips partitions.",
        "Use one pattern for each run of partitions, or move rows with nisa.dma_copy.",
    ),
    Code(
        "dtype-of-numpy",
        "A kernel names one of NumPy's data types.",
        "Use nl's, such as nl.float32.",
    ),
    Code(
        "free-dimension-long",
        "A free dimension is longer than AWS advises.",
        "Split the tile.",
    ),
)
