"""Codes of mistakes outside kernels: arguments, worlds, hosts, settings, files, profiles."""

from __future__ import annotations

from typing import Final

from nki_dist.codes.kind import Code

LAUNCHES: Final = (
    Code("launch", "A launch can't be made as asked.", "See the message."),
    # Kernels and arguments ----------------------------------------------------------------------
    Code(
        "kernel-function",
        "A kernel is a plain function.",
        "Decorate a function that uses `def` and `return`.",
    ),
    Code(
        "kernel-pickle",
        "A kernel can't be found by its name, so it can't be pickled.",
        "Define it at the top of a module.",
    ),
    Code("release-unknown", "There is no such release of NKI here.", "Use 0.6, 0.7 or any."),
    Code(
        "compile-config",
        "A configuration of a kernel isn't one.",
        "Use CompileConfig and SpecializationConfig of nki.compiler, with the values they list.",
    ),
    Code(
        "lnc-mismatch",
        "The launch grid and NEURON_LOGICAL_NC_CONFIG say different numbers of cores.",
        "Call the kernel without brackets, or set the variable to their number.",
    ),
    Code(
        "benchmark-option",
        "A count of nki.benchmark isn't one, or a percentile isn't from 0 to 100.",
        "Write nki.benchmark(warmup=2, iters=10) and get_latency_percentile(99).",
    ),
    Code("jit-option", "nki.jit has no such option.", "Use platform_target for the platform."),
    Code(
        "grid-form",
        "A launch grid isn't made of positive ints.",
        "Write kernel[2] or kernel[nl.nc(2)].",
    ),
    Code("grid-axis", "The launch grid has no such axis.", "Use axis 0 of a grid with one axis."),
    Code(
        "loaded-kernel",
        "A compiled kernel from a file is launched with other arguments or cores than it is for.",
        "Pass the arrays that its `inputs` name, in a world of its platform and lnc.",
    ),
    Code(
        "host-memory",
        "The machine has too little memory to simulate the launch.",
        "Make the tensors smaller, or use fewer ranks.",
    ),
    Code(
        "record-question",
        "A record has no such tensor, line, output, element, core or rank.",
        "Ask for what the kernel has; the message names it.",
    ),
    Code(
        "record-expected-name",
        "origin(expected={...}) names a tensor or line that the kernel hasn't, or never writes.",
        "Name a tensor that the kernel writes, or a line as 'file.py:12'; the message has names.",
    ),
    Code(
        "record-expected-ambiguous",
        "origin(expected={...}) has a name of which several lines or cores have a tensor.",
        "Name the line that writes it, 'file.py:12', or the core: (name, 1).",
    ),
    Code(
        "record-expected-shape",
        "origin(expected={...}) has an array of another shape than its tensor.",
        "Give the tensor's shape, or a list with an array for each time that it is made.",
    ),
    Code(
        "record-expected-dtype",
        "origin(expected={...}) has an array whose numbers its tensor can't hold.",
        "Give real numbers, for tensors of integers whole ones.",
    ),
    Code(
        "lnc-range",
        "More cores than a logical NeuronCore of the platform has.",
        "Use 1 or 2 where the platform allows it; more cores are nki.World(ranks=...).",
        aws=("NCC_EARG001",),
    ),
    Code(
        "grid-and-world",
        "The launch grid and the world's lnc differ.",
        "Run the kernel without a grid, or make the world with that lnc.",
    ),
    Code(
        "per-rank", "nki.per_rank isn't used as it has to be.", "Give one whole argument per rank."
    ),
    Code(
        "ranks-differ",
        "Ranks got arguments of different shapes, dtypes or constants.",
        "Let only the contents of arrays differ; ask for the rank in the kernel.",
    ),
    Code(
        "array-kind",
        "An argument is an array that kernels can't take.",
        "Pass dense arrays in the memory of this machine.",
    ),
    Code(
        "array-without-data",
        "An argument has no data, because a framework is tracing it.",
        "Launch outside the transformation.",
    ),
    Code(
        "framework-transformation",
        "A launch inside a transformation that can't contain it.",
        "Call the kernel outside of it.",
    ),
    Code("framework-dtype", "The framework has no such data type.", "Pass NumPy arrays."),
    Code(
        "no-derivative",
        "Differentiation reached a kernel, and nobody gave its derivative.",
        "Wrap it in a torch.autograd.Function with a backward, or detach its inputs.",
    ),
    Code(
        "input-read-only",
        "A kernel writes to an argument that can't be changed.",
        "Return the tensor from the kernel, or pass a writable NumPy copy.",
    ),
    Code(
        "input-shared",
        "Ranks write different bytes to one array.",
        "Give each rank its own array with nki.per_rank([...]).",
    ),
    Code(
        "spec-contents",
        "A loop's length depends on an argument that has no contents.",
        "Pass an array instead of a TensorSpec.",
    ),
    Code(
        "result-unknown",
        "A program that is only checked needs the result of a kernel that has mistakes.",
        "Repair the kernel's mistakes, and check again.",
    ),
    Code(
        "autotune-config",
        "nki.autotune has no such configurations to choose from.",
        "Give a list of dicts from names of parameters to values, and not these in the call.",
    ),
    Code(
        "autotune-nothing",
        "No configuration that nki.autotune has to choose from compiles.",
        "Repair what the message says of each, or add a configuration.",
    ),
    Code(
        "autotune-refused",
        "Configurations that nki.autotune has to choose from don't compile.",
        "Nothing, if others do; `.failures` of the kernel says why.",
    ),
    # Worlds and settings ------------------------------------------------------------------------
    Code("world-option", "An option of nki.World is wrong.", "See the allowed values."),
    Code("world-closed", "The world was closed.", "Make another nki.World."),
    Code("check-policy", "Not a policy of checks.", "Use the words in the message, or nki.Checks."),
    Code(
        "setting-value",
        "An environment variable has a value that it can't have.",
        "Set it to an allowed value, or unset it.",
    ),
    Code(
        "command-option", "An option of the command line is wrong.", "See nki-dist COMMAND --help."
    ),
    Code(
        "call-limit",
        "A call of nki-dist mcp reached a limit, and its processes were ended.",
        "Make the program smaller, or start the server with a larger limit.",
    ),
    Code(
        "call-value",
        "A call of nki-dist mcp has a wrong argument, or its server a wrong limit.",
        "Use the values in the message; files lie in the server's folder.",
    ),
    Code(
        "command-package",
        "A command needs a package that isn't installed.",
        "Install it as the message says.",
    ),
    Code("platform-unknown", "There is no such platform.", "Use trn1, trn2 or trn3."),
    Code(
        "architecture-value",
        "An architecture has no value of this name.",
        "Choose one from the message.",
    ),
    Code(
        "architecture-file",
        "A file of measured figures can't be used.",
        "Let nki-dist calibrate write it.",
    ),
    Code(
        "topology",
        "There is no such place, number or system in the topology.",
        "Count ranks, chips and instances from 0 within the world.",
    ),
    Code(
        "collective-algorithm",
        "The forced collective algorithm doesn't exist or fit the group.",
        "Unset the variable to let the simulator choose.",
    ),
    Code(
        "package-conflict",
        "A real nki package is in the way.",
        "Install before importing it, or pass --force.",
    ),
    # Hosts --------------------------------------------------------------------------------------
    Code(
        "core-lost",
        "A process or node that simulated cores is gone.",
        "Launch again: the next launch starts a new process. Look for memory limits.",
    ),
    Code(
        "core-not-started",
        "The processes of simulated cores can't be started.",
        "Run `nki-dist doctor`, or use host='inprocess'.",
    ),
    Code(
        "timeout",
        "A launch made no end within the world's timeout.",
        "Raise timeout=, or look at what the message says is waiting.",
    ),
    Code(
        "core-silent",
        "A process that simulates cores doesn't answer, and the launch waits for it.",
        "Give the world a timeout=, or end or continue the process that the message names.",
    ),
    Code(
        "launch-again",
        "A launch lost a process, a node or its Ray session, and is run again.",
        "Nothing: the results are the same. World(retries=) says how often.",
    ),
    Code(
        "ray-lost",
        "The Ray session of this program is lost and can't be left.",
        "Import nki_dist before ray, or use host='inprocess'.",
    ),
    Code("ray-start", "Ray didn't start.", "Run `nki-dist doctor`, or use host='inprocess'."),
    Code(
        "ray-join", "A Ray cluster can't be joined.", "Check the address, and that it is running."
    ),
    Code(
        "cluster-place",
        "The folder of a kept Ray can't be used.",
        "Make it a directory that only you can enter, or name another in NKI_DIST_CLUSTER_DIR.",
    ),
    Code(
        "cluster-start",
        "A kept Ray didn't start or stop.",
        "Read its log, which the message names, and run `nki-dist doctor`.",
    ),
    Code(
        "cluster-unused",
        "A kept Ray is there, and the program started its own.",
        "`nki-dist cluster stop` and `start` as the program runs, or set NKI_DIST_CLUSTER=off.",
    ),
    Code(
        "core-not-reserved",
        "Ray hasn't reserved what a world asks for, or the placement group that it ran in is gone.",
        "Ask for less in actor_options, close what holds it, or add nodes; the message has each "
        "node's resources. NKI_DIST_START_TIMEOUT waits longer.",
    ),
    Code(
        "cluster-waits",
        "A world waits for Ray to reserve what it asks for, or has no node with processors.",
        "Look at `ray status`; ask for less, or add nodes.",
    ),
    Code(
        "blas-differs",
        "Nodes of a world compute with different BLAS kernels, or NumPy's code for other "
        "processors, so with other last bits.",
        "Use equal processors, or set OPENBLAS_CORETYPE to kernels that all have, and "
        "NPY_DISABLE_CPU_FEATURES to what some haven't, where Ray is started on each node.",
    ),
    Code(
        "nodes-differ",
        "Nodes of a world have other versions of packages than the program.",
        "Install the same versions on all nodes, or ship them in the program's runtime_env.",
    ),
    Code(
        "package-missing",
        "A Ray node has no nki_dist, or one that can't be imported.",
        "Install it where Ray's workers run, or ship it in the program's runtime_env.",
    ),
    Code(
        "runtime-env",
        "Ray can't make the runtime environment of a program on a node.",
        "Repair what the message says of it, or install its packages in the image of the nodes.",
    ),
    Code(
        "ray-forked",
        "Ray can't be used in a forked process.",
        "Start processes with multiprocessing's 'spawn' method.",
    ),
    Code("ring-transport", "transport='ring' needs one machine.", "Use transport='auto'."),
    Code(
        "object-store-full",
        "Ray's object store has no room for shared_hbm.",
        "Raise its size as the message says, or make tensors smaller.",
    ),
    Code("stack-closed", "A shared_hbm stack is used after its end.", "Make another world."),
    Code(
        "stack-lost",
        "The shared_hbm object of a stack is gone.",
        "Launch again; look for a node that ended.",
    ),
    Code("stack-size", "A shared_hbm stack has no size.", "Give a positive number of bytes."),
    Code(
        "stack-mapping",
        "shared_hbm can't be mapped by a process.",
        "Place all cores of a stack on one Linux node.",
    ),
    # Files, profiles ----------------------------------------------------------------------------
    Code(
        "program-malformed", "A file isn't a program, or is damaged.", "Compile the kernel again."
    ),
    Code(
        "program-version",
        "A program was written by another version.",
        "Compile the kernel again with this one.",
    ),
    Code(
        "program-unwritable",
        "A program holds something that can't be written down.",
        "Keep arguments of instructions to numbers, texts, types, tensors and registers.",
    ),
    Code("program-file", "A compiled kernel can't be read or written.", "Check the path."),
    Code("trace-malformed", "A file isn't a trace of ours.", "Write it again with write_trace."),
    Code(
        "profile-dynamic-loop",
        "A saved program doesn't know how often its loops go round.",
        "Profile the program that launches it.",
    ),
    Code(
        "profile-schedule",
        "There is no such schedule to simulate time by.",
        "Use schedule='compiled' or schedule='program'.",
    ),
    Code(
        "profile-graph",
        "A launch is too large for a drawing of its order graph.",
        "Launch the kernel with smaller tensors, or open a report (write_report) instead.",
    ),
    Code(
        "chakra-ranks",
        "Launches of one execution trace aren't on the same ranks.",
        "Write launches of one world, or a folder for each of them.",
    ),
    Code("profile-trips", "Trip counts don't fit the program.", "Record them with this program."),
    Code("profile-messages", "A replay waits for messages never sent.", "Replay all cores."),
    Code("profile-rule", "There is no timing rule for an instruction.", "Report it."),
    Code(
        "rank-program",
        "A program can't be timed.",
        "Make it end by itself, and launch its kernels in its own process.",
    ),
    Code(
        "program-ended",
        "A program ended the process that looked at it, so there is no answer.",
        "Let it return or call sys.exit(), not os._exit(), and look for what killed it.",
    ),
    Code(
        "calibrate-rows",
        "Measured times can't be used to calibrate.",
        "See nki-dist calibrate --help for the columns, and measure enough programs.",
    ),
    # Tensors that stay in HBM -------------------------------------------------------------------
    Code(
        "tensor-kind",
        "What is put into HBM isn't an array.",
        "Pass an array of NumPy, torch or jax; a TensorSpec in a dry world.",
    ),
    Code(
        "tensor-size",
        "What is written to a DeviceTensor has another shape or dtype.",
        "Pass an array of the tensor's shape and dtype, or put another tensor.",
    ),
    Code("tensor-freed", "A DeviceTensor is used that was freed.", "Put it again."),
    Code(
        "tensor-world",
        "A launch got a DeviceTensor of another world.",
        "Put its values into the world of the launch.",
    ),
    Code(
        "tensor-as-array",
        "A DeviceTensor was used as a NumPy array, copied or pickled.",
        "Copy it from HBM with its method numpy().",
    ),
    Code(
        "tensor-dry",
        "Values were asked for in a dry world, which has none.",
        "Leave out World(dry=True).",
    ),
    Code(
        "tensor-lost",
        "A DeviceTensor was lost with a node or with Ray.",
        "Put it again, or put it with restore=True, which does so by itself.",
    ),
    Code(
        "error-unseen",
        "A launch in a row failed, and nobody asked for a value before its world was closed.",
        "Call world.wait() or numpy() before the end, which raise the error.",
    ),
    Code(
        "launch-interrupted",
        "A launch was ended by an interrupt, or by an error of the program's own.",
        "Launch again; what it was to write has to be written anew.",
    ),
    # Checking kernels ---------------------------------------------------------------------------
    Code("check-case", "A case for check_kernel can't be used.", "See the allowed values."),
    Code("check-option", "An option of check_kernel can't be used.", "See the allowed values."),
    Code(
        "check-reference",
        "A reference raised an exception, or returned what can't be compared.",
        "Call the reference with the case's inputs, floats as float64.",
    ),
)
