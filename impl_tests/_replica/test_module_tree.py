"""impl._replica.module_tree: collection of modules, parameters and buffers."""

from torch import nn

from impl._replica.module_tree import collect_tree


def test_module_after_a_shared_module_is_collected():
    shared, last = nn.Linear(1, 1), nn.BatchNorm1d(1)
    tree = collect_tree(nn.Sequential(shared, shared, last))
    assert tree.modules[1:] == [shared, last]
    assert [id(each) for each in tree.parameters] == [
        id(each) for module in (shared, last) for each in module.parameters()
    ]
    assert len(tree.buffers) == 3
