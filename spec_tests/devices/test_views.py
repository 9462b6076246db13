"""Views on a device: a write to a view changes the tensor, and only there."""

import torch

from spec_tests.machine.capabilities import require
from spec_tests.machine.clauses import clause

#: Writes to a part of a matrix of zeros with 3 rows and 4 columns.
WRITES = {
    "rows": lambda matrix: matrix[2:].fill_(-1),
    "column": lambda matrix: matrix[:, 1].fill_(2),
    "block": lambda matrix: matrix[1:, 2:].copy_(torch.ones(2, 2, device=matrix.device)),
    "block from the CPU": lambda matrix: matrix[1:, 2:].copy_(torch.ones(2, 2)),
    "transposed": lambda matrix: matrix.t()[3].add_(5),
    "steps": lambda matrix: matrix[::2, ::2].fill_(3),
    "diagonal": lambda matrix: matrix.diagonal().fill_(4),
    "one row": lambda matrix: matrix[1:2].unsqueeze(0)[..., 1:].add_(6),
    "windows": lambda matrix: matrix.unfold(1, 2, 2)[:, 1].fill_(7),
    "out": lambda matrix: torch.add(torch.ones_like(matrix[0]), 1, out=matrix[1]),
}
#: Writes to the real and imaginary parts of complex numbers.
COMPLEX_WRITES = {
    "view_as_real": lambda numbers: torch.view_as_real(numbers)[..., 1].fill_(2),
    "real": lambda numbers: numbers.real.fill_(3),
    "imag": lambda numbers: numbers.imag[1:].add_(4),
    "view_as_complex": lambda numbers: torch.view_as_complex(torch.view_as_real(numbers)).mul_(2),
}


@clause("devices.views.writes")
def test_a_write_to_a_view_changes_its_part_of_the_tensor(topology):
    for name, write in WRITES.items():
        _compare(name, write, torch.zeros(3, 4), topology)


@clause("devices.views.complex")
def test_a_write_to_a_part_of_complex_numbers_changes_them(topology):
    require("complex64")
    for name, write in COMPLEX_WRITES.items():
        _compare(name, write, torch.ones(3) * (1 - 2j), topology)


def _compare(name, write, tensor, topology):
    """Fail unless a write has the same effect on the first device as on the CPU."""
    on_device = tensor.to(topology.device(0))
    write(on_device)
    write(tensor)
    found, expected = on_device.cpu(), tensor
    assert torch.equal(found, expected), f"{name}: {found.tolist()} is not {expected.tolist()}"
