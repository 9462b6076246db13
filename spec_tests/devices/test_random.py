"""Random numbers: seeds, generators and their states, for each device."""

import torch

from spec_tests.machine.clauses import clause


def _draw(topology, generator=None):
    devices = topology.devices if generator is None else [generator.device]
    return [torch.rand(4, device=each, generator=generator).tolist() for each in devices]


@clause("devices.random.seeds")
def test_a_seed_repeats_the_numbers_of_all_devices(topology):
    module = torch.get_device_module(topology.device(0))
    for seed in (torch.manual_seed, module.manual_seed_all):
        draws = [(seed(each), _draw(topology))[1] for each in (3, 3, 4)]
        assert draws[0] == draws[1], "one seed gives different numbers"
        assert draws[0] != draws[2], "two seeds give the same numbers"


@clause("devices.random.generators")
def test_a_generator_repeats_its_numbers_and_keeps_those_of_the_device(topology):
    for device in topology.devices:
        torch.manual_seed(5)
        expected = _draw(topology)
        torch.manual_seed(5)
        draws = []
        for _ in range(2):
            generator = torch.Generator(device).manual_seed(3)
            draws.append(_draw(topology, generator))
        assert draws[0] == draws[1], "one seed gives different numbers"
        assert _draw(topology) == expected, "a generator changes the numbers of another"


@clause("devices.random.states")
def test_a_state_repeats_the_numbers_of_one_device(topology):
    module = torch.get_device_module(topology.device(0))
    torch.manual_seed(3)
    states = [module.get_rng_state(device) for device in topology.devices]
    first = _draw(topology)
    for slot in range(topology.distinct):
        second = _draw(topology)
        module.set_rng_state(states[slot], topology.device(slot))
        drawn = torch.rand(4, device=topology.device(slot)).tolist()
        text = f"the state of {topology.device(slot)} gives other numbers"
        assert drawn == first[slot] != second[slot], text
