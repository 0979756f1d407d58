"""What devices exchange in a training step is what it is on paper: read from the compiled program.
The first step's program is that of all."""

from __future__ import annotations

import pathlib

import pytest
import split_gpt2
from processes import json_of_program
from quick_options import XLA_FLAGS

PROGRAM = pathlib.Path(__file__).with_name("step_exchange_programs.py")


@pytest.fixture(scope="module", params=split_gpt2.WAYS)
def step(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    flags = f"{XLA_FLAGS} --xla_dump_to={folder} --xla_dump_hlo_as_text=true"
    environment = {"CPU_NUM_DEVICES": "4", "XLA_FLAGS": flags}
    said = json_of_program(PROGRAM, request.param, str(folder), **environment)
    return {"way": request.param, **said}


def test_devices_exchange_what_they_do_on_paper(step):
    assert step["exchanged"] == step["on paper"]


def test_the_first_program_is_that_of_all_steps(step):
    assert step["compiled"] == [1, 0, 0]


def test_each_device_has_its_part_of_parameters_and_states(step):
    # AdamW's two averages and the parameters, in four parts; the batch, and numbers.
    if step["way"] == "fsdp":
        assert 3 * step["parameters"] / 4 <= step["argument"] < 3 * step["parameters"] / 4 + 2048
