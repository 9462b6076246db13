"""Random numbers: each device has its own generator, which torch.manual_seed seeds."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

pytestmark = pytest.mark.usefixtures("sim")

DEVICE = "sim:2"


def _binomial_parameters(device):
    return torch.full((20,), 9.0, device=device), torch.full((20,), 0.5, device=device)


SAMPLERS = {
    "randn": lambda device: torch.randn(20, device=device),
    "randperm": lambda device: torch.randperm(20, device=device),
    "binomial": lambda device: torch.binomial(*_binomial_parameters(device)),
    "uniform_": lambda device: torch.empty(20, device=device).uniform_(),
    "dropout": lambda device: functional.dropout(torch.ones(20, device=device)),
    "native_dropout": lambda device: torch.native_dropout(
        torch.ones(20, device=device), 0.5, True
    )[0],
    "gamma": lambda device: torch._standard_gamma(torch.ones(20, device=device)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_same_seed_draws_the_numbers_of_the_cpu(name):
    torch.manual_seed(5)
    expected = SAMPLERS[name]("cpu")
    torch.manual_seed(5)
    first, second = SAMPLERS[name](DEVICE), SAMPLERS[name](DEVICE)
    assert str(first.device) == DEVICE
    torch.testing.assert_close(first.cpu(), expected)
    torch.manual_seed(5)
    assert SAMPLERS[name](DEVICE).equal(first)
    assert not first.equal(second)


@pytest.mark.parametrize("name", SAMPLERS)
def test_sampling_on_a_device_does_not_change_other_generators(name):
    before = [torch.get_rng_state(), torch.sim.get_rng_state(0)]
    state = torch.sim.get_rng_state(DEVICE)
    SAMPLERS[name](DEVICE)
    after = [torch.get_rng_state(), torch.sim.get_rng_state(0)]
    assert all(x.equal(y) for x, y in zip(before, after, strict=True))
    assert not state.equal(torch.sim.get_rng_state(DEVICE))


def test_generator_states_are_saved_and_restored():
    states = torch.sim.get_rng_state_all()
    expected = torch.rand(3, device=DEVICE)
    torch.sim.set_rng_state_all(states)
    assert torch.rand(3, device=DEVICE).equal(expected)
    with torch.random.fork_rng(devices=[2], device_type="sim"):
        inner = torch.rand(3, device=DEVICE)
    assert torch.rand(3, device=DEVICE).equal(inner)


def test_initial_seed_returns_the_seed():
    with torch.sim.device(2):
        torch.sim.manual_seed(7)
        assert torch.sim.initial_seed() == 7
        assert torch.sim.seed() == torch.sim.initial_seed()
    torch.sim.manual_seed_all(8)
    assert {torch.sim.default_generator(index).initial_seed() for index in range(4)} == {8}
    torch.sim.seed_all()


def test_new_generator_draws_on_its_device():
    generator = torch.Generator(DEVICE).manual_seed(3)
    assert str(generator.device) == DEVICE
    copy = generator.clone_state()
    x = torch.randn(3, device=DEVICE, generator=generator)
    assert torch.randn(3, device=DEVICE, generator=copy).equal(x)
    generator.manual_seed(3)
    assert torch.randn(3, device=DEVICE, generator=generator).equal(x)


@pytest.mark.parametrize("other", ["cpu", "sim:1"])
def test_sampling_rejects_generator_of_another_device(other):
    with pytest.raises(RuntimeError, match=f"Expected a 'sim:2' generator .* found '{other}'"):
        torch.randn(3, device=DEVICE, generator=torch.Generator(other))


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_with_the_same_random_numbers(reentrant):
    net = nn.Sequential(nn.Linear(3, 20), nn.Dropout(0.5)).to(DEVICE)
    grads = []
    for run in (net, lambda x: checkpoint.checkpoint(net, x, use_reentrant=reentrant)):
        torch.manual_seed(1)
        x = torch.ones(2, 3, device=DEVICE, requires_grad=True)
        run(x).sum().backward()
        grads.append(x.grad)
    assert grads[0].equal(grads[1])
