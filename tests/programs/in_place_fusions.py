"""Finds, in XLA's optimized HLO text, fusions that read memory which they have already written.

A fusion whose root is a `dynamic-update-slice` or a `scatter` of one of its parameters, bitcasts
aside, is done in that parameter's memory. Nothing else in it may read other elements of the
parameter. Values tell of such a fusion only now and then; its text always does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

IN_PLACE = {"dynamic-update-slice", "scatter"}
MOVES = {
    *("slice", "dynamic-slice", "reverse", "pad", "concatenate", "gather", "reduce", "transpose"),
    *("reduce-window", "dot", "broadcast", "dynamic-update-slice", "reshape", "sort"),
}


@dataclass
class Instruction:
    name: str
    opcode: str
    operands: list[str]
    line: str
    is_root: bool


def operands_of(rest: str) -> list[str]:
    """The names up to the parenthesis that closes the operands."""
    depth = 0
    for end, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return re.findall(r"%([\w.\-]+)", rest[:end])
    return []


def computations(text: str) -> list[dict[str, Instruction]]:
    found = []
    for part in re.split(r"\n(?=[%E])", text):
        instructions = {}
        for line in part.split("\n")[1:]:
            match = re.match(r"\s*(ROOT )?%(\S+) = \S+ ([\w-]+)\((.*)", line)
            if match:
                root, name, opcode, rest = match.groups()
                instructions[name] = Instruction(
                    name, opcode, operands_of(rest), line.strip(), root is not None
                )
        if instructions and not part.startswith("ENTRY"):
            found.append(instructions)
    return found


def starts_of(instructions: dict[str, Instruction], update: Instruction) -> list[str]:
    """Where the update starts, each a number or an instruction's name."""
    out = []
    for name in update.operands[2:]:
        number = re.search(r" constant\((-?\d+)\)", instructions[name].line)
        out.append(number.group(1) if number else name)
    return out


def reads_what_it_replaces(
    instructions: dict[str, Instruction], read: Instruction, update: Instruction
) -> bool:
    if update.opcode != "dynamic-update-slice" or read.operands[:1] != update.operands[:1]:
        return False
    if read.opcode == "dynamic-slice":
        return read.operands[1:] == update.operands[2:]
    found = re.search(r"slice=\{(.*?)\}", read.line)
    if read.opcode != "slice" or found is None:
        return False
    starts = [part.split(":")[0] for part in found.group(1).strip("[]").split("], [")]
    return starts == starts_of(instructions, update)


def without_bitcasts(instructions: dict[str, Instruction], name: str) -> str:
    while instructions[name].opcode == "bitcast":
        name = instructions[name].operands[0]
    return name


def reads_written_memory(instructions: dict[str, Instruction], update: Instruction) -> bool:
    memory = without_bitcasts(instructions, update.operands[0])
    if instructions[memory].opcode != "parameter":
        return False
    depends = {memory}
    for instruction in instructions.values():  # operands stand before their users
        if depends.intersection(instruction.operands):
            depends.add(instruction.name)
    pending, seen = update.operands[1:], set()
    while pending:
        name = pending.pop()
        if name in seen or name not in depends or name == memory:
            continue
        seen.add(name)
        read = instructions[name]
        if reads_what_it_replaces(instructions, read, update):
            continue
        if read.opcode in MOVES:
            return True
        pending += read.operands
    return False


def find(text: str) -> list[str]:
    """The roots of the fusions that read what they have written."""
    found = []
    for instructions in computations(text):
        root = next((i for i in instructions.values() if i.is_root), None)
        if root is None:
            continue
        names = root.operands if root.opcode == "tuple" else [root.name]
        for name in names:
            update = instructions[without_bitcasts(instructions, name)]
            if update.opcode in IN_PLACE and reads_written_memory(instructions, update):
                found.append(update.line)
    return found
