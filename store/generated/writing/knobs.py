"""Kernels whose speed depends on constants at the top of the file, with the choices beside each.

A knob is one such constant: a tile or block size, the number of warps, an optimization level. The
text of a kernel is the same for all settings but for these lines, such as "WARPS = 4  # 1, 4, 8",
so that a small model can turn a knob. The best setting depends on the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from store.generated.writing import texts
from store.generated.writing.chain import Chain
from store.generated.writing.texts import Draw, Language, Module, Program, Task, TeacherKernel

Choices = Mapping[str, Sequence[int]]
"""Choices by knob; the first ones together are the plainest setting."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A task, and its kernels in C, Triton and CUDA in terms of knobs."""

    title: str
    level: int
    module: Module = field(default_factory=Module)
    steps: Chain
    function: str = "pre"
    """Name of the steps as a function in C and CUDA."""
    lines: Sequence[str]
    """Statements of the reference."""
    rewritten: Sequence[str]
    """The same in fewer or cheaper operations."""
    shapes: Sequence[tuple[tuple[int, int], tuple[int, int]]]
    """Choices of rows and columns, each with those for a GPU."""
    inputs: Sequence[str] = ("ROWS, COLS",)
    """Shape of each input."""
    bound: str
    """What the computation needs at least."""
    out: str
    """Expression that makes the output in C and CUDA."""
    c: Sequence[str]
    """Body of a C function; its arguments are the tensors, out, rows and cols."""
    c_choices: Choices
    """OPT is the compiler's level, and THREADS the number of threads where it is a knob."""
    triton: Sequence[str]
    """Body of a Triton kernel; the knobs are compile-time constants."""
    triton_choices: Choices
    """WARPS is the number of warps of a program."""
    triton_grid: str
    triton_out: str = ""
    """Expression that makes the output of the Triton kernel, where it is another one."""
    triton_result: str = "out"
    cuda: Sequence[str]
    cuda_choices: Choices
    cuda_grid: str
    cuda_block: str = "THREADS, 1, 1"


def write_task(draw: Draw, tuned: Tuned) -> Task:
    """Return the task with its tuned kernels and wrong ones."""
    shape, gpu_shape = draw.choice(tuned.shapes)
    kernels = [texts.write_rewrite(tuned.module, tuned.rewritten)]
    languages: tuple[tuple[Language, Choices, int], ...] = (
        ("cpp", tuned.c_choices, 4),
        ("triton", tuned.triton_choices, 6),
        ("cuda", tuned.cuda_choices, 4),
    )
    for language, choices, count in languages:
        # Several settings in each language: the plainest one, and drawn ones.
        settings = [{name: values[0] for name, values in choices.items()}]
        while len(settings) < count:
            setting = {name: draw.choice(values) for name, values in choices.items()}
            if setting not in settings:
                settings.append(setting)
        for setting in settings:
            knobs = "\n".join(
                f"{name} = {value}  # {', '.join(map(str, choices[name]))}"
                for name, value in setting.items()
            )
            variant = f"{language}_tuned_{'_'.join(map(str, setting.values()))}"
            kernels.append(_write_kernel(tuned, language, variant, list(setting), knobs))
    kernels.append(texts.write_rounded(tuned.module, tuned.lines))
    # A C kernel whose answer is off by a little everywhere.
    knobs = "\n".join(f"{name} = {max(values)}" for name, values in tuned.c_choices.items())
    wrong = _write_kernel(tuned, "cpp", "wrong_offset", list(tuned.c_choices), knobs)
    code = wrong.code.replace("return out", "return out + 0.01 * out.abs().max()")
    return texts.write_task(
        draw,
        title=tuned.title,
        level=tuned.level,
        module=tuned.module,
        lines=tuned.lines,
        sizes=dict(zip(("ROWS", "COLS"), shape, strict=True)),
        shapes=tuned.inputs,
        bound=tuned.bound,
        kernels=[*kernels, replace(wrong, code=code)],
        cuda=dict(zip(("ROWS", "COLS"), gpu_shape, strict=True)),
        steps=len(tuned.steps),
    )


def _write_kernel(
    tuned: Tuned, language: Language, variant: str, names: Sequence[str], knobs: str
) -> TeacherKernel:
    about = "One {} kernel; the constants say how the work is divided."
    techniques = ("fusion", "tuned")
    program = Program(tuned.module, tuned.out, knobs=knobs)
    if language == "cpp":
        about = "C compiled for this processor; the constants say how the work is divided."
        flags = f"-O{{OPT}} -march=native -ffast-math{' -fopenmp' * ('THREADS' in names)}"
        flags += "".join(f" -D{name}={{{name}}}" for name in names if name != "OPT")
        program = replace(program, functions=tuned.steps.function(tuned.function))
        return program.write_c(variant, about, tuned.c, flags, techniques)
    if language == "triton":
        program = replace(program, out=tuned.triton_out or tuned.out)
        return program.write_triton(
            variant,
            about.format("Triton"),
            tuned.triton,
            techniques,
            grid=tuned.triton_grid,
            constants={name: name for name in names if name != "WARPS"},
            warps="WARPS",
            result=tuned.triton_result,
        )
    defines = "".join(f"#define {name} {{{name}}}\\n" for name in names)
    functions = tuned.steps.function(tuned.function, "__device__")
    return replace(program, functions=functions).write_cuda(
        variant,
        about.format("CUDA"),
        tuned.cuda,
        techniques,
        grid=tuned.cuda_grid,
        block=tuned.cuda_block,
        defines=f'f"{defines}" + ',
    )
