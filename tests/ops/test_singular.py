"""Singular matrices are errors of the call, in PyTorch's words (docs/errors.md)."""

from __future__ import annotations

import pytest
import torch
from counts import counted
from pinned_torch import IS_NEWER
from torch import linalg

import torch_xla

REFUSED = {
    "inv": linalg.inv,
    "inverse": torch.inverse,
    "inv_ex": lambda a: linalg.inv_ex(a, check_errors=True),
    "linalg.cholesky": linalg.cholesky,
    **({} if IS_NEWER else {"cholesky": torch.cholesky}),  # which is gone
    "cholesky_ex": lambda a: linalg.cholesky_ex(a, check_errors=True),
    "cholesky_inverse": torch.cholesky_inverse,
    "solve": lambda a: linalg.solve(a, a),
    "solve_ex": lambda a: linalg.solve_ex(a, a, check_errors=True),
    "lu_factor": linalg.lu_factor,
    "lu_factor_ex": lambda a: linalg.lu_factor_ex(a, check_errors=True),
    "ldl_factor": linalg.ldl_factor,
    "ldl_factor_ex": lambda a: linalg.ldl_factor_ex(a, check_errors=True),
    "matrix_power": lambda a: linalg.matrix_power(a, -2),
    "out": lambda a: linalg.inv(a, out=torch.empty_like(a)),
    "inv of ints' quotient": lambda a: linalg.inv(a * 3 - a),
}
ZEROS = torch.zeros(3, 3)
BATCH = torch.stack([torch.eye(3), torch.zeros(3, 3), torch.eye(3)])


def raised(call):
    try:
        call()
    except RuntimeError as error:
        # An assertion of PyTorch's own names a line of its sources; the rest is the same.
        return type(error), str(error).splitlines()[0]
    return None


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("matrices", [ZEROS, BATCH, BATCH.double()], ids=["one", "batch", "double"])
@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
def test_singular_matrices_are_refused_as_on_the_cpu(name, matrices):
    want = raised(lambda: REFUSED[name](matrices))
    assert want is not None
    assert raised(lambda: REFUSED[name](matrices.to("xla"))) == want


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
def test_others_are_not():
    a = (torch.eye(3) * 2 + 0.25).to("xla")
    for name, function in REFUSED.items():
        assert raised(lambda f=function: f(a)) is None, name
    for empty in (torch.zeros(0, 0), torch.zeros(2, 0, 0), torch.zeros(0, 3, 3)):
        for name, function in REFUSED.items():
            want = raised(lambda f=function, e=empty: f(e))
            assert raised(lambda f=function, e=empty: f(e.to("xla"))) == want, name


def test_what_tells_by_info_reads_nothing():
    a = ZEROS.to("xla")
    torch_xla.sync()
    with counted() as counts:
        infos = [linalg.inv_ex(a).info, linalg.cholesky_ex(a).info, linalg.solve_ex(a, a).info]
    assert counts.executed == 0
    assert [i.item() for i in infos] == [1, 1, 1]


def test_captured_functions_look_at_nothing():
    compiled = torch.compile(linalg.inv, backend="openxla")
    assert compiled(torch.eye(2, device="xla") * 2).diagonal().tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.complex128])
def test_cholesky_tells_which_minor_is_not_positive(dtype, device):
    upper = 2j if dtype.is_complex else 2.0
    a = torch.tensor([[4, upper, 0], [0, -8, 0], [0, 0, 1]], dtype=dtype)
    a = torch.stack([a.triu() + a.triu(1).mH, torch.eye(3, dtype=dtype)])
    want, got = linalg.cholesky_ex(a), linalg.cholesky_ex(a.to(device))
    assert got.info.tolist() == want.info.tolist() == [2, 0]
    torch.testing.assert_close(got.L[1].cpu(), want.L[1])
    with pytest.raises(torch.linalg.LinAlgError, match="minor of order 2 is not"):
        linalg.cholesky(a[0].to(device))
