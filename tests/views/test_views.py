"""Views and writes through them do as PyTorch's on the CPU.

The first test runs random programs (view_programs.py); VIEW_PROGRAMS sets how many. The others are
the cases that have gone wrong, or that the device answers in its own way.
"""

from __future__ import annotations

import itertools
import os
import warnings

import pytest
import torch
import view_programs
from both_devices import check
from counts import counted
from torch import nn

import torch_xla

PROGRAMS = int(os.environ.get("VIEW_PROGRAMS", "2000"))
PER_TEST = 250


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_programs_agree_with_cpu(first):
    failures = view_programs.search(first, min(PER_TEST, PROGRAMS - first))
    assert not failures, "\n" + "\n".join(failures)


def test_write_through_view_reaches_base_and_other_views():
    def program(device):
        x = torch.zeros(4, 6, device=device)
        a, b = x[1:3], x.t()
        a[:, 2].fill_(5)
        b[0] += 1
        return x, a, b

    check(program)


def test_view_made_before_barrier_follows_writes_after_it():
    x = torch.zeros(4, device="xla")
    v = x[1:3]
    torch_xla.sync()
    x.fill_(3)
    torch_xla.sync()
    v.mul_(2)
    assert x.tolist() == [3, 6, 6, 3]
    assert v.tolist() == [6, 6]


def test_reshape_copies_where_cpu_copies():
    def program(device):
        x = torch.arange(6.0, device=device).reshape(2, 3)
        x.t().reshape(-1).add_(1)  # a copy
        x.reshape(3, 2).add_(10)  # a view
        x.t().ravel().add_(100)  # a copy
        x.t().flatten().add_(100)  # a copy
        x.t().contiguous().add_(100)  # a copy
        x.contiguous().add_(1000)  # itself
        return (x,)

    check(program)


def test_reshape_gives_gradients_as_cpu():
    def program(device):
        x = torch.arange(6.0).reshape(2, 3).to(device).requires_grad_()
        y = x * 2
        y.t().reshape(-1).mul_(3)
        z = y.t().contiguous()
        z[0] = 0
        (y.sum() + (z * z).sum()).backward()
        return (x.grad,)

    check(program)


def test_every_tensor_says_it_is_contiguous():
    x = torch.zeros(2, 3, 4, device="xla")
    assert x.transpose(0, 2).is_contiguous()
    assert x.transpose(0, 2).stride() == (1, 4, 12)
    assert x[:, ::2].is_contiguous()


def test_view_accepts_any_shape_of_equal_size():
    x = torch.arange(24.0).reshape(2, 3, 4)
    y = x.to("xla")
    v = y.transpose(1, 2).view(2, 12)
    assert torch.equal(v.cpu(), x.transpose(1, 2).reshape(2, 12))
    v[0, 1] = -1
    assert y[0, 1, 0].item() == -1
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        y.view(5, 5)


def test_write_to_expanded_tensor_raises():
    x = torch.zeros(3, 1, device="xla")
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        x.expand(3, 4).add_(1)
    assert x.sum().item() == 0


def test_write_that_overlaps_what_it_reads_raises():
    for device in ("cpu", "xla"):
        x = torch.arange(5.0, device=device)
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x[1:].add_(x[:-1])
        assert x.tolist() == [0, 1, 2, 3, 4]


def test_part_of_an_expanded_view_can_be_written():
    def program(device):
        x = torch.arange(3.0, device=device)
        x.expand(4, 3)[2] += 1
        y = torch.arange(5.0, device=device)
        y.unfold(0, 3, 1)[1] *= 2
        z = torch.arange(5.0, device=device)
        z.as_strided((3, 3), (1, 1))[0].neg_()
        return x, y, z

    check(program)


def test_as_strided_reaches_beyond_the_view_it_is_called_on():
    def program(device):
        x = torch.arange(12.0, device=device)
        v = x[6:8].as_strided((2, 3), (6, 2), 1)
        v.fill_(-1)
        return x, v

    check(program)
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        torch.zeros(4, device="xla").as_strided((5,), (1,))


def test_views_change_dtype():
    def program(device):
        x = torch.arange(4.0, device=device)
        x.view(torch.int32)[1] = 0
        z = torch.tensor([1 + 2j, 3 - 4j], device=device)
        z.real.mul_(2)
        z.imag[0] = 9
        torch.view_as_real(z)[1, 0] = -7
        w = torch.view_as_complex(torch.ones(3, 2, device=device))
        return x, z, w, x.view(torch.uint8), z.conj().resolve_conj()

    check(program)


def test_in_place_views():
    def program(device):
        x = torch.arange(6.0, device=device).reshape(2, 3)
        y = x.view(-1)
        x.t_()
        x.unsqueeze_(0)
        x[0, 2, 1] = -1
        x.squeeze_(0)
        x.transpose_(0, 1)
        return x, y

    check(program)


def test_split_and_unbind_share_memory():
    def program(device):
        x = torch.zeros(4, 3, device=device)
        a, b = x.split(2)
        a += 1
        for i, row in enumerate(x.unbind(0)):
            row.add_(i)
        x.chunk(2, 1)[1].zero_()
        return x, a, b

    check(program)


def test_gradient_through_writes_to_views():
    def program(device):
        w = torch.arange(12.0).reshape(3, 4).to(device).requires_grad_()
        y = w * 1
        y[0] *= 3
        y[:, 1].mul_(w[:, 2])
        y.t()[3] = w.sum()
        y.diagonal().zero_()
        (y * y).sum().backward()
        return w.grad.clone(), y.detach()  # how often autograd wrote to it is its own affair

    check(program)


def test_write_to_leaf_that_needs_gradients_raises():
    x = torch.zeros(3, device="xla", requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        x[0] = 1
    with torch.no_grad():
        x[0] = 1
    assert x.tolist() == [1, 0, 0]


def test_saved_value_overwritten_raises_in_backward():
    x = torch.ones(3, device="xla", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_tensor_on_another_device_has_no_views_of_the_first():
    x = torch.zeros(4, device="xla")
    v = x[1:]
    y = v.cpu()
    y.fill_(1)
    x.fill_(2)
    assert y.tolist() == [1, 1, 1]
    assert v.to("xla")._base is x
    assert v.to("xla").untyped_storage()._cdata == x.untyped_storage()._cdata
    assert y.to("xla").untyped_storage()._cdata != x.untyped_storage()._cdata


def test_storage_is_shared():
    x = torch.zeros(4, 2, device="xla")
    v = x.t()[1]
    assert v.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert x.clone().untyped_storage()._cdata != x.untyped_storage()._cdata
    assert x.untyped_storage().nbytes() == 32


def test_addresses_tell_memory_from_memory():
    x = torch.zeros(4, 2, device="xla")
    start = x.data_ptr()
    assert start == x.untyped_storage().data_ptr() == x.t().data_ptr() == x.detach().data_ptr()
    assert x[1].data_ptr() == start + 8 and x.view(-1)[-1].data_ptr() == start + 28
    assert x[1:].untyped_storage().data_ptr() == start
    others = [x.clone(), torch.zeros(4, 2, device="xla"), torch.zeros(1, device="xla")]
    ranges = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in [x, *others])
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))
    # It is the memory's, whatever is computed and launched, until the tensor gets other memory.
    x.add_(1)
    torch_xla.sync()
    x.mul_(2)
    assert x.data_ptr() == start == nn.Parameter(x).data_ptr()
    x.set_(others[0])
    assert x.data_ptr() == others[0].data_ptr() != start
    assert torch.zeros(0, device="xla").data_ptr() == 0


def test_addresses_are_none_of_memory():
    addresses = [torch.zeros(2, device="xla").data_ptr() for _ in range(3)]
    assert len(set(addresses)) == 3  # nor used again
    with open("/proc/self/maps") as maps:
        mapped = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    for address in addresses:
        assert not any(begin <= address < end for begin, end in mapped)
        # No address of a program: bits 47 and above are equal in those.
        assert address >> 47 not in (0, (1 << 17) - 1)


def test_chain_of_views_is_read_once_per_write():
    x = torch.zeros(8, 8, device="xla")
    v = x[1:7].t()[2:5]
    v.add_(1)
    with counted() as counts:
        v.add_(1)
        assert v.sum().item() == 36
        assert v.sum().item() == 36
    assert counts.executed <= 3


@pytest.mark.parametrize("made", [torch.view_as_complex, lambda x: torch.view_as_complex(x) * 1])
def test_as_strided_of_a_conjugates_part_reaches_the_other(made):
    def parts(device):
        z = made((torch.arange(12.0).view(6, 2) + 1).to(device)).view(2, 3)
        return [
            z.mH.imag.as_strided((2, 3), (1, 2), 1).clone(),
            z.conj().real.as_strided((2, 3), (1, 2), 0).clone(),
            z.conj().imag[1:].as_strided((2,), (2,)).clone(),
        ]

    for got, want in zip(parts("xla"), parts("cpu"), strict=True):
        assert torch.equal(got.cpu(), want)


def test_as_strided_of_conjugates_and_negatives():
    def program(device):
        z = torch.complex(torch.arange(12.0), torch.arange(12.0) + 1).reshape(3, 4).to(device)
        whole = z.conj().as_strided((2, 3), (4, 1), 1)
        imag = z.conj().imag.as_strided((2, 2), (8, 2), 1)
        whole.mul_(2)
        return whole.clone(), imag.clone(), z

    check(program)


def test_masked_fill_of_elements_that_repeat():
    def program(device):
        x = torch.arange(10.0, device=device)
        mask = torch.tensor([[True, False, False], [False] * 3, [False, True, False]])
        repeated = x.as_strided((3, 3), (4, 0), 0)
        repeated.masked_fill_(mask.to(device), -1)
        return x, repeated.clone()

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Use of masked_fill_ on expanded")
        check(program)


def test_copies_onto_the_same_elements():
    def program(device):
        x = torch.arange(4.0, device=device)
        repeated = x.as_strided((2, 3), (1, 0), 0)
        repeated.copy_(x.as_strided((2, 3), (1, 0), 0))
        number = torch.tensor(3.0, device=device)
        number.view(1, 1)[0, :] = number
        z = torch.tensor([1 + 2j], device=device)
        z.copy_(z.conj())
        return x, number, z.clone()

    check(program)


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_indexed_writes_of_what_is_written_are_refused(device):
    x = torch.arange(4.0, device=device).reshape(2, 2)
    rows = torch.tensor([0, 1], device=device)
    mask = torch.ones(4, dtype=torch.bool, device=device)
    for write in (
        lambda: x.index_put_((rows,), x),
        lambda: x.__setitem__(rows, x.view(2, 2)),
        lambda: x.view(-1).__setitem__(mask, x.view(-1)),
    ):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write()
    assert x.tolist() == [[0, 1], [2, 3]]


def test_conjugates_of_what_is_written_are_copies():
    def program(device):
        x = torch.tensor([1 + 2j, 3 - 1j, 5j], device=device)
        x[torch.tensor([0, 1], device=device)] = x[2:].conj()
        x[torch.tensor([2], device=device)] = x[2:].conj()
        x.conj()[torch.tensor([0], device=device)] = x[1:2].conj()
        x[1:].add_(x[:-1].conj())
        x.conj()[:-1].mul_(x[1:].conj())
        x[:1].view(1, 1).add_(x[:1].conj(), alpha=2)
        torch.sub(x[1:].conj(), 1, out=x[:-1])
        return x

    assert torch.equal(program("xla").cpu(), program("cpu"))


@pytest.mark.parametrize("device", ["cpu", "xla"])
def test_kernels_that_take_conjugates_refuse_those_of_what_is_written(device):
    x = torch.tensor([[1 + 2j, 3 - 1j, 5j]], device=device).expand(3, 3).clone()
    for write in (
        lambda: x[1:].copy_(x[:-1].conj()),
        lambda: torch.addmm(x[:-1].conj(), x[:2, :2].clone(), x[:2].clone(), out=x[1:]),
    ):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write()


def test_reshaped_result_of_a_write_that_reads_what_it_writes():
    """XLA:CPU once read `x[:, 1:2]` after it was overwritten."""

    def program(device):
        x = torch.arange(2.0, 8.0).reshape(1, 6).to(device)
        torch_xla.sync()
        x[:, 1:].mul_(x[:, 1:2].clone())
        column = x.view(6, 1).clone()
        storage = torch.arange(1.0, 31.0).to(device)
        torch_xla.sync()
        rows = storage.as_strided((3, 1, 2), (4, 0, 2), 2)
        rows.view(1, 6)[:, 1:].mul_(rows[0, :, 1:].clone())
        return column, storage

    check(program)


def test_parts_of_a_0_dim_complex_tensor_by_strides():
    def program(device):
        z = torch.tensor(3 + 4j).to(device)
        return [z.view(1, 1).real.as_strided((), (), 0)]

    check(program)


@pytest.mark.parametrize("later", [torch.sum, lambda t: (t.transpose(0, 2) * t.mT.sum()).sum()])
def test_gradients_of_complex_numbers_as_pairs(device, later):
    found = []
    for where in ("cpu", device):
        torch.manual_seed(0)
        z = torch.randn(2, 3, dtype=torch.complex64).to(where).requires_grad_()
        later(torch.view_as_real(z)).backward()
        found.append(z.grad.cpu())
    torch.testing.assert_close(found[1], found[0])
    # A call of the user's is refused as on the CPU.
    with pytest.raises(RuntimeError, match="last dimension with stride 1"):
        torch.view_as_complex(torch.ones(1, device=device).expand(2, 2))
