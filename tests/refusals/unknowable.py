"""What AWS documents as refused and nki_dist doesn't refuse, with the reason: rows of the page."""

_GRAPH = "an operation of the graph compiler (XLA), not of a kernel"
CODES = "compiler/error-codes/%s.rst"

# (rule, source, why it isn't asked)
UNENFORCED = (
    (
        "`is None` in a kernel",
        "nki/migration/index.rst (Replace is / is not)",
        "AWS's kernel library asks it in hundreds of places; other operands of `is` are refused",
    ),
    (
        "A decorated kernel is called by a kernel",
        "nki/migration/index.rst (Remove nki.jit decorator on sub-kernels)",
        "for 0.1 to 0.2; AWS's kernel library does it (moe_cte, attention_block_tkg)",
    ),
    (
        "`nc_matmul` of gen2, FAQ: only trn2 and trn3 are supported",
        "nki/nki_faq.rst",
        "the pages of instructions say what NeuronCore-v2 does",
    ),
    (
        "`nl.copy` from PSUM, `nl.store` of a PSUM tile",
        "release-notes/components/nki.rst (0.3.0, 0.4.0)",
        "the notes of 0.6.0 and 0.4.0 repair them; DMA from PSUM is refused (`dma-psum-src`)",
    ),
    (
        "Nested dynamic loops",
        "aws-neuron-sdk issue 1346 (NCC_ICFG018); release-notes/components/nki.rst (0.4.0)",
        "AWS's answer to the issue: the same kernel compiles with 0.6.0",
    ),
    (
        "`dma_copy` of a tile with a run-time offset",
        "aws-neuron-sdk issue 1373",
        "AWS's answer to the issue: repaired in the release of August 2026",
    ),
    (
        "`dma_copy` between tensors of different shapes",
        "aws-neuron-sdk issue 1281",
        "AWS's answer to the issue: repaired in 0.3.0",
    ),
    (
        "`nl.dynamic_range` and `while register:`",
        "release-notes/components/nki.rst (0.6.0)",
        "deprecated, not refused yet",
    ),
)

# (error, source, why it can't be known)
UNKNOWABLE = (
    (
        "The number of instructions exceeds the limit (NCC_EVRF007, NCC_EBVF030, NCC_EXTP004)",
        CODES % "EVRF007",
        "neither the limit nor what the compiler counts is published",
    ),
    (
        "Tensors of the model exceed HBM (NCC_EOOM001, NCC_EOOM002, NCC_EVRF009, NCC_EXSP001)",
        CODES % "EOOM001",
        "what a kernel itself allocates is checked (`hbm-full`); the model around it isn't here",
    ),
    (
        "Tiles that the compiler's own order would fit, or wouldn't",
        "nki/deep-dives/nki-compiler.rst",
        "capacity is checked in the kernel's order; the compiler may reorder and rotate addresses",
    ),
    (
        "A custom call with an unknown target (NCC_EHCA005, NCC_EVRF015)",
        CODES % "EHCA005",
        _GRAPH,
    ),
    (
        "Operators that aren't supported (NCC_EVRF001, NCC_EUOC002, NCC_EMOD025)",
        CODES % "EVRF001",
        _GRAPH,
    ),
    (
        "Convolutions, windows, sorts, scatters and gathers of XLA (NCC_EVRF006, 010, 011, 013, "
        "016 to 019, 022, 031, 056)",
        "compiler/error-codes/index.rst",
        _GRAPH,
    ),
    (
        "Integer sums of XLA's collectives and scatters (NCC_EVRF060 to 063)",
        CODES % "EVRF061",
        _GRAPH + "; the pages of nki.collectives allow integers",
    ),
    (
        "Custom calls of quantised matrix products (NCC_EVRF036 to 055, 057, 058)",
        "compiler/error-codes/index.rst",
        _GRAPH,
    ),
    (
        "float8_e4m3fn on trn1 and trn2, float8_e4m3 after trn3 (NCC_EVRF051, NCC_EVRF052)",
        CODES % "EVRF051",
        _GRAPH + "; in kernels nc_matmul refuses them (`matmul-fn-v4`)",
    ),
    (
        "A kernel traced with another NKI version (NCC_EVRF065), a missing file (NCC_EVRF059)",
        CODES % "EVRF065",
        "there are no compiled kernels of AWS here",
    ),
    (
        "The MLP kernel's intermediate size (NCC_EBIR023)",
        CODES % "EBIR023",
        "a kernel of the compiler's own",
    ),
    (
        "A kernel with sendrecv that is called twice in a graph (NCC_IXLV002)",
        "aws-neuron-sdk issue 1298",
        "launches are separate here; there is no graph",
    ),
    (
        "Two kernels that XLA fuses",
        "aws-neuron-sdk issue 1311",
        "launches are separate here; there is no graph",
    ),
    (
        "Kernels that depend on globals or closures that change",
        "release-notes/components/nki.rst (0.3.0)",
        "AWS's cache may return another kernel; here what a kernel reads is part of its key",
    ),
    (
        "Cores that take different dynamic branches",
        "release-notes/components/nki.rst (0.3.0)",
        "AWS doesn't check it; here each core runs its own program, and waiting for ever is a "
        "DeadlockError",
    ),
)
