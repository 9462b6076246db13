"""The module ``torch.sim``: what ``torch.cuda`` is for CUDA."""

import torch

_native = None


def is_available():
    return device_count() > 0


def device_count():
    return _native.device_count()


def current_device():
    return _native.current_device()


def set_device(device):
    torch.accelerator.set_device_index(device)


def is_initialized():
    return True


def _lazy_init():
    pass


def _is_in_bad_fork():
    return _native.in_bad_fork()


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


class _Properties:
    def __init__(self, index):
        self.name = f"sim:{index}"
        self.total_memory = 16 << 30
        self.multi_processor_count = 16


def get_device_properties(device=None):
    return _Properties(_index(device))


def _index(device):
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    return current_device() if device.index is None else device.index


class device:
    def __init__(self, device):
        self.idx = _index(device)

    def __enter__(self):
        self.prev = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *exc):
        torch._C._accelerator_maybeExchangeDevice(self.prev)


def synchronize(device=None):
    torch.accelerator.synchronize(_index(device))


def manual_seed_all(seed):
    for index in range(device_count()):
        _native.default_generator(index).manual_seed(seed)


def manual_seed(seed):
    _native.default_generator(current_device()).manual_seed(seed)


def get_rng_state(device="sim"):
    return _native.default_generator(_index(device)).get_state()


def set_rng_state(new_state, device="sim"):
    _native.default_generator(_index(device)).set_state(new_state)
