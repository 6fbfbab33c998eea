"""The reasons why a graph ends at an instruction of a frame, while a continuation runs the rest (TD1xx)."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """A row of the table of reasons.

    `number` is for people and links, `id` for the code that breaks. `title` is the first line of the message, `text`
    says what happened in the user's words, `hint` what to write instead. Whoever breaks fills the fields in braces.
    """

    number: str
    id: str
    title: str
    text: str
    hint: str

    @property
    def slug(self) -> str:
        """The name of the reason's page."""
        return self.id.replace(" ", "-")


BREAKS = (
    Reason(
        "TD101",
        "data-dependent branch",
        "generic_jump TensorVariable()",
        "The branch depends on a tensor's value, and tensors have no values while a graph is captured.",
        "Compute both sides and choose with torch.where(condition, a, b), or use torch.cond(condition, f, g, inputs); "
        "torchdynamo.config.capture_branches = True does that for sides that only compute tensors.",
    ),
    Reason(
        "TD102",
        "data-dependent value",
        "{name} of a tensor",
        "{name} turns a tensor into a Python number, and tensors have no values while a graph is captured.",
        "Keep the value in a tensor, or set torchdynamo.config.capture_scalar_outputs = True.",
    ),
    Reason(
        "TD103",
        "error that is caught",
        "{name} may raise",
        "{name} may raise an error, depending on the values of its arguments, and the function would catch it.",
        "Check the arguments first, or move the call out of the try block.",
    ),
    Reason(
        "TD104",
        "unknown fact",
        "{name} needs to know a number",
        "The behaviour of {name} depends on a number that is read from a tensor, or is the size of a result: {what}.",
        "State it with torch._check(...); it is assumed from there on, and the graph checks it.",
    ),
    Reason(
        "TD105",
        "dynamic output shape",
        "{name} has an output whose shape depends on values",
        "The size of the result of {name} depends on the tensor's values, so the graph cannot know the shape.",
        "Use a form with a fixed shape (torch.where, masked_fill, a sum under a mask), or set "
        "torchdynamo.config.capture_dynamic_output_shape_ops = True.",
    ),
    Reason(
        "TD106",
        "unknown call",
        "call of {name}",
        "{name} is not Python code that can be inlined, and its behaviour is unknown to the compiler.",
        "Move the call before or after the tensor code, or, if it does nothing but compute on tensors, "
        "mark it with torchdynamo.allow_in_graph.",
    ),
    Reason(
        "TD107",
        "builtin with effects",
        "call of {name}",
        "{name} has side effects outside of the program, which must happen in each call and not once during capture.",
        "Move the call out of the compiled function, or guard it with `if not torchdynamo.is_compiling():`.",
    ),
    Reason(
        "TD108",
        "unsupported argument",
        "a {type} where {what} was expected",
        "This call was given a {type}, which cannot become an argument of a graph operation ({what}).",
        "Pass tensors, numbers, strings, or lists, tuples and dicts of them.",
    ),
    Reason(
        "TD109",
        "unsupported operator",
        "operator {name}",
        "{name} failed, or is not supported for operands of these types: {what}.",
        "Check that the line works outside the compiled function; if it does, write it with tensor operators.",
    ),
    Reason(
        "TD110",
        "unsupported instruction",
        "{name} is not captured",
        "The Python construct behind this line ({name}) is not captured yet.",
        "Move the construct into a helper function outside the compiled code.",
    ),
    Reason(
        "TD111",
        "unsupported type",
        "a value of type {type}",
        "torchdynamo cannot trace values of type {type}, so the graph ends here.",
        "Take what is needed out of the value (numbers, strings, tensors) before the compiled function is called.",
    ),
    Reason(
        "TD112",
        "changing value",
        "a {type} that changes",
        "The contents of this {type} were different in each call so far, so no code is compiled that relies on them.",
        "Use it before the compiled function is called, or pass what is needed from it as tensors or numbers.",
    ),
    Reason(
        "TD113",
        "unsupported method",
        "{type}.{name}()",
        "The method {name} of {type} is not supported by the compiler.",
        "Use another method of {type}, or call it before or after the tensor code.",
    ),
    Reason(
        "TD114",
        "unsupported key",
        "a {type} as a key",
        "Equality of two keys of type {type} depends on code that cannot be captured, or on a tensor's value.",
        "Use strings, numbers, or tuples of them as keys.",
    ),
    Reason(
        "TD115",
        "unsupported attribute",
        "attribute {name} of {type}",
        "Reading {name} from a {type} runs code that cannot be captured, or returns an unsupported value.",
        "Read the attribute before the compiled function and pass its value in.",
    ),
    Reason(
        "TD116",
        "unsupported attribute write",
        "setting {name} on {type}",
        "The write to {name} of a {type} cannot be deferred until the graph has run.",
        "Set the attribute after the compiled function, from what it returns.",
    ),
    Reason(
        "TD117",
        "uncaught exception",
        "{type} is raised",
        "The program raises {type} here, and a graph cannot raise exceptions of the program.",
        "Check the inputs before the compiled function is called.",
    ),
    Reason(
        "TD118",
        "user graph break",
        "{name}() was called",
        "The program itself asks for the graph to end here.",
        "Remove the call if one graph is wanted.",
    ),
    Reason(
        "TD119",
        "disabled function",
        "{name} is disabled",
        "{name} is marked to run as plain Python (by torchdynamo.disable or torch.compiler.disable){said}.",
        "Remove the mark, or call {name} before or after the compiled function.",
    ),
    Reason(
        "TD120",
        "autograd function",
        "{name} has a backward of its own",
        "{name} is an autograd.Function on tensors that need gradients, and its backward reads what may change "
        "before it runs and cannot be looked at again then (a tensor, an object that was passed), has side effects, or "
        "does not return gradients.",
        "Store what the backward needs on ctx, as numbers and tensors, in the forward.",
    ),
    Reason(
        "TD121",
        "activation checkpoint",
        "checkpoint of {name}",
        "{name} is to be recomputed in the backward, in a form that a graph does not support yet.",
        "Put the checkpoint around the compiled function instead of inside.",
    ),
    Reason(
        "TD122",
        "skipped function",
        "{name} is skipped",
        "{name} is marked not to be compiled itself (torchdynamo.skip), so it is called instead of inlined.",
        "Remove the mark if {name} is to be part of the graph.",
    ),
    Reason(
        "TD123",
        "learning-rate schedule",
        "{name} of a scheduler",
        "A scheduler computes with the number of the epoch, which changes in each call, so it runs in Python.",
        "Call it after the compiled function.",
    ),
    Reason(
        "TD124",
        "disallowed function",
        "{name} is not allowed in a graph",
        "{name} was passed to torchdynamo.disallow_in_graph, so it runs in Python between two graphs.",
        "Remove the call of disallow_in_graph, or move {name} out of the compiled function.",
    ),
    Reason(
        "TD125",
        "loop with a break",
        "a loop with a graph break in it",
        "The body of this loop breaks the graph ({what}). The loop runs in Python; what it calls is compiled.",
        "Move the graph break out of the loop, or put the loop's body into a function of its own.",
    ),
    Reason(
        "TD126",
        "unknown context manager",
        "with {type}",
        "The compiler does not know what entering and leaving a {type} does.",
        "Enter it around the compiled function instead of inside.",
    ),
    Reason(
        "TD127",
        "import in frame",
        "import of {name}",
        "Importing {name} runs code that is not part of the function and must run at this point.",
        "Import {name} at the top of the file.",
    ),
    Reason(
        "TD128",
        "unknown iterator",
        "iteration over {type}",
        "The number of iterations depends on a {type}, whose items are known only by running it.",
        "Make a list of the items before the compiled function and loop over that.",
    ),
    Reason(
        "TD129",
        "side effect not replayable",
        "a change that cannot be made afterwards: {what}",
        "Side effects of the function are replayed after its graph has run; this one cannot be replayed ({what}).",
        "Return the value and make the change in the caller.",
    ),
    Reason(
        "TD130",
        "inlining too deep",
        "{name} calls too deep",
        "Calls are nested deeper here than the compiler inlines them.",
        "Turn the recursion into a loop, or compile the inner function by itself.",
    ),
    Reason(
        "TD131",
        "too long to follow",
        "{name} goes on for too long",
        "A graph has no loops: every iteration and every call would be written out, and there are too many of them.",
        "Put the long loop into a function of its own and mark it with torchdynamo.disable, or do it with tensors.",
    ),
    Reason(
        "TD132",
        "unrolled loop",
        "a loop in {name} that repeats itself",
        "A graph has every iteration of a loop written out; this one repeats itself, and has {what} so far. "
        "The loop runs in Python.",
        "Put the body into a function of its own: it is compiled once. Under fullgraph=True loops are written out.",
    ),
    Reason(
        "TD133",
        "frame inspects itself",
        "{name} looks at the running frame",
        "{name} would see the compiled frame's variables instead of the function's own.",
        "Take the values by name instead of through {name}.",
    ),
    Reason(
        "TD134",
        "foreign function",
        "a C function called through ctypes",
        "This line calls a C function through ctypes. Nothing is known of what it reads and writes.",
        "Call it before or after the tensor code, or register it as an operator with torch.library.custom_op.",
    ),
    Reason(
        "TD135",
        "no fake kernel",
        "{name} has no fake kernel",
        "{name} is a custom operator that does not say which shape and dtype its results have, so its call cannot be "
        "part of a graph.",
        'Register a function that says so: @torch.library.register_fake("{name}").',
    ),
    Reason(
        "TD136",
        "closed subclass",
        "a {type} cannot be taken apart",
        "{type} has a __torch_dispatch__ but does not say which tensors are inside, and so cannot be part of a graph.",
        "Define __tensor_flatten__ and __tensor_unflatten__ on the class.",
    ),
)
